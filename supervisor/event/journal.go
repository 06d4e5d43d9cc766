// Package event is the supervisor's journal: what happened to workers, turns and stores, in one order, so that one
// can read afterwards why it was silent from 22:51 to 23:02.
//
// Rules: recording never blocks and never fails the one who records; what could not be kept is counted and said in
// the journal itself. The rows live in supervisor.db, which is telemetry: losing it loses no message.
package event

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

// Kinds that the supervisor itself records. Workers add their own through Events.Publish.
const (
	KindSupervisorStarted  = "supervisor_started"
	KindSupervisorReady    = "supervisor_ready"
	KindSupervisorStopping = "supervisor_stopping"
	KindEventsDropped      = "events_dropped"
	KindWorkerRemoved      = "worker_removed" // the configuration asks for it no more
)

// queueLength bounds what waits to be written. A worker in a crash loop makes a few events a second, so this many
// are minutes of a stuck disk.
const queueLength = 4096

// appendTimeout bounds one write; past it the event is dropped and counted.
const appendTimeout = 10 * time.Second

// closeBudget bounds what Close waits for all that is queued: the stop of the supervisor has a limit, and a store that
// hangs would take appendTimeout for each event.
const closeBudget = 5 * time.Second

// A Store keeps the rows; *store.Telemetry is one.
type Store interface {
	Append(ctx context.Context, e store.Event) (int64, error)
	Events(ctx context.Context, f store.EventFilter) ([]store.Event, error)
}

// A Journal records events and shows them to readers. It is safe for concurrent use.
type Journal struct {
	store Store
	log   hclog.Logger
	now   func() time.Time
	queue chan *store.Event // a pointer each: room for so many events themselves is half a MiB
	done  chan struct{}

	life context.Context // of writes
	end  context.CancelFunc

	mu      sync.Mutex
	dropped int64
	closed  bool
	grown   chan struct{} // closed and replaced at each new row
}

// NewJournal returns a journal over s. Close ends it.
func NewJournal(s Store, log hclog.Logger, now func() time.Time) *Journal {
	j := &Journal{
		store: s, log: log, now: now,
		queue: make(chan *store.Event, queueLength),
		done:  make(chan struct{}),
		grown: make(chan struct{}),
	}
	j.life, j.end = context.WithCancel(context.Background())
	go j.write()
	return j
}

// Record queues an event. Its time is set if it has none. After Close it does nothing.
func (j *Journal) Record(e store.Event) {
	if e.Time.IsZero() {
		e.Time = j.now()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	select {
	case j.queue <- &e:
	default:
		j.dropped++
	}
}

// Close writes what is queued, as far as the store takes it within closeBudget, and ends the journal.
func (j *Journal) Close() {
	j.mu.Lock()
	wasClosed := j.closed
	j.closed = true
	j.mu.Unlock()
	if !wasClosed {
		close(j.queue)
	}
	patience := time.AfterFunc(closeBudget, j.end)
	defer patience.Stop()
	<-j.done
}

func (j *Journal) write() {
	defer close(j.done)
	defer j.end()
	for e := range j.queue {
		if !j.append(*e) {
			j.drop(1)
		}
		n := j.takeDropped()
		if n > 0 && !j.append(store.Event{
			Time: j.now(), Kind: KindEventsDropped,
			Message: wording.Count(n, "event", "events") + " could not be kept",
			Fields:  map[string]string{"count": strconv.FormatInt(n, 10)},
		}) {
			j.drop(n) // to be said with the next event
		}
	}
}

// append says whether the store has taken the event.
func (j *Journal) append(e store.Event) bool {
	ctx, cancel := context.WithTimeout(j.life, appendTimeout)
	defer cancel()
	if _, err := j.store.Append(ctx, e); err != nil {
		j.log.Warn("event not kept", "kind", e.Kind, "worker", e.Worker, "message", e.Message, "error", err)
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.grown)
	j.grown = make(chan struct{})
	return true
}

func (j *Journal) drop(events int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropped += events
}

func (j *Journal) takeDropped() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.dropped
	j.dropped = 0
	return n
}

func (j *Journal) growth() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.grown
}

// Read sends the events that f selects, oldest first; with follow it goes on with new ones until ctx ends or send
// fails. A slow reader misses nothing: it reads from the store at its own pace.
func (j *Journal) Read(ctx context.Context, f store.EventFilter, follow bool, send func(store.Event) error) error {
	for {
		grown := j.growth() // before reading, so that a row written meanwhile is seen as growth
		rows, err := j.store.Events(ctx, f)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		for _, e := range rows {
			if err := send(e); err != nil {
				return err
			}
			f.AfterID = e.ID
		}
		if !follow {
			return nil
		}
		full := len(rows) > 0 && len(rows) >= f.Limit // there may be more
		f.Limit = followBatch
		if full {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		case <-j.done:
			return nil
		}
	}
}

// followBatch is how many rows a follower takes at once.
const followBatch = 500
