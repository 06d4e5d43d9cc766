package backup

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// A File is one that a backup holds, by its path in the home.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Files lists what a whole backup would hold, and what it would leave out. Databases are listed with the size of their file,
// without their WAL.
func Files(home string) (list []File, left []LeftOut, err error) {
	leave := func(name string, err error) { left = append(left, LeftOut{name, reason(err)}) }
	err = walk(context.Background(), home, visitor{leftOut: leave, link: func(string) {}, file: func(path, name string) error {
		info, err := os.Stat(path)
		if err == nil {
			err = unix.Access(path, unix.R_OK)
		}
		switch {
		case err == nil:
			list = append(list, File{name, info.Size()})
		case !errors.Is(err, fs.ErrNotExist):
			leave(name, err)
		}
		return nil
	}})
	if err != nil {
		return nil, nil, fmt.Errorf("list the files of %s: %w", home, err)
	}
	return list, left, nil
}

// QuickFiles lists what a snapshot would hold, and what it would leave out.
func QuickFiles(home string) (list []File, left []LeftOut) {
	names, left := quickNames(home)
	for _, name := range names {
		path := filepath.Join(home, name)
		info, err := os.Stat(path)
		if err == nil {
			err = unix.Access(path, unix.R_OK)
		}
		switch {
		case gone(err):
		case err != nil:
			left = append(left, LeftOut{name, reason(err)})
		case info.Mode().IsRegular():
			list = append(list, File{name, info.Size()})
		}
	}
	return list, left
}

// KeepZips removes all but the newest backups with the usual name from a folder, and returns what it removed. One that something
// is missing in, or that is no backup, does not push out a whole one: of each kind the newest stay. Other files are left alone.
func KeepZips(dir string, keep int) (removed []string, err error) {
	found, _ := filepath.Glob(filepath.Join(scratch.Literal(dir), "hermes-backup-*.zip"))
	found = slices.DeleteFunc(found, func(path string) bool {
		stamp := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "hermes-backup-"), ".zip")
		_, err := time.Parse(zipStamp, stamp)
		return err != nil
	})
	slices.Sort(found)
	slices.Reverse(found)
	removed = []string{}
	for _, path := range excess(found, keep, isWhole) {
		if rerr := os.Remove(path); rerr != nil {
			err = errors.Join(err, fmt.Errorf("remove an old backup: %w", rerr))
			continue
		}
		removed = append(removed, path)
	}
	return removed, err
}

// isWhole says that a file is a backup in which nothing is missing.
func isWhole(path string) bool {
	z, err := zip.OpenReader(path)
	if err != nil {
		return false
	}
	defer func() { _ = z.Close() }()
	return !slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == leftOutName })
}

// ErrRunning says that another backup of the home is being made.
var ErrRunning = errors.New("another backup of this home is already running")

const (
	lockName = ".backup.lock" // Hermes' own backups take it too
	lockWait = 250 * time.Millisecond
	lockLook = 25 * time.Millisecond
)

// Lock keeps other backups of a home from running until unlock. The file stays: whoever removed it could remove another's.
func Lock(home string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(home, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the home for a backup: %w", err)
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(lockLook) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK): // a file system without locks: two backups at once are only slower
			return func() { _ = f.Close() }, nil
		case time.Now().After(end):
			return nil, errors.Join(ErrRunning, f.Close())
		}
	}
}
