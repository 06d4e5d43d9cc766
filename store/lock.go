package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LockFile is the file in a home that its one owner holds locked.
const LockFile = "hermes-supervisor.lock"

// ErrLocked says that another process owns the home; errors.As a *LockedError names it.
var ErrLocked = errors.New("home is in use")

// A LockedError names the process that owns a home.
type LockedError struct {
	Home string
	PID  int // 0 if it could not be read
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("home %s is in use by another process", e.Home)
	}
	return fmt.Sprintf("home %s is in use by process %d", e.Home, e.PID)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// A HomeLock is the right to open a home's databases for writing. The kernel drops it when the process ends, however
// it ends, so a killed owner never blocks the next.
type HomeLock struct{ file *os.File }

// LockHome takes the lock of a home or returns a *LockedError at once.
func LockHome(home string) (*HomeLock, error) {
	path := filepath.Join(home, LockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock home: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{Home: home, PID: readPID(f)}
		}
		return nil, fmt.Errorf("lock home %s: %w", path, err)
	}
	if err := writePID(f, os.Getpid()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock home %s: %w", path, err)
	}
	return &HomeLock{file: f}, nil
}

// Unlock gives the home back.
func (l *HomeLock) Unlock() error { return l.file.Close() }

func writePID(f *os.File, pid int) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}

// readPID returns the pid in f, or 0: the owner may be between taking the lock and writing it.
func readPID(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}
