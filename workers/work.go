package workers

import (
	"sync"
	"time"
)

// Work counts units of work (turns, tool calls, deliveries) so that health is proven by work done. It is safe for
// concurrent use.
type Work struct {
	now func() time.Time

	mu       sync.Mutex
	next     uint64
	running  map[uint64]time.Time
	progress uint64
	idle     chan struct{} // closed and replaced when the last unit ends
}

// NewWork returns a counter that reads the time from now.
func NewWork(now func() time.Time) *Work {
	return &Work{now: now, running: map[uint64]time.Time{}}
}

// Begin counts a unit as running until the returned function is called, once.
func (w *Work) Begin() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.running[id] = w.now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, ok := w.running[id]; !ok {
			return
		}
		delete(w.running, id)
		w.progress++
		if len(w.running) == 0 && w.idle != nil {
			close(w.idle)
			w.idle = nil
		}
	}
}

// Step counts progress inside a unit, for long ones.
func (w *Work) Step() {
	w.mu.Lock()
	w.progress++
	w.mu.Unlock()
}

// Counts returns the units ended so far, the units running, and the age of the oldest of those.
func (w *Work) Counts() (progress uint64, running int, oldest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for _, t := range w.running {
		oldest = max(oldest, now.Sub(t))
	}
	return w.progress, len(w.running), oldest
}

// Idle returns a channel that is closed when no unit runs.
func (w *Work) Idle() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	return w.idle
}
