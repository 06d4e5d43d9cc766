package supervisor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

const (
	// boundaryPatience is how long a worker that should be replaced may go on being busy. After it no new work is given to
	// it, and what runs has the drain to end.
	boundaryPatience = 2 * time.Minute
	// evidenceTime bounds the saving of evidence when there is time, urgentEvidenceTime when there is none: a leak of 50
	// descriptors a second fills the last twentieth of a limit of 256 in a quarter of a second.
	evidenceTime       = 5 * time.Second
	urgentEvidenceTime = 250 * time.Millisecond
	// wishTime bounds the handing over of a wish to a worker's own goroutine, which never waits for anything else.
	wishTime = 5 * time.Second
)

// Kinds of journal entries about replacements ahead of a limit.
const (
	kindRecycleDue = "recycle_due"  // it waits for the end of what the worker has in hand
	kindRecycling  = "recycling"    // it begins
	kindChildEnded = "child_ended"  // a process below a worker was ended in place of the worker
	kindOverLimit  = "over_limit"   // a worker holds more than it may and is killed
	kindCeiling    = "memory_total" // all workers together hold more than they may
)

// A recycler replaces workers before they reach a limit, and ends them when they are over one. Its methods do not block:
// what takes time runs in goroutines that wait ends.
type recycler struct {
	proc     sample.Proc
	evidence *evidence // nil: none is kept
	record   func(store.Event)
	running  sync.WaitGroup

	mu     sync.Mutex
	due    map[int]dueNote  // by pid: a replacement that waits for a moment without work
	asked  map[int]struct{} // pids whose end was asked for
	closed bool
}

func newRecycler(proc sample.Proc, e *evidence, record func(store.Event)) *recycler {
	return &recycler{
		proc: proc, evidence: e, record: record,
		due: map[int]dueNote{}, asked: map[int]struct{}{},
	}
}

// A dueNote says since when a replacement is due, and why.
type dueNote struct {
	since time.Time
	why   string
	top   string // the targets of which it has the most handles
}

// A concern is what a watch has against one process of a worker.
type concern struct {
	worker *member
	pid    int
	advice leak.Advice
	why    string
	busy   bool
	below  bool // most of it is held by processes below the worker
}

// consider does what is advised, now or when the worker has nothing in hand. It is asked again with each sample, as what
// was held may have been given back by then.
func (r *recycler) consider(now time.Time, c concern) {
	if c.advice == leak.Keep || c.pid == 0 {
		r.mu.Lock()
		delete(r.due, c.pid)
		r.mu.Unlock()
		return
	}
	if c.below {
		if c.advice == leak.RecycleNow {
			r.endLargestBelow(c)
		}
		return
	}
	r.mu.Lock()
	note, due := r.due[c.pid]
	if !due {
		note.since = now
	}
	note.why = c.why
	r.due[c.pid] = note
	r.mu.Unlock()
	urgent := c.advice == leak.RecycleNow
	if !urgent && c.busy && now.Sub(note.since) < boundaryPatience {
		if !due {
			r.sayDue(c)
		}
		return
	}
	r.once(c.pid, func() { r.replace(c, urgent) })
}

// sayDue names what a worker holds before it is replaced, while it still works.
func (r *recycler) sayDue(c concern) {
	fields := map[string]string{}
	if handles, err := c.worker.Fds(); err == nil {
		_, fields["top_handles"] = describeHandles(handles)
		r.mu.Lock()
		if note, due := r.due[c.pid]; due {
			note.top = fields["top_handles"]
			r.due[c.pid] = note
		}
		r.mu.Unlock()
	}
	r.record(store.Event{
		Kind: kindRecycleDue, Worker: c.worker.Name(), PID: c.pid, Fields: fields,
		Message: c.why + "; it is replaced when it has nothing in hand",
	})
}

// waiting says why a process is to be replaced, empty if it is not.
func (r *recycler) waiting(pid int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if note, ok := r.due[pid]; ok {
		text := note.why + "; it is replaced when it has nothing in hand"
		if note.top != "" {
			text += "; most of its handles are " + note.top
		}
		return text
	}
	return ""
}

// once runs f in a goroutine of its own, the first time for a process.
func (r *recycler) once(pid int, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, done := r.asked[pid]; done || r.closed {
		return
	}
	r.asked[pid] = struct{}{}
	delete(r.due, pid)
	r.running.Go(f)
}

// beside runs f in a goroutine of its own, which wait waits for.
func (r *recycler) beside(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.running.Go(f)
	}
}

// replace saves what the next person will want to know and asks the worker's life for another process.
func (r *recycler) replace(c concern, urgent bool) {
	limit := evidenceTime
	if urgent {
		limit = urgentEvidenceTime
	}
	fields, why := map[string]string{"urgent": fmt.Sprint(urgent)}, c.why
	if r.evidence != nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		folder, top, err := r.evidence.save(ctx, c.worker, c.pid, c.why)
		cancel()
		fields["evidence"], fields["top_handles"] = folder, top
		if err != nil {
			fields["evidence_error"] = err.Error()
		}
		if top != "" {
			why += "; it holds " + top
		}
		if folder != "" {
			why += "; all of it is in " + folder
		}
	}
	r.record(store.Event{Kind: kindRecycling, Worker: c.worker.Name(), PID: c.pid, Message: why, Fields: fields})
	ctx, cancel := context.WithTimeout(context.Background(), wishTime)
	defer cancel()
	_ = c.worker.Recycle(ctx, c.why, urgent) // a worker that is ending for good needs no successor
}

// endOver kills a worker that holds more than it may, of memory or of processes.
func (r *recycler) endOver(m *member, pid int, cause, held string) {
	r.once(pid, func() {
		r.record(store.Event{Kind: kindOverLimit, Worker: m.Name(), PID: pid, Message: "it holds " + held})
		ctx, cancel := context.WithTimeout(context.Background(), wishTime)
		defer cancel()
		_ = m.EndOver(ctx, cause, held)
	})
}

// endLargestBelow ends the process below a worker that holds the most memory: a command that takes all of it is no
// fault of the worker that was told to run it.
func (r *recycler) endLargestBelow(c concern) {
	child, ok := r.largestBelow(c.worker)
	if !ok {
		return
	}
	r.once(child.PID, func() {
		if err := endProcess(r.proc, child.Stat); err != nil {
			return // it has ended since
		}
		r.record(store.Event{Kind: kindChildEnded, Worker: c.worker.Name(), PID: child.PID, Message: fmt.Sprintf(
			"%s, below %s, held %d MiB of memory: %s; it was ended, the worker goes on", child.Comm, c.worker.Name(), child.Anon>>20, c.why)})
	})
}

// largestBelow finds the process below a worker that holds the most memory.
func (r *recycler) largestBelow(m *member) (largest sample.Process, ok bool) {
	series := m.Series()
	if series == nil {
		return largest, false
	}
	for _, s := range series.Descendants() {
		p, err := r.proc.Process(s.PID)
		if err == nil && p.Start == s.Start && p.Anon > largest.Anon {
			largest, ok = p, true
		}
	}
	return largest, ok
}

// forget drops what is kept of processes that are gone.
func (r *recycler) forget(alive map[int]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range r.due {
		if !alive[pid] {
			delete(r.due, pid)
		}
	}
	for pid := range r.asked {
		if !alive[pid] {
			delete(r.asked, pid)
		}
	}
}

// wait ends what is under way: no more is begun.
func (r *recycler) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}
