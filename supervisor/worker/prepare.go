package worker

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// Prepared is what Prepare found and did, for the log.
type Prepared struct {
	FDsBefore uint64 // soft limit of open files as inherited
	FDs       uint64 // soft and hard limit from now on
}

// Prepare makes this process fit to be a supervisor. main calls it first, before anything is opened and before any
// goroutine starts a process.
//
//   - umask 077: sockets get 0777 &^ umask, and a socket that others can write to is a socket that others can call.
//   - close-on-exec on every descriptor that was inherited without it, or each worker would hold it too.
//   - child subreaper: a worker's orphaned children come to us, where they are found and ended with their worker.
//   - the soft limit of open files up to the hard one, set by name. Go does so on its own, but remembers the old limit and
//     gives that to children; a worker would remember it in turn for its own. Set by name there is nothing to remember.
func Prepare() (Prepared, error) {
	unix.Umask(0o077)
	// ENOSYS: a kernel before 5.11. Go's own descriptors all have close-on-exec; inherited ones then go to workers.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return Prepared{}, fmt.Errorf("close inherited descriptors on exec: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return Prepared{}, fmt.Errorf("become the parent of orphaned processes: %w", err)
	}
	var before unix.Rlimit
	// Prlimit reads what is set now; what was inherited is only known to the Go runtime, which has raised it.
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return Prepared{}, fmt.Errorf("read the limit of open files: %w", err)
	}
	raised := syscall.Rlimit{Cur: before.Max, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
		return Prepared{}, fmt.Errorf("raise the limit of open files to %d: %w", before.Max, err)
	}
	return Prepared{FDsBefore: before.Cur, FDs: before.Max}, nil
}
