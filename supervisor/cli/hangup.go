package cli

import (
	"context"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A hangup decides what SIGHUP means: that the terminal was closed, which ends a command, or that somebody asks a supervisor
// to read its configuration again.
type hangup struct {
	reload atomic.Pointer[chan struct{}] // of a supervisor that runs in this process
	had    atomic.Bool                   // it had a terminal when it began
}

// listen handles signals until ctx ends, which end it ends itself when the terminal is gone.
func (h *hangup) listen(ctx context.Context, signals <-chan os.Signal, end func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			asked := h.reload.Load()
			// A terminal that was closed is no longer this process's own, so that it cannot be opened any more.
			if asked == nil || h.had.Load() && !hasTerminal() {
				end()
				return
			}
			select {
			case *asked <- struct{}{}:
			default: // one is asked for already and has not begun
			}
		}
	}
}

// reloads makes SIGHUP ask on the returned channel from now on.
func (h *hangup) reloads() <-chan struct{} {
	h.had.Store(hasTerminal())
	asked := make(chan struct{}, 1)
	h.reload.Store(&asked)
	return asked
}

// hasTerminal says whether this process has a controlling terminal.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
