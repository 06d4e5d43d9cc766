package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

// A happening is an event with what belongs to it, from a goroutine of the process with that incarnation.
type happening struct {
	incarnation uint64
	ev          any
	body        body   // of evReady
	pid         int    // of evBorn
	health      health // of evHealth
	exit        Exit   // of evExit
	unfinished  int    // of evDrain
	err         error  // of evDrain
}

// evBorn says that there is a process, not yet serving. It changes nothing in the machine.
type evBorn struct{}

// A life is what the goroutine of Run owns.
type life struct {
	w *Worker
	m machine

	body   body // from ready to exit
	pid    int  // from born to exit
	abort  context.CancelCauseFunc
	giveUp chan struct{} // closed when the process is not waited for any more
	down   func()
	stop   context.CancelFunc      // of the health checks
	cool   context.CancelCauseFunc // of the spare, nil: none is kept
	health health
	last   *Exit

	timer   *time.Timer
	waiters []waiter
	over    chan struct{} // closed when no event is taken any more
	helpers sync.WaitGroup
	done    bool
}

// A waiter is an ask that was taken and is not answered.
type waiter struct {
	ask
	after uint64 // for a start: the incarnation that is not new
}

// Leaving is the cause of a context of Run that ended while the supervisor goes on: why the worker is needed no more as it is.
type Leaving string

func (l Leaving) Error() string { return string(l) }

// Run is the worker's life. It ends the process when ctx ends, with a drain, and returns when the process is gone. It is
// called once. A Leaving as the cause is told of the end of the process.
func (w *Worker) Run(ctx context.Context) {
	l := &life{w: w, m: w.past.machine(w.tuned().Policy, w.spec.Lazy), last: w.past.last, over: make(chan struct{}), timer: time.NewTimer(0)}
	defer close(w.gone)
	defer l.timer.Stop()
	l.timer.Stop()
	ended := ctx.Done()
	l.apply(evBegin{})
	for !l.done {
		select {
		case <-ended:
			ended = nil
			why, _ := errors.AsType[Leaving](context.Cause(ctx))
			l.apply(evAsk{what: closing, by: BySupervisor, why: string(why)})
		case a := <-w.asks:
			l.asked(a)
		case what := <-w.nudges:
			l.apply(evAsk{what: what})
		case h := <-w.events:
			l.happened(h)
		case <-l.timer.C:
			l.apply(evTimer{})
		}
		l.answer()
	}
	close(l.over)
	l.helpers.Wait()
}

// tell brings an event to the goroutine of Run.
func (l *life) tell(h happening) {
	select {
	case l.w.events <- h:
	case <-l.over:
	}
}

// apply lets the machine take a step and does what it says.
func (l *life) apply(ev any) {
	l.m.policy = l.w.tuned().Policy
	before := l.m
	var actions []action
	l.m, actions = l.m.step(time.Now(), l.w.jitter(), ev)
	l.publish() // who is told of it may look at the worker
	l.report(before, ev)
	for _, a := range actions {
		l.do(a)
	}
	switch l.m.state {
	case Ready:
		l.keepSpare()
	case Disabled, Exited:
		l.dropSpare()
	}
	l.publish()
}

func (l *life) do(a action) {
	switch a {
	case doLaunch:
		l.launch()
	case doDrain:
		l.goingDown()
		l.drain()
	case doTerm, doQuit, doKill:
		l.goingDown()
		l.end(a)
	case doAbort:
		l.abort(errAborted)
	case doWait:
		l.timer.Reset(time.Until(l.m.next))
	case doFinish:
		l.done = true
	case doCheer:
		l.w.event(kindRecovered, l.pid, "has proven itself; it has its restarts back", nil)
	}
}

var errAborted = errors.New("the start was broken off")

