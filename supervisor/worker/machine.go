package worker

import "time"

// A State is where a worker is in its life. The words are those of `ctl status`.
type State string

// A worker goes starting → ready → draining → stopping → exited, and from there to the next start, by way of waiting,
// failed or degraded if that is not at once.
const (
	Starting State = "starting" // its process is being made and has not answered Init
	Ready    State = "ready"    // it serves
	Draining State = "draining" // it ends running work and takes no more
	Stopping State = "stopping" // it has been told to end, ever more firmly
	Exited   State = "exited"   // its process is gone, for good if the supervisor stops
	Waiting  State = "waiting"  // for its next start, after a death
	Failed   State = "failed"   // for its next start, as the last one did not succeed and time alone may not mend it
	Degraded State = "degraded" // for its next start, out of restarts: in the slow lane
	Disabled State = "disabled" // an operator keeps it down
	Idle     State = "idle"     // nobody needs it: it is started when somebody does
)

// An intent is what is to become of a worker whose process is being ended on purpose.
type intent int

const (
	keep    intent = iota // nobody asked for its end
	again                 // start it again at once
	down                  // keep it down
	closing               // the supervisor ends
	recycle               // start it again, as it nears a limit
	rest                  // nobody needs it
	wakeUp                // it was to rest, and somebody needs it
)

// A machine is the life of one worker as a value. It has no clock, no goroutine and no process: step takes what happened
// and when, and says what to do. One goroutine owns it (Worker.Run).
type machine struct {
	policy Policy
	lazy   bool

	state       State
	intent      intent
	incarnation uint64 // of the current or last process, from 1
	restarts    int64  // starts after the first one
	history     History
	run         Run
	hung        bool      // the process is being ended because it does not answer
	over        string    // the process is being ended because it holds more than it may; how much
	overCause   string    // of what: CauseMemory or CauseProcesses
	by, why     string    // who wanted the end of the process, and what for
	next        time.Time // of the next start while waiting
	reason      string    // why it waits, for a person
}

// What can happen to a worker.
type (
	evBegin  struct{}                     // the supervisor runs it
	evReady  struct{}                     // Init succeeded
	evHealth struct{ progress uint64 }    // it answered
	evHung   struct{}                     // it did not, too often
	evOver   struct{ cause, held string } // it holds more than it may, of what the cause says
	evAsk    struct {                     // somebody wants its end, or its start
		what    intent
		by, why string
		urgent  bool // there is no time for a drain
	}
	evDrain struct{}                     // the drain has ended, one way or the other
	evExit  struct{ failed, never bool } // its process is gone; failed: before it was ready; never: and will not get ready as it is
	evTimer struct{}                     // the wait for the next start is over
)

// What is to be done about it.
type action int

const (
	doLaunch action = iota // make a process
	doDrain                // ask it to finish its work
	doTerm                 // the stop ladder from SIGTERM on
	doQuit                 // the stop ladder from SIGQUIT on: it does not answer, so its stacks matter
	doKill                 // the stop ladder from SIGKILL on: each moment makes it worse
	doAbort                // end a start that is under way
	doWait                 // wake at machine.next
	doFinish               // the worker is done for good
	doCheer                // tell that a stable run has earned the restart budget back
)

// step returns the machine after ev and what to do, in order. Events that do not fit the state change nothing: they come
// from goroutines that could not know yet.
func (m machine) step(now time.Time, jitter float64, ev any) (machine, []action) {
	switch ev := ev.(type) {
	case evBegin:
		if m.state == "" && m.lazy {
			m.state = Idle
			return m, nil
		}
		if m.state == "" {
			if m.incarnation > 0 {
				m.restarts++ // it takes the place of a worker that ran
			}
			return m.launch()
		}
	case evReady:
		if m.state == Starting {
			m.state, m.run.Ready = Ready, now
		}
	case evHealth:
		return m.healthy(now, ev.progress)
	case evHung:
		if m.state == Ready || m.state == Draining {
			m.state, m.hung = Stopping, true
			return m, []action{doQuit}
		}
	case evOver:
		if m.state == Ready || m.state == Draining {
			m.state, m.over, m.overCause = Stopping, ev.held, ev.cause
			return m, []action{doKill}
		}
	case evDrain:
		if m.state == Draining {
			m.state = Stopping
			return m, []action{doTerm}
		}
	case evTimer:
		if m.waits() && !now.Before(m.next) {
			m.restarts++
			return m.launch()
		}
	case evAsk:
		if ev.what == rest || ev.what == wakeUp {
			return m.nudged(ev.what)
		}
		return m.asked(ev)
	case evExit:
		return m.exited(now, jitter, ev)
	}
	return m, nil
}

