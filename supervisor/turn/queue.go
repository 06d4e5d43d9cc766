package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// parkAfter is how many leases in a row may be lost without a new step before a turn is no longer tried. A turn that
// kills its agent would else do so for ever.
const parkAfter = 3

// parkShared is the same for a turn that was lost together with others, of which at most one is the cause.
const parkShared = 2 * parkAfter

// restartWindow is the time within which a second end of the supervisor during a turn makes the turn a suspect.
const restartWindow = 10 * time.Minute

// A live is a turn that has not ended. Hub.mu guards its fields, except those of the first group, which do not change.
type live struct {
	id, session, platform string
	feed                  *feed
	// ctx ends when the calls of the turn must: it ended, was interrupted, or the hub closes.
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{} // one for each call that runs

	turn store.Turn // as last seen

	// barrier is the newest Accept that had begun when this turn was added: the turn waits for those to end, since
	// one of them may have stored an earlier turn of the same session.
	barrier   uint64
	notBefore time.Time // after a failure of the store or the agent
	busy      bool      // a goroutine leases, runs or ends it
	done      bool
	refused   bool   // the store refused its lease at least once
	released  bool   // given back to the store, as the supervisor ends
	lost      int    // leases lost in a row without a new step, as Interrupted in the store
	lastLoss  string // why the last one was lost
	shared    bool   // others were lost with it, or it is not known
	stopped   bool   // a person interrupted it
	reason    string

	lease *lease           // while an agent runs it
	calls map[string]*call // those that have not ended
}

// mustEnd says that the turn is to be ended by the hub instead of being run.
func (l *live) mustEnd() bool {
	return l.stopped || l.turn.Looped || l.lost >= parkShared || l.lost >= parkAfter && !l.shared
}

// insert adds an open turn of the store to the line of its session. h.mu must be held.
func (h *Hub) insert(t store.Turn, barrier uint64) *live {
	if l := h.turns[t.ID]; l != nil {
		return l
	}
	ctx, cancel := context.WithCancel(h.ctx)
	l := &live{
		id: t.ID, session: t.SessionID, platform: t.Platform, feed: newFeed(t.ID),
		ctx: ctx, cancel: cancel, slots: make(chan struct{}, callsAtOnce),
		turn: t, barrier: barrier, lost: t.Interrupted, shared: true, calls: map[string]*call{}, stopped: t.Stopped, reason: t.StopReason,
	}
	if l.stopped {
		l.cancel()
	}
	h.turns[t.ID] = l
	line := h.lines[t.SessionID]
	at, _ := slices.BinarySearchFunc(line, t.Seq, func(l *live, seq int64) int { return cmp.Compare(l.turn.Seq, seq) })
	h.lines[t.SessionID] = slices.Insert(line, at, l)
	h.announce(t.SessionID)
	if g := h.gateways[t.Platform]; g != nil && h.pushed(t.Platform) {
		g.show(l)
	}
	return l
}

// announce tells the waiting turns of a session how many are before them. h.mu must be held.
func (h *Hub) announce(session string) {
	for i, l := range h.lines[session] {
		if !l.busy {
			l.feed.queued(uint32(i))
		}
	}
}

// loop dispatches whenever something changed, and each beat besides while there is a turn that may wait for a moment.
func (h *Hub) loop() {
	tick := time.NewTimer(untilBeat())
	defer tick.Stop()
	for {
		if h.guard("dispatch", h.dispatch, nil) {
			h.beats.Add(1) // else the watchdog is to see that nothing is given out
		}
		if h.Quiet() {
			tick.Stop()
		} else {
			tick.Reset(untilBeat())
		}
		select {
		case <-h.kick:
		case <-tick.C:
		case <-h.ctx.Done():
			return
		}
	}
}

// Quiet says that there is no turn, and that nothing can become due without somebody waking the loop.
func (h *Hub) Quiet() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.turns) == 0 && !h.stale && h.tickets.hold == 0
}

// untilBeat is the time to the next full second, at which the store and the sampler turn too: an idle machine is woken once
// for all of them.
func untilBeat() time.Duration { return beat - time.Duration(time.Now().UnixNano())%beat }

// dispatch gives every turn that may run to an agent, oldest first, and never waits.
func (h *Hub) dispatch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.waiting {
		return
	}
	if h.stale {
		h.refresh()
		return
	}
	for _, l := range h.ready() {
		if l.mustEnd() {
			l.busy = true
			h.spawn("end of turn "+l.id, func() { h.endUnrun(l) }, func() { h.putOff(l) })
			continue
		}
		if h.draining || h.paused {
			continue
		}
		if a := h.pick(l.session); a != nil {
			l.busy = true
			a.give()
			h.spawn("turn "+l.id, func() { h.run(l, a) }, func() { h.putOff(l) })
		}
	}
}

// ready returns the turns that are first in their session and wait for nothing but an agent, oldest first.
func (h *Hub) ready() []*live {
	now, oldest := h.now(), h.tickets.oldest()
	var ready []*live
	for _, line := range h.lines {
		l := line[0]
		if !l.busy && l.barrier < oldest && !now.Before(l.notBefore) {
			ready = append(ready, l)
		}
	}
	slices.SortFunc(ready, func(a, b *live) int { return cmp.Compare(a.turn.Seq, b.turn.Seq) })
	return ready
}

// running counts the turns that a goroutine works on, and returns a channel that is closed when one stops.
func (h *Hub) running() (int, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, l := range h.turns {
		if l.busy {
			n++
		}
	}
	return n, h.idle
}

