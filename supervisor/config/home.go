package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Home returns the home to use: flag if it is set, else $HERMES_HOME, else ~/.hermes.
func Home(flag string) (string, error) {
	home := or(flag, os.Getenv("HERMES_HOME"))
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", invalid("no home: $HOME is not set; use --home or HERMES_HOME")
		}
		home = filepath.Join(user, ".hermes")
	}
	return expand(home)
}

// expand makes a path absolute and replaces a leading ~, which a configuration file or a unit passes unexpanded.
func expand(path string) (string, error) {
	if path == "~" || strings.HasPrefix(path, "~/") {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", invalid("%s: $HOME is not set", path)
		}
		path = filepath.Join(user, path[1:])
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", invalid("%s: %v", path, err)
	}
	return abs, nil
}

// checkHome says what is wrong with a home that exists.
func checkHome(home string) error {
	info, err := os.Stat(home)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return invalid("home %s: %v", home, reason(err))
	case !info.IsDir():
		return invalid("home %s is a file, not a folder; choose another with --home or HERMES_HOME", home)
	}
	return nil
}

// Prepare makes a home usable: it is created if it is not there, and this user must be allowed to write. On a file system
// that takes no writes it is used all the same: the stores say so and refuse writes, until it does.
func Prepare(home string) error {
	if err := checkHome(home); err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return invalid("cannot create home %s: %v", home, reason(err))
	}
	probe, err := os.CreateTemp(home, ".write-check-*")
	if err != nil && (errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		return nil
	}
	if err != nil {
		return invalid("home %s is not writable for user %d: %v", home, os.Getuid(), reason(err))
	}
	_ = probe.Close()
	return os.Remove(probe.Name())
}

const (
	runName = "hermes-supervisor"
	// controlName is the control socket inside a run directory.
	controlName = "control.sock"
	// maxSocketPath is what fits into sockaddr_un (108 with the closing zero).
	maxSocketPath = 107
	// maxSocketName is room for the longest name of a socket below a run directory, after a slash: go-plugin makes
	// plugin-dirN/pluginN, each N a number of up to ten digits.
	maxSocketName = 37
)

// RunDir returns the run directory of a home in the usual place and makes sure that it is there and private.
func RunDir(home string) (string, error) { return RunDirIn("", home) }