func (m machine) waits() bool {
	return m.state == Waiting || m.state == Failed || m.state == Degraded
}

// alive says whether there is a process, or one is being made.
func (m machine) alive() bool {
	return m.state == Starting || m.state == Ready || m.state == Draining || m.state == Stopping
}

func (m machine) launch() (machine, []action) {
	m.state, m.intent, m.hung, m.over, m.reason = Starting, keep, false, "", ""
	m.by, m.why = "", ""
	m.incarnation++
	m.run, m.next = Run{}, time.Time{}
	return m, []action{doLaunch}
}

func (m machine) healthy(now time.Time, progress uint64) (machine, []action) {
	if m.state != Ready {
		return m, nil
	}
	m.run.Progress, m.run.Ended = progress, now
	if !m.history.blemished() {
		return m, nil
	}
	if h := m.policy.Proven(m.history, m.run); !h.blemished() {
		m.history = h
		return m, []action{doCheer}
	}
	return m, nil
}

// asked takes a wish of the operator or the supervisor. The end of the supervisor overrules all others, else the newest
// wish holds: a stop during a restart keeps the worker down, a start during a stop brings it back. A replacement ahead of a
// limit is wanted only of a worker that serves.
func (m machine) asked(ev evAsk) (machine, []action) {
	if m.intent == closing && m.state == Draining && ev.what == closing && ev.urgent {
		m.state = Stopping
		return m, []action{doTerm}
	}
	if m.intent == closing || m.state == Exited {
		return m, nil
	}
	if ev.what == recycle {
		return m.recycled(ev)
	}
	switch {
	case m.state == Draining || m.state == Stopping:
		return m.wanted(ev), nil
	case m.state == Starting:
		m.state = Stopping
		return m.wanted(ev), []action{doAbort}
	case m.state == Ready:
		m.state = Draining
		return m.wanted(ev), []action{doDrain}
	}
	// No process: waiting, disabled, or not begun.
	switch ev.what {
	case again:
		m.restarts++
		// The budget stays as it is: who asks is never made to wait, and the worker has yet to prove that it is well.
		return m.launch()
	case closing:
		m.state, m.intent = Exited, closing
		return m, []action{doFinish}
	}
	m.state, m.by, m.why = Disabled, ev.by, ev.why
	return m, nil
}

func (m machine) wanted(ev evAsk) machine {
	m.intent, m.by, m.why = ev.what, ev.by, ev.why
	return m
}

func (m machine) recycled(ev evAsk) (machine, []action) {
	switch {
	case m.state == Ready && ev.urgent, m.state == Draining && m.intent == recycle && ev.urgent:
		m.state = Stopping
		return m.wanted(ev), []action{doTerm}
	case m.state == Ready:
		m.state = Draining
		return m.wanted(ev), []action{doDrain}
	}
	return m, nil
}

// exited decides what follows from the end of a process.
func (m machine) exited(now time.Time, jitter float64, ev evExit) (machine, []action) {
	if !m.alive() {
		return m, nil
	}
	m.state = Exited
	m.run.Ended = now
	switch m.intent {
	case closing:
		// For the one that may take its place (Past): its settings were changed, as by a restart by hand.
		m.run.End = ByOperator
		m.history, _ = m.policy.After(m.history, m.run, jitter)
		return m, []action{doFinish}
	case down:
		m.state, m.intent = Disabled, keep
		return m, nil
	case rest:
		m.state, m.intent = Idle, keep
		return m, nil
	case wakeUp:
		return m.launch()
	case again:
		m.restarts++
		m.run.End = ByOperator
		m.history, _ = m.policy.After(m.history, m.run, jitter)
		return m.launch()
	case recycle:
		m.run.End = Recycled
	}
	m.run.Hopeless = ev.never
	var d Decision
	m.history, d = m.policy.After(m.history, m.run, jitter)
	if d.Delay == 0 {
		m.restarts++
		return m.launch()
	}
	m.next, m.reason = now.Add(d.Delay), d.Reason
	switch {
	case d.Slow && !ev.never:
		m.state = Degraded
	case ev.failed:
		m.state = Failed
	default:
		m.state = Waiting
	}
	return m, []action{doWait}
}
