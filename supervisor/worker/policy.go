package worker

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Policy decides when a worker is started again. It is a value without clock or randomness: callers pass both. It never
// gives up: a worker that is out of budget goes on in the slow lane.
//
// Each end that nobody wanted is a failure. A failure weighs less the more health the worker has proven since: half after
// Window if it did work meanwhile, half after ten times as long if it only lived, as a worker may die of its first task
// each time, and wait for it three minutes. So one bad minute does not condemn a worker, and neither readiness nor idleness clears it.
//
// The first restart comes at once, as most deaths are single. From the second in a row on, the delay is drawn between
// zero and Base·2ⁿ (full jitter, so that workers that died of one cause do not come back in step), at most MaxDelay.
// Failures that weigh more than Burst lead to the slow lane, one step further with each death, until the worker has proven
// itself.
//
// Planned replacements are counted apart: they cost no turn, so they are no failures, unless the process did not even live
// for a Window. But more than Recycles of them within RecycleWindow are a storm and lead to the slow lane as well. What an
// operator asks for weighs as much as a failure and is never made to wait.
//
// Zero fields take the value of DefaultPolicy.
type Policy struct {
	Base          time.Duration
	MaxDelay      time.Duration
	Burst         int
	Window        time.Duration
	SlowLane      []time.Duration
	Recycles      int
	RecycleWindow time.Duration
}

// DefaultPolicy restarts six times in the first bad minute, then after 1, 2, 4 and each further 5 minutes. Five minutes
// are short enough that a repaired network or a freed lock brings the worker back while its user still waits, and long
// enough that a worker that takes a second of processor time to start costs a third of a percent. Twelve replacements an
// hour are a leak that fills its limit in five minutes: faster than that it is no longer kept up with in silence.
var DefaultPolicy = Policy{
	Base: 100 * time.Millisecond, MaxDelay: 30 * time.Second, Burst: 5, Window: time.Minute,
	SlowLane: []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute},
	Recycles: 12, RecycleWindow: time.Hour,
}

const (
	// idleTimes is how many times longer health without work must last to prove as much as health with it.
	idleTimes = 10
	// forgotten is the weight of failures below which they are: less than half of one.
	forgotten = 0.5
)

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
	if p.Recycles <= 0 {
		p.Recycles = DefaultPolicy.Recycles
	}
	if p.RecycleWindow <= 0 {
		p.RecycleWindow = DefaultPolicy.RecycleWindow
	}
	return p
}

// A History is what a Policy remembers of one worker. The zero value is a worker without blemish.
type History struct {
	Failures float64     // weight of the ends that nobody wanted
	Recycles []time.Time // planned replacements within the window
	Slow     int         // steps into the slow lane, 0 outside
}

// An End says who wanted the end of a run.
type End int

// The ends.
const (
	Unwanted   End = iota
	Recycled       // the supervisor, to be ahead of a limit
	ByOperator     // a person
)

// A Run is one process of a worker, as a Policy judges it.
type Run struct {
	Ready    time.Time // when it began to serve; zero: never
	Ended    time.Time // or now, for one that still runs
	Progress uint64    // work it has done
	Hopeless bool      // it could not be started for a reason that time alone will not mend
	End      End
}

// lived is how long the run served.
func (r Run) lived() time.Duration {
	if r.Ready.IsZero() {
		return 0
	}
	return max(0, r.Ended.Sub(r.Ready))
}

// A Decision is what follows from the end of a run.
type Decision struct {
	Delay  time.Duration
	Slow   bool   // out of budget
	Reason string // for a person
}

// Proven returns what is left of a history after the health that a run has proven. What weighs less than half a failure is
// forgotten, with the slow lane.
func (p Policy) Proven(h History, r Run) History {
	p = p.orDefault()
	half := p.Window
	if r.Progress == 0 {
		half *= idleTimes
	}
	h.Failures *= math.Exp2(-float64(r.lived()) / float64(half))
	if h.Failures < forgotten {
		h.Failures = 0
		if h.storm(p, r.Ended) == "" {
			h.Slow = 0
		}
	}
	return h
}

// storm says that there were too many planned replacements, or nothing.
func (h History) storm(p Policy, now time.Time) string {
	n := 0
	for _, t := range h.Recycles {
		if now.Sub(t) < p.RecycleWindow {
			n++
		}
	}
	if n <= p.Recycles {
		return ""
	}
	return fmt.Sprintf("replaced %d times within %s to be ahead of its limit", n, p.RecycleWindow)
}

// blemished says whether something is held against the worker.
func (h History) blemished() bool { return h.Failures > 0 || h.Slow > 0 }

// CannotStart is the reason of a decision about a worker whose installation a person has to mend.
const CannotStart = "it cannot start as it is"

// After decides what follows from the end of a run. jitter is a random number in [0, 1).
func (p Policy) After(h History, r Run, jitter float64) (History, Decision) {
	p = p.orDefault()
	h = p.Proven(h, r)
	h.Recycles = slices.DeleteFunc(slices.Clone(h.Recycles), func(t time.Time) bool { return r.Ended.Sub(t) >= p.RecycleWindow })
	most := float64(p.Burst) + 1
	switch r.End {
	case ByOperator:
		h.Failures = min(h.Failures+1, most)
		return h, Decision{Reason: "asked for"}
	case Recycled:
		h.Recycles = append(h.Recycles, r.Ended)
		if why := h.storm(p, r.Ended); why != "" {
			return p.slow(h, jitter, why)
		}
		if r.lived() >= p.Window {
			return h, Decision{Reason: "planned replacement"}
		}
	}
	// A weight over Burst is the slow lane whatever comes, so more need not be remembered; it would only make the way
	// back longer.
	h.Failures = min(h.Failures+1, most)
	switch {
	case r.Hopeless:
		return p.slow(h, jitter, CannotStart)
	case h.Slow > 0:
		return p.slow(h, jitter, "it has not proven itself since it ran out of restarts")
	case h.Failures > float64(p.Burst):
		return p.slow(h, jitter, fmt.Sprintf("more than %d failures without health between them", p.Burst))
	case h.Failures < 1+forgotten:
		return h, Decision{Reason: "first restart, at once"}
	}
	n := int(math.Round(h.Failures))
	d := time.Duration(jitter * float64(p.ceiling(n-2)))
	return h, Decision{Delay: d, Reason: fmt.Sprintf("failure number %d without enough health between them", n)}
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
