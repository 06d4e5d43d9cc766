package systemd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrEdited says that somebody has changed a unit file since it was written.
var ErrEdited = errors.New("was edited since it was written")

// ErrSlow says that the service manager did not answer in time; what it was asked for may still happen.
var ErrSlow = errors.New("gave no answer in time")

// A File is a unit file to be installed.
type File struct {
	Name string // hermes-supervisor.service
	Text []byte
}

// Written is the text as Install writes it, by which it is known later.
func (f File) Written() []byte { return sealed(f.Text) }

// An Installation is a folder of unit files and the manager that reads it.
type Installation struct {
	Dir   string // where units are
	User  bool   // of the user's own manager
	Force bool   // overwrite and remove what somebody has edited
	// Home is the home whose units these are: a unit of another home, or of another make, is neither overwritten nor removed,
	// with Force neither. Empty: whoever's.
	Home string
	// RunName is the name of the folder of this home's sockets, by which socket units of releases that wrote no home into them
	// are known.
	RunName string
	// Limit bounds each call of the service manager; 0: ten minutes for what waits for the service, one for all else.
	Limit time.Duration
	// Run runs systemctl or systemd-analyze and returns what it printed; nil: the programs of this machine.
	Run func(ctx context.Context, name string, args ...string) (string, error)
}

// seal begins the last line of a file that Install wrote; a hash of all before it follows. Who edits the file breaks it.
const seal = "# Written by `hermes-supervisor systemd install`. Edited by hand it is not overwritten without --force. "

func sealed(text []byte) []byte {
	sum := sha256.Sum256(text)
	return append(bytes.Clone(text), seal+hex.EncodeToString(sum[:8])+"\n"...)
}

// pristine says whether a file is as Install wrote it.
func pristine(content []byte) bool {
	i := bytes.LastIndex(content, []byte(seal))
	return i >= 0 && bytes.Equal(sealed(content[:i]), content)
}

// Changes are the files that a call has written and removed.
type Changes struct {
	Wrote, Removed []string
}

// Install writes the files and lets the manager read them. Files that are as they should be are left alone. Units named unwanted
// must not be beside them, as the socket of a service that is to make its own: those that are ours are stopped, disabled and
// removed. The manager reads its units again in any case: an installation that was killed may have written them and come no
// further. What runs is restarted if its type, its watchdog, or place or holder of its socket has changed. Nothing is written if
// one of all these files was edited by hand or is not ours, or if systemd-analyze refuses one.
func (in Installation) Install(ctx context.Context, files []File, unwanted ...string) (done Changes, err error) {
	write, restart, err := in.compare(files)
	if err != nil {
		return done, err
	}
	away, err := in.present("install", unwanted)
	if err != nil {
		return done, err
	}
	if len(away) > 0 {
		restart = nil
		for _, f := range files { // what runs listens at a file that will be gone
			restart = append(restart, f.Name)
		}
	}
	if len(write) > 0 {
		if err := in.verify(ctx, write); err != nil {
			return done, err
		}
	}
	paused, err := in.pause(ctx, restart)
	if err == nil {
		if len(paused) > 0 {
			restart = nil
		}
		done, err = in.change(ctx, write, away, restart)
	}
	return done, errors.Join(err, in.resume(ctx, paused))
}

// change writes files and takes units away, and restarts services that run.
func (in Installation) change(ctx context.Context, write []File, away, restart []string) (done Changes, err error) {
	if done.Wrote, err = in.write(write); err != nil {
		return done, err
	}
	if err := in.reload(ctx); err != nil {
		return done, err
	}
	if len(away) > 0 {
		if err := in.disable(ctx, away); err != nil {
			return done, err
		}
	}
	if err := in.restart(ctx, restart); err != nil {
		return done, err
	}
	// The last step, so that an installation that was killed before it is done again as a whole.
	done.Removed, err = in.remove(ctx, away)
	return done, err
}

// compare returns the files that are not as they should be, sealed, and the services that must be restarted for it.
func (in Installation) compare(files []File) (write []File, restart []string, err error) {
	for _, f := range files {
		path := filepath.Join(in.Dir, f.Name)
		old, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			write = append(write, File{f.Name, f.Written()})
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("install %s: %w", f.Name, err)
		}
		if err := in.foreign("install", path, old); err != nil {
			return nil, nil, err
		}
		if bytes.Equal(old, f.Written()) {
			continue
		}
		if !pristine(old) && !in.Force {
			return nil, nil, fmt.Errorf("%s %w: compare it with `systemd install --print`, put your changes into a drop-in (systemctl edit), then use --force", path, ErrEdited)
		}
		if kept(old) != kept(f.Text) {
			restart = append(restart, f.Name)
		}
		write = append(write, File{f.Name, f.Written()})
	}
	return write, restart, nil
}