// RunDirIn is RunDir with the folder that holds one run directory a home; empty means the usual one.
func RunDirIn(base, home string) (string, error) {
	if base == "" {
		return usualRunDir(home)
	}
	base, err := expand(base)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, RunName(home))
	if n := len(dir) + 1 + maxSocketName; n > maxSocketPath {
		return "", invalid("run directory %s is too long: sockets in it would have %d bytes, the system allows %d; choose a shorter one with --run-dir", dir, n, maxSocketPath)
	}
	for _, d := range []string{base, dir} {
		if err := private(d); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// TempBase makes a folder for the run directory of one command, to be removed by the caller. It is where run directories
// usually are, not in $TMPDIR, whose path may be long, nor in that of a service, with which it would go.
func TempBase() (string, error) {
	var first error
	for _, base := range usualBases("") {
		err := private(base)
		if err == nil {
			var dir string
			if dir, err = os.MkdirTemp(base, "q-"); err == nil {
				return dir, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// usualRunDir uses the first usual place where a run directory can be made; the error is that of the first.
func usualRunDir(home string) (string, error) {
	var first error
	for _, base := range usualBases(home) {
		dir, err := RunDirIn(base, home)
		if err == nil {
			return dir, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// usualBases lists where run directories are, the one to use first, with that of a home's service unless home is empty.
func usualBases(home string) []string {
	return basesWith(home, home != "" && owned(ServiceBase(home)))
}

func basesWith(home string, service bool) (bases []string) {
	if xdg := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(xdg) {
		bases = append(bases, filepath.Join(xdg, runName))
	}
	if service {
		bases = append(bases, ServiceBase(home))
	}
	// systemd makes this one for the services of earlier releases, of another user than root.
	if system := filepath.Join("/run", runName); os.Getuid() == 0 || owned(system) {
		bases = append(bases, system)
	}
	return append(bases, tempBase(os.Getuid()))
}

// clientBases are the places where a client of a home looks: its supervisor may have been started with another environment, or
// by systemd as another user.
func clientBases(home string) []string {
	return append(basesWith(home, true), userBase(os.Getuid()))
}

// ServiceBase is what systemd makes for the system's service of a home. Each has one of its own, as it goes when the service
// stops, with all that is in it.
func ServiceBase(home string) string { return filepath.Join("/run", runName+"-"+RunName(home)) }

// userBase is where the supervisor of a user is who has logged in.
func userBase(uid int) string { return fmt.Sprintf("/run/user/%d/%s", uid, runName) }

// tempBase is where the supervisor of a user is who has no better place.
func tempBase(uid int) string { return fmt.Sprintf("/tmp/%s-%d", runName, uid) }

// ownersSockets are the control sockets of a home where its owner's supervisor may have one, for root, who may ask each. In /tmp
// anybody could have made one, so it must be the owner's.
func ownersSockets(home string) (paths []string) {
	info, err := os.Stat(home)
	if err != nil || ownerOf(info) == os.Getuid() {
		return nil
	}
	owner := ownerOf(info)
	for _, b := range []string{userBase(owner), tempBase(owner)} {
		path := SocketPath(filepath.Join(b, RunName(home)))
		if info, err := os.Stat(path); err == nil && ownerOf(info) == owner {
			paths = append(paths, path)
		}
	}
	return paths
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func owned(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && ownerOf(info) == os.Getuid()
}

func ownerOf(info os.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// private makes dir a folder of this user that nobody else may enter. In /tmp another user could have put it
// there first.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return invalid("cannot create run directory %s: %v; choose another with --run-dir", dir, reason(err))
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return invalid("run directory %s: %v", dir, reason(err))
	}
	if err := ours(dir, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return invalid("run directory %s: %v", dir, reason(err))
		}
	}
	return nil
}

// ours returns an error if dir, of which info is, is not a folder of this user.
func ours(dir string, info os.FileInfo) error {
	if !info.IsDir() {
		return invalid("run directory %s is not a folder; choose another with --run-dir", dir)
	}
	if uid := ownerOf(info); uid != os.Getuid() {
		return invalid("run directory %s belongs to user %d, not to %d; choose another with --run-dir", dir, uid, os.Getuid())
	}
	return nil
}

// RunName names the run directory of a home in a few characters, as socket paths must be short. The path is made real first, so that
// two spellings of one home meet.
func RunName(home string) string {
	if abs, err := filepath.Abs(home); err == nil {
		home = abs
	}
	sum := sha256.Sum256([]byte(realPath(home)))
	return hex.EncodeToString(sum[:5])
}

// realPath resolves symbolic links of as much of a path as exists, so that the result stays when the rest is made.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(realPath(parent), filepath.Base(path))
}

// SocketPath returns the control socket of a run directory.
func SocketPath(runDir string) string { return filepath.Join(runDir, controlName) }

// FindSocket returns the control socket that a client of a home should dial: that in base or, if base is empty, the first in the
// usual places, which are also those of the home's owner, that answers or at least exists; if none does, the one where it would be.
func FindSocket(base, home string) (string, error) {
	if base != "" {
		base, err := expand(base)
		return SocketPath(filepath.Join(base, RunName(home))), err
	}
	there := append(clientSockets(home), ownersSockets(home)...)
	if len(there) == 0 {
		first := usualBases(home)[0]
		return SocketPath(filepath.Join(first, RunName(home))), foreign(first, home)
	}
	// One that a killed supervisor left is told from another's by asking, which is needless where there is no other.
	if len(there) > 1 {
		return there[max(0, slices.IndexFunc(there, answers))], nil
	}
	return there[0], nil
}

// clientSockets are the control sockets of a home that are there for a client to ask.
func clientSockets(home string) (paths []string) {
	for _, b := range clientBases(home) {
		path := SocketPath(filepath.Join(b, RunName(home)))
		if _, err := os.Stat(path); err == nil && foreign(b, home) == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// foreign returns an error if base is where anybody may make it, as /tmp is, and it is neither this user's nor that of the home's
// owner, as whom a service runs: what answers there could be anybody's.
func foreign(base, home string) error {
	place, err := os.Stat(filepath.Dir(base))
	if err != nil || place.Mode().Perm()&0o002 == 0 {
		return nil
	}
	info, err := os.Lstat(base)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return invalid("run directory %s: %v", base, reason(err))
	}
	if owner, err := os.Stat(home); err == nil && info.IsDir() && ownerOf(info) == ownerOf(owner) {
		return nil
	}
	return ours(base, info)
}

// answerLimit bounds the connect to a socket of this machine, which succeeds or fails at once.
const answerLimit = time.Second

// answers says whether somebody is behind a socket that is there, also one who is too busy to accept.
func answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, answerLimit)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, os.ErrPermission) && !errors.Is(err, os.ErrNotExist)
}
