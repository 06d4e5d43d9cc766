package worker

import (
	"fmt"
	"net"
	"os"
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
