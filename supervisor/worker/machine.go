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
	Failed   State = "failed"   // for its next start, as the last one did not succeed
	Degraded State = "degraded" // for its next start, out of restarts: in the slow lane
	Disabled State = "disabled" // an operator keeps it down
)

// An intent is what is to become of a worker whose process is being ended on purpose.
type intent int

const (
	keep    intent = iota // nobody asked for its end
	again                 // start it again at once
	down                  // keep it down
	closing               // the supervisor ends
)

// A machine is the life of one worker as a value. It has no clock, no goroutine and no process: step takes what happened
// and when, and says what to do. One goroutine owns it (Worker.Run).
type machine struct {
	policy Policy

	state       State
	intent      intent
	incarnation uint64 // of the current or last process, from 1
	restarts    int64  // starts after the first one
	history     History
	run         Run
	hung        bool      // the process is being ended because it does not answer
	next        time.Time // of the next start while waiting
	reason      string    // why it waits, for a person
}

// What can happen to a worker.
type (
	evBegin  struct{}                     // the supervisor runs it
	evReady  struct{}                     // Init succeeded
	evHealth struct{ progress uint64 }    // it answered
	evHung   struct{}                     // it did not, too often
	evAsk    struct{ what intent }        // somebody wants its end, or its start
	evDrain  struct{}                     // the drain has ended, one way or the other
	evExit   struct{ failed, never bool } // its process is gone; failed: before it was ready; never: and will not get ready as it is
	evTimer  struct{}                     // the wait for the next start is over
)

// What is to be done about it.
type action int

const (
	doLaunch action = iota // make a process
	doDrain                // ask it to finish its work
	doTerm                 // the stop ladder from SIGTERM on
	doQuit                 // the stop ladder from SIGQUIT on: it does not answer, so its stacks matter
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
		if m.state == "" {
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
		return m.asked(ev.what)
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
	m.state, m.intent, m.hung, m.reason = Starting, keep, false, ""
	m.incarnation++
	m.run, m.next = Run{}, time.Time{}
	return m, []action{doLaunch}
}

func (m machine) healthy(now time.Time, progress uint64) (machine, []action) {
	if m.state != Ready {
		return m, nil
	}
	m.run.Progress, m.run.Ended = progress, now
	blemished := m.history.Streak > 0
	if blemished && m.policy.Stable(m.run) {
		m.history = History{}
		return m, []action{doCheer}
	}
	return m, nil
}

// asked takes a wish of the operator or the supervisor. The end of the supervisor overrules all others, else the newest
// wish holds: a stop during a restart keeps the worker down, a start during a stop brings it back.
func (m machine) asked(what intent) (machine, []action) {
	if m.intent == closing || m.state == Exited {
		return m, nil
	}
	switch {
	case m.state == Draining || m.state == Stopping:
		m.intent = what
		return m, nil
	case m.state == Starting:
		m.state, m.intent = Stopping, what
		return m, []action{doAbort}
	case m.state == Ready:
		m.state, m.intent = Draining, what
		return m, []action{doDrain}
	}
	// No process: waiting, disabled, or not begun.
	switch what {
	case again:
		m.restarts++
		// Who starts a worker by hand has looked at it: it gets its restarts back.
		m.history = History{}
		return m.launch()
	case closing:
		m.state, m.intent = Exited, closing
		return m, []action{doFinish}
	}
	m.state = Disabled
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
		return m, []action{doFinish}
	case down:
		m.state, m.intent = Disabled, keep
		return m, nil
	case again:
		m.restarts++
		m.history = History{}
		return m.launch()
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
	case ev.failed:
		m.state = Failed
	case d.Slow:
		m.state = Degraded
	default:
		m.state = Waiting
	}
	return m, []action{doWait}
}
