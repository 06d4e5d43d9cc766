package store

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueLength = 1024                  // requests that wait; more are refused so that memory and latency stay bounded
	batchLimit  = 128                   // requests a transaction: the rate is flat from 64 on
	batchTime   = 25 * time.Millisecond // of execution in a transaction, so that one slow request delays few others
	beat        = time.Second           // an idle loop turns this often, to show that it lives and to tidy up
)

// States of a request. A dropped one is never run.
const (
	waiting = iota
	taken
	dropped
)

// A request is a function that wants to run inside a transaction.
type request struct {
	fn    func(*tx) error
	state atomic.Int32
	again bool // met a damaged full-text index
	err   error
	done  chan struct{}
}

func (r *request) take() bool {
	return r.state.CompareAndSwap(waiting, taken) || r.state.Load() == taken
}

func (r *request) reply(err error) {
	r.err = err
	close(r.done)
}

// A writer owns the one connection that writes a file. Requests wait in a bounded queue, run in groups (a transaction a
// group, a savepoint a request) and are answered after COMMIT. While COMMIT waits for the disk the next group forms by
// itself, so nothing ever waits for a group to fill.
type writer struct {
	*database
	conn     *conn
	queue    chan *request
	batch    []*request
	stopping sync.Once
	quit     chan struct{} // closed: finish what is queued and end
	ended    chan struct{} // closed when the loop has ended
	progress atomic.Uint64

	// What follows belongs to the loop alone.
	full          bool // the last write met a full disk
	troubled      bool // a condition is set that a commit clears
	dirty         bool // the WAL has frames
	indexDetached bool
	ioErrors      int
	commits       int
	lastWrite     time.Time
}

// do runs fn in a transaction and returns after COMMIT. fn may run twice, the first time in a transaction that is thrown
// away. When ctx ends before fn's turn, fn does not run; when it ends later, the outcome is not known.
func (w *writer) do(ctx context.Context, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.health.failure(); err != nil {
		return err
	}
	r := &request{fn: fn, done: make(chan struct{})}
	select {
	case <-w.quit:
		return ErrClosed
	default:
	}
	select {
	case w.queue <- r:
	default:
		return ErrQueueFull
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, dropped) {
			return w.because(ctx.Err())
		}
		return fmt.Errorf("%w while it was written: the outcome is not known", ctx.Err())
	case <-w.ended: // the loop may have answered it with its last breath
		select {
		case <-r.done:
			return r.err
		default:
			return ErrClosed
		}
	}
}

// stop tells the loop to end, and says whether this call did.
func (w *writer) stop() (first bool) {
	w.stopping.Do(func() { close(w.quit); first = true })
	return first
}

// because adds to a timeout what the writer waits for.
func (w *writer) because(err error) error {
	if h := w.health.get(w.name); h.State != stateOK {
		return fmt.Errorf("%w: %s", err, h.Detail)
	}
	return err
}

func (w *writer) loop() {
	defer close(w.ended)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		w.progress.Add(1)
		select {
		case r := <-w.queue:
			w.gather(r)
			for len(w.batch) > 0 {
				w.transact()
				w.afterCommit()
			}
		case <-w.readers.drained:
			w.restartWAL()
		case <-tick.C:
			w.idle()
		case <-w.quit:
			w.finish()
			return
		}
	}
}

// gather puts first and what else is queued into the batch, without waiting.
func (w *writer) gather(first *request) {
	w.batch = append(w.batch[:0], first)
	for len(w.batch) < batchLimit {
		select {
		case r := <-w.queue:
			w.batch = append(w.batch, r)
		default:
			return
		}
	}
}

// finish answers what was queued when the store was closed.
func (w *writer) finish() {
	for {
		select {
		case r := <-w.queue:
			w.gather(r)
			for len(w.batch) > 0 {
				w.transact()
			}
		default:
			return
		}
	}
}

// transact runs as much of the batch as fits one transaction, commits and answers it. The rest stays in the batch.
func (w *writer) transact() {
	w.progress.Add(1)
	if err := w.ready(w.batch); err != nil {
		refuse(w.batch, err)
		w.batch = w.batch[:0]
		return
	}
	ran, whole := w.runBatch()
	if !whole {
		w.conn.rollback()
		w.alone(w.batch)
		w.batch = w.batch[:0]
		return
	}
	err := w.commit()
	var again []*request
	for _, r := range w.batch[:ran] {
		switch {
		case err != nil:
			r.reply(err)
		case r.again:
			again = append(again, r)
		default:
			r.reply(r.err)
		}
	}
	w.batch = append(w.batch[:0], w.batch[ran:]...)
	if len(again) > 0 {
		w.detachIndex()
		w.alone(again)
	}
}

// ready begins a transaction. It waits while another process holds the lock, and fails when the store has failed, the
// disk is full or the waiting takes too long.
func (w *writer) ready(batch []*request) error {
	if err := w.health.failure(); err != nil {
		return err
	}
	if err := w.space(); err != nil {
		return err
	}
	return w.begin(batch)
}

// runBatch runs the requests of the batch, each in its savepoint, until the time is up. It returns how many had their
// turn, and false if SQLite threw the transaction away: then nothing of it holds.
func (w *writer) runBatch() (ran int, whole bool) {
	start := time.Now()
	for i, r := range w.batch {
		if !r.take() {
			r.err = context.Canceled // its caller has gone
			continue
		}
		if w.conn.exec("SAVEPOINT request") != nil {
			return i, false
		}
		w.call(r)
		if w.conn.raw.AutoCommit() { // disk full, I/O error, out of memory
			return i, false
		}
		if r.err != nil && w.conn.exec("ROLLBACK TO request") != nil || w.conn.exec("RELEASE request") != nil {
			return i, false
		}
		if time.Since(start) > batchTime {
			return i + 1, true
		}
	}
	return len(w.batch), true
}

// alone answers requests whose common transaction was thrown away: one that failed by itself with its error, the others
// after another run, each in a transaction of its own.
func (w *writer) alone(batch []*request) {
	for _, r := range batch {
		if !r.take() || r.err != nil && !r.again {
			r.reply(r.err)
			continue
		}
		err := w.ready(nil)
		if err == nil {
			w.call(r)
			if err = r.err; err == nil {
				err = w.commit()
			}
			w.conn.rollback()
		}
		r.reply(err)
	}
}

// call runs one request. A panic costs that request only. A damaged full-text index costs none: the request is run
// again when the index is out of the way.
func (w *writer) call(r *request) {
	r.again, r.err = false, nil
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a store request panicked", "panic", p, "stack", string(debug.Stack()))
			r.err = fmt.Errorf("store request panicked: %v", p)
		}
	}()
	err := r.fn(&tx{conn: w.conn, ctx: background})
	if err != nil {
		w.notice(err)
		_, extended := code(err)
		r.again = extended == corruptVtab && !w.indexDetached
		r.err = explain(err)
	}
}

// commit ends the transaction. It fails also when what was committed went into a file that nobody else sees.
func (w *writer) commit() error {
	if err := w.conn.exec("COMMIT"); err != nil {
		w.conn.rollback()
		w.notice(err)
		return explain(err)
	}
	if w.conn.wrote {
		w.conn.wrote, w.dirty, w.lastWrite = false, true, time.Now()
	}
	if err := w.guard.check(); err != nil {
		w.lose(err)
		return w.health.failure()
	}
	w.recovered()
	return nil
}

func refuse(batch []*request, err error) {
	for _, r := range batch {
		r.reply(err)
	}
}
