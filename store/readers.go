package store

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// readLimit is the age of a read: a snapshot that stays open keeps the WAL from being emptied. The driver interrupts a
	// statement once; if that falls between its check and SQLite's first step it is lost, and the statement runs to its
	// end. So no statement here may be one without an end.
	readLimit    = 5 * time.Second
	gatePatience = time.Second // the same while the gate is closed
)

// readers is a fixed pool of read-only connections, opened once, so that descriptors are constant. Its gate holds new
// reads back for the moment that the writer needs to start the WAL again; the writer itself never waits for a reader.
type readers struct {
	path string
	mode string // parameters of the connections: mode=ro, and immutable=1 where nothing can change
	log  hclog.Logger
	free chan *conn
	open int

	mu      sync.Mutex
	active  map[*activeRead]bool
	gate    chan struct{} // closed when reads may go on; nil while they may
	drained chan struct{} // tells the writer that the gate is closed and nobody reads
	refused error         // why nothing can be read
	closed  bool
}

type activeRead struct {
	start  time.Time
	cancel context.CancelFunc
}

func openReaders(path, mode string, n int, log hclog.Logger) (*readers, error) {
	r := newReaders(path, n, log)
	if err := r.use(path, mode, n); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// newReaders returns a pool for at most n connections that has none yet.
func newReaders(path string, n int, log hclog.Logger) *readers {
	return &readers{path: path, log: log, free: make(chan *conn, n), active: map[*activeRead]bool{}, drained: make(chan struct{}, 1)}
}

// use fills an empty pool. After an error it is empty, and reads end with that error.
func (r *readers) use(path, mode string, n int) error {
	r.path, r.mode = path, mode
	err := r.fill(n)
	if err != nil {
		r.empty(err)
		return err
	}
	r.refuse(nil)
	return nil
}

// empty closes the connections of a pool that nobody reads from; reads end with err.
func (r *readers) empty(err error) {
	r.refuse(err)
	for _, c := range r.takeAll() {
		c.close()
	}
}

// refuse ends reads with an error, or lets them through again.
func (r *readers) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = err
}

func (r *readers) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// fill opens n connections.
func (r *readers) fill(n int) error {
	for range n {
		c, err := r.dial()
		if err != nil {
			return err
		}
		r.open++
		r.free <- c
	}
	return nil
}

// takeAll takes the connections out of the pool, while the gate is closed and nobody reads.
func (r *readers) takeAll() (list []*conn) {
	for range r.open {
		list = append(list, <-r.free)
	}
	r.open = 0
	return list
}

// idle says that nobody reads.
func (r *readers) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.active) == 0
}

// dial opens a connection and touches the file, so that all descriptors are there from the start.
func (r *readers) dial() (*conn, error) {
	c, err := dial(r.path, r.mode+"&_query_only=1&_busy_timeout=2000",
		"temp_store=MEMORY", "cell_size_check=ON", "trusted_schema=OFF", "mmap_size=0", "cache_size=-1024")
	if err != nil {
		return nil, err
	}
	if err := c.script("SELECT count(*) FROM sqlite_schema"); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// do runs fn on one snapshot of the database.
func (r *readers) do(ctx context.Context, fn func(*tx) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readLimit, ErrReadTooLong)
	defer cancel()
	a := &activeRead{cancel: cancel}
	c, err := r.enter(ctx, a)
	if err != nil {
		return err
	}
	defer r.leave(a, c)
	if err = c.exec("BEGIN"); err != nil {
		return explain(err)
	}
	defer c.rollback()
	err = fn(&tx{conn: c, ctx: ctx})
	if age := time.Since(a.start); ctx.Err() != nil && age > gatePatience {
		r.log.Warn("a read was ended because it held the WAL too long", "path", r.path, "age", age, "owner", caller())
	}
	if err != nil && context.Cause(ctx) == ErrReadTooLong {
		return ErrReadTooLong
	}
	return explain(err)
}

// ErrReadTooLong says that a read was ended for its age.
var ErrReadTooLong = fmt.Errorf("the read was ended after %v, as a longer one would keep the write-ahead log from being emptied: ask for less", readLimit)

// enter waits for the gate and for a free connection.
func (r *readers) enter(ctx context.Context, a *activeRead) (*conn, error) {
	for {
		if err := r.refusal(); err != nil {
			return nil, err
		}
		var c *conn
		select {
		case c = <-r.free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		gate, err := r.admit(a, c != nil)
		if gate == nil && err == nil {
			return c, nil
		}
		if c != nil {
			r.free <- c
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// admit counts the read in, or returns the gate to wait for.
func (r *readers) admit(a *activeRead, open bool) (gate chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || !open {
		return nil, ErrClosed
	}
	if r.gate == nil {
		a.start = time.Now()
		r.active[a] = true
	}
	return r.gate, nil
}

func (r *readers) leave(a *activeRead, c *conn) {
	r.mu.Lock()
	delete(r.active, a)
	if r.gate != nil && len(r.active) == 0 {
		r.tell()
	}
	r.mu.Unlock()
	r.free <- c
}

// hold closes the gate. The writer is told when the last read has ended.
func (r *readers) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate != nil {
		return
	}
	r.gate = make(chan struct{})
	if len(r.active) == 0 {
		r.tell()
	}
}

// held says that the gate is closed.
func (r *readers) held() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate != nil
}

func (r *readers) tell() {
	select {
	case r.drained <- struct{}{}:
	default:
	}
}

// release opens the gate.
func (r *readers) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate != nil {
		close(r.gate)
		r.gate = nil
	}
}

// interrupt ends reads older than age if the gate is closed.
func (r *readers) interrupt(age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.active {
		if r.gate != nil && time.Since(a.start) > age {
			a.cancel()
		}
	}
}

// close waits for running reads, which the age limit ends, and closes the connections.
func (r *readers) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.release()
	for range r.open {
		(<-r.free).close()
	}
	close(r.free)
}

// caller names the method that asked for a read.
func caller() string {
	pc := make([]uintptr, 8)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		_, name, method := strings.Cut(f.Function, ".(*")
		if method && !strings.HasPrefix(name, "readers)") || !more {
			return name
		}
	}
}
