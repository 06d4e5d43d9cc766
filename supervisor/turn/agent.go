package turn

import (
	"maps"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
)

// agentPause is how long an agent that refused a run or broke its connection gets no other: its end is usually noticed
// by then, and until it is, every lease given to it would be lost.
const agentPause = time.Second

// An agent is one life of an agent process. All fields are guarded by Hub.mu.
type agent struct {
	id        ipc.Identity
	client    agentv1.AgentClient
	load      int
	mixed     bool // it has had more than one turn since it had none
	detached  bool
	leaving   bool      // its end is planned: what it runs is cut by no fault of its own
	picked    uint64    // when it was last chosen
	notBefore time.Time // see agentPause
}

func (h *Hub) attachAgent(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
	a := &agent{id: id, client: agentv1.NewAgentClient(conn)}
	h.mu.Lock()
	if old := h.agents[id.Worker]; old != nil {
		old.detached = true
		h.homes.forget(old)
	}
	h.agents[id.Worker] = a
	h.mu.Unlock()
	h.wake()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		a.detached = true
		h.homes.forget(a)
		if h.agents[id.Worker] == a {
			delete(h.agents, id.Worker)
		}
	}
}

// give counts a turn that an agent gets. h.mu must be held.
func (a *agent) give() {
	a.load++
	a.mixed = a.mixed || a.load > 1
}

// drop counts a turn that an agent has no longer. h.mu must be held.
func (a *agent) drop() {
	a.load--
	a.mixed = a.mixed && a.load > 0
}

// pick returns the agent for a turn of session, or nil if the turn must wait: the one that ran the session before as
// long as it lives, even if it is full, because its provider cache is warm; else the least loaded, and among equals the
// one that waited longest. h.mu must be held.
func (h *Hub) pick(session string) *agent {
	if a := h.homes.get(session); a != nil && !a.detached {
		if h.free(a) {
			return a
		}
		return nil
	}
	var best *agent
	for _, a := range h.agents {
		if h.free(a) && (best == nil || a.load < best.load || a.load == best.load && a.picked < best.picked) {
			best = a
		}
	}
	if best != nil {
		h.picks++
		best.picked = h.picks
		h.homes.put(session, best)
	}
	return best
}

func (h *Hub) free(a *agent) bool {
	return a.load < h.limits.turns && !h.now().Before(a.notBefore)
}

// homesKept bounds what is remembered of sessions that have no open turn. A forgotten one costs a cold prompt cache.
const homesKept = 2048

// homes remembers which agent ran a session last. It keeps between one and two times homesKept sessions: the newer half
// and the one before it.
type homes struct {
	young, old map[string]*agent
}

func (m *homes) get(session string) *agent {
	if a := m.young[session]; a != nil {
		return a
	}
	a := m.old[session]
	if a != nil && !a.detached {
		m.put(session, a)
	}
	return a
}

func (m *homes) put(session string, a *agent) {
	if len(m.young) >= homesKept || m.young == nil {
		m.old, m.young = m.young, map[string]*agent{}
	}
	m.young[session] = a
}

// forget lets go of an agent that is gone, and with it of its connection.
func (m *homes) forget(a *agent) {
	for _, half := range []map[string]*agent{m.young, m.old} {
		maps.DeleteFunc(half, func(_ string, of *agent) bool { return of == a })
	}
}
