package store

import (
	"fmt"
	"slices"
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

// Conditions that make a store less than ok. Several can hold at once. The names are for programs and documents and
// are only ever added.
const (
	CondWALRetired  = "wal_retired"    // the WAL or its index was deleted or replaced under us
	CondReplaced    = "file_replaced"  // the main file was
	CondDamage      = "corrupt"        // pages of tables are malformed
	CondIndex       = "fts_corrupt"    // a full-text index is damaged and detached; nothing else is
	CondBuild       = "fts_building"   // a full-text index is being built; the store is ok
	CondQuarantined = "quarantined"    // what was at the path was no database and has been moved aside
	CondReadOnly    = "read_only"      // the file system takes no writes
	CondFull        = "disk_full"      // or the quota is used up
	CondSpace       = "disk_low"       // nearly full
	CondIO          = "disk_error"     // the disk reports errors
	CondForeign     = "foreign_writer" // another process writes to the file
	CondLock        = "lock_held"      // another process holds the write lock for long
	CondWAL         = "wal_large"      // the WAL cannot be emptied
	CondNoWAL       = "no_wal"         // the file system cannot have a WAL
	CondClock       = "clock_back"     // the clock went back behind what is stored
)

// advice is what a person can do about each condition.
var advice = map[string]string{
	CondWALRetired: "nothing is lost; do not delete any state.db files: end other programs that use this home; if the state stays, restart the supervisor, " +
		"and see docs/store.md before anything else",
	CondReplaced:    "restart the supervisor to go on with the file that is there now; what the old one held is in the retired-wal folder beside it",
	CondDamage:      "look at it with: hermes-supervisor sessions recover --source FILE --inspect-only; move a recovered file into its place, or stop the supervisor and restore a snapshot",
	CondIndex:       "nothing: messages are kept, only the search misses some until the index has been built again",
	CondQuarantined: "look at the file that was moved aside with: hermes-supervisor sessions recover --source FILE --inspect-only; or restore a backup",
	CondReadOnly:    "let the file system be written, then it goes on by itself",
	CondFull:        "make room; writes go on by themselves, nothing that was acknowledged is lost",
	CondSpace:       "make room before it is full",
	CondIO:          "look into the kernel's log; if the disk is failing, copy the home to another one",
	CondForeign:     "end that program, or give it another home: two writers on one file are how files are damaged",
	CondLock:        "wait; if it stays, end that process",
	CondWAL:         "end the reader that holds it",
	CondNoWAL:       "move the home to a local disk: writes wait for reads here, and are slower",
	CondClock:       "set the clock; order of messages is kept by number, not by time",
}

// urgency orders conditions of one state: what keeps writes from being made comes first.
var urgency = []string{CondReplaced, CondDamage, CondWALRetired, CondIO, CondFull, CondLock, CondQuarantined, CondIndex, CondForeign,
	CondNoWAL, CondSpace, CondWAL, CondClock, CondBuild}

// first says whether one condition is told rather than another.
func first(name, than string) bool {
	return slices.Index(urgency, name) < slices.Index(urgency, than) || than == "" && slices.Contains(urgency, name)
}

// health holds the conditions of a store. The worst one is its state.
type health struct {
	mu    sync.Mutex
	conds map[string]condition
	// suspended says that what failed the store may be healed.
	suspended bool
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

// only sets a condition and clears the others of a list, at once.
func (h *health) only(name, state, detail string, of []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conds == nil {
		h.conds = map[string]condition{}
	}
	for _, other := range of {
		delete(h.conds, other)
	}
	h.conds[name] = condition{state, detail}
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
	worst := Health{Name: store, State: stateOK, Detail: h.conds[CondBuild].detail}
	for name, c := range h.conds {
		if badness[c.state] > badness[worst.State] || c.state == worst.State && first(name, worst.Condition) {
			worst = Health{Name: store, State: c.state, Condition: name, Detail: c.detail, Advice: advice[name]}
		}
	}
	return worst
}

// holds says whether a condition is set.
func (h *health) holds(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, had := h.conds[name]
	return had
}

// failure is the error of every write to a store that has failed, nil for any other store.
func (h *health) failure() error {
	g := h.get("")
	switch {
	case g.State != stateFailed:
		return nil
	case g.Condition == CondWALRetired && h.mayHeal():
		return fmt.Errorf("%w: %s", ErrSuspended, g.Detail)
	}
	return fmt.Errorf("%w: %s", ErrFailed, g.Detail)
}

// refusal is the error of every write to a store that is open for reads alone.
func (h *health) refusal() error {
	if err := h.failure(); err != nil {
		return err
	}
	kind, detail := ErrSuspended, ""
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, of := range map[string]error{CondReadOnly: ErrReadOnly, CondFull: ErrDiskFull, CondIO: ErrSuspended} {
		if c, is := h.conds[name]; is {
			kind, detail = of, c.detail
		}
	}
	return fmt.Errorf("%w: %s", kind, detail)
}

// suspend says whether callers should try again.
func (h *health) suspend(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.suspended = on
}

func (h *health) mayHeal() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.suspended
}