// happened takes an event of a process. One of an earlier process means nothing any more.
func (l *life) happened(h happening) {
	if h.incarnation != l.m.incarnation {
		return
	}
	switch h.ev.(type) {
	case evBorn:
		l.pid = h.pid
		l.publish()
		l.w.event(kindStarted, h.pid, "", fields{"incarnation": fmt.Sprint(h.incarnation)})
		return
	case evReady:
		l.serving(h.body)
	case evHealth:
		l.health = h.health
	case evDrain:
		l.drained(h)
	case evExit:
		l.ended(h.exit)
	}
	l.apply(h.ev)
	if l.m.state == Ready {
		l.w.once.Do(func() { close(l.w.ready) }) // when it can be seen that it serves
	}
}

// launch makes a process in a goroutine that stays with it to its end.
func (l *life) launch() {
	ctx, abort := context.WithCancelCause(context.Background())
	l.abort, l.giveUp = abort, make(chan struct{})
	cool := l.cool
	l.cool = nil
	l.pid, l.health = 0, health{}
	incarnation, giveUp := l.m.incarnation, l.giveUp
	l.helpers.Go(func() {
		defer abort(nil)
		born := func(pid int) { l.tell(happening{incarnation: incarnation, ev: evBorn{}, pid: pid}) }
		b, exit, err := l.w.launcher.launch(ctx, incarnation, born)
		if cool != nil {
			cool(errNotNeeded) // it was taken, or was of no use
		}
		if err != nil {
			l.tell(happening{incarnation: incarnation, ev: evExit{failed: true, never: errors.Is(err, errHopeless)}, exit: exit})
			b.tidy()
			return
		}
		l.tell(happening{incarnation: incarnation, ev: evReady{}, body: b})
		select {
		case <-b.done():
		case <-giveUp:
			// Most are slow and not immortal: a busy machine takes a while to end a hundred processes. Nobody waits for that, and
			// the process's end is that of this goroutine.
			go func() {
				<-b.done()
				b.tidy()
			}()
			return
		}
		l.tell(happening{incarnation: incarnation, ev: evExit{}, exit: b.exit()})
		// The next process may be on its way by now; nothing of it is touched.
		b.tidy()
	})
}

// serving begins with a process that has answered Init. If its end was asked for in the meantime it is ended at once.
func (l *life) serving(b body) {
	l.body = b
	if l.m.state != Starting {
		l.end(doTerm)
		return
	}
	l.down = b.up(l.w.hooks)
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	incarnation := l.m.incarnation
	l.helpers.Go(func() { l.watch(ctx, b, incarnation) })
}

// watch asks for the worker's health until ctx ends or it has not answered too often.
func (l *life) watch(ctx context.Context, b body, incarnation uint64) {
	// All workers are asked at the same round moments, so that an idle machine is woken once for all of them.
	untilNext := func(intervals int) time.Duration {
		every := l.w.tuned().HealthInterval * time.Duration(intervals)
		return every - time.Duration(time.Now().UnixNano())%every
	}
	t := time.NewTimer(untilNext(1))
	defer t.Stop()
	for missed, soon := 0, true; missed < l.w.env.Timing.Misses; {
		var begins <-chan struct{}
		if soon || missed > 0 || l.w.busy() {
			t.Reset(untilNext(1))
		} else {
			t.Reset(untilNext(idleChecks))
			begins = l.w.begins
		}
		select {
		case <-ctx.Done():
			return
		case <-begins:
			soon = true
			continue
		case <-t.C:
			soon = false
		}
		asking, cancel := context.WithTimeout(ctx, l.w.env.Timing.Health)
		h, err := b.health(asking)
		cancel()
		if ctx.Err() != nil || err != nil && b.reaped() {
			return // who is dead is not hung
		}
		if err != nil {
			missed++
			if l.w.State() != Ready {
				continue // it ends on purpose, which is said elsewhere
			}
			l.w.log.Warn("health check missed", "in_a_row", missed, "error", err)
			continue
		}
		missed = 0
		l.tell(happening{incarnation: incarnation, ev: evHealth{h.progress}, health: h})
	}
	l.tell(happening{incarnation: incarnation, ev: evHung{}})
}

