package leak

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// rushBins is the shortest window: five readings, four seconds.
const rushBins = 5

// windows are the stretches in which growth is looked for, as level and number of bins: each about half as long as the
// next, from five seconds to a week, since growth shows in a stretch that it fills for the most part.
var windows = [...]struct{ level, bins int }{
	{0, rushBins}, {0, 15}, {0, 30}, {0, 60},
	{1, 15}, {1, 30}, {1, 60},
	{2, 15}, {2, 30}, {2, 60},
	{3, 15}, {3, 30}, {3, 60},
	{4, 15}, {4, 30}, {4, 60},
	{5, 15}, {5, 30}, {5, 60},
}

// A finding is growth in one window with what is made of it.
type finding struct {
	rise
	evident     bool    // it is more than noise and nothing that was there before
	proven      bool    // it is a leak or a staircase; otherwise it is watched
	rush        bool    // it took so much of the room that nothing else counts
	quiet       bool    // it goes on without work
	stairs      bool    // it goes with work
	work        uint32  // units of work ended meanwhile
	quietTime   float64 // seconds meanwhile without work or its after-effects
	quietGrowth float64
	least       float64 // below this it is noise
	need        float64 // from this on it is proven
	surety      float64
}

// Verdict judges the points so far. A limit of 0 or less is none.
func (d *Detector) Verdict(limit int64) Verdict {
	d.fill()
	p := &profiles[d.quantity]
	v := Verdict{Unit: p.unit, TimeToLimit: Never, Pace: d.pace()}
	found, watched := d.search(float64(limit))
	switch {
	case found.evident:
		d.sayGrowth(&v, found, limit)
	case d.age < shortest || d.seen < 3:
		v.Kind = Learning
		v.Evidence = fmt.Sprintf("%d idle readings in %s are too few to judge", d.seen, span(d.age))
		d.forecast(&v, v.Pace, limit)
	case watched.evident:
		d.sayWatched(&v, watched, limit)
	default:
		d.saySettled(&v)
	}
	return v
}

// search returns the surest proven growth, and the longest that is only watched.
func (d *Detector) search(limit float64) (found, watched finding) {
	var s stretch
	for _, w := range windows {
		l := &d.levels[w.level]
		if w.bins < binsKept && l.reach() <= w.bins && w.bins > rushBins {
			continue // the same as the longer one
		}
		s.load(l, w.bins)
		f := d.growth(&s, limit)
		switch {
		case f.proven && f.surety > found.surety+0.05: // at like surety the shorter one is the news
			found = f
		case f.evident && !f.proven:
			watched = f
		}
	}
	return found, watched
}

// growth judges the growth in one stretch.
func (d *Detector) growth(s *stretch, limit float64) finding {
	p := &profiles[d.quantity]
	r, ok := s.steady()
	if !ok && s.width >= 60 {
		r, ok = s.stairs(max(p.least, p.relative*s.kept[0]))
	}
	if !ok {
		return finding{}
	}
	f := finding{rise: r}
	f.least = max(p.least, p.relative*f.from)
	if f.grown() < f.least || f.to < d.highWater(s.at[0])+f.least {
		return finding{}
	}
	room := limit - f.from
	if limit <= 0 {
		room = p.room
	}
	f.rush = limit > 0 && s.n >= p.rushPoints && f.grown() >= rush*room
	if !f.rush && (f.time < shortest.Seconds() || s.n < s.enough()) {
		return finding{}
	}
	s.measure(&f.rise)
	if f.least = max(f.least, 2*f.noise); f.grown() < f.least {
		return finding{}
	}
	d.drive(&f, s)
	f.need = d.needed(&f, room)
	f.evident, f.proven = true, f.rush || f.grown() >= f.need
	if f.work > 0 && !f.quiet && f.time >= shortest.Seconds() && f.within < p.afterWork {
		f.proven = false // garbage of the turns, which no idle minute has yet given back
	}
	points := float64(s.n)
	f.surety = f.order * f.grown() / (f.grown() + f.least/2) * points / (points + 1)
	return f
}

// highWater returns the highest idle floor before the given second. What a worker has held and given back before is no
// news when it holds it again.
func (d *Detector) highWater(before float64) float64 {
	highest := math.Inf(-1)
	for i := range d.levels {
		l := &d.levels[i]
		for j := range l.count {
			b := l.at(j)
			if l.start(b)+float64(l.width) > before {
				break
			}
			if b.idle() {
				highest = max(highest, float64(b.floor))
			}
		}
	}
	return highest
}