// putOff lets a turn wait whose goroutine met a panic.
func (h *Hub) putOff(l *live) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.notBefore = h.now().Add(panicPause)
	h.settled(l)
}

// settled marks a turn as no longer worked on. h.mu must be held.
func (h *Hub) settled(l *live) {
	l.busy = false
	h.changed()
}

// changed tells the dispatch loop and those who wait for a drain that a turn stopped running. h.mu must be held.
func (h *Hub) changed() {
	close(h.idle)
	h.idle = make(chan struct{})
	h.wake()
}

// complete ends a turn in memory after the store has ended it. It may be called more than once.
func (h *Hub) complete(l *live, t store.Turn, usage *turnv1.Usage) {
	h.ended.put(t.ID, usage)
	h.remove(l, t)
	if h.pushed(t.Platform) {
		h.outbox.wake() // takes a lock that may be held over Hub.mu
	}
}

func (h *Hub) remove(l *live, t store.Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.done {
		return
	}
	l.done, l.turn = true, t
	l.cancel()
	l.feed.finish(h.final(t))
	delete(h.turns, t.ID)
	line := slices.DeleteFunc(h.lines[t.SessionID], func(o *live) bool { return o == l })
	if len(line) == 0 {
		delete(h.lines, t.SessionID)
	} else {
		h.lines[t.SessionID] = line
		h.announce(t.SessionID)
	}
	h.changed()
}

// final tells a follower how a turn ended.
func (h *Hub) final(t store.Turn) *turnv1.Final {
	return &turnv1.Final{
		Outcome: outcomeToProto(t.Outcome), Text: t.Final, Error: t.Error, SessionId: t.SessionID, Usage: h.ended.usage(t.ID),
	}
}

// find returns the turn as it runs here, or as the store has it if it ended. A turn that is open in the store alone is
// taken into the queue.
func (h *Hub) find(ctx context.Context, id string) (*live, store.Turn, error) {
	for {
		l, t, err := h.findOnce(ctx, id)
		if err != errMoved {
			return l, t, err
		}
	}
}

// errMoved says that a turn ended between two looks at it.
var errMoved = errors.New("the turn has just ended")

func (h *Hub) findOnce(ctx context.Context, id string) (*live, store.Turn, error) {
	h.mu.Lock()
	l, barrier := h.turns[id], h.tickets.last
	h.mu.Unlock()
	if l != nil {
		return l, store.Turn{}, nil
	}
	t, err := h.store.Turn(ctx, id)
	if err != nil {
		return nil, t, wrap(err, "turn %s", id)
	}
	if t.State == store.TurnDone {
		return nil, t, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, t, errClosing
	}
	if h.ended.has(id) {
		return nil, t, errMoved
	}
	l = h.insert(t, barrier)
	h.wake()
	return l, t, nil
}

// recover loads the open turns at the start. Those that were leased lost their hub, which counts as an interruption.
// It returns those that go on.
func (h *Hub) recover(ctx context.Context) (resumed []store.Turn, err error) {
	open, err := h.store.Open(ctx)
	if err != nil {
		return nil, wrap(err, "open turns")
	}
	leased := map[string]bool{}
	for i, t := range open {
		if t.State != store.TurnLeased {
			continue
		}
		leased[t.ID] = true
		if open[i], err = h.store.Restarted(ctx, t.ID, t.Fence, restartWindow); err != nil {
			return nil, wrap(err, "requeue turn %s", t.ID)
		}
		h.event("turn_requeued", t.Worker, t.ID, "the supervisor ended while the turn ran",
			map[string]string{"interrupted": fmt.Sprint(open[i].Interrupted)})
		if !open[i].Looped && !open[i].Stopped {
			resumed = append(resumed, open[i])
		}
	}
	asked, err := h.store.Approvals(ctx, "")
	if err != nil {
		return nil, wrap(err, "open approvals")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range open {
		if t.State != store.TurnDone {
			l := h.insert(t, 0)
			l.turn, l.lost, l.lastLoss = t, t.Interrupted, "the supervisor ended"
			l.shared = !leased[t.ID] || len(leased) > 1
		}
	}
	for _, a := range asked {
		if l := h.turns[a.TurnID]; l != nil {
			l.feed.ask(approvalToProto(a))
		}
	}
	return resumed, nil
}

// refresh reads the open turns again, because one may have been stored whose Accept was not answered. Nothing is leased
// until that is known: its session would get out of order. h.mu must be held.
func (h *Hub) refresh() {
	if h.stale = false; h.closed {
		return
	}
	h.tickets.hold++
	h.spawn("reading open turns", func() { h.reread() }, nil)
}

func (h *Hub) reread() {
	known := false
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tickets.hold--
		h.stale = h.stale || !known // the next beat tries again
		if known {
			h.wake()
		}
	}()
	var open []store.Turn
	err := h.persist(h.ctx, "read open turns", func(ctx context.Context) (err error) {
		open, err = h.store.Open(ctx)
		return err
	})
	if err != nil {
		return
	}
	for _, t := range open {
		h.guard("taking in turn "+t.ID, func() { h.takeIn(t) }, nil)
	}
	known = true
}

// takeIn queues a turn that was open when it was read, and stops one that was interrupted by a message whose Accept was not
// answered either.
func (h *Hub) takeIn(t store.Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.ended.has(t.ID) {
		return // it has ended since
	}
	if l := h.insert(t, 0); t.Stopped {
		h.halt(l, t.StopReason)
	}
}
