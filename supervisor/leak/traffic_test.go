package leak

import (
	"math"
	"math/rand/v2"
	"time"
)

// A traffic is a made-up worker under normal use, second by second: turns with a daily and a weekly rhythm, sessions that
// hold a store and some memory until they expire, pools that keep connections for a while, a collector, a cache that fills
// and is dropped now and then, a nightly job, reconnect storms, plugins that are loaded once, and an allocator that creeps
// as allocators do. Nothing of it leaks. All numbers are meant to be nastier than a usual day.
type traffic struct {
	rng      *rand.Rand
	sec      int
	turns    []turn
	sessions []session
	conns    []int // seconds at which pooled connections are closed

	garbage, cache, spare float64 // bytes
	work                  float64 // turns since the cache was dropped
	plugins, storm, until int
	leak                  func(sec, turns int) (fds, bytes float64) // on top; nil: none
	done                  int
	demand                func(sec int) float64 // turns a day as it is at this second
}

// demands are the ways in which workers are asked for turns.
var demands = map[string]func(sec int) float64{
	"days and nights":  daysAndNights,
	"around the clock": func(int) float64 { return 1500 },
	"hardly ever":      func(int) float64 { return 6 },
	"in bursts": func(sec int) float64 { // a quarter of an hour of every four
		if sec%(4*3600) < 900 {
			return 3000
		}
		return 0
	},
}

type turn struct {
	end, fds int
	bytes    float64
}

type session struct {
	expires, fds int
	bytes        float64
}

func newTraffic(seed uint64) *traffic { return &traffic{rng: seeded(seed), demand: daysAndNights} }

func (w *traffic) chance(perDay float64) bool { return w.rng.Float64() < perDay/86400 }

// daysAndNights has few turns at night, and fewer on Sundays.
func daysAndNights(sec int) float64 {
	hour := float64(sec%86400) / 3600
	d := 20 + 900*math.Pow(max(0, math.Sin((hour-7)/16*math.Pi)), 2)
	if hour < 7 || hour > 23 {
		d = 20
	}
	if sec/86400%7 == 6 {
		d *= 0.3
	}
	return d
}

// next goes one second on.
func (w *traffic) next() (fds, bytes float64, idle bool) {
	w.sec++
	w.expire()
	if w.chance(w.demand(w.sec)) {
		w.begin(w.rng.ExpFloat64()*40, 4+w.rng.IntN(16), mib*(10+w.rng.ExpFloat64()*60))
	}
	if w.sec%86400 == 3*3600 { // the nightly job: many turns at once
		for range 12 {
			w.begin(600+w.rng.Float64()*900, 6, 25*mib)
		}
	}
	w.events()
	for _, t := range w.turns {
		fds += float64(t.fds)
		bytes += t.bytes
	}
	for _, s := range w.sessions {
		fds += float64(s.fds)
		bytes += s.bytes
	}
	fds += 15 + float64(len(w.conns)+w.plugins*4)
	if w.sec < w.until {
		fds += float64(w.storm)
	}
	bytes += 90*mib + w.heap() + float64(w.plugins)*12*mib
	bytes += 30 * mib * (1 - math.Exp(-float64(w.sec)/600))         // start-up
	bytes += 8 * mib * math.Log1p(float64(w.sec)/7200)              // creep, 45 MiB in a month
	bytes += mib * math.Abs(w.rng.NormFloat64()) * float64(w.sec%2) // noise
	if w.leak != nil {
		f, b := w.leak(w.sec, w.done)
		fds, bytes = fds+f, bytes+b
	}
	return math.Floor(fds), bytes, len(w.turns) == 0
}

func (w *traffic) begin(length float64, fds int, bytes float64) {
	w.turns = append(w.turns, turn{end: w.sec + 2 + int(length), fds: fds, bytes: bytes})
	w.spare -= min(w.spare, 0.7*bytes) // an allocator takes what it holds back first; a part is in too small pieces
	for range 1 + w.rng.IntN(3) {
		w.conns = append(w.conns, w.sec+90+int(length))
	}
	if len(w.sessions) == 0 || w.rng.Float64() < 0.3 && len(w.sessions) < 64 {
		w.sessions = append(w.sessions, session{fds: 3, bytes: mib * (1 + 4*w.rng.Float64())})
	}
	s := &w.sessions[w.rng.IntN(len(w.sessions))]
	s.expires = w.sec + 1800 + w.rng.IntN(5400)
	s.bytes += 0.2 * mib
	w.work++
}

func (w *traffic) expire() {
	keep := 0
	for _, t := range w.turns {
		if t.end > w.sec {
			w.turns[keep] = t
			keep++
			continue
		}
		w.garbage += t.bytes
		w.done++
	}
	w.turns = w.turns[:keep]
	keep = 0
	for _, s := range w.sessions {
		if s.expires > w.sec {
			w.sessions[keep] = s
			keep++
		}
	}
	w.sessions = w.sessions[:keep]
	keep = 0
	for _, c := range w.conns {
		if c > w.sec {
			w.conns[keep] = c
			keep++
		}
	}
	w.conns = w.conns[:keep]
}

// heap is garbage and what the allocator holds back after a collection, with the cache.
func (w *traffic) heap() float64 {
	w.garbage += 40 << 10 // there is always something
	if w.garbage > 120*mib || len(w.turns) == 0 && w.sec%1800 == 0 {
		w.spare += w.garbage
		w.garbage = 0
	}
	w.spare *= 1 - 1.0/300
	w.cache = 80 * mib * (1 - math.Exp(-w.work/300))
	return w.garbage + w.spare + w.cache
}

// events are what happens now and then.
func (w *traffic) events() {
	if w.chance(0.3) {
		w.work = 0 // the cache is dropped
	}
	if w.chance(2) {
		w.storm, w.until = 10+w.rng.IntN(30), w.sec+60+w.rng.IntN(300)
	}
	if w.chance(0.15) {
		w.plugins++
	}
}

// replay gives the traffic to detectors of both quantities for a time, and asks for verdicts every minute.
func (w *traffic) replay(length time.Duration, limits [2]int64, each func(q Quantity, v Verdict, value int64, idle bool) bool) {
	detectors := [...]*Detector{NewDetector(Descriptors), NewDetector(AnonymousBytes)}
	for range int(length / time.Second) {
		fds, bytes, idle := w.next()
		at := noon.Add(time.Duration(w.sec) * time.Second)
		for q, value := range []int64{int64(fds), int64(bytes)} {
			detectors[q].Add(Point{Time: at, Value: value, Idle: idle})
			if w.sec%60 == 0 && each(Quantity(q), detectors[q].Verdict(limits[q]), value, idle) {
				return
			}
		}
	}
}
