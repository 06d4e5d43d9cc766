package sample

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A rhythm says when a round is due.
type rhythm interface {
	// next returns at the next beat, false when the context that the rhythm was made for has ended.
	next() (now time.Time, ok bool)
	close()
}

// newRhythm returns the rhythm of a sampler. Processes of the kernel are read by the kernel's own clock; for trees of files
// it is Go's, which tests turn.
func newRhythm(ctx context.Context, proc Proc, every time.Duration) rhythm {
	if proc.kernel() {
		if r, err := newKernelRhythm(ctx, every); err == nil {
			return r
		}
	}
	return &clockRhythm{ended: ctx.Done(), every: every, timer: time.NewTimer(untilWhole(every))}
}

// untilWhole is the time to the next round multiple of every, at which the other loops of an idle supervisor turn too: the
// processor is woken once for all of them.
func untilWhole(every time.Duration) time.Duration {
	return every - time.Duration(time.Now().UnixNano())%every
}

type clockRhythm struct {
	ended <-chan struct{}
	every time.Duration
	timer *time.Timer
	ran   bool
}

func (r *clockRhythm) next() (time.Time, bool) {
	if r.ran {
		r.timer.Reset(untilWhole(r.every))
	}
	r.ran = true
	select {
	case <-r.ended:
		return time.Time{}, false
	case now := <-r.timer.C:
		return now, true
	}
}

func (r *clockRhythm) close() { r.timer.Stop() }

// A kernelRhythm is a timer of the kernel, waited for like a socket. One of Go's wakes three threads for each beat: the one
// that waits for it, the runtime's monitor, which sleeps no longer than to the next timer, and one more that the ready
// goroutine is offered to. A descriptor that becomes readable wakes one. Nothing here enters the scheduler by a system call
// either, which would wake the monitor.
type kernelRhythm struct {
	file   *os.File
	conn   syscall.RawConn
	ctx    context.Context
	unhook func() bool
}

func newKernelRhythm(ctx context.Context, every time.Duration) (*kernelRhythm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	r := &kernelRhythm{file: os.NewFile(uintptr(fd), "timer"), ctx: ctx}
	// The end of ctx ends the wait, now or the next one.
	r.unhook = context.AfterFunc(ctx, func() { _ = r.file.SetReadDeadline(time.Unix(1, 0)) })
	spec := unix.ItimerSpec{
		Interval: unix.NsecToTimespec(every.Nanoseconds()),
		Value:    unix.NsecToTimespec(untilWhole(every).Nanoseconds()),
	}
	if err = unix.TimerfdSettime(fd, 0, &spec, nil); err == nil {
		r.conn, err = r.file.SyscallConn()
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("set a timer: %w", err)
	}
	return r, nil
}

func (r *kernelRhythm) next() (time.Time, bool) {
	err := r.conn.Read(func(fd uintptr) bool {
		var beats [8]byte
		_, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&beats[0])), unsafe.Sizeof(beats))
		return errno != unix.EAGAIN
	})
	return time.Now(), err == nil && r.ctx.Err() == nil
}

func (r *kernelRhythm) close() {
	r.unhook()
	_ = r.file.Close()
}
