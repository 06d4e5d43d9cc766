package worker

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

// crash returns a run that was ready for d and ended at t.
func crash(t time.Time, d time.Duration, progress uint64) Run {
	return Run{Ready: t.Add(-d), Ended: t, Progress: progress}
}

func TestPolicyRestartsAtOnceThenSlower(t *testing.T) {
	var p Policy
	var h History
	now := epoch
	want := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}
	for i, max := range want {
		var d Decision
		h, d = p.After(h, crash(now, time.Second, 0), 0.999999)
		if d.Slow || d.Delay > max || d.Delay < max*99/100 {
			t.Errorf("restart %d: %+v, want %s", i+1, d, max)
		}
		now = now.Add(d.Delay + time.Second)
	}
}

func TestPolicyDrawsDelaysFromZero(t *testing.T) {
	h := History{Failures: 3}
	_, d := Policy{}.After(h, crash(epoch, time.Second, 0), 0.5)
	if d.Delay != 200*time.Millisecond {
		t.Errorf("half of the jitter gives %s", d.Delay)
	}
}

func TestPolicyDelayHasACeiling(t *testing.T) {
	h := History{Failures: 1000}
	_, d := Policy{MaxDelay: 7 * time.Second, Burst: 10_000}.After(h, crash(epoch, time.Second, 0), 0.999999)
	if d.Delay > 7*time.Second || d.Delay < 6*time.Second {
		t.Errorf("delay %s", d.Delay)
	}
}

func TestPolicyLeadsToTheSlowLaneAndNeverEnds(t *testing.T) {
	var p Policy
	var h History
	now, started := epoch, 0
	var slow []time.Duration
	for now.Before(epoch.Add(time.Hour)) {
		var d Decision
		h, d = p.After(h, crash(now, time.Second, 0), 0)
		if d.Slow {
			slow = append(slow, d.Delay)
		}
		if now.Before(epoch.Add(time.Minute)) {
			started++
		}
		now = now.Add(d.Delay + time.Second)
	}
	if started != 6 {
		t.Errorf("%d ends in the first minute, want 6 (five restarts)", started)
	}
	if len(slow) < 12 || slow[0] != time.Minute || slow[1] != 2*time.Minute || slow[2] != 4*time.Minute || slow[3] != 5*time.Minute || slow[len(slow)-1] != 5*time.Minute {
		t.Errorf("slow lane: %v", slow)
	}
}

func TestPolicyGoesToTheSlowLaneForWhatTimeDoesNotMend(t *testing.T) {
	h, d := Policy{}.After(History{}, Run{Ended: epoch, Hopeless: true}, 0)
	if !d.Slow || d.Delay != time.Minute || h.Slow != 1 {
		t.Errorf("%+v, %+v", h, d)
	}
}

func TestFailuresDecayByProvenHealth(t *testing.T) {
	worn := History{Failures: 4}
	now := epoch.Add(time.Hour)
	for _, c := range []struct {
		name string
		run  Run
		want float64 // of the four
	}{
		{"never ready", Run{Ended: now}, 4},
		{"a window without work", crash(now, time.Minute, 0), 3.73},
		{"ten windows without work", crash(now, 10*time.Minute, 0), 2},
		{"a window with work", crash(now, time.Minute, 1), 2},
		{"two windows with work", crash(now, 2*time.Minute, 1), 1},
		{"four windows with work", crash(now, 4*time.Minute, 1), 0},
		{"an hour without work", crash(now, time.Hour, 0), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if h := (Policy{}).Proven(worn, c.run); math.Abs(h.Failures-c.want) > 0.01 {
				t.Errorf("%.2f, want %.2f", h.Failures, c.want)
			}
		})
	}
}

func TestTheSlowLaneIsLeftWithTheLastFailure(t *testing.T) {
	worn := History{Failures: 6, Slow: 3}
	now := epoch.Add(time.Hour)
	if h := (Policy{}).Proven(worn, crash(now, 3*time.Minute, 1)); h.Slow != 3 {
		t.Errorf("after three minutes: %+v", h)
	}
	if h := (Policy{}).Proven(worn, crash(now, 4*time.Minute, 1)); h.Slow != 0 || h.blemished() {
		t.Errorf("after four minutes: %+v", h)
	}
}

