package leak

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// sampled are shapes of every kind, large enough that no floor of a profile decides.
func sampled(seed uint64) map[string]shape {
	rng := seeded(seed)
	base, size := 200+float64(rng.IntN(400)), 200+float64(rng.IntN(200))
	period := 30 + rng.IntN(30)
	return map[string]shape{
		"flat":      idle(func(int) float64 { return base }),
		"leak":      idle(func(s int) float64 { return base + size*float64(s)/7200 }),
		"step":      idle(stepAt(3600+rng.IntN(1800), base, size)),
		"sawtooth":  idle(sawtooth(period, base, size)),
		"start-up":  idle(startUp(200+float64(rng.IntN(200)), base, size)),
		"window":    busyWindow(4000+rng.IntN(500), 5200+rng.IntN(500), base, size),
		"staircase": withTurns(300+rng.IntN(100), 20, func(turn int) float64 { return base + size*float64(turn)/12 }),
	}
}

// each calls f with every sampled shape under ten seeds.
func each(t *testing.T, f func(t *testing.T, seed uint64, points []Point)) {
	t.Helper()
	for seed := range uint64(10) {
		for name, s := range sampled(seed) {
			t.Run(name, func(t *testing.T) { f(t, seed, dense(2*time.Hour, s)) })
		}
	}
}

const roomy = 1500

func mapped(points []Point, f func(i int, v int64) int64) []Point {
	out := slices.Clone(points)
	for i := range out {
		out[i].Value = f(i, out[i].Value)
	}
	return out
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*max(math.Abs(a), math.Abs(b), 1e-9) }

func TestVerdictDoesNotDependOnTheUnit(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, points []Point) {
		mibs := mapped(points, func(_ int, v int64) int64 { return v * mib })
		k := int64(2 + seed%2) // with more, a gibibyte of growth is reached, which is called a leak whatever the room
		a := Judge(AnonymousBytes, mibs, roomy*mib)
		b := Judge(AnonymousBytes, mapped(mibs, func(_ int, v int64) int64 { return v * k }), k*roomy*mib)
		if a.Kind != b.Kind || !near(a.Slope*float64(k), b.Slope) {
			t.Errorf("seed %d: %s %g became %s %g when all was taken %d times\n%s\n%s", seed, a.Kind, a.Slope, b.Kind, b.Slope, k, a.Evidence, b.Evidence)
		}
	})
}

func TestVerdictDependsOnTheRoomAndNotOnTheLevel(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, points []Point) {
		shift := int64(seeded(seed).IntN(5000))
		a := Judge(Descriptors, points, roomy)
		b := Judge(Descriptors, mapped(points, func(_ int, v int64) int64 { return v + shift }), roomy+shift)
		if a.Kind != b.Kind || !near(a.Slope, b.Slope) || a.TimeToLimit.Round(time.Second) != b.TimeToLimit.Round(time.Second) {
			t.Errorf("seed %d: %s %g became %s %g when shifted by %d", seed, a.Kind, a.Slope, b.Kind, b.Slope, shift)
		}
	})
}

func TestNoiseChangesNoVerdict(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, points []Point) {
		rng := seeded(seed)
		a := Judge(Descriptors, points, roomy)
		b := Judge(Descriptors, mapped(points, func(_ int, v int64) int64 { return v + rng.Int64N(4) }), roomy)
		if a.Kind != b.Kind {
			t.Errorf("seed %d: %s became %s with noise\n%s\n%s", seed, a.Kind, b.Kind, a.Evidence, b.Evidence)
		}
		if a.Kind.Grows() && math.Abs(a.Slope-b.Slope) > 0.1*a.Slope {
			t.Errorf("seed %d: slope %g became %g with noise", seed, a.Slope, b.Slope)
		}
	})
}

