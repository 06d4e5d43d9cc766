package worker

import (
	"math/rand/v2"
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
	h := History{Streak: 3}
	_, d := Policy{}.After(h, crash(epoch, time.Second, 0), 0.5)
	if d.Delay != 200*time.Millisecond {
		t.Errorf("half of the jitter gives %s", d.Delay)
	}
}

func TestPolicyDelayHasACeiling(t *testing.T) {
	h := History{Streak: 1000}
	_, d := Policy{MaxDelay: 7 * time.Second}.After(h, crash(epoch, time.Second, 0), 0.999999)
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

func TestOnlyAStableRunEarnsTheBudgetBack(t *testing.T) {
	worn := History{Streak: 9, Slow: 3, Restarts: []time.Time{epoch, epoch, epoch, epoch, epoch}}
	now := epoch.Add(10 * time.Second)
	for _, c := range []struct {
		name   string
		run    Run
		stable bool
	}{
		{"never ready", Run{Ended: now}, false},
		{"a second", crash(now, time.Second, 0), false},
		{"a second with work", crash(now, time.Second, 100), false},
		{"half a window without work", crash(now, 30*time.Second, 0), false},
		{"half a window with work", crash(now, 30*time.Second, 1), true},
		{"a window without work", crash(now, time.Minute, 0), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, d := Policy{}.After(worn, c.run, 0)
			if got := !d.Slow && d.Delay == 0 && h.Streak == 1; got != c.stable {
				t.Errorf("%+v, %+v", h, d)
			}
		})
	}
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
	h := History{Streak: 1, Restarts: []time.Time{epoch.Add(-time.Hour), epoch}}
	kept := h.Restarts[0]
	_, _ = Policy{}.After(h, crash(epoch.Add(time.Second), time.Second, 0), 0)
	if h.Restarts[0] != kept || h.Streak != 1 {
		t.Error("the history was changed in place")
	}
}
