package catalogue

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxProgram bounds a program: a static one with everything in it has some 100 MiB.
const maxProgram = 1 << 30

// A Staged is a copy of a program in the catalogue that no entry names yet.
type Staged struct {
	SHA256 string
	Size   int64
}

// Stage copies a program into the catalogue, where it is named by its checksum. Whoever copies it makes sure by that that
// what is looked at now is what runs later. A file that others can write to is refused: they could change it while a
// person thinks about granting.
func (c *Catalogue) Stage(path string) (Staged, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.makeFolders(); err != nil {
		return Staged{}, err
	}
	src, err := openSafe(path, unix.O_NONBLOCK) // a pipe must not hold us up
	if err != nil {
		return Staged{}, fmt.Errorf("add %s: %w", path, err)
	}
	defer func() { _ = src.Close() }()
	if st, err := src.Stat(); err != nil || st.Mode()&0o111 == 0 {
		return Staged{}, fmt.Errorf("add %s: it is not executable: chmod +x it", path)
	}
	dir := filepath.Join(c.dir, programs)
	dst, err := os.CreateTemp(dir, ".staged-")
	if err != nil {
		return Staged{}, fmt.Errorf("add %s: %w", path, err)
	}
	defer func() { _ = os.Remove(dst.Name()) }() // gone by then, if all went well
	defer func() { _ = dst.Close() }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(dst, sum), io.LimitReader(src, maxProgram+1))
	switch {
	case err != nil:
		return Staged{}, fmt.Errorf("copy %s: %w", path, err)
	case n == 0 || n > maxProgram:
		return Staged{}, fmt.Errorf("copy %s: a program has 1 byte to 1 GiB", path)
	}
	if err := errors.Join(dst.Chmod(0o500), dst.Sync()); err != nil {
		return Staged{}, fmt.Errorf("copy %s: %w", path, err)
	}
	s := Staged{SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n}
	if err := os.Rename(dst.Name(), filepath.Join(dir, s.SHA256)); err != nil {
		return Staged{}, fmt.Errorf("copy %s: %w", path, err)
	}
	return s, syncFolder(dir)
}

// Unstage removes a staged program again, unless an entry names it by now.
func (c *Catalogue) Unstage(s Staged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.SHA256 == s.SHA256 {
			return
		}
	}
	_ = os.Remove(filepath.Join(c.dir, programs, s.SHA256))
}

// A ChangedError says that a program is not what was added.
type ChangedError struct {
	Plugin, Path string
	Want, Got    string // checksums
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("plugin %s: %v: %s has sha256 %s, it was added with %s; add it again if that is meant", e.Plugin, ErrChanged, e.Path, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrChanged) true.
func (e *ChangedError) Unwrap() error { return ErrChanged }

// Program opens the program of an entry and verifies what it opened. The file must be executed through the descriptor
// that is returned; it has close-on-exec.
//
// While the descriptor, or a copy of it in another process, is open, nobody can open the file for writing, where the
// file system has leases; and from the execution on the kernel refuses it. So the bytes that were verified are those
// that run.
func (c *Catalogue) Program(e Entry) (*os.File, error) {
	path := filepath.Join(c.dir, programs, e.SHA256)
	for _, dir := range []string{c.dir, filepath.Dir(path)} {
		if err := safeFolder(dir); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", e.Name, err)
		}
	}
	f, err := openSafe(path, unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("plugin %s: its program %s is missing: add it again", e.Name, path)
	}
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", e.Name, err)
	}
	if err := lease(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("plugin %s: %s: %w", e.Name, path, err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("plugin %s: read its program: %w", e.Name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != e.SHA256 {
		_ = f.Close()
		return nil, &ChangedError{Plugin: e.Name, Path: path, Want: e.SHA256, Got: got}
	}
	return f, nil
}

// lease keeps writers out while the file is verified and until it is executed, and refuses a file that one has open
// already. A file system without leases, or a file of root's, goes without: there a writer of the same user has some
// milliseconds, and nobody else has any.
func lease(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = conn.Control(func(fd uintptr) { _, refused = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK) })
	if errors.Is(refused, unix.EAGAIN) {
		return fmt.Errorf("%w: a process has it open for writing", ErrUnsafe)
	}
	return err
}

// openSafe opens a regular file that belongs to this user or root and that nobody else can write to.
func openSafe(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = safe(path, st)
	}
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func readSafe(path string) ([]byte, error) {
	f, err := openSafe(path, unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxLockFile+1))
}

// safeFolder refuses a folder in which others can replace files.
func safeFolder(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is not a folder", path)
	}
	return safe(path, st)
}

func safe(path string, st fs.FileInfo) error {
	if st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s has mode %04o: chmod go-w it, after a look at what was done with it", ErrUnsafe, path, st.Mode().Perm())
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return ownedByUs(path, int(sys.Uid))
	}
	return nil
}

// ownedByUs refuses what belongs to a user who could change it at any time.
func ownedByUs(path string, uid int) error {
	if own := os.Geteuid(); uid != own && uid != 0 {
		return fmt.Errorf("%w: %s belongs to user %d, not to %d: chown it", ErrUnsafe, path, uid, own)
	}
	return nil
}
