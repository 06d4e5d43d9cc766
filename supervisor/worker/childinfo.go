package worker

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// childInfo is the answer of waitid. unix.Siginfo leaves the part that holds the pid unnamed; for SIGCHLD it begins with
// the pid, as siginfo_t(3) and the kernel's ABI have it on every Linux.
type childInfo struct{ raw unix.Siginfo }

func (c *childInfo) siginfo() *unix.Siginfo { return &c.raw }

func (c *childInfo) pid() int {
	// The union follows three ints, and on 64-bit machines an int of padding.
	offset := 3 * unsafe.Sizeof(int32(0))
	if unsafe.Sizeof(uintptr(0)) == 8 {
		offset += unsafe.Sizeof(int32(0))
	}
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&c.raw), offset)))
}

// awaitEnd returns when the child has ended, without taking its exit status, so that its pid stays its own.
func awaitEnd(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
