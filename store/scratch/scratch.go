// Package scratch makes folders for work that is thrown away or published when it is done, of which a process that is
// killed in the middle must not leave one behind each time.
//
// Rules: a folder is locked by the process that works in it. The kernel drops the lock when that process ends, however it
// ends, so a number in a name need not be believed: numbers of processes are used again, and mean nothing in another
// container. Who makes the next folder of a kind removes those of the same kind that nobody holds.
package scratch

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// unlockable is the age at which a folder on a file system without locks counts as left behind.
	unlockable = 24 * time.Hour
	// Another process that removes a folder of the same name needs a moment for that.
	tries = 100
	pause = 10 * time.Millisecond
)

// A Folder belongs to this process until it is removed or published.
type Folder struct {
	Path string
	lock *os.File // nil on a file system without locks
}

// Make makes an empty folder at path and its parents, for this user alone. One that is there already is an error.
func Make(path string) (*Folder, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		f, err := take(path)
		again := errors.Is(err, errTaken) || try > 0 && errors.Is(err, fs.ErrExist) // which is about to be removed
		if !again || try == tries {
			return f, err
		}
		time.Sleep(pause)
	}
}

// errTaken says that another process took a new folder for one that was left behind.
var errTaken = errors.New("the folder was removed by another process")

func take(path string) (*Folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(errTaken, err)
	}
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(errTaken, lock.Close())
	case err != nil:
		return &Folder{Path: path}, lock.Close()
	}
	here, err := lock.Stat()
	if there, terr := os.Stat(path); err != nil || terr != nil || !os.SameFile(here, there) {
		return nil, errors.Join(errTaken, lock.Close())
	}
	return &Folder{Path: path, lock: lock}, nil
}

// Temp makes a folder in dir, or where it is empty in the usual folder for temporary files, after removing the abandoned
// ones. The star of name is replaced by something that no other folder has.
func Temp(dir, name string) (*Folder, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	_, _ = Sweep(filepath.Join(Literal(dir), name)) // what cannot be removed now is left to the next
	return Make(filepath.Join(dir, strings.Replace(name, "*", strings.ToLower(rand.Text()), 1)))
}

// Remove removes the folder with what is in it, or, when it has another name by now, lets that be.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.Path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// Abandoned returns the folders that match a pattern and that no process works in.
func Abandoned(pattern string) (list []string) {
	found, _ := filepath.Glob(pattern)
	for _, path := range found {
		if lock, ok := abandoned(path); ok {
			list = append(list, path)
			_ = lock.Close()
		}
	}
	return list
}

// Sweep removes the abandoned folders that match a pattern, and returns them.
func Sweep(pattern string) (removed []string, err error) {
	found, _ := filepath.Glob(pattern)
	for _, path := range found {
		lock, ok := abandoned(path)
		if !ok {
			continue
		}
		err = errors.Join(err, os.RemoveAll(path), lock.Close())
		removed = append(removed, path)
	}
	return removed, err
}

// abandoned says that nobody works in a folder, and returns it opened and, where that can be, locked.
func abandoned(path string) (lock *os.File, ok bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return nil, false
	}
	if lock, err = os.Open(path); err != nil {
		return nil, false
	}
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return lock, true
	case !errors.Is(err, unix.EWOULDBLOCK) && time.Since(info.ModTime()) > unlockable:
		return lock, true
	}
	_ = lock.Close()
	return nil, false
}

// Literal quotes a path for a pattern of Sweep and Abandoned.
func Literal(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
