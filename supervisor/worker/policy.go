package worker

import (
	"fmt"
	"slices"
	"time"
)

// A Policy decides when a worker is started again after an end that nobody asked for. It is a value without clock or
// randomness: callers pass both. It never gives up: a worker that is out of budget goes on in the slow lane.
//
// The first restart comes at once, as most deaths are single. From the second in a row on, the delay is drawn between
// zero and Base·2ⁿ (full jitter, so that workers that died of one cause do not come back in step), at most MaxDelay.
// Burst restarts within Window are the budget; the next death leads to the slow lane, one step further with each death.
// A stable run clears everything; how a worker proves one is Stable's business.
//
// Zero fields take the value of DefaultPolicy.
type Policy struct {
	Base     time.Duration
	MaxDelay time.Duration
	Burst    int
	Window   time.Duration
	SlowLane []time.Duration
}

// DefaultPolicy restarts six times in the first bad minute, then after 1, 2, 4 and each further 5 minutes. Five minutes
// are short enough that a repaired network or a freed lock brings the worker back while its user still waits, and long
// enough that a worker that takes a second of processor time to start costs a third of a percent.
var DefaultPolicy = Policy{
	Base: 100 * time.Millisecond, MaxDelay: 30 * time.Second, Burst: 5, Window: time.Minute,
	SlowLane: []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute},
}

func (p Policy) orDefault() Policy {
	if p.Base <= 0 {
		p.Base = DefaultPolicy.Base
	}
	if p.MaxDelay <= 0 {
		p.MaxDelay = DefaultPolicy.MaxDelay
	}
	if p.Burst <= 0 {
		p.Burst = DefaultPolicy.Burst
	}
	if p.Window <= 0 {
		p.Window = DefaultPolicy.Window
	}
	if len(p.SlowLane) == 0 {
		p.SlowLane = DefaultPolicy.SlowLane
	}
	return p
}

// A History is what a Policy remembers of one worker. The zero value is a worker without blemish.
type History struct {
	Streak   int         // ends in a row without a stable run
	Restarts []time.Time // within the window
	Slow     int         // steps into the slow lane, 0 outside
}

// A Run is one process of a worker, as a Policy judges it.
type Run struct {
	Ready    time.Time // when it began to serve; zero: never
	Ended    time.Time // or now, for one that still runs
	Progress uint64    // work it has done
	Hopeless bool      // it could not be started for a reason that time alone will not mend
}

// A Decision is what follows from the end of a run.
type Decision struct {
	Delay  time.Duration
	Slow   bool   // out of budget
	Reason string // for a person
}

// Stable says whether a run has proven that the worker is well: healthy for the whole window, or for half of it if it
// did work. Readiness alone proves nothing, a worker may die of its first task each time.
func (p Policy) Stable(r Run) bool {
	p = p.orDefault()
	if r.Ready.IsZero() {
		return false
	}
	need := p.Window
	if r.Progress > 0 {
		need /= 2
	}
	return r.Ended.Sub(r.Ready) >= need
}

// CannotStart is the reason of a decision about a worker whose installation a person has to mend.
const CannotStart = "it cannot start as it is"

// After decides what follows from the end of a run. jitter is a random number in [0, 1).
func (p Policy) After(h History, r Run, jitter float64) (History, Decision) {
	p = p.orDefault()
	if p.Stable(r) {
		h = History{}
	}
	h.Streak++
	h.Restarts = slices.DeleteFunc(slices.Clone(h.Restarts), func(t time.Time) bool { return r.Ended.Sub(t) >= p.Window })
	switch {
	case r.Hopeless:
		return p.slow(h, jitter, CannotStart)
	case h.Slow > 0:
		return p.slow(h, jitter, "no stable run since it ran out of restarts")
	case len(h.Restarts) >= p.Burst:
		return p.slow(h, jitter, fmt.Sprintf("%d restarts within %s", len(h.Restarts), p.Window))
	}
	h.Restarts = append(h.Restarts, r.Ended)
	if h.Streak == 1 {
		return h, Decision{Reason: "first restart, at once"}
	}
	d := time.Duration(jitter * float64(p.ceiling(h.Streak-2)))
	return h, Decision{Delay: d, Reason: fmt.Sprintf("end number %d in a row", h.Streak)}
}

// ceiling is Base·2ⁿ, at most MaxDelay.
func (p Policy) ceiling(n int) time.Duration {
	d := p.Base
	for range n {
		if d *= 2; d >= p.MaxDelay {
			return p.MaxDelay
		}
	}
	return min(d, p.MaxDelay)
}

// slow makes the next step in the slow lane. A tenth of jitter keeps workers apart that were sent there together.
func (p Policy) slow(h History, jitter float64, why string) (History, Decision) {
	step := p.SlowLane[min(h.Slow, len(p.SlowLane)-1)]
	h.Slow++
	return h, Decision{Delay: step + time.Duration(jitter*float64(step)/10), Slow: true, Reason: why}
}
