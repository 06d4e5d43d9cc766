package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// socketPair makes a connection without a name: what has neither end cannot reach it, so it needs neither a certificate nor
// a folder that keeps others out. ours is ready to be served; theirs is for the process that is about to be made.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	file := os.NewFile(uintptr(fds[0]), "host services")
	ours, err = net.FileConn(file)
	_ = file.Close() // the connection has a copy
	theirs = os.NewFile(uintptr(fds[1]), "host services")
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	return ours, theirs, nil
}

// A soleListener is a listener to which one connection comes, at once, and no other.
type soleListener struct {
	conn   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func listenOnce(conn net.Conn) *soleListener {
	l := &soleListener{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- conn
	return l
}

// Accept returns the connection, and after that waits for Close.
func (l *soleListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and the connection if nobody has taken it.
func (l *soleListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		select {
		case conn := <-l.conn:
			_ = conn.Close()
		default:
		}
	})
	return nil
}

func (l *soleListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "host services"} }

// ownSocket says whether the host services are served over an inherited socket. A plugin may be of any language, for which
// go-plugin's broker is the documented way.
func (s Spec) ownSocket() bool { return s.Role != ipc.RolePlugin && !s.Plain }

// giveSocket makes a socket that of the owner of its folder. The owner can put something else in its place, or another name of what
// is not its own: so it is looked at through the descriptor by which it is given away.
func giveSocket(path string) error {
	var dir, st unix.Stat_t
	if err := unix.Stat(filepath.Dir(path), &dir); err != nil {
		return &fs.PathError{Op: "stat", Path: filepath.Dir(path), Err: err}
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Nlink != 1 {
		return &fs.PathError{Op: "give away", Path: path, Err: errors.New("not the socket that was made")}
	}
	if err := unix.Fchownat(fd, "", int(dir.Uid), int(dir.Gid), unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "give away", Path: path, Err: err}
	}
	return nil
}
