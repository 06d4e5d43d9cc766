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

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 5)) }
