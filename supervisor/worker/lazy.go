package worker

// nudgesKept wait for the goroutine of Run. More say nothing that these do not: the newest state is what counts, and who
// needs a worker nudges it again.
const nudgesKept = 8

// Wake starts a lazy worker that rests. It does nothing to one that serves, is on its way, or was stopped by an operator.
// It never waits.
func (w *Worker) Wake() { w.nudge(wakeUp) }

// Rest ends the process of a lazy worker after a drain, until Wake. It does nothing to one that does not serve. It never
// waits.
func (w *Worker) Rest() { w.nudge(rest) }

func (w *Worker) nudge(what intent) {
	select {
	case w.nudges <- what:
	default:
	}
}

// nudged takes a wish that leaves the history of restarts alone: a worker that rests and is woken has proven nothing.
func (m machine) nudged(what intent) (machine, []action) {
	switch {
	case !m.lazy:
	case what == rest && m.state == Ready:
		m.state, m.intent = Draining, rest
		return m, []action{doDrain}
	case what == wakeUp && m.state == Idle:
		return m.launch()
	case what == wakeUp && m.intent == rest: // draining or stopping
		m.intent = wakeUp
	case what == rest && m.intent == wakeUp:
		m.intent = rest
	}
	return m, nil
}
