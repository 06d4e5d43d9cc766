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

// ErrForeign says that a unit serves another home than the one it was to be written or removed for.
var ErrForeign = errors.New("serves another home")

// ErrSlow says that the service manager did not answer in time; what it was asked for may still happen.
var ErrSlow = errors.New("gave no answer in time")

// A File is a unit file to be installed.
type File struct {
	Name string // hermes-supervisor.service
	Text []byte
}

// An Installation is a folder of unit files and the manager that reads it.
type Installation struct {
	Dir   string // where units are
	User  bool   // of the user's own manager
	Force bool   // overwrite and remove what somebody has edited
	// Home is the home whose units these are: a service of another home is neither overwritten nor removed, with Force
	// neither. Empty: whoever's.
	Home string
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

// Install writes the files and lets the manager read them. Files that are as they should be are left alone; changed lists
// those that were written. The manager reads its units again in any case: an installation that was killed may have written them
// and come no further. A service that runs is restarted if its type or its watchdog has changed. Nothing is written if one of
// them was edited by hand, or if systemd-analyze refuses one.
func (in Installation) Install(ctx context.Context, files ...File) (changed []string, err error) {
	var write []File
	var restart []string
	for _, f := range files {
		old, err := os.ReadFile(filepath.Join(in.Dir, f.Name))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("install %s: %w", f.Name, err)
		case in.foreign(old) != "":
			return nil, fmt.Errorf("%s %w, %s: choose another name with --name, or remove it first: systemd uninstall --home %[3]s",
				filepath.Join(in.Dir, f.Name), ErrForeign, in.foreign(old))
		case bytes.Equal(old, sealed(f.Text)):
			continue
		case !pristine(old) && !in.Force:
			return nil, fmt.Errorf("%s %w: compare it with `systemd install --print`, put your changes into a drop-in (systemctl edit), then use --force", filepath.Join(in.Dir, f.Name), ErrEdited)
		}
		if old != nil && kept(old) != kept(f.Text) {
			restart = append(restart, f.Name)
		}
		write = append(write, File{f.Name, sealed(f.Text)})
	}
	if len(write) == 0 {
		return nil, in.reload(ctx)
	}
	if err := in.verify(ctx, write); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(in.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("install units: %w", err)
	}
	for _, f := range write {
		path := filepath.Join(in.Dir, f.Name)
		if err := replaceFile(path, f.Text); err != nil {
			return changed, fmt.Errorf("install %s: %w", f.Name, err)
		}
		changed = append(changed, path)
	}
	if err := in.reload(ctx); err != nil {
		return changed, err
	}
	for _, name := range restart {
		if err := in.systemctl(ctx, "try-restart", name); err != nil && !notRunning(err) {
			return changed, err
		}
	}
	return changed, nil
}

// kept returns the lines of a service file that a running service must not be given by a reload of the manager alone: one that gets
// a watchdog while it runs is killed within a second, as its last ping is old.
func kept(text []byte) (lines string) {
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Type=") || strings.HasPrefix(line, "WatchdogSec=") {
			lines += line
		}
	}
	return lines
}

// foreign returns the home that a service file serves if it is not ours, else nothing. A file of another make names none.
func (in Installation) foreign(text []byte) string {
	if in.Home == "" {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		start, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=")
		if !ok {
			continue
		}
		_, rest, ok := strings.Cut(start, " --home ")
		word, isRun := strings.CutSuffix(rest, " run")
		if ok && isRun && word != unitWord(in.Home) {
			return word
		}
	}
	return ""
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

// MakeRoom stops a service that runs without its socket unit: systemd refuses to make the socket of a service that is
// active already.
func (in Installation) MakeRoom(ctx context.Context, socket, service string) error {
	if in.systemctl(ctx, "is-active", "--quiet", socket) == nil {
		return nil
	}
	return in.systemctl(ctx, "stop", service)
}

// Uninstall stops and disables the units and removes their files. A file that somebody edited stays unless Force is set.
// removed lists what went; none of them being there is no error.
func (in Installation) Uninstall(ctx context.Context, names ...string) (removed []string, err error) {
	var paths, there []string
	for _, name := range names {
		path := filepath.Join(in.Dir, name)
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("uninstall %s: %w", name, err)
		}
		if other := in.foreign(text); other != "" {
			return nil, fmt.Errorf("%s %w, %s: nothing was stopped or removed; say --home %[3]s if that one is meant, or --name", path, ErrForeign, other)
		}
		if !pristine(text) && !in.Force {
			return nil, fmt.Errorf("%s %w: remove it with --force", path, ErrEdited)
		}
		paths, there = append(paths, path), append(there, name)
	}
	if len(paths) == 0 {
		return nil, nil
	}
	if err := in.disable(ctx, there); err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			return removed, fmt.Errorf("uninstall: %w", err)
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
	if in.User {
		args = append([]string{"--user"}, args...)
	}
	out, err := in.run(ctx, "systemctl", args...)
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out))
	}
	return nil
}

// limit bounds a call: a start waits until the supervisor serves, which TimeoutStartSec bounds to three minutes, and a stop for
// its drain. All else is answered at once by a manager that is well.
func (in Installation) limit(args []string) time.Duration {
	if in.Limit > 0 {
		return in.Limit
	}
	for _, verb := range []string{"enable", "disable", "stop", "try-restart"} {
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
