package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
type HomeLock struct {
	files []*os.File
	file  *os.File  // LockFile, nil on a file system that takes no writes
	heard time.Time // of the last Beat before this lock was taken
}

// LockHome takes the lock of a home or returns a *LockedError at once. The folder is locked and the file in it: the folder
// can be on a file system that takes no writes, and only the file can on NFS.
func LockHome(home string) (*HomeLock, error) {
	l := &HomeLock{}
	if err := l.lock(home); err != nil {
		_ = l.Unlock()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &LockedError{Home: home, PID: ownerOf(home)}
		}
		return nil, fmt.Errorf("lock home: %w", err)
	}
	return l, nil
}

func (l *HomeLock) lock(home string) error {
	dir, err := os.Open(home)
	if err != nil {
		return err
	}
	l.files = append(l.files, dir)
	folderErr := tryLock(dir)
	if errors.Is(folderErr, unix.EWOULDBLOCK) {
		return folderErr
	}
	path := filepath.Join(home, LockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if cannotWrite(err) && folderErr == nil {
		return nil
	}
	if err != nil {
		return err
	}
	l.files = append(l.files, file)
	if err := tryLock(file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	l.file = file
	_, l.heard = readOwner(file)
	if err := writeOwner(file, os.Getpid(), l.heard); err != nil && !(cannotWrite(err) && folderErr == nil) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Heard is when the supervisor before was last heard of, zero if that is not known. Other holders of the lock leave it as it is.
func (l *HomeLock) Heard() time.Time { return l.heard }

// Beat notes in the home that its supervisor lives, so that the next one can tell when it was killed. Where nothing can be
// written nothing is noted.
func (l *HomeLock) Beat(now time.Time) {
	if l.file != nil {
		_ = writeOwner(l.file, os.Getpid(), now)
	}
}

func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// cannotWrite says that a file system takes no writes, for now.
func cannotWrite(err error) bool {
	for _, e := range []error{erofs, enospc, edquot, fs.ErrPermission, unix.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Unlock gives the home back.
func (l *HomeLock) Unlock() (err error) {
	for _, f := range l.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// ownerOf reads who has locked a home. It is 0 if it cannot be told: an owner that could not write left the number of an
// earlier one, whose lock is free.
func ownerOf(home string) int {
	f, err := os.Open(filepath.Join(home, LockFile))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0
	}
	pid, _ := readOwner(f)
	return pid
}

// writeOwner writes who has the lock, and when the supervisor was last heard of, if that is known.
func writeOwner(f *os.File, pid int, heard time.Time) error {
	text := strconv.Itoa(pid) + "\n"
	if !heard.IsZero() {
		text += heard.UTC().Format(time.RFC3339) + "\n"
	}
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

// readOwner reads what writeOwner wrote; what cannot be read is zero. The owner may be between taking the lock and writing.
func readOwner(f *os.File) (pid int, heard time.Time) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 64))
	if err != nil {
		return 0, time.Time{}
	}
	number, rest, _ := strings.Cut(string(b), "\n")
	if pid, err = strconv.Atoi(strings.TrimSpace(number)); err != nil {
		return 0, time.Time{}
	}
	heard, _ = time.Parse(time.RFC3339, strings.TrimSpace(rest))
	return pid, heard
}