func (w *Worker) busy() bool { return w.env.Busy == nil || w.env.Busy(w.spec.Name) }

// drain asks the worker to finish, for as long as the Spec allows.
func (l *life) drain() {
	b, incarnation, budget := l.body, l.m.incarnation, l.w.tuned().Drain
	reason := map[intent]string{again: "restart", down: "stop", closing: "shutdown", recycle: "replacement", rest: "idle"}[l.m.intent]
	l.helpers.Go(func() {
		h := happening{incarnation: incarnation, ev: evDrain{}}
		if budget > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), budget)
			defer cancel()
			h.unfinished, h.err = b.drain(ctx, reason)
		}
		l.tell(h)
	})
}

func (l *life) drained(h happening) {
	switch {
	case l.m.state != Draining:
	case errors.Is(h.err, ipc.ErrTimeout) || errors.Is(h.err, context.DeadlineExceeded):
		l.w.log.Warn("work did not end within the drain budget", "budget", l.w.tuned().Drain)
	case h.err != nil && !errors.Is(h.err, ipc.ErrGone):
		l.w.log.Warn("drain failed", "error", h.err)
	case h.unfinished > 0:
		l.w.log.Warn("drained with unfinished work", "unfinished", h.unfinished)
	}
}

// end climbs the stop ladder. A process that is not over at its end is given up: it must not hold its successor back.
func (l *life) end(from action) {
	b, incarnation, giveUp := l.body, l.m.incarnation, l.giveUp
	l.helpers.Go(func() {
		b.end(from)
		select {
		case <-b.done():
		default:
			close(giveUp)
			l.tell(happening{incarnation: incarnation, ev: evExit{}, exit: b.unended()})
		}
	})
}

// goingDown tells the rest of the supervisor, once, that the worker takes no more work.
func (l *life) goingDown() {
	if l.down != nil {
		if l.m.intent != keep && l.body != nil {
			l.body.leaving(l.w.hooks)
		}
		l.down()
		l.down = nil
	}
}

// ended takes leave of a process.
func (l *life) ended(e Exit) {
	l.goingDown()
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
	e.At = time.Now()
	e.judge(l.m)
	l.last = &e
	l.body, l.pid, l.health = nil, 0, health{}
}

// asked takes a wish.
func (l *life) asked(a ask) {
	switch {
	case a.over.held != "":
		l.apply(a.over)
		a.answer <- nil
		return
	case a.what == recycle, a.what == closing:
		l.apply(a.evAsk)
		a.answer <- nil
		return
	}
	if a.what == again && a.onlyDown {
		switch l.m.state {
		case Ready:
			a.answer <- nil
			return
		case Starting:
			l.waiters = append(l.waiters, waiter{a, l.m.incarnation - 1})
			return
		}
	}
	l.waiters = append(l.waiters, waiter{a, l.m.incarnation})
	l.apply(a.evAsk)
}

// answer answers those whose wish has come true or cannot any more.
func (l *life) answer() {
	left := l.waiters[:0]
	for _, w := range l.waiters {
		if err, ok := l.verdict(w); ok {
			w.answer <- err
			continue
		}
		left = append(left, w)
	}
	l.waiters = left
}

func (l *life) verdict(w waiter) (err error, ok bool) {
	newer := l.m.incarnation > w.after
	name := l.w.spec.Name
	switch {
	case w.what == down && l.m.state == Disabled:
		return nil, true
	case w.what == down && l.m.state == Ready && newer:
		return fmt.Errorf("worker %s: somebody started it again: %w", name, ipc.ErrRefused), true
	case w.what == again && l.m.state == Ready && newer:
		return nil, true
	case w.what == again && l.m.state == Disabled:
		return fmt.Errorf("worker %s: somebody stopped it: %w", name, ipc.ErrRefused), true
	case w.what == again && l.m.waits() && newer:
		return fmt.Errorf("worker %s does not start: %s", name, l.last.Message), true
	}
	return nil, false
}
