package turn

import (
	"sync"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// endingsKept is how many ended turns are remembered, at about a hundred bytes each. A follower usually comes within
// milliseconds of the end.
const endingsKept = 1024

// endings remembers the last turns that ended here: what they used, which the store does not keep with the turn, and
// the fact itself, for readers that saw the turn open a moment ago. It is safe for concurrent use.
type endings struct {
	mu         sync.Mutex
	young, old map[string]*turnv1.Usage
}

// put notes the end of a turn. A nil usage does not replace one that is known.
func (e *endings) put(turnID string, u *turnv1.Usage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.young == nil || len(e.young) >= endingsKept {
		e.old, e.young = e.young, map[string]*turnv1.Usage{}
	}
	if u == nil {
		u = e.young[turnID]
	}
	e.young[turnID] = u
}

func (e *endings) usage(turnID string) *turnv1.Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	if u := e.young[turnID]; u != nil {
		return u
	}
	return e.old[turnID]
}

func (e *endings) has(turnID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, young := e.young[turnID]
	_, old := e.old[turnID]
	return young || old
}
