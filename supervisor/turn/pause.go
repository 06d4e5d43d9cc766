package turn

// Pause stops giving out turns until Resume. Messages are accepted and wait; what runs goes on. It returns the number of
// turns that run.
func (h *Hub) Pause() (running int) {
	h.mu.Lock()
	h.paused = true
	h.mu.Unlock()
	running, _ = h.running()
	return running
}

// Resume gives out turns again and says whether they were held back.
func (h *Hub) Resume() (was bool) {
	h.mu.Lock()
	was, h.paused = h.paused, false
	h.mu.Unlock()
	h.wake()
	return was
}

// Paused says whether turns are held back.
func (h *Hub) Paused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paused
}

// limits are what may change while the hub runs.
type limits struct {
	approvals ApprovalPolicy
	turns     int      // of one agent at once
	platforms []string // that chats can be on; nil: any
}

// Adjust changes how approvals are asked for, how many turns an agent takes, and which platforms there are. Zero means the
// default. What waits for a yes already keeps its time.
func (h *Hub) Adjust(a ApprovalPolicy, turnsPerAgent int, platforms []string) {
	if a.Timeout <= 0 {
		a.Timeout = defaultApprovalTimeout
	}
	if turnsPerAgent <= 0 {
		turnsPerAgent = defaultTurnsPerAgent
	}
	h.mu.Lock()
	h.limits = limits{approvals: a, turns: turnsPerAgent, platforms: platforms}
	h.mu.Unlock()
	h.wake()
}

func (h *Hub) approvals() ApprovalPolicy {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.limits.approvals
}

func (h *Hub) platforms() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.limits.platforms
}
