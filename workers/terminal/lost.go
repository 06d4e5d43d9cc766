package terminal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

const (
	// connectWithin bounds the connect to a socket of this machine, which is at once or, with a full backlog, never.
	connectWithin = time.Second
	// signWithin is how long a connection is listened to: one that was left by a process that dies ends at once.
	signWithin = 200 * time.Millisecond
)

// absent says whether nobody is behind a socket. A process that is there and takes no connection, frozen say, is not absent:
// the kernel connects for it.
func absent(ctx context.Context, socket string) bool {
	dialer := net.Dialer{Timeout: connectWithin}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(signWithin))
	_, err = conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// lost says in words what became of a supervisor that did not answer. One that refuses for now, because its disk is full, say,
// is there. since is added if it is not 0.
func lost(err error, absent bool, since time.Duration) string {
	after := ""
	if since >= time.Second {
		after = fmt.Sprintf(" (since %v)", since.Truncate(time.Second))
	}
	switch {
	case absent:
		return "the supervisor is gone" + after
	case errors.Is(err, ipc.ErrGone), errors.Is(err, ipc.ErrTimeout), errors.Is(err, ipc.ErrCancelled):
		return "the supervisor does not answer" + after
	}
	return fmt.Sprintf("the supervisor refuses%s: %v", after, err)
}

// waiting says in a chat what is waited for.
func waiting(err error, absent bool) string {
	if errors.Is(err, ipc.ErrBusy) {
		return fmt.Sprintf("(not taken yet, trying again: %v)", err)
	}
	return "(" + lost(err, absent, 0) + "; waiting for it)"
}
