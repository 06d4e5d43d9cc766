package process

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// usualSlack is by how much the kernel may delay a timer of a process that has asked for nothing, in nanoseconds.
const usualSlack = 50_000

// startPunctual starts a command with the usual timer slack. Workers have more, so that they wake an idle machine less often;
// a command inherits that of the thread that makes it, and it is no business of a person's script.
func startPunctual(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ours, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ours), 0, 0, 0) }()
	}
	return cmd.Start()
}
