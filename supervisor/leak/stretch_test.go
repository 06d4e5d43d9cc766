package leak

import (
	"math"
	"slices"
	"testing"
	"time"
)

// floors loads a stretch of minutes with the given floors; negative ones are missing.
func floors(values ...float64) *stretch {
	l := &level{width: 60}
	for i, v := range values {
		if v >= 0 {
			l.bin(uint32(60 * i)).floor = float32(v)
		}
	}
	s := &stretch{}
	s.load(l, binsKept)
	return s
}

func TestLevelKeepsTheLeastIdleValueOfEachBin(t *testing.T) {
	rng := seeded(3)
	d := NewDetector(Descriptors)
	type want struct{ floor, peak float32 }
	wants := map[uint32]map[uint32]want{}
	for _, w := range widths {
		wants[w] = map[uint32]want{}
	}
	sec := uint32(0)
	for i := range 20000 {
		if i > 0 {
			sec += 1 + uint32(rng.IntN(40))
		}
		value, idle := float32(rng.IntN(1000)), rng.IntN(3) > 0
		d.Add(Point{Time: noon.Add(time.Duration(sec) * time.Second), Value: int64(value), Idle: idle})
		for _, w := range widths {
			e, ok := wants[w][sec/w]
			if !ok {
				e.floor = nothing
			}
			e.peak = max(e.peak, value)
			if idle {
				e.floor = min(e.floor, value)
			}
			wants[w][sec/w] = e
		}
	}
	d.fill()
	for i := range d.levels {
		l := &d.levels[i]
		if l.count != min(binsKept, len(wants[l.width])) {
			t.Errorf("level of %d s keeps %d bins", l.width, l.count)
		}
		for j := range l.count {
			b := l.at(j)
			if e := wants[l.width][b.n]; b.floor != e.floor || b.peak != e.peak {
				t.Errorf("bin %d of %d s: %v to %v, want %v to %v", b.n, l.width, b.floor, b.peak, e.floor, e.peak)
			}
			if j > 0 && b.n <= l.at(j-1).n {
				t.Errorf("bins of %d s out of order", l.width)
			}
		}
	}
}

func TestKeptIsWhatWasNeverGivenBack(t *testing.T) {
	s := floors(5, 9, 7, -1, 8, 20, 11)
	if want := []float64{5, 7, 7, 8, 11, 11}; !slices.Equal(s.kept[:s.n], want) {
		t.Errorf("kept %v, want %v", s.kept[:s.n], want)
	}
}

func TestSteady(t *testing.T) {
	ramp := make([]float64, 60)
	slow := make([]float64, 60)
	tail := make([]float64, 60)
	stop := make([]float64, 60)
	for i := range ramp {
		ramp[i] = 10 + float64(i)
		slow[i] = 10 + 100*(1-math.Exp(-float64(i)/20))
		tail[i] = 10 + max(0, float64(i-48))*5
		stop[i] = 10 + min(40, float64(i))
	}
	for name, c := range map[string]struct {
		floors []float64
		want   bool
	}{
		"a straight line":                    {ramp, true},
		"growth that dies down":              {slow, false},
		"only the end rises":                 {tail, false},
		"growth that has stopped":            {stop, false},
		"three points in a row":              {[]float64{81, 93, 105}, true},
		"two points":                         {[]float64{81, 93}, false},
		"three points, one below":            {[]float64{81, 93, 85}, false},
		"one of five stands still":           {[]float64{1, 2, 3, 3, 4, 5}, true},
		"two of five stand still":            {[]float64{1, 2, 2, 3, 3, 4}, false},
		"level":                              {[]float64{5, 5, 5, 5, 5, 5}, false},
		"with high readings between":         {[]float64{1, 90, 2, 80, 3, 70, 4, 60, 5, 50, 6, 40, 7}, true},
		"falling":                            {[]float64{9, 8, 7, 6, 5, 4}, false},
		"a rise that was given back at last": {[]float64{1, 2, 3, 4, 5, 6, 7, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if r, ok := floors(c.floors...).steady(); ok != c.want {
				t.Errorf("%v: %+v", ok, r)
			}
		})
	}
}

func TestStairs(t *testing.T) {
	for name, c := range map[string]struct {
		floors []float64
		want   int // steps, 0: no series
	}{
		"three alike":                 {[]float64{1, 1, 11, 11, 21, 21, 31, 31}, 3},
		"three, the last is unproven": {[]float64{1, 1, 11, 11, 21, 21, 31}, 0},
		"two":                         {[]float64{1, 1, 11, 11, 21, 21, 21}, 0},
		"each takes two bins":         {[]float64{1, 1, 6, 11, 11, 16, 21, 21, 26, 31, 31}, 3},
		"one is much greater":         {[]float64{1, 1, 11, 11, 21, 21, 61, 61}, 0},
		"one is too small to count":   {[]float64{1, 1, 11, 11, 12, 12, 22, 22}, 0},
		"given back":                  {[]float64{1, 1, 11, 11, 21, 21, 31, 31, 1}, 0},
		"a line is one long step":     {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := floors(c.floors...).stairs(5)
			if ok != (c.want > 0) || ok && r.steps != c.want {
				t.Errorf("%v: %+v", ok, r)
			}
		})
	}
}

func TestStep(t *testing.T) {
	flat := func(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }
	for name, c := range map[string]struct {
		floors []float64
		young  bool
		height float64
		since  float64
	}{
		"one step":                    {append(flat(20, 10), flat(165, 5)...), false, 145, 300},
		"two bins to rise":            {append(append(flat(20, 10), 90), flat(165, 5)...), false, 145, 300},
		"noise above and below":       {[]float64{20, 22, 21, 20, 60, 64, 61, 60, 62}, false, 38, 300},
		"given back":                  {append(append(flat(20, 10), flat(165, 5)...), 20), false, 0, 0},
		"at once, in an old series":   {append(flat(20, 1), flat(165, 9)...), false, 0, 0},
		"at once, in a new series":    {append(flat(20, 1), flat(165, 9)...), true, 145, 540},
		"just now":                    {append(flat(20, 10), 165), false, 145, 60},
		"a fall":                      {append(flat(165, 10), flat(20, 5)...), false, 0, 0},
		"the height was there before": {append(append(flat(165, 3), flat(20, 10)...), flat(165, 5)...), false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st := floors(c.floors...).step(c.young)
			if st.height != c.height || st.since != c.since {
				t.Errorf("%+v, want height %v since %v", st, c.height, c.since)
			}
		})
	}
}

func TestTheilSenBearsOutliers(t *testing.T) {
	line := make([]float64, 60)
	for i := range line {
		line[i] = 100 + 6*float64(i)
	}
	for i := 50; i < 60; i++ {
		line[i] += 50 * float64(i-49) // a last rise that may be given back
	}
	s := floors(line...)
	if got := s.theilSen() * 60; math.Abs(got-6) > 0.5 {
		t.Errorf("%v a minute, want 6", got)
	}
}

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{0: {}, 3: {3}, 2.5: {4, 1}, 5: {9, 5, 1}} {
		if got := median(v); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