func TestOutliersChangeNoVerdict(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, points []Point) {
		rng := seeded(seed)
		a := Judge(Descriptors, points, roomy)
		b := Judge(Descriptors, mapped(points, func(_ int, v int64) int64 {
			if rng.IntN(20) == 0 {
				return v + rng.Int64N(300) // one point in twenty is far off
			}
			return v
		}), roomy)
		if a.Kind.Grows() != b.Kind.Grows() {
			t.Errorf("seed %d: %s became %s with outliers\n%s\n%s", seed, a.Kind, b.Kind, a.Evidence, b.Evidence)
		}
	})
}

func TestMissedPointsChangeNoVerdict(t *testing.T) {
	each(t, func(t *testing.T, seed uint64, points []Point) {
		rng := seeded(seed)
		a := Judge(Descriptors, points, roomy)
		some := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Idle && rng.IntN(3) > 0 })
		b := Judge(Descriptors, some, roomy)
		if a.Kind.Grows() != b.Kind.Grows() {
			t.Errorf("seed %d: %s became %s when two of three points were missed\n%s\n%s", seed, a.Kind, b.Kind, a.Evidence, b.Evidence)
		}
	})
}

func TestAskingChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, _ uint64, points []Point) {
		d := NewDetector(Descriptors)
		for i, p := range points {
			d.Add(p)
			if i%97 == 0 {
				d.Verdict(roomy)
			}
		}
		if a, b := d.Verdict(roomy), Judge(Descriptors, points, roomy); a != b {
			t.Errorf("asked before: %+v, not asked: %+v", a, b)
		}
	})
}

func TestAClockSetBackIsWaitedOut(t *testing.T) {
	each(t, func(t *testing.T, _ uint64, points []Point) {
		var jumped []Point
		for i, p := range points {
			jumped = append(jumped, p)
			if i%500 == 499 {
				p.Time = p.Time.Add(-time.Hour)
				p.Value, p.Idle = 1e6, !p.Idle
				jumped = append(jumped, p)
			}
		}
		if a, b := Judge(Descriptors, points, roomy), Judge(Descriptors, jumped, roomy); a != b {
			t.Errorf("%+v became %+v", a, b)
		}
	})
}

// TestAnySeriesHasASoundVerdict feeds walks, jumps, gaps and busy stretches of any length.
func TestAnySeriesHasASoundVerdict(t *testing.T) {
	for seed := range uint64(300) {
		rng := seeded(seed)
		q := Quantity(seed % 2)
		d := NewDetector(q)
		now, value, busy := noon, rng.Int64N(1<<uint(1+rng.IntN(40))), false
		limit := rng.Int64N(1<<uint(1+rng.IntN(40))) - 1
		for range 1 + rng.IntN(3000) {
			now = now.Add(time.Duration(rng.Int64N(1 << uint(1+rng.IntN(42)))))
			if rng.IntN(20) == 0 {
				busy = !busy
			}
			if rng.IntN(3) == 0 {
				value = max(0, value+rng.Int64N(2*value/10+100)-value/10-50)
			}
			d.Add(Point{Time: now, Value: value, Idle: !busy})
			if rng.IntN(100) > 0 {
				continue
			}
			v := d.Verdict(limit)
			switch {
			case v.Confidence < 0 || v.Confidence > 1 || math.IsNaN(v.Confidence):
				t.Fatalf("seed %d: confidence %v: %+v", seed, v.Confidence, v)
			case v.TimeToLimit < 0, v.Span < 0, v.Pace < 0, math.IsNaN(v.Slope), math.IsInf(v.Slope, 0), v.Slope < 0:
				t.Fatalf("seed %d: %+v", seed, v)
			case limit <= 0 && v.TimeToLimit != Never:
				t.Fatalf("seed %d: time to no limit: %+v", seed, v)
			case v.Kind.Grows() && v.Slope == 0, v.Kind == "", v.Evidence == "":
				t.Fatalf("seed %d: nothing said: %+v", seed, v)
			case strings.Contains(v.Evidence, "NaN") || strings.Contains(v.Evidence, "Inf") || strings.Contains(v.Evidence, "%!"):
				t.Fatalf("seed %d: %s", seed, v.Evidence)
			}
		}
	}
}