const (
	// quietPace is the part of the whole growth's speed that growth in quiet needs to be the same growth.
	quietPace = 0.5
	// quietCap is how much of what is expected of one part of a stretch counts, so that one event in quiet is no trend.
	quietCap = 2
)

// drive tells growth that goes on without work from growth that goes with it. Where there was too little quiet to see
// growth in it, or where the quiet gives back what the work took, neither is known.
func (d *Detector) drive(f *finding, s *stretch) {
	a, b := s.bins[f.first], s.bins[f.last]
	f.work = b.work - a.work
	f.quietTime, f.quietGrowth = float64(b.quietTime-a.quietTime), float64(b.quietGrowth-a.quietGrowth)
	speed, sum := f.grown()/f.time, 0.0
	whole := quietPace * speed * f.quietTime
	if speed*f.quietTime < f.least {
		return
	}
	k := min(parts-1, f.last-f.first)
	asked, agreed := 0, 0
	for j := range k {
		a, b := s.bins[f.first+j*(f.last-f.first)/k], s.bins[f.first+(j+1)*(f.last-f.first)/k]
		growth, expected := float64(b.quietGrowth-a.quietGrowth), speed*float64(b.quietTime-a.quietTime)
		sum += min(growth, quietCap*expected)
		if expected > 0 {
			asked++
		}
		if expected > 0 && growth >= quietPace*expected {
			agreed++
		}
	}
	f.quiet = sum >= max(whole, f.least) && 2*agreed > asked
	f.stairs = math.Abs(f.quietGrowth) < whole && f.work >= recurring
}

// needed returns how much growth is called a leak: a part of the room there was. While it is smaller there is time to wait
// and see whether it is given back; and the limit is never near, as the part is small.
func (d *Detector) needed(f *finding, room float64) float64 {
	p := &profiles[d.quantity]
	need := p.share * room
	late := p.lateShare * room
	if f.quiet && d.age >= grace {
		need, late = min(p.quietShare*room, p.quietMost), p.quietLate*room
	}
	if f.time >= patience.Seconds() && f.steps == 0 && (f.quiet || f.order == 1) {
		need = min(need, late)
	}
	return max(need, f.least)
}

// forecast fills in slope and time to the limit.
func (d *Detector) forecast(v *Verdict, slope float64, limit int64) {
	v.Slope = slope
	if slope <= 0 || limit <= 0 {
		return
	}
	left := max(0, float64(limit)-d.value()) / slope
	if left < float64(Never)/float64(time.Second) {
		v.TimeToLimit = time.Duration(left * float64(time.Second))
	}
}

// settled looks at what is not growing: a step that stays, a burst, or nothing.
func (d *Detector) settled() (Kind, step) {
	var best step
	var s stretch
	p := &profiles[d.quantity]
	for _, i := range []int{2, 3, 4} {
		l := &d.levels[i]
		s.load(l, binsKept)
		if s.n < 3 {
			continue
		}
		st := s.step(s.bins[0].n == 0)
		if st.height < max(p.least, p.relative*st.from) || st.to < d.highWater(s.at[0])+p.least {
			continue
		}
		if st.height > 1.1*best.height {
			best = st
		}
	}
	switch {
	case best.height == 0:
		return Flat, best
	case best.since < lasting.Seconds():
		return Burst, best
	}
	return Plateau, best
}

// excursion finds a peak of the last hour with low ground around it. What goes up and down all the time has none: it
// breathes.
func (d *Detector) excursion() (peak, usual, ago float64) {
	l := &d.levels[2]
	if d.age >= time.Hour {
		l = &d.levels[3]
	}
	p := &profiles[d.quantity]
	var sorted [binsKept]float64
	for i := range l.count {
		b := l.at(i)
		sorted[i] = float64(b.peak)
		if begin := l.start(b); d.age.Seconds()-begin <= 3600+float64(l.width) && sorted[i] >= peak {
			peak, ago = sorted[i], max(0, d.age.Seconds()-begin-float64(l.width))
		}
	}
	slices.Sort(sorted[:l.count])
	usual = sorted[l.count/2]
	if peak-usual < max(p.least, p.relative*usual) || l.excursions((peak+usual)/2) > few {
		return 0, 0, 0
	}
	return peak, usual, ago
}

// few is the number of excursions in a window that are bursts and no habit.
const few = 2

// excursions counts the runs of bins that reach a height.
func (l *level) excursions(height float64) int {
	n, up := 0, false
	for i := range l.count {
		above := float64(l.at(i).peak) > height
		if above && !up {
			n++
		}
		up = above
	}
	return n
}