// write puts the files into the folder and returns the paths of those that it came to.
func (in Installation) write(files []File) (wrote []string, err error) {
	if len(files) == 0 {
		return nil, nil
	}
	if err := os.MkdirAll(in.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("install units: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(in.Dir, f.Name)
		if err := replaceFile(path, f.Text); err != nil {
			return wrote, fmt.Errorf("install %s: %w", f.Name, err)
		}
		wrote = append(wrote, path)
	}
	return wrote, nil
}

// replaceFile writes a file that is whole or the old one at every moment.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// verify asks systemd-analyze where it is. Only what it says of our own files counts.
func (in Installation) verify(ctx context.Context, files []File) error {
	dir, err := os.MkdirTemp("", "units-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	args := []string{"verify", "--recursive-errors=no"}
	if in.User {
		args = append(args, "--user")
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := os.WriteFile(path, f.Text, 0o644); err != nil {
			return err
		}
		args = append(args, path)
	}
	out, err := in.run(ctx, "systemd-analyze", args...)
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if errors.Is(err, ErrSlow) || ctx.Err() != nil {
		return fmt.Errorf("systemd-analyze %s: %w", strings.Join(args, " "), err)
	}
	var bad []string
	for line := range strings.Lines(out) {
		for _, f := range files {
			if strings.Contains(line, f.Name) && !strings.Contains(line, "Failed to create") {
				bad = append(bad, strings.TrimSpace(line))
			}
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("systemd-analyze refuses the unit, nothing was written:\n%s", strings.Join(bad, "\n"))
	}
	return nil
}

// Enable makes the manager start the units now and at every boot or login.
func (in Installation) Enable(ctx context.Context, units ...string) error {
	return in.systemctl(ctx, append([]string{"enable", "--now"}, units...)...)
}

// Crowded says whether a service runs without its socket unit: systemd refuses to make the socket of a service that is active.
func (in Installation) Crowded(ctx context.Context, socket, service string) (bool, error) {
	held, err := in.runs(ctx, socket)
	if err != nil || held {
		return false, err
	}
	return in.runs(ctx, service)
}

// MakeRoom stops a service whose socket unit is to be started and is not yet, also one that is about to end by itself.
func (in Installation) MakeRoom(ctx context.Context, socket, service string) error {
	if in.systemctl(ctx, "is-active", "--quiet", socket) == nil {
		return nil
	}
	return in.systemctl(ctx, "stop", service)
}

// Uninstall stops and disables the units and removes their files. Nothing is done if one of them was edited, unless Force is set,
// or is not ours. removed lists what went; none of them being there is no error.
func (in Installation) Uninstall(ctx context.Context, names ...string) (removed []string, err error) {
	there, err := in.present("uninstall", names)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	if err := in.disable(ctx, there); err != nil {
		return nil, err
	}
	return in.remove(ctx, there)
}

// present returns which of the units are there. One that may not be removed is an error.
func (in Installation) present(verb string, names []string) (there []string, err error) {
	for _, name := range names {
		path := filepath.Join(in.Dir, name)
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", verb, name, err)
		}
		if err := in.foreign(verb, path, text); err != nil {
			return nil, err
		}
		if !pristine(text) && !in.Force {
			return nil, fmt.Errorf("%s %w: remove it with --force", path, ErrEdited)
		}
		there = append(there, name)
	}
	return there, nil
}

// remove takes the files of units that are stopped out of the folder, and lets the manager see that they are gone.
func (in Installation) remove(ctx context.Context, names []string) (removed []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	for _, name := range names {
		path := filepath.Join(in.Dir, name)
		if err := os.Remove(path); err != nil {
			return removed, fmt.Errorf("remove unit: %w", err)
		}
		removed = append(removed, path)
	}
	return removed, in.reload(ctx)
}

// disable stops the units and takes them out of the boot. Without a manager that runs there is nothing to stop, and without
// systemctl at all nothing was enabled by Enable.
func (in Installation) disable(ctx context.Context, units []string) error {
	err := in.systemctl(ctx, append([]string{"disable", "--now"}, units...)...)
	if err == nil || !notRunning(err) {
		return err
	}
	if err := in.systemctl(ctx, append([]string{"disable"}, units...)...); err != nil && !notRunning(err) {
		return err
	}
	return nil
}

// reload lets the manager read its units again. Without a manager that runs (a chroot, an image) there is nobody to read.
func (in Installation) reload(ctx context.Context) error {
	if err := in.systemctl(ctx, "daemon-reload"); err != nil && !notRunning(err) {
		return err
	}
	return nil
}

func notRunning(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || strings.Contains(err.Error(), "not been booted with systemd") ||
		strings.Contains(err.Error(), "Failed to connect to bus")
}

func (in Installation) systemctl(ctx context.Context, args ...string) error {
	args = in.scoped(args...)
	out, err := in.run(ctx, "systemctl", args...)
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
	}
	return nil
}

// scoped are the arguments of a systemctl that asks the manager of this installation.
func (in Installation) scoped(args ...string) []string {
	if in.User {
		return append([]string{"--user"}, args...)
	}
	return args
}

// limit bounds a call: a start waits until the supervisor serves, which TimeoutStartSec bounds to three minutes, and a stop for
// its drain. All else is answered at once by a manager that is well.
func (in Installation) limit(args []string) time.Duration {
	if in.Limit > 0 {
		return in.Limit
	}
	for _, verb := range []string{"enable", "disable", "start", "stop", "restart", "try-restart"} {
		if slices.Contains(args, verb) {
			return 10 * time.Minute
		}
	}
	return time.Minute
}

func (in Installation) run(ctx context.Context, name string, args ...string) (string, error) {
	if in.Run != nil {
		return in.Run(ctx, name, args...)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", exec.ErrNotFound
	}
	limit := in.limit(args)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("waited %s: the service manager %w", limit, ErrSlow)
	}
	return string(out), err
}
