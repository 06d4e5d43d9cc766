package store

import (
	"context"
	"errors"
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
	beat        = time.Second           // a loop with something on its mind turns this often, to look and to tidy up
	quietBeat   = 10 * time.Second      // a loop without: it looks for what other programs do to the file
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
	err   error
	done  chan struct{}

	answered bool
}

func (r *request) take() bool {
	return r.state.CompareAndSwap(waiting, taken) || r.state.Load() == taken
}

// A writer owns the one connection that writes a file. Requests wait in a bounded queue, run in groups (a transaction a
// group, a savepoint a request) and are answered after COMMIT.
type writer struct {
	*database
	conn     *conn
	queue    chan *request
	batch    []*request
	stopping sync.Once
	jobs     chan job
	quit     chan struct{} // closed: finish what is queued and end
	ended    chan struct{} // closed when the loop has ended
	progress atomic.Uint64
	indexed  bool          // the file has full-text indices with triggers
	kept     bool          // what is in the file must not be lost
	readOnly atomic.Bool   // there is no connection that can write, for now
	refused  atomic.Uint64 // requests that were given up
	revived  chan opened   // the file, when it can be written after all

	// What follows belongs to the loop alone.
	linger    linger
	full      bool // the last write met a full disk
	troubled  bool // a condition is set that a commit clears
	dirty     bool // the WAL has frames
	ioErrors  int
	commits   int
	lastWrite time.Time
	filler    filler
	retention retention
	revival   revival
	suspicion suspicion
	spares    spares

	captured    string // folder with a copy of the retired files, while they are not healed
	lastHeal    time.Time
	lastForeign time.Time
	dataVersion int64     // SQLite's count of foreign commits
	newest      time.Time // that the clock has said, or the newest message
}

