package leak

import (
	"flag"
	"testing"
	"time"
)

var (
	months = flag.Int("months", 1, "simulated months of normal traffic of each kind, each with a seed of its own")
	first  = flag.Uint64("seed", 1, "the first of the seeds")
)

// TestMonthOfNormalTraffic replays traffic that leaks nothing and reports the false alarms.
func TestMonthOfNormalTraffic(t *testing.T) {
	length := 30 * day
	if testing.Short() {
		length = 3 * day
	}
	for name, demand := range demands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alarms, actions := 0, 0
			for seed := *first; seed < *first+uint64(*months); seed++ {
				a, b := month(t, seed, demand, length)
				alarms, actions = alarms+a, actions+b
			}
			t.Logf("%d times %s: %d false alarms, %d needless actions", *months, span(length), alarms, actions)
			// More months are asked for to see the rate, which is not nothing (DESIGN.md, What it cannot tell).
			if *months == 1 && alarms+actions > 0 {
				t.Errorf("%d false alarms and %d needless actions", alarms, actions)
			}
		})
	}
}

// month replays one and counts the verdicts that call something a leak, and what would have been done for it.
func month(t *testing.T, seed uint64, demand func(int) float64, length time.Duration) (alarms, actions int) {
	limits := [2]int64{1024, 2 * gib}
	w := newTraffic(seed)
	w.demand = demand
	kinds := [2]map[Kind]int{{}, {}}
	near := 0
	var before [2]Kind
	w.replay(length, limits, func(q Quantity, v Verdict, value int64, _ bool) bool {
		kinds[q][v.Kind]++
		if v.Kind.Grows() && before[q] != v.Kind {
			alarms++
			t.Logf("seed %d, %s: false alarm: %s %.2f: %s", seed, span(time.Duration(w.sec)*time.Second), v.Kind, v.Confidence, v.Evidence)
		}
		before[q] = v.Kind
		switch a, why := Action(v, value, limits[q]); {
		case a == Keep:
		case float64(value) < boundaryShare*float64(limits[q]):
			actions++
			t.Logf("seed %d, %s: needless: %s: %s", seed, span(time.Duration(w.sec)*time.Second), a, why)
		default:
			near++ // which is no matter of the verdict
		}
		return false
	})
	t.Logf("seed %d: %d turns in %s: %d false alarms, %d needless actions, %d minutes near the limit; minutes of descriptors %v, of bytes %v",
		seed, w.done, span(length), alarms, actions, near, kinds[0], kinds[1])
	return alarms, actions
}
