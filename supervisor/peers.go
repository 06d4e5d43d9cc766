package supervisor

import (
	"fmt"
	"os"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// ancestors bounds how far up a process is followed. A chain of processes that is longer is somebody's game.
const ancestors = 64

// refuse keeps plugins off the control socket. They run as this user as a rule, so the kernel lets them connect; what they
// are is told by whose child they are. A process that left its parent is ours (we are the subreaper), and if no worker is
// it, it was left by one. Without plugins nobody is looked at.
func (h *pluginHost) refuse(pid int) error {
	h.mu.Lock()
	any := len(h.owners) > 0
	h.mu.Unlock()
	if !any {
		return nil
	}
	self := os.Getpid()
	for range ancestors {
		st, err := h.fleet.proc.Stat(pid)
		if err != nil {
			return fmt.Errorf("process %d ended before it was known: %w", pid, ipc.ErrDenied)
		}
		switch {
		case st.PPID == self:
			return h.refuseChild(pid)
		case st.PPID <= 1:
			return nil // not below us
		}
		pid = st.PPID
	}
	return fmt.Errorf("process %d is below more than %d others: %w", pid, ancestors, ipc.ErrDenied)
}

// refuseChild judges a process by the child of ours that it is below.
func (h *pluginHost) refuseChild(pid int) error {
	for _, m := range h.fleet.list() {
		if m.PID() != pid {
			continue
		}
		if m.Role() == ipc.RolePlugin {
			h.refused(m, pid)
			return fmt.Errorf("process %d is of plugin worker %s: %w", pid, m.Name(), ipc.ErrDenied)
		}
		return nil
	}
	return fmt.Errorf("process %d was left behind by a worker: %w", pid, ipc.ErrDenied)
}
