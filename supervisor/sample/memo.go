package sample

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// longestSleep is how many rounds a reading of a process that sleeps is good for. Only others can change what it holds
// meanwhile: the kernel takes pages away when memory is short.
const longestSleep = 30

// A memo is a reading, with the processor time that the process had used at it. A process that has not run since, not for a
// nanosecond, has opened and closed nothing, has taken and given back no memory, and has not been stopped: each of these is
// something that it does itself. Asking for that time costs the kernel a microsecond; its files of a process cost forty.
type memo struct {
	spent int64 // nanoseconds, 0 if the kernel does not tell
	seen  Process
	slept int // rounds since the reading
}

// asleep returns the processor time that a process has used, and whether the memo still holds. It must not have been waited
// for, or have been read since.
func (m *memo) asleep(pid int) (spent int64, ok bool) {
	spent = processorTime(pid)
	m.slept++
	return spent, spent > 0 && spent == m.spent && m.slept < longestSleep
}

// processorTime returns what all threads of a process have used since its start, in nanoseconds, 0 if there is no such
// process.
func processorTime(pid int) int64 {
	const scheduled = 2 // CPUCLOCK_SCHED: the scheduler's own count, not that of its ticks
	var t unix.Timespec
	clock := uintptr(int32(^pid<<3 | scheduled)) // as clock_getcpuclockid(3) makes it
	_, _, errno := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return 0
	}
	return t.Nano()
}
