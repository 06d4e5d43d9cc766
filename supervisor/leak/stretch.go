package leak

import (
	"math"
	"slices"
)

const (
	// parts is the number of parts a stretch is cut into to see whether growth is spread over it.
	parts = 6
	// spread is the part of the steps between parts that must rise. One of five may stand still.
	spread = 0.8
	// fair is the part of the mean step that counts as a rise.
	fair = 0.3
	// slowing is the ratio of the last two steps to the first two below which growth is ending by itself.
	slowing = 0.5
	// recurring is the number of steps with flat ground between them that make a series of steps. Two may be chance.
	recurring = 3
	// similar is the greatest ratio between the steps of such a series.
	similar = 2.0
	// decimated bounds the points of a robust slope: 20 have 190 pairs.
	decimated = 20
)

// A stretch is the idle floors of the newest bins of a level, oldest first.
type stretch struct {
	n     int
	width float64
	at    [binsKept]float64 // seconds after the first point
	floor [binsKept]float64
	kept  [binsKept]float64 // the least floor from here to the end: what was never given back
	bins  [binsKept]*bin
}

// load fills s with the newest bins of l.
func (s *stretch) load(l *level, bins int) {
	s.n, s.width = 0, float64(l.width)
	for i := range l.count {
		b := l.at(i)
		if !b.idle() || int(l.at(l.count-1).n-b.n) >= bins {
			continue
		}
		s.bins[s.n], s.at[s.n], s.floor[s.n] = b, l.start(b), float64(b.floor)
		s.n++
	}
	least := math.Inf(1)
	for i := s.n - 1; i >= 0; i-- {
		least = min(least, s.floor[i])
		s.kept[i] = least
	}
}

// enough is the number of bins that growth must be seen in. Bins of seconds are many, so few of them mean that most of the
// stretch is unknown; where readings are minutes apart, three in a row are all that there is.
func (s *stretch) enough() int {
	if s.width < 60 {
		return 5
	}
	return 3
}

// A rise is growth within a stretch, between two of its bins.
type rise struct {
	first, last  int // the bins
	from, to     float64
	time         float64 // seconds
	within       float64 // seconds in which all of it came: of a series of steps, from the first to the last
	order        float64 // part of the steps that rise
	steps        int     // of a series of steps
	noise, slope float64 // filled in by measure
}

func (r rise) grown() float64 { return r.to - r.from }

// middle returns the bin that stands for part j of k. What is kept never falls, so the middle is the median.
func (s *stretch) middle(j, k int) int {
	lo, hi := j*s.n/k, (j+1)*s.n/k
	return (lo + hi - 1) / 2
}

func (s *stretch) between(first, last int) rise {
	time := s.at[last] - s.at[first]
	return rise{first: first, last: last, from: s.kept[first], to: s.kept[last], time: time, within: time}
}

// steady finds growth that is spread over the stretch and goes on: the steps between the medians of its parts rise, and do
// not die down.
func (s *stretch) steady() (rise, bool) {
	k := min(parts, s.n)
	if k < 3 {
		return rise{}, false
	}
	first, last := s.middle(0, k), s.middle(k-1, k)
	r := s.between(first, last)
	if r.grown() <= 0 {
		return r, false
	}
	mean := r.grown() / float64(k-1)
	var diffs [parts - 1]float64
	rising := 0
	for j := 1; j < k; j++ {
		diffs[j-1] = s.kept[s.middle(j, k)] - s.kept[s.middle(j-1, k)]
		if diffs[j-1] >= fair*mean {
			rising++
		}
	}
	r.order = float64(rising) / float64(k-1)
	if r.order < spread {
		return r, false
	}
	d := diffs[:k-1]
	if k == parts && d[3]+d[4] < slowing*(d[0]+d[1]) {
		return r, false
	}
	return r, true
}

// stairs finds a series of similar steps of at least the given height with flat ground after each. The end of a stretch is
// no ground: what rises there may still be given back.
func (s *stretch) stairs(least float64) (rise, bool) {
	ground := least / binsKept
	var run, lowest, highest float64
	steps, begin, last := 0, 0, 0
	for i := 1; i < s.n; i++ {
		if d := s.kept[i] - s.kept[i-1]; d > ground {
			run += d
			continue
		}
		if run >= least {
			if steps == 0 {
				lowest, highest, begin = run, run, i
			}
			lowest, highest = min(lowest, run), max(highest, run)
			steps, last = steps+1, i
		}
		run = 0
	}
	r := s.between(0, last)
	r.order, r.steps, r.within = 1, steps, s.at[last]-s.at[begin]
	return r, steps >= recurring && highest <= similar*lowest
}

// measure fills in what costs sorting: the noise above what is kept, and the robust slope.
func (s *stretch) measure(r *rise) {
	var over [binsKept]float64
	for i := range s.n {
		over[i] = s.floor[i] - s.kept[i]
	}
	r.noise = median(over[:s.n])
	r.slope = s.theilSen()
	if r.slope <= 0 { // most of a staircase is flat
		r.slope = r.grown() / r.time
	}
}

// theilSen returns the median of the slopes between all pairs of bins. It bears 29 % of outliers, such as a last rise
// that will be given back.
func (s *stretch) theilSen() float64 {
	n := min(s.n, decimated)
	var slopes [decimated * (decimated - 1) / 2]float64
	count := 0
	for i := range n {
		a := i * (s.n - 1) / (n - 1)
		for j := i + 1; j < n; j++ {
			b := j * (s.n - 1) / (n - 1)
			slopes[count] = (s.kept[b] - s.kept[a]) / (s.at[b] - s.at[a])
			count++
		}
	}
	return median(slopes[:count])
}

// median sorts v and returns its middle.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// A step is a rise between two bins after which everything is higher than anything before.
type step struct {
	height   float64
	from, to float64
	took     float64 // seconds
	since    float64 // seconds from its end to the end of the stretch
}

// step finds the greatest step. It may take a third of the stretch, which is how growth at start-up looks, and at most as
// long as it has lasted since. young says that the stretch begins with the series, so that its first bin is a before.
func (s *stretch) step(young bool) step {
	var best step
	for length := 1; length <= s.n/3; length++ {
		highest := math.Inf(-1)
		for i := 0; i+length < s.n; i++ {
			highest = max(highest, s.floor[i])
			if i == 0 && !young {
				continue
			}
			j := i + length
			took, since := s.at[j]-s.at[i], s.at[s.n-1]-s.at[j]+s.width
			if h := s.kept[j] - highest; h > 1.1*best.height && since >= took {
				best = step{height: h, from: highest, to: s.kept[j], took: took, since: since}
			}
		}
	}
	return best
}
