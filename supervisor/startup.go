package supervisor

import (
	"bufio"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A start may take long: a large store is recovered, or an index is built anew. The service manager is asked for more time as long
// as something is done, and not because time goes by: a start that hangs must fail.
const (
	// startLook is how often it is looked whether the start gets on. TimeoutStartSec is longer in any unit.
	startLook = 2 * time.Second
	// startExtend is the time that each look asks for if it does: reads from a slow disk come in bursts.
	startExtend = 30 * time.Second
	// startWork and startBytes are what a process that only waits does not use between two looks.
	startWork  = 50 * time.Millisecond
	startBytes = 1 << 20
)

// An effort is what this process has used so far.
type effort struct {
	cpu   time.Duration
	bytes uint64 // read and written
}

// since says whether something was done since an earlier effort.
func (e effort) since(before effort) bool {
	return e.cpu-before.cpu >= startWork || e.bytes-before.bytes >= startBytes
}

// ownEffort reads it. What the kernel does not tell is 0.
func ownEffort() (e effort) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		e.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	f, err := os.Open("/proc/self/io")
	if err != nil {
		return e
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		if key == "rchar" || key == "wchar" {
			n, _ := strconv.ParseUint(value, 10, 64)
			e.bytes += n
		}
	}
	return e
}

// extendStart calls extend while the start gets on, until ctx ends.
func extendStart(ctx context.Context, now func() effort, extend func(time.Duration) error) {
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for before := now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		after := now()
		if after.since(before) {
			_ = extend(startExtend) // if it is lost the next one follows soon
		}
		before = after
	}
}

// starting asks for more time for a start that gets on, until started is called.
func (s *supervisor) starting(ctx context.Context) {
	if !s.notify.Heard() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); extendStart(ctx, ownEffort, s.notify.ExtendTimeout) }()
	s.served = func() { cancel(); <-done }
	s.onClose(s.served)
}

// waitsFor says what the start waits for, "" for nothing any more, and asks for the time: the wait itself is limited. Stores
// that are opened later (a board) tell as well, which is no business of the service manager.
func (s *supervisor) waitsFor(what string) {
	if s.state.Load() != stateStarting {
		return
	}
	status := stateStarting
	if what != "" {
		status += ": " + what
	}
	s.say(s.notify.Status(status))
	s.say(s.notify.ExtendTimeout(startExtend))
}
