package backup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func isFolder(path string) bool { info, err := os.Lstat(path); return err == nil && info.IsDir() }

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// A source remembers that reading failed, so that it is told from a failure to write. It is no file to io.Copy, which would have
// the kernel copy from one file to the other and call an error of either one of writing.
type source struct {
	in  io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.in.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// open opens a file that is one still: without waiting for whoever would write to a pipe that is in its place.
func open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file any more")
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// An unreadable says that a file could not be read, while another one could be written.
type unreadable struct{ error }

func (u *unreadable) Unwrap() error { return u.error }

// gone says that a file is not there; one that a path leads through is no folder then, or is not there either.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

// vanished says that a file could not be copied because it was removed meanwhile, a board that was deleted say: it is no longer
// in the home, so neither is it missing in the copy. A home without its conversations is no such thing.
func vanished(err error, path, name string) bool {
	if err == nil || name == "state.db" {
		return false
	}
	_, serr := os.Stat(path)
	return gone(serr)
}

// ownerOnly are the rights on a copy: its owner can always write it, and run it if the first could be run, as a script of a skill
// can. What others might do is not brought back.
func ownerOnly(mode fs.FileMode) fs.FileMode { return 0o600 | mode&0o700 }

// copyFile copies a file that is no database, and makes the copy durable. There is no part of one that cannot be read.
func copyFile(from, to string) (err error) {
	in, info, err := open(from)
	if err != nil {
		return &unreadable{err}
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerOnly(info.Mode()))
	if err != nil {
		return err
	}
	read := &source{in: in}
	_, err = io.Copy(out, read)
	if err = errors.Join(err, out.Sync(), out.Close()); read.err != nil {
		return errors.Join(&unreadable{read.err}, os.Remove(to))
	}
	return err
}

// copyLink makes a link that says the same.
func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// move gives something another name, also in another file system: a folder of the home can be one, or a link of the home can
// lead to it. There it is copied under a temporary name first, so that its name never stands for a part of it.
func move(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	part := to + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := errors.Join(copyTree(from, part), publish(part, to)); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return os.RemoveAll(from)
}

// copyTree copies a file, a link as such, or a folder with all that is in it.
func copyTree(from, to string) error {
	info, err := os.Lstat(from)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return copyLink(from, to)
	case !info.IsDir():
		return copyFile(from, to)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	list, err := os.ReadDir(from)
	for _, e := range list {
		err = errors.Join(err, copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
	}
	return errors.Join(err, syncDir(to))
}

func writeFile(path string, text []byte) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return errors.Join(err, out.Sync(), out.Close())
}

// publish gives what is complete its name.
func publish(part, name string) error {
	if isFolder(part) {
		if err := syncDir(part); err != nil {
			return err
		}
	}
	if err := os.Rename(part, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
