package leak

import (
	"math"
	"strings"
	"testing"
	"time"
)

// day is a length of a series that shows a day's rhythm.
const day = 24 * time.Hour

// TestPublishedSeries gives the series that people have published with their bug reports.
func TestPublishedSeries(t *testing.T) {
	jitter := seeded(1)
	for name, c := range map[string]struct {
		quantity Quantity
		points   []Point
		limit    int64
		want     Kind
	}{
		"descriptors 81, 93, 105 at ten-minute steps": {
			Descriptors, sparse(10*time.Minute, 81, 93, 105), 1024, Leak,
		},
		"the same under the limit of a launch agent": {
			Descriptors, sparse(10*time.Minute, 81, 93, 105), 256, Leak,
		},
		"the same every second, twelve at once": {
			Descriptors, dense(35*time.Minute, idle(func(s int) float64 { return 81 + 12*float64(s/600) })), 1024, Leak,
		},
		"the same every second, one at a time": {
			Descriptors, dense(30*time.Minute, idle(func(s int) float64 { return 81 + float64(s/50) })), 1024, Leak,
		},
		"twelve a minute with no work to do": {
			Descriptors, dense(20*time.Minute, idle(func(s int) float64 { return 20 + 12*float64(s/60) })), 1024, Leak,
		},
		"15 to 17 after the fix": {
			Descriptors, sparse(10*time.Minute, 15, 16, 17), 1024, Flat,
		},
		"15 to 17 every second for a day": {
			Descriptors, dense(day, idle(func(int) float64 { return 15 + float64(jitter.IntN(3)) })), 1024, Flat,
		},
		"15 to 17 once in a day": {
			Descriptors, dense(day, idle(func(s int) float64 { return 15 + float64(s/36000) })), 1024, Flat,
		},
		"145 in one step after 78 flat minutes": {
			Descriptors, dense(2*time.Hour, idle(stepAt(78*60, 20, 145))), 1024, Plateau,
		},
		"145 in one step, a minute later": {
			Descriptors, dense(79*time.Minute, idle(stepAt(78*60, 20, 145))), 1024, Burst,
		},
		"145 in one step, at one point a minute": {
			Descriptors, sparse(time.Minute, append(repeat(20, 78), repeat(165, 20)...)...), 1024, Plateau,
		},
		"145 with each of five reloads": {
			Descriptors, dense(6*time.Hour, idle(func(s int) float64 { return 20 + 145*float64((s+1800)/4700) })), 1024, Leak,
		},
		"two a day for three days": {
			Descriptors, dense(3*day, idle(func(s int) float64 { return 15 + float64(s/43200) })), 1024, Leak,
		},
		"a busy window that recedes": {
			Descriptors, dense(2*time.Hour, busyWindow(80*60, 110*60, 20, 60)), 1024, Burst,
		},
		"the same while it is busy": {
			Descriptors, dense(100*time.Minute, busyWindow(80*60, 110*60, 20, 60)), 1024, Burst,
		},
		"the same a day later": {
			Descriptors, dense(day, busyWindow(80*60, 110*60, 20, 60)), 1024, Flat,
		},
		"sawtooth of a collector, a minute a tooth": {
			AnonymousBytes, dense(2*time.Hour, idle(sawtooth(60, 80*mib, 80*mib))), gib, Flat,
		},
		"sawtooth of a collector, seven minutes a tooth": {
			AnonymousBytes, dense(5*time.Hour+200*time.Second, idle(sawtooth(420, 80*mib, 80*mib))), gib, Flat,
		},
		"sawtooth of a collector, two hours a tooth": {
			AnonymousBytes, dense(day-10*time.Minute, idle(sawtooth(7200, 80*mib, 80*mib))), gib, Flat,
		},
		"growth at start-up, then a plateau": {
			AnonymousBytes, dense(3*time.Hour, idle(startUp(300, 60*mib, 180*mib))), gib, Plateau,
		},
		"slow growth at start-up, then a plateau": {
			AnonymousBytes, dense(12*time.Hour, idle(startUp(2400, 60*mib, 180*mib))), gib, Plateau,
		},
		"pools that fill at start-up": {
			Descriptors, dense(2*time.Hour, idle(startUp(240, 12, 30))), 256, Plateau,
		},
		"2 GB an hour": {
			AnonymousBytes, dense(time.Hour, idle(func(s int) float64 { return 300*mib + 2e9*float64(s)/3600 })), 4 * gib, Leak,
		},
		"2 GB an hour under a collector": {
			AnonymousBytes, dense(time.Hour, idle(func(s int) float64 {
				return sawtooth(90, 0, 100*mib)(s) + 300*mib + 2e9*float64(s)/3600
			})), 4 * gib, Leak,
		},
		"two descriptors with each search": {
			Descriptors, dense(6*time.Hour, withTurns(600, 20, func(turn int) float64 { return 20 + 2*float64(turn) })), 256, Staircase,
		},
		"three seconds of anything": {
			Descriptors, dense(3*time.Second, idle(func(int) float64 { return 20 })), 1024, Learning,
		},
		"nothing at all": {Descriptors, nil, 1024, Learning},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(c.quantity, c.points, c.limit)
			t.Logf("%s %.2f: %s", v.Kind, v.Confidence, v.Evidence)
			if v.Kind != c.want {
				t.Errorf("verdict %s, want %s", v.Kind, c.want)
			}
			if v.Confidence < 0 || v.Confidence > 1 || math.IsNaN(v.Confidence) {
				t.Errorf("confidence %v", v.Confidence)
			}
			if v.Evidence == "" || strings.Contains(v.Evidence, "NaN") || strings.Contains(v.Evidence, "Inf") {
				t.Errorf("evidence %q", v.Evidence)
			}
		})
	}
}

func repeat(v int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func stepAt(at int, base, height float64) func(int) float64 {
	return func(s int) float64 {
		if s < at {
			return base
		}
		return base + height
	}
}

// busyWindow is busy between two seconds, rises all the while, and recedes within a minute.
func busyWindow(from, to int, base, height float64) shape {
	return func(s int) (float64, bool) {
		switch {
		case s < from || s > to+60:
			return base, true
		case s < to:
			return base + height*float64(s-from)/float64(to-from), false
		}
		return base + height*float64(to+60-s)/60, true
	}
}

func sawtooth(period int, base, height float64) func(int) float64 {
	return func(s int) float64 { return base + height*float64(s%period)/float64(period) }
}

func startUp(tau, base, height float64) func(int) float64 {
	return func(s int) float64 { return base + height*(1-math.Exp(-float64(s)/tau)) }
}

// withTurns is busy for length seconds in every period; the value belongs to the number of turns that were done.
func withTurns(period, length int, value func(turn int) float64) shape {
	return func(s int) (float64, bool) {
		busy := s%period >= period-length
		turn := s / period
		if busy {
			return value(turn) + 6, false
		}
		return value(turn), true
	}
}
