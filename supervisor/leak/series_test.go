package leak

import (
	"math/rand/v2"
	"time"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// sparse are points at the given distance, all idle.
func sparse(every time.Duration, values ...int64) []Point {
	var out []Point
	for i, v := range values {
		out = append(out, Point{Time: noon.Add(time.Duration(i) * every), Value: v, Idle: true})
	}
	return out
}

// A shape gives value and idleness at a second.
type shape func(sec int) (value float64, idle bool)

// idle makes a shape of a value that is always idle.
func idle(f func(sec int) float64) shape {
	return func(sec int) (float64, bool) { return f(sec), true }
}

// dense are points of f at one a second.
func dense(length time.Duration, f shape) []Point {
	n := int(length / time.Second)
	out := make([]Point, n)
	for i := range out {
		v, idle := f(i)
		out[i] = Point{Time: noon.Add(time.Duration(i) * time.Second), Value: int64(v), Idle: idle}
	}
	return out
}

// feed gives f to a new detector for the given time, asking for a verdict at every step of every; until returns true when
// it has seen enough.
func feed(q Quantity, length, every time.Duration, limit int64, f shape, until func(at time.Duration, v Verdict) bool) *Detector {
	d := NewDetector(q)
	step := int(every / time.Second)
	for i := range int(length / time.Second) {
		v, idle := f(i)
		d.Add(Point{Time: noon.Add(time.Duration(i) * time.Second), Value: int64(v), Idle: idle})
		if i%step == 0 && until(time.Duration(i)*time.Second, d.Verdict(limit)) {
			break
		}
	}
	return d
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 5)) }
