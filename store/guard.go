package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Error numbers that explain looks for behind SQLite's codes.
const (
	enospc = syscall.ENOSPC
	edquot = syscall.EDQUOT
	efbig  = syscall.EFBIG // the process's own limit of file size
	erofs  = syscall.EROFS
)

// A guard protects an open database from two accidents that integrity_check does not see.
//
// SQLite marks a live user of a file by POSIX locks, and a process loses all of those on a file when it closes any
// descriptor of it. The next other process that opens and closes the database then believes to be the last one and
// deletes the live WAL. Open-file-description locks on the same bytes are not lost that way.
//
// And the file or its WAL may be replaced all the same (a restored backup, an rm). What is committed then goes into a
// file that nobody else sees. The identities of both are kept and compared after each commit.
type guard struct {
	path      string
	main, shm *os.File // hold the locks; closing them before SQLite has closed would drop SQLite's own
	wal       int      // O_PATH: pins the inode, so that its number is not used again; closing it drops no lock. -1: no WAL
	mainID    identity
	walID     identity
	shmID     identity

	// The main file as our last checkpoint left it. touched says that another process has written to it since.
	left    stamp
	head    fileHeader
	touched bool
}

type identity struct{ dev, ino uint64 }

// Bytes that SQLite locks for the life of a connection: the shared range of the main file, and the byte of the -shm
// file that says "in use".
const (
	sharedFirst = 0x40000002
	sharedSize  = 510
	shmInUse    = 128
)

// newGuard is called when SQLite has the file open. Without a WAL only the identity of the file is watched: the locks
// would be in the way of SQLite's own.
func newGuard(path string, wal bool) (*guard, error) {
	g := &guard{path: path, wal: -1}
	err := g.hold(wal)
	if err == nil {
		err = g.mark()
	}
	if err != nil {
		g.close()
		return nil, fmt.Errorf("guard %s: %w", path, err)
	}
	return g, nil
}

func (g *guard) hold(wal bool) (err error) {
	if g.main, err = os.OpenFile(g.path, os.O_RDWR, 0); err != nil {
		return err
	}
	if g.mainID, err = identify(int(g.main.Fd())); err != nil || !wal {
		return err
	}
	if g.shm, err = os.OpenFile(g.path+"-shm", os.O_RDWR, 0); err != nil {
		return err
	}
	if g.wal, err = unix.Open(g.path+"-wal", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err = g.lock(unix.F_RDLCK); err != nil {
		return err
	}
	if g.shmID, err = identify(int(g.shm.Fd())); err != nil {
		return err
	}
	g.walID, err = identify(g.wal)
	return err
}

// mark notes how the main file is after a checkpoint of ours.
func (g *guard) mark() (err error) {
	if g.left, err = g.stamp(); err != nil {
		return err
	}
	g.head, err = g.header()
	if errors.Is(err, io.EOF) { // all that there is may be in the WAL still
		err = nil
	}
	return err
}

func (g *guard) lock(kind int16) error {
	shared := unix.Flock_t{Type: kind, Start: sharedFirst, Len: sharedSize}
	inUse := unix.Flock_t{Type: kind, Start: shmInUse, Len: 1}
	return errors.Join(
		unix.FcntlFlock(g.main.Fd(), unix.F_OFD_SETLK, &shared),
		unix.FcntlFlock(g.shm.Fd(), unix.F_OFD_SETLK, &inUse))
}

// What check finds: another file is at the path, or another WAL or index beside it.
var (
	errReplaced = errors.New("another file is in its place")
	errRetired  = errors.New("its write-ahead log is retired")
)

// check says whether the paths still lead to the files that are open. It costs three system calls.
func (g *guard) check() error {
	if id, err := at(g.path); err != nil || id != g.mainID {
		return fmt.Errorf("%w: %s was replaced while it was open%s", errReplaced, g.path, reason(err))
	}
	if g.wal < 0 {
		return nil
	}
	if id, err := at(g.path + "-wal"); err != nil || id != g.walID {
		return fmt.Errorf("%w: %s-wal was deleted or replaced by another process while it was open%s", errRetired, g.path, reason(err))
	}
	if id, err := at(g.path + "-shm"); err != nil || id != g.shmID {
		return fmt.Errorf("%w: %s-shm was deleted or replaced by another process while it was open%s", errRetired, g.path, reason(err))
	}
	return nil
}

func reason(err error) string {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return ": " + err.Error()
}

// unlock lets SQLite delete the WAL when it closes. The descriptors stay until then.
func (g *guard) unlock() {
	if g.wal >= 0 {
		_ = g.lock(unix.F_UNLCK)
	}
}

// close is called after SQLite has closed.
func (g *guard) close() {
	if g.main != nil {
		_ = g.main.Close()
	}
	if g.shm != nil {
		_ = g.shm.Close()
	}
	if g.wal >= 0 {
		_ = unix.Close(g.wal)
	}
}

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return identity{uint64(st.Dev), st.Ino}, err
}

func at(path string) (identity, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return identity{uint64(st.Dev), st.Ino}, err
}
