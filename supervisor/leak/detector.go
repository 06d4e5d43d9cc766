package leak

import "time"

// A Detector takes the points of one quantity of one process and gives a verdict on demand. It keeps 9 KiB whatever it is
// given: per level the newest bins with their idle minima. It is not safe for concurrent use. A new process needs a new
// one, and so does one whose values were reset by its own doing; points from before a worker is ready belong into none.
type Detector struct {
	quantity Quantity

	began time.Time
	age   time.Duration // of the newest point
	seen  int           // idle points
	last  [4]reading    // the newest points, busy ones too
	count int           // of last

	busy  bool
	work  uint32        // changes from busy to idle
	calm  time.Duration // age from which on the last work has no more after-effects
	quiet quiet

	// coming is the bin of quietLevel that the newest points fall in, which ends at the second until. The levels from there on
	// get it when it is over: a point of each second would touch them all, and none is in the processor's cache by then.
	coming bin
	until  uint32

	levels [len(widths)]level
}

// A reading is a point as far as the pace needs it.
type reading struct {
	age   time.Duration
	value float64
}

// quiet is the running sum of time and growth without work.
type quiet struct {
	time   uint32
	growth float32
	before bin // the last idle bin of quietLevel that was closed
	any    bool
}

// NewDetector returns a detector without points.
func NewDetector(q Quantity) *Detector {
	d := &Detector{quantity: q}
	for i, w := range widths {
		d.levels[i].width = w
	}
	return d
}

// Add takes the next point. One that is older than the last is dropped, so that a clock set back does no harm.
func (d *Detector) Add(p Point) {
	if d.began.IsZero() {
		d.began = p.Time
	}
	age := p.Time.Sub(d.began)
	if age < d.age {
		return
	}
	d.age = age
	copy(d.last[:], d.last[1:])
	d.last[len(d.last)-1] = reading{age, float64(p.Value)}
	d.count = min(d.count+1, len(d.last))
	d.follow(p.Idle)
	sec, v := uint32(age/time.Second), float32(p.Value)
	if sec >= d.until {
		d.fill()
		d.closeQuiet()
		w := widths[quietLevel]
		d.coming = bin{n: sec / w, floor: nothing}
		d.until = (d.coming.n + 1) * w
	}
	point := bin{work: d.work, quietTime: d.quiet.time, quietGrowth: d.quiet.growth, floor: nothing, peak: v}
	if p.Idle {
		point.floor = v
	}
	d.coming.take(point)
	d.levels[0].bin(sec).take(point)
}

// fill gives the levels what has come.
func (d *Detector) fill() {
	if d.until == 0 {
		return
	}
	for i := quietLevel; i < len(d.levels); i++ {
		d.levels[i].bin(d.coming.n * widths[quietLevel]).take(d.coming)
	}
}

// follow counts units of work: from idle to busy and back.
func (d *Detector) follow(idle bool) {
	if !idle {
		d.busy = true
		return
	}
	d.seen++
	if d.busy {
		d.busy = false
		d.work++
		d.calm = d.age + settle
	}
}

// closeQuiet adds what happened between the two newest idle bins, if no work lies between them or shortly before.
func (d *Detector) closeQuiet() {
	l := &d.levels[quietLevel]
	if l.count == 0 {
		return
	}
	b := *l.at(l.count - 1)
	if !b.idle() {
		return
	}
	q := &d.quiet
	if q.any && q.before.work == b.work && time.Duration(l.start(&q.before))*time.Second >= d.calm {
		q.time += (b.n - q.before.n) * l.width
		q.growth += b.floor - q.before.floor
	}
	q.before, q.any = b, true
}

// pace returns the least growth per second of the last three points, 0 unless all grew: a jump has none.
func (d *Detector) pace() float64 {
	if d.count < len(d.last) {
		return 0
	}
	least := 0.0
	for i := 1; i < len(d.last); i++ {
		dt := (d.last[i].age - d.last[i-1].age).Seconds()
		if dt <= 0 || d.last[i].value <= d.last[i-1].value {
			return 0
		}
		if r := (d.last[i].value - d.last[i-1].value) / dt; i == 1 || r < least {
			least = r
		}
	}
	return least
}

// value returns the newest value.
func (d *Detector) value() float64 { return d.last[len(d.last)-1].value }
