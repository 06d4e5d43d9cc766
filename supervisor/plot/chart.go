// Package plot draws how a quantity grew: as text for terminals and as an SVG file of its own.
//
// Rules: a chart is a value and drawing it is a pure function, so that a picture can be compared with a file. Axes carry
// their unit. Where a line has more points than there are columns, each column shows the lowest and the highest of its
// points, so that a short peak is never drawn away. A gap in the readings is a gap in the line.
package plot

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Point is one reading.
type Point struct {
	At    time.Time
	Value float64
}

// A Line is one quantity over time, oldest point first.
type Line struct {
	Name   string
	Points []Point
}

// A Mark is a moment worth knowing, a restart as a rule.
type Mark struct {
	At    time.Time
	Label string
}

// A Unit says how values are written.
type Unit int

// Units.
const (
	Count Unit = iota
	Bytes
)

// A Chart is what is drawn. From and To bound it in time; lines and marks outside are cut off.
type Chart struct {
	Title string
	Unit  Unit
	Lines []Line
	Marks []Mark
	Limit float64 // drawn as a line if it is near enough to be of interest; 0 for none
	From  time.Time
	To    time.Time
}

// gap is the distance of two points that are not connected: readings come once a second or once a minute.
const gap = 150 * time.Second

// near says when a limit is drawn: a line at five times the highest value would press all else flat.
const near = 2

// Empty says whether there is nothing to draw.
func (c Chart) Empty() bool {
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if c.inside(p.At) {
				return false
			}
		}
	}
	return true
}

func (c Chart) inside(t time.Time) bool { return !t.Before(c.From) && !t.After(c.To) }

// x places a moment between 0 and 1.
func (c Chart) x(t time.Time) float64 {
	span := c.To.Sub(c.From)
	if span <= 0 {
		return 0
	}
	return float64(t.Sub(c.From)) / float64(span)
}

// A scale is the value axis.
type scale struct {
	low, high, step float64
}

// y places a value between 0 (low) and 1.
func (s scale) y(v float64) float64 { return min(1, max(0, (v-s.low)/(s.high-s.low))) }

// ticks are the labelled values, lowest first.
func (s scale) ticks() []float64 {
	var list []float64
	for i := 0; ; i++ {
		v := s.low + float64(i)*s.step
		if v > s.high+s.step/1000 {
			return list
		}
		list = append(list, v)
	}
}

// scale chooses an axis with about n steps. It begins at 0, unless the line would be a flat one far above it.
func (c Chart) scale(n int) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if c.inside(p.At) {
				low, high = min(low, p.Value), max(high, p.Value)
			}
		}
	}
	if low > high {
		low, high = 0, 1
	}
	if c.Limit > 0 && c.Limit <= high*near {
		high = max(high, c.Limit)
	}
	if low < high*0.75 {
		low = 0
	}
	step := c.Unit.step((high - low) / float64(max(n, 1)))
	s := scale{low: math.Floor(low/step) * step, step: step}
	s.high = math.Ceil(high/step) * step
	if s.high <= s.low {
		s.high = s.low + step
	}
	return s
}

// step is the smallest round number from least on.
func (u Unit) step(least float64) float64 {
	unit := 1.0
	if u == Bytes {
		for unit = 1024; least > 500*unit; unit *= 1024 {
		}
	}
	for ; ; unit *= 1000 {
		for _, n := range []float64{1, 2, 5, 10, 20, 50, 100, 200, 500} {
			if n*unit >= least {
				return n * unit
			}
		}
	}
}

// text writes a value with its unit.
func (u Unit) text(v float64) string {
	if u == Count {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	for _, unit := range []struct {
		size float64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if math.Abs(v) >= unit.size {
			return strconv.FormatFloat(math.Round(v/unit.size*10)/10, 'f', -1, 64) + " " + unit.name
		}
	}
	return fmt.Sprintf("%.0f B", v)
}

// timeSteps are round distances of time labels.
var timeSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// times are the labelled moments, at most n, at round local times.
func (c Chart) times(n int) []time.Time {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if c.To.Sub(c.From) <= time.Duration(max(n, 1))*s {
			step = s
			break
		}
	}
	var list []time.Time
	_, offset := c.From.Zone()
	local := time.Duration(offset) * time.Second
	for t := c.From.Add(local).Truncate(step).Add(-local); !t.After(c.To); t = t.Add(step) {
		if !t.Before(c.From) {
			list = append(list, t)
		}
	}
	return list
}

// clock writes a label of the time axis.
func (c Chart) clock(t time.Time) string {
	if c.To.Sub(c.From) < 10*time.Minute {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

// stretches cuts a line where readings are missing, and to the time of the chart.
func (c Chart) stretches(l Line) [][]Point {
	var all [][]Point
	var part []Point
	for _, p := range l.Points {
		if !c.inside(p.At) {
			continue
		}
		if n := len(part); n > 0 && p.At.Sub(part[n-1].At) > gap {
			all, part = append(all, part), nil
		}
		part = append(part, p)
	}
	if len(part) > 0 {
		all = append(all, part)
	}
	return all
}
