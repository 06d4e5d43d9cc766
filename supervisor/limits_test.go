package supervisor

import (
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

func TestAPaceThatReachesTheLimitBeforeAReplacementIsSeenBetweenRounds(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	recent := func(fds ...int64) []sample.Sample {
		var out []sample.Sample
		for i, n := range fds {
			out = append(out, sample.Sample{Time: start.Add(time.Duration(i-len(fds)+1) * time.Second), FDs: n})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		recent []sample.Sample
		after  time.Duration
		fds    int64
		want   bool
	}{
		{"50 a second, four fifths held", recent(140, 190), 400 * time.Millisecond, 210, true},
		{"50 a second, less than four fifths held", recent(100, 150), 400 * time.Millisecond, 170, false},
		{"20 a second, four fifths held", recent(180, 200), 400 * time.Millisecond, 208, false},
		{"20 a second, nine tenths held", recent(210, 230), 400 * time.Millisecond, 238, true},
		{"a jump in this second", recent(20, 20), 400 * time.Millisecond, 230, false},
		{"a jump in the second before", recent(20, 220), 400 * time.Millisecond, 220, false},
		{"it recedes", recent(190, 230), 400 * time.Millisecond, 210, false},
		{"a jump to the limit", recent(20, 20), 400 * time.Millisecond, 250, true},
		{"a reading at the same instant", recent(140, 210), 0, 210, false},
		{"the first reading", recent(210), 400 * time.Millisecond, 230, false},
	} {
		v := leak.Verdict{Unit: "descriptors", Pace: pace(c.recent, start.Add(c.after), c.fds)}
		if advice, why := leak.Action(v, c.fds, 256); (advice == leak.RecycleNow) != c.want {
			t.Errorf("%s: %s, %s", c.name, advice, why)
		}
	}
}

func TestThreadsCountAsProcessesWhoeverHasThem(t *testing.T) {
	s := sample.Sample{Threads: 12, Family: sample.Family{Processes: 2, Threads: 53}}
	for limit, want := range map[int]string{
		0: "", 65: "", 1000: "",
		64: "65 processes and threads with those below it, it may have 64",
	} {
		if got := crowd(s, limit); got != want {
			t.Errorf("limit %d: %q, want %q", limit, got, want)
		}
	}
}
