package store

import (
	"fmt"
	"sync"
)

// States of a store, best first.
const (
	stateOK       = "ok"
	stateDegraded = "degraded" // works, but something needs a person's eye
	stateReadOnly = "readonly" // reads only
	stateFailed   = "failed"   // no more writes until it is opened anew
)

var badness = map[string]int{stateOK: 0, stateDegraded: 1, stateReadOnly: 2, stateFailed: 3}

// Conditions that make a store less than ok. Several can hold at once.
const (
	condIdentity = "identity"     // the file or its WAL was replaced
	condDamage   = "damage"       // the database is malformed
	condReadOnly = "readonly"     // the file system does not take writes
	condFull     = "full"         // the disk is full
	condSpace    = "space"        // the disk is nearly full
	condLock     = "lock"         // another process holds the write lock
	condWAL      = "wal"          // the WAL cannot be emptied
	condIO       = "io"           // the disk reports errors
	condIndex    = "index"        // the full-text index is damaged and detached
	condBuild    = "fts_building" // the full-text index is being built
)

// health holds the conditions of a store. The worst one is its state.
type health struct {
	mu    sync.Mutex
	conds map[string]condition
}

type condition struct{ state, detail string }

// set notes a condition and says whether it is new or was less bad before.
func (h *health) set(name, state, detail string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conds == nil {
		h.conds = map[string]condition{}
	}
	old, had := h.conds[name]
	h.conds[name] = condition{state, detail}
	return !had || badness[old.state] < badness[state]
}

// clear says whether the condition held.
func (h *health) clear(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, had := h.conds[name]
	delete(h.conds, name)
	return had
}

func (h *health) get(store string) Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	worst := Health{Name: store, State: stateOK, Detail: h.conds[condBuild].detail}
	for _, c := range h.conds {
		if badness[c.state] > badness[worst.State] || c.state == worst.State && c.detail < worst.Detail {
			worst.State, worst.Detail = c.state, c.detail
		}
	}
	return worst
}

// failure is the error of every write to a store that has failed, nil for any other store.
func (h *health) failure() error {
	if g := h.get(""); g.State == stateFailed {
		return fmt.Errorf("%w: %s", ErrFailed, g.Detail)
	}
	return nil
}