// A worker that ends each time its first task comes, once in two minutes, has proven nothing by waiting for it.
func TestDyingOfEachTaskLeadsToTheSlowLane(t *testing.T) {
	var h History
	now := epoch
	for n := range 20 {
		var d Decision
		now = now.Add(90 * time.Second)
		if h, d = (Policy{}).After(h, crash(now, 90*time.Second, 0), 0); d.Slow {
			return
		}
		if n == 19 {
			t.Errorf("never: %+v", h)
		}
	}
}

// A worker that is killed now and then, with hours of work between, is restarted at once for ever.
func TestRareDeathsAreForgotten(t *testing.T) {
	var h History
	now := epoch
	for range 100 {
		var d Decision
		now = now.Add(time.Hour)
		if h, d = (Policy{}).After(h, crash(now, time.Hour, 50), 0.99); d.Delay != 0 {
			t.Fatalf("%+v", d)
		}
	}
}

func TestPlannedReplacementsAreCountedApart(t *testing.T) {
	var h History
	now := epoch
	recycled := func(lived time.Duration) Run {
		now = now.Add(lived)
		r := crash(now, lived, 3)
		r.End = Recycled
		return r
	}
	for n := range 12 {
		var d Decision
		if h, d = (Policy{}).After(h, recycled(2*time.Minute), 0); d.Delay != 0 || h.Failures != 0 {
			t.Fatalf("replacement %d: %+v, %+v", n+1, d, h)
		}
	}
	h, d := Policy{}.After(h, recycled(2*time.Minute), 0)
	if !d.Slow || !strings.Contains(d.Reason, "13 times") {
		t.Errorf("a storm: %+v", d)
	}
	now = now.Add(time.Hour)
	if h = (Policy{}).Proven(h, crash(now, time.Hour, 1)); h.Slow != 0 {
		t.Errorf("an hour later: %+v", h)
	}
}

// Replacements of processes that do not live for a window weigh as much as crashes, and alternate with them into the slow lane.
func TestQuickReplacementsCountWithCrashes(t *testing.T) {
	var h History
	now := epoch
	for n := range 10 {
		now = now.Add(5 * time.Second)
		r := crash(now, 5*time.Second, 0)
		if n%2 == 0 {
			r.End = Recycled
		}
		var d Decision
		if h, d = (Policy{}).After(h, r, 0); d.Slow {
			if n < 5 {
				t.Errorf("slow after %d ends", n+1)
			}
			return
		}
	}
	t.Errorf("never: %+v", h)
}

// A worker that dies within a second is slowed down whatever its configuration says of stability.
func TestPolicyIsNeverWithoutLimit(t *testing.T) {
	for _, p := range []Policy{{}, {Window: 1}, {Burst: 1}, {MaxDelay: 1}, {SlowLane: []time.Duration{1}}} {
		var h History
		now, starts := epoch, 0
		for range 10_000 {
			var d Decision
			h, d = p.After(h, Run{Ended: now}, rand.Float64())
			now = now.Add(d.Delay)
			starts++
		}
		if p.MaxDelay == 0 && p.SlowLane == nil && now.Sub(epoch) < time.Hour {
			t.Errorf("%+v: 10000 starts within %s", p, now.Sub(epoch))
		}
	}
}

func TestPolicyDoesNotChangeItsArgument(t *testing.T) {
	h := History{Failures: 1, Recycles: []time.Time{epoch.Add(-2 * time.Hour), epoch}}
	kept := h.Recycles[0]
	r := crash(epoch.Add(time.Second), time.Second, 0)
	r.End = Recycled
	_, _ = Policy{}.After(h, r, 0)
	if h.Recycles[0] != kept || h.Failures != 1 {
		t.Error("the history was changed in place")
	}
}