// do runs fn in a transaction and returns after COMMIT. fn may run twice, the first time in a transaction that is thrown
// away. When ctx ends before fn's turn, fn does not run; when it ends later, the outcome is not known.
func (w *writer) do(ctx context.Context, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.health.failure(); err != nil {
		w.refused.Add(1)
		return err
	}
	if w.readOnly.Load() {
		w.refused.Add(1)
		return w.refusal()
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
		w.refused.Add(1)
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
	tick := time.NewTimer(untilBeat(beat))
	defer tick.Stop()
	quiet := false
	for {
		w.progress.Add(1)
		if quiet && w.restless() { // something came up since the last turn
			quiet = false
			tick.Reset(untilBeat(beat))
		}
		select {
		case r := <-w.queue:
			w.gather(r)
			w.work()
		case j := <-w.jobs:
			j.done <- w.perform(j)
		case <-w.suspicion.raised:
			w.lookThrough()
		case f := <-w.suspicion.found:
			w.judge(f)
		case o := <-w.revived:
			w.resume(o)
		case <-w.readers.drained:
			w.restartWAL()
		case <-w.filler.fires():
			w.fill()
		case <-tick.C:
			w.idle()
			if quiet = !w.restless(); quiet {
				w.rest()
				tick.Reset(untilBeat(quietBeat))
			} else {
				tick.Reset(untilBeat(beat))
			}
		case <-w.quit:
			w.finish()
			return
		}
	}
}

// untilBeat is the time to the next whole multiple, so that the idle loops of all databases wake the processor together.
func untilBeat(every time.Duration) time.Duration {
	return every - time.Duration(time.Now().UnixNano())%every
}

// restless says that the idle loop has something to see to soon: the file is in trouble, readers are held back, or something
// old is being removed.
func (w *writer) restless() bool {
	return w.full || w.troubled || w.filler.fills >= mergeAfter || w.readers.held() || w.retention.going ||
		w.health.get(w.name).State != stateOK
}

// gather puts first and what else is queued into the batch. It waits for more only as long as the linger says.
func (w *writer) gather(first *request) {
	w.batch = append(w.batch[:0], first)
	w.drain()
	size, wait := w.linger.next()
	if wait == 0 || len(w.batch) >= size {
		return
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for len(w.batch) < size {
		select {
		case r := <-w.queue:
			w.batch = append(w.batch, r)
		case <-timeout.C:
			return
		}
	}
	w.drain()
}

// drain takes what is queued, without waiting.
func (w *writer) drain() {
	for len(w.batch) < batchLimit {
		select {
		case r := <-w.queue:
			w.batch = append(w.batch, r)
		default:
			return
		}
	}
}

// work answers the batch.
func (w *writer) work() {
	size, start := len(w.batch), time.Now()
	for len(w.batch) > 0 {
		w.transact()
		w.afterCommit()
	}
	w.linger.saw(size, time.Since(start))
}

// finish answers what was queued when the store was closed.
func (w *writer) finish() {
	for {
		select {
		case r := <-w.queue:
			w.gather(r)
			w.work()
		default:
			return
		}
	}
}

// transact runs as much of the batch as fits one transaction, commits and answers it. The rest stays in the batch.
func (w *writer) transact() {
	w.progress.Add(1)
	if err := w.ready(w.batch); err != nil {
		w.answer(w.batch, err)
		w.batch = w.batch[:0]
		return
	}
	ran, whole := w.runBatch()
	part := w.batch[:ran]
	switch err := w.end(whole); {
	case !whole: // nothing of it holds, so all but the culprit run again
		if bad := w.batch[ran]; bad.err != nil {
			w.answer(w.batch[ran:ran+1], bad.err)
		}
		w.alone(w.batch)
		ran = len(w.batch)
	case mayBeIndex(err):
		w.alone(part)
	case err != nil:
		w.answer(part, err)
	default:
		w.alone(w.settle(part))
	}
	w.batch = append(w.batch[:0], w.batch[ran:]...)
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
	if !w.wal {
		w.spares.let()
	}
	return w.begin(batch)
}

// runBatch runs the requests of the batch, each in its savepoint, until the time is up. It returns how many had their
// turn, or the place of the one at which SQLite threw the transaction away.
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

// end commits a transaction that is whole and rolls another back.
func (w *writer) end(whole bool) error {
	if whole {
		return w.commit()
	}
	w.conn.rollback()
	return nil
}

// settle answers the requests of a committed transaction. Those that may have failed because of a damaged full-text
// index are returned.
func (w *writer) settle(batch []*request) (again []*request) {
	for i, r := range batch {
		if w.indexed && mayBeIndex(r.err) {
			again = append(again, r)
			continue
		}
		w.answer(batch[i:i+1], r.err)
	}
	return again
}

// alone runs requests each in a transaction of its own and answers them. One that fails by a damaged full-text index
// runs again without it.
func (w *writer) alone(batch []*request) {
	for i, r := range batch {
		if r.answered {
			continue
		}
		err := w.attempt(r)
		if w.indexed && mayBeIndex(err) && w.blameIndex() {
			err = w.attempt(r)
		}
		w.answer(batch[i:i+1], err)
	}
}

func (w *writer) attempt(r *request) error {
	if !r.take() {
		return context.Canceled
	}
	if err := w.ready(nil); err != nil {
		return err
	}
	w.call(r)
	if r.err != nil {
		w.conn.rollback()
		return r.err
	}
	return w.commit()
}

// call runs one request. A panic costs that request only.
func (w *writer) call(r *request) {
	r.err = nil
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("a store request panicked", "panic", p, "stack", string(debug.Stack()))
			r.err = fmt.Errorf("store request panicked: %v", p)
		}
	}()
	r.err = r.fn(&tx{conn: w.conn, ctx: background})
}

// commit ends the transaction. It fails also when what was committed went into a file that nobody else sees.
func (w *writer) commit() error {
	if err := w.conn.exec("COMMIT"); err != nil {
		w.conn.rollback()
		return err
	}
	if w.conn.wrote {
		w.conn.wrote, w.dirty, w.lastWrite = false, true, time.Now()
		w.filler.wake(fillEvery)
	}
	if err := w.guard.check(); err != nil {
		w.lose(err)
		return w.health.failure()
	}
	w.recovered()
	return nil
}

// answer replies to requests, after a look at what an error says about the store.
func (w *writer) answer(batch []*request, err error) {
	if !w.wal {
		w.spares.take()
	}
	if err != nil {
		w.notice(err)
		err = explain(err)
		w.giveUpOn(batch, err)
	}
	for _, r := range batch {
		if !r.answered {
			r.answered, r.err = true, err
			close(r.done)
		}
	}
}

// giveUpOn counts requests that the store gave up. What it is because of is in the log by its condition, except for a lock that
// another process held for too long.
func (w *writer) giveUpOn(batch []*request, err error) {
	busy := errors.Is(err, ErrBusy)
	if !busy && !isIO(err) && !errors.Is(err, ErrDiskFull) && !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrFailed) && !errors.Is(err, ErrSuspended) {
		return
	}
	n := 0
	for _, r := range batch {
		if !r.answered {
			n++
		}
	}
	w.refused.Add(uint64(n))
	if busy {
		w.log.Warn("writes were given up", "path", w.path, "number", n, "error", err)
	}
}
