package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// remote are file systems on which the shared memory or the locks of WAL do not work, by their magic number.
var remote = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB",
	0x01021997: "9p",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0x5346414f: "AFS",
	0x65735546: "FUSE", // sshfs, virtiofs and others; a local one is slower this way and loses nothing
}

// A place is what matters of the file system of a folder.
type place struct {
	remote   string // its kind, if a WAL loses data there
	readOnly bool
}

// lookAt is what the kernel says of the file system of a folder; tests say it in its place.
var lookAt = func(dir string) (kind uint32, readOnly bool, err error) {
	var st unix.Statfs_t
	err = unix.Statfs(dir, &st)
	return uint32(st.Type), st.Flags&unix.ST_RDONLY != 0, err
}

// placeOf looks at the folder, or at the nearest one above it that exists.
func placeOf(dir string) (p place, err error) {
	kind, readOnly, err := lookAt(dir)
	for errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		kind, readOnly, err = lookAt(dir)
	}
	if err != nil {
		return p, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return place{remote: remote[kind], readOnly: readOnly}, nil
}

// FileSystem names the file system of a folder if a WAL loses data on it, and says whether it takes writes.
func FileSystem(dir string) (remote string, readOnly bool, err error) {
	p, err := placeOf(dir)
	return p.remote, p.readOnly, err
}

// resolve is the path that SQLite uses: it puts the WAL beside the file that a link leads to.
func resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// prepareFile makes the directory and an empty file if they are not there, and keeps others out of both. It opens no
// file that exists: closing one would drop the locks of other stores in this process.
func prepareFile(path string) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return true, f.Close()
	}
	if !os.IsExist(err) {
		return false, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	if !st.Mode().IsRegular() {
		return false, fmt.Errorf("%w: not a file", ErrInvalid)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(path+suffix, 0o600); err != nil && !os.IsNotExist(err) {
			return false, err
		}
	}
	return false, nil
}

func sizeOf(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}
