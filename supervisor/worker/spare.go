package worker

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// spareAgain is the pause before a spare that died is replaced. It did no work, so nobody waits for it.
const spareAgain = time.Minute

// A spare is a process that was started and connected before it is needed, for the next incarnation of its worker. It is
// not initialised: a gateway must not talk to its platform twice. Taking over is one call.
type spare struct {
	inst        *instance
	incarnation uint64
	ready       chan struct{} // closed when it is connected or has failed; then err holds
	err         error
	taken       bool // guarded by launcher.mu
}

// spareMark tells the process of a spare from the one that is started in its place if it has died: what the one leaves behind
// is not the other's.
const spareMark = 1 << 63

var errNotNeeded = errors.New("the spare is not needed any more")

// warm keeps a spare for an incarnation until it is taken or ctx ends.
func (l *launcher) warm(ctx context.Context, incarnation uint64) {
	for ctx.Err() == nil {
		s := &spare{inst: l.instance(incarnation, incarnation|spareMark), incarnation: incarnation, ready: make(chan struct{})}
		s.inst.process.onBorn = func(int) {}
		l.mu.Lock()
		l.spare = s
		l.mu.Unlock()
		s.err = l.prepare(ctx, s.inst)
		close(s.ready)
		if s.err == nil {
			select {
			case <-s.inst.process.done:
			case <-ctx.Done():
			}
		}
		if !l.drop(s) {
			return // it is the worker now
		}
		s.inst.process.signal(syscall.SIGKILL)
		if !s.inst.overWithin(l.env.Timing.Kill) {
			l.log.Error("a spare is not over", "pid", s.inst.id(), "detail", s.inst.unended().Message)
		}
		s.inst.tidy()
		if ctx.Err() == nil {
			l.log.Warn("a spare has ended before it was needed", "error", s.err, "again_in", spareAgain)
		}
		select {
		case <-time.After(spareAgain):
		case <-ctx.Done():
		}
	}
}

// drop takes a spare out of service and says whether it still was one.
func (l *launcher) drop(s *spare) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare == s {
		l.spare = nil
	}
	return !s.taken
}

// take returns the instance of a spare for an incarnation, nil if there is none. One that is still being connected to is
// waited for: it is further than a new one would be.
func (l *launcher) take(ctx context.Context, incarnation uint64) *instance {
	l.mu.Lock()
	s := l.spare
	l.mu.Unlock()
	if s == nil || s.incarnation != incarnation {
		return nil
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-s.inst.process.done:
		return nil
	default:
	}
	if l.spare != s || s.err != nil {
		return nil
	}
	l.spare, s.taken = nil, true
	return s.inst
}

// prepare makes a process and connects to it: all of a start but the first call.
func (l *launcher) prepare(ctx context.Context, inst *instance) error {
	leave, err := l.env.Starts.enter(ctx)
	defer leave()
	if err == nil {
		err = l.preflight(inst)
	}
	if err == nil {
		err = l.connect(ctx, inst)
	}
	if err == nil {
		err = l.serveHost(inst)
	}
	return err
}

// standby returns the process of the spare and its readings, 0 if none is ready.
func (l *launcher) standby() (pid int, last sample.Sample) {
	l.mu.Lock()
	s := l.spare
	l.mu.Unlock()
	if s == nil {
		return 0, last
	}
	select {
	case <-s.ready:
	default:
		return 0, last
	}
	if s.err != nil || s.inst.process.series == nil {
		return 0, last
	}
	return s.inst.id(), s.inst.process.series.Last()
}

// keepSpare begins to keep a spare for the next incarnation, if the worker has one.
func (l *life) keepSpare() {
	if l.w.spec.Spares <= 0 || l.cool != nil {
		return
	}
	ctx, cool := context.WithCancelCause(context.Background())
	l.cool = cool
	next := l.m.incarnation + 1
	l.helpers.Go(func() {
		l.w.launcher.warm(ctx, next)
	})
}

// dropSpare ends the spare of a worker that is to stay down. A spare that was taken is not touched.
func (l *life) dropSpare() {
	if l.cool != nil {
		l.cool(errNotNeeded)
		l.cool = nil
	}
}
