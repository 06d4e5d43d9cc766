package supervisor

import (
	"sync"
	"time"
)

const (
	// eventsPerSecond is what one worker may publish for long, eventsAtOnce what it may in one go. A busy adapter makes a
	// few a minute.
	eventsPerSecond = 10
	eventsAtOnce    = 200
)

// eventRates keep a worker that publishes in a loop from filling the journal. They are safe for concurrent use.
type eventRates struct {
	mu      sync.Mutex
	workers map[string]*eventRate
}

// An eventRate is a bucket that fills with time.
type eventRate struct {
	left float64
	at   time.Time
	lost int // refused since the last one that was taken
}

// allow says whether a worker may publish an event now, and how many were refused before it.
func (r *eventRates) allow(worker string, now time.Time) (ok bool, lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers == nil {
		r.workers = map[string]*eventRate{}
	}
	w := r.workers[worker]
	if w == nil {
		w = &eventRate{left: eventsAtOnce, at: now}
		r.workers[worker] = w
	}
	w.left = min(w.left+now.Sub(w.at).Seconds()*eventsPerSecond, eventsAtOnce)
	w.at = now
	if w.left < 1 {
		w.lost++
		return false, 0
	}
	w.left--
	lost, w.lost = w.lost, 0
	return true, lost
}
