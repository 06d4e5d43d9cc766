package worker

// A Past is what a worker leaves to the one that takes its place with other settings: how often it was started, what is held
// against it, and how it ended. A changed setting is no way out of the slow lane, and brings nobody back whom an operator keeps
// down. The zero value is that of a new worker.
type Past struct {
	down        bool
	incarnation uint64
	restarts    int64
	history     History
	last        *Exit
}

// Past returns the past of a worker whose Run has returned; state is where it was before its end.
func (w *Worker) Past(state State) Past {
	v := w.look()
	return Past{down: state == Disabled, incarnation: v.m.incarnation, restarts: v.m.restarts, history: v.m.history, last: v.last}
}

// Succeed gives a worker the past of another one. It is called before Run.
func (w *Worker) Succeed(p Past) { w.past = p }

// machine returns a life that has not begun, after a past. Incarnations are counted on, so that what an earlier process has left
// behind is never taken for that of a later one.
func (p Past) machine(policy Policy, lazy bool) machine {
	m := machine{policy: policy, lazy: lazy, incarnation: p.incarnation, restarts: p.restarts, history: p.history}
	if p.down {
		m.state = Disabled
	}
	return m
}
