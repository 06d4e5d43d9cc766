package supervisor

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// Kinds of journal entries about what plugins do that ends no process by itself.
const (
	kindLogFlood    = "log_flood"    // it prints more than it may
	kindPeerRefused = "peer_refused" // it wanted to speak to the control socket
)

const (
	// stuckAfter is how long a call may go on in a plugin after it has ended for everybody else. The SDK gives a handler five
	// seconds and then says that it was given up, so twice that is nobody's patience.
	stuckAfter = 10 * time.Second
	// healthsMissing is how many health checks at least lie in that time: what a plugin says of itself is as old as the last.
	healthsMissing = 3
	// floodEvery is how often a flood is told that goes on.
	floodEvery = time.Minute
)

// clearTemp takes the temporary files of a plugin away whose process has ended, before another one begins: it is called by the
// goroutine that would start it. Where the process of another version goes on they may be in use, and go with that.
func (h *pluginHost) clearTemp(workerName string) {
	h.mu.Lock()
	name, ok := h.owners[workerName]
	var others []string
	for other, plugin := range h.owners {
		if plugin == name && other != workerName {
			others = append(others, other)
		}
	}
	h.mu.Unlock()
	if !ok || slices.ContainsFunc(others, h.lives) {
		return
	}
	if path, err := h.cat.TakeTemp(name); err != nil {
		h.log.Warn("temporary files of a plugin stay", "plugin", name, "error", err)
	} else if path != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.spawn(h.sweepTemp)
	}
}

// lives says whether a worker has a process or is about to.
func (h *pluginHost) lives(workerName string) bool {
	m, err := h.fleet.member(workerName)
	return err == nil && (m.PID() != 0 || m.State() == worker.Starting)
}

// sweepTemp removes what was taken away.
func (h *pluginHost) sweepTemp() {
	if err := h.cat.SweepTemp(); err != nil {
		h.log.Warn("temporary files of plugins cannot be removed", "error", err)
	}
}

// A watchNote is what is remembered of a plugin's worker from one look to the next.
type watchNote struct {
	stuck   time.Time // since when it has calls that nobody waits for; zero: it has none
	dropped int64     // log lines so far
	pid     int       // whose flood was told last
	flooded time.Time // when
	refused int       // the process whose refusal was told
}

// note returns what is remembered of a worker. h.mu must be held.
func (h *pluginHost) note(workerName string) *watchNote {
	n := h.notes[workerName]
	if n == nil {
		n = &watchNote{}
		h.notes[workerName] = n
	}
	return n
}

// inspect looks at a plugin that runs: for calls that go on after their end, and for a flood of log lines.
func (h *pluginHost) inspect(m *member, now time.Time) {
	st := m.Status()
	busy := h.hub.Busy(m.Name())
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.note(m.Name())
	if more := st.LogLinesDropped - n.dropped; more > 0 && (n.pid != int(st.Pid) || now.Sub(n.flooded) >= floodEvery) {
		n.dropped, n.flooded, n.pid = st.LogLinesDropped, now, int(st.Pid)
		h.record(store.Event{Kind: kindLogFlood, Worker: m.Name(), PID: int(st.Pid), Message: fmt.Sprintf(
			"it prints more than it may: %d log lines were dropped", more), Fields: map[string]string{"dropped": strconv.FormatInt(more, 10)}})
	}
	switch lost := int(st.InFlight) - busy; {
	case lost <= 0:
		n.stuck = time.Time{}
	case n.stuck.IsZero():
		n.stuck = now
	case now.Sub(n.stuck) >= max(stuckAfter, healthsMissing*h.config.Supervisor.HealthInterval):
		n.stuck = time.Time{}
		c := concern{worker: m, pid: int(st.Pid), why: fmt.Sprintf("it does not end calls when told to; calls that go on after everybody has given them up: %d", lost)}
		recycle := h.fleet.leaks.recycle
		// With other calls in hand it gets the time of a drain for these.
		recycle.once(c.pid, func() { recycle.replace(c, busy == 0) })
	}
}

// suspects says whether a worker is looked at more closely: its health is asked for as if it was busy.
func (h *pluginHost) suspects(workerName string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.notes[workerName]
	return n != nil && !n.stuck.IsZero()
}

// refused tells, once for each process, that a plugin's attempt at the control socket was turned away.
func (h *pluginHost) refused(m *member, pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.note(m.Name()); n.refused != pid {
		n.refused = pid
		h.record(store.Event{Kind: kindPeerRefused, Worker: m.Name(), PID: pid, Message: fmt.Sprintf(
			"process %d of it connected to the control socket and was refused", pid)})
	}
}

// look puts plugins to rest that nobody needs, and inspects the others.
func (h *pluginHost) look(now time.Time) {
	h.mu.Lock()
	list := map[string]string{}
	for name, g := range h.guests {
		list[name] = g.worker
	}
	for name := range h.notes {
		if _, there := h.owners[name]; !there {
			delete(h.notes, name)
		}
	}
	h.mu.Unlock()
	for name, w := range list {
		m, err := h.fleet.member(w)
		if err != nil || m.State() != worker.Ready {
			continue
		}
		if h.hub.Retire(w, h.config.Supervisor.PluginFor(name).Idle) {
			m.Rest()
			continue
		}
		h.inspect(m, now)
	}
}
