package turn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// storePause is how long a turn waits after the store refused its lease.
const storePause = time.Second

var (
	errIdle    = errors.New("idle")
	errStopped = errors.New("did not stop when it was interrupted")
	errNotHeld = fmt.Errorf("the turn is not run under this fence: %w", ipc.ErrLeaseLost)
)

// A lease is the right of one agent to run and write a turn.
type lease struct {
	turn   store.Turn // as it was leased
	fence  uint64
	agent  *agent
	ctx    context.Context // ends with the run
	cancel context.CancelCauseFunc
	// unstored says that the store refused a write of the run, for now: its loss is no fault of the turn's. Hub.mu
	// guards it.
	unstored bool
}

// A loss says how a run ended that did not finish its turn.
type loss struct {
	why     string
	refused bool // the agent never took the turn: no fault of the turn's
	gone    bool // the agent is or may be dead
	planned bool // the agent was to end: no fault of the turn's
	shared  bool // other turns were with the agent
}

// run leases a turn to an agent and stays with it until it is finished or the lease is lost.
func (h *Hub) run(l *live, a *agent) {
	how := loss{why: "met an " + errPanicked.Error()}
	h.guard("run of turn "+l.id, func() { how = h.serve(l, a) }, nil)
	ls, unstored := h.letGo(l, a, &how)
	switch {
	case ls == nil || h.ctx.Err() != nil:
	case how.refused || unstored:
		h.putBack(l, ls, how, unstored)
	default:
		h.giveBack(l, ls, how)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled(l)
}

// letGo takes a turn and its agent apart after a run. It returns the lease that was lost, nil if there was none or it has
// done its work.
func (h *Hub) letGo(l *live, a *agent, how *loss) (ls *lease, unstored bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	how.shared = how.shared || a.mixed
	how.planned = a.leaving
	a.drop()
	if how.gone || how.refused {
		a.notBefore = h.now().Add(agentPause)
	}
	ls, l.lease = l.lease, nil
	if ls == nil {
		if how.why != "" { // a panic: it counts, or the turn would be tried for ever
			l.lost, l.lastLoss = l.lost+1, a.id.Worker+" "+how.why
			l.notBefore = h.now().Add(panicPause)
		}
		return nil, false
	}
	ls.cancel(nil)
	if ls.unstored {
		l.notBefore = h.now().Add(storePause)
	}
	if l.done || l.released {
		return nil, false
	}
	return ls, ls.unstored
}

// take leases the turn. It returns nil if the turn turns out to have ended or the store refuses for now.
func (h *Hub) take(l *live, a *agent) *lease {
	ctx, cancel := h.detached()
	defer cancel()
	t, err := h.store.Lease(ctx, l.id, a.id.Worker)
	switch {
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
		h.adopt(l)
		return nil
	case err != nil:
		h.lookAtFailure(err)
		h.mu.Lock()
		first := !l.refused
		l.refused, l.notBefore = true, h.now().Add(storePause)
		h.mu.Unlock()
		if first { // it is tried again each second, for as long as it takes
			h.log.Warn("cannot lease", "turn", l.id, "error", err)
			l.feed.notice(fmt.Sprintf("The store takes no writes now, so this waits; nothing is lost. (%v)", err))
		}
		return nil
	}
	h.lookAtFailure(nil)
	ls := &lease{turn: t, fence: t.Fence, agent: a}
	ls.ctx, ls.cancel = context.WithCancelCause(h.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	l.turn, l.lease = t, ls
	l.feed.started(uint32(t.Attempt), a.id.Worker)
	h.event("turn_leased", a.id.Worker, t.ID, "", map[string]string{
		"attempt": fmt.Sprint(t.Attempt), "session": t.SessionID, "platform": t.Platform, "chat": t.ChatID,
	})
	return ls
}

// adopt takes over what the store says of a turn that cannot be leased.
func (h *Hub) adopt(l *live) {
	ctx, cancel := h.detached()
	defer cancel()
	t, err := h.store.Turn(ctx, l.id)
	if errors.Is(err, store.ErrNotFound) {
		h.mu.Lock()
		t, err = l.turn, nil
		h.mu.Unlock()
		t.State, t.Outcome = store.TurnDone, store.OutcomeFailed
		t.Error = "the turn is no longer in the store"
		h.event("turn_vanished", "", t.ID, t.Error, nil)
	}
	if err == nil && t.State == store.TurnDone {
		h.foundEnded(l, t)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.notBefore = h.now().Add(storePause)
}

// foundEnded ends a turn in memory that the store has ended without its answer having been heard. What followed it is not
// known then: texts that came too late may be a turn that nobody has queued here.
func (h *Hub) foundEnded(l *live, t store.Turn) {
	h.markStale()
	h.complete(l, t, nil)
}

// serve leases the turn and passes the events of the agent's run on until its stream ends. Without a lease nothing is lost.
func (h *Hub) serve(l *live, a *agent) loss {
	ls := h.take(l, a)
	if ls == nil {
		return loss{}
	}
	idle := time.AfterFunc(h.cfg.IdleRun, func() { ls.cancel(errIdle) })
	defer idle.Stop()
	stream, err := ls.agent.client.Run(ls.ctx, &agentv1.RunRequest{
		TurnId: ls.turn.ID, SessionId: ls.turn.SessionID, Fence: ls.fence, Attempt: uint32(ls.turn.Attempt),
	})
	if err != nil {
		return loss{why: "could not be reached: " + err.Error(), refused: true, gone: true}
	}
	for seen := 0; ; seen++ {
		ev, err := stream.Recv()
		if err != nil {
			return h.whyLost(ls, err, seen)
		}
		idle.Reset(h.cfg.IdleRun)
		agentEvent(l.feed, ev)
	}
}

func agentEvent(f *feed, ev *agentv1.RunEvent) {
	switch e := ev.Event.(type) {
	case *agentv1.RunEvent_Text:
		f.text(e.Text)
	case *agentv1.RunEvent_Notice:
		f.notice(cut(e.Notice.GetText(), maxNotice))
	}
}

func (h *Hub) whyLost(ls *lease, err error, seen int) loss {
	switch cause := context.Cause(ls.ctx); {
	case errors.Is(cause, errIdle):
		return loss{why: fmt.Sprintf("sent no event for %v", h.cfg.IdleRun)}
	case errors.Is(cause, errStopped):
		return loss{why: errStopped.Error()}
	case err == io.EOF:
		return loss{why: "ended its run without finishing the turn"}
	case errors.Is(err, ipc.ErrRefused), errors.Is(err, ipc.ErrBusy):
		return loss{why: err.Error(), refused: seen == 0}
	case errors.Is(err, ipc.ErrTimeout):
		// A run has no time limit: the supervisor was too slow for the agent. The machine's fault rather than the turn's, but a
		// turn that is too much for it each time must not call its provider for ever.
		return loss{why: err.Error(), shared: true}
	}
	return loss{why: err.Error(), gone: errors.Is(err, ipc.ErrGone) || errors.Is(err, ipc.ErrCancelled)}
}

// putBack lets a turn wait for another lease when the loss of this one says nothing of it: its agent never took it, or
// the store refused what it wrote. A store that refuses keeps the lease, which is void here: the next one replaces it.
func (h *Hub) putBack(l *live, ls *lease, how loss, unstored bool) {
	if !unstored {
		// Else the end of the supervisor would count as a loss of a turn that nobody runs.
		ctx, cancel := h.detached()
		_, err := h.store.Release(ctx, l.id, ls.fence)
		cancel()
		if err != nil {
			h.log.Warn("a turn that no agent took stays leased", "turn", l.id, "error", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.feed.queued(0)
	h.event("turn_refused", ls.agent.id.Worker, l.id, how.why, nil)
}

// giveBack queues the turn again after its run was lost. It comes first in its session, as before.
func (h *Hub) giveBack(l *live, ls *lease, how loss) {
	var t store.Turn
	err := h.persist(h.ctx, "requeue turn", func(ctx context.Context) (err error) {
		if how.planned {
			t, err = h.store.Release(ctx, l.id, ls.fence)
		} else {
			t, err = h.store.Requeue(ctx, l.id, ls.fence)
		}
		if errors.Is(err, store.ErrLeaseLost) {
			t, err = h.store.Turn(ctx, l.id)
		}
		return err
	})
	if err != nil {
		// Either the hub closes, or the store is beyond writing: the next start takes the turn up.
		h.mu.Lock()
		l.notBefore = h.now().Add(longestRetry)
		h.mu.Unlock()
		return
	}
	if t.State == store.TurnDone {
		h.foundEnded(l, t)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.turn = t
	if how.planned {
		how.why = "was replaced before the turn had finished"
	} else {
		l.lost++
		l.shared = how.shared
	}
	l.lastLoss = ls.agent.id.Worker + " " + how.why
	l.feed.queued(0)
	h.event("turn_requeued", ls.agent.id.Worker, t.ID, how.why, map[string]string{"lost": fmt.Sprint(l.lost)})
}

// held returns the turn if it is run by worker under fence now, and the lease. Nobody else may write it.
func (h *Hub) held(turnID string, fence uint64, worker string) (*live, *lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, errClosing
	}
	l := h.turns[turnID]
	if l == nil || l.lease == nil || l.lease.fence != fence || l.lease.agent.id.Worker != worker {
		return nil, nil, fmt.Errorf("turn %s: %w", turnID, errNotHeld)
	}
	return l, l.lease, nil
}

// appendSteps stores steps of a running turn. After the last results of a round it adds what people handed to the turn.
func (h *Hub) appendSteps(turnID string, fence uint64, worker string, steps []store.Message, prompt string, round bool) (ids []int64, added []store.Message, err error) {
	l, ls, err := h.held(turnID, fence, worker)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := h.detached()
	defer cancel()
	if round {
		ids, added, err = h.store.AppendRound(ctx, turnID, fence, steps, prompt)
	} else {
		ids, err = h.store.AppendSteps(ctx, turnID, fence, steps, prompt)
	}
	if err != nil {
		h.unstored(ls, err)
		return nil, nil, wrap(err, "append to turn %s", turnID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range append(steps, added...) {
		if s.Seq >= l.turn.NextSeq {
			l.turn.NextSeq = s.Seq + 1
			l.lost = 0
		}
	}
	return ids, added, nil
}

// unstored notes that the store refused a write of a run for now.
func (h *Hub) unstored(ls *lease, err error) {
	h.lookAtFailure(err)
	if definite(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ls.unstored = true
}

// finishTurn stores the final reply of a running turn and ends it. A repeat after a lost answer finds the turn ended
// under the same fence, and is answered alike.
func (h *Hub) finishTurn(f store.Finish, worker string, usage *turnv1.Usage) (row int64, err error) {
	l, ls, err := h.held(f.TurnID, f.Fence, worker)
	if err != nil {
		return h.finishedBefore(f, err)
	}
	f.Outbox = h.pushed(l.platform)
	ctx, cancel := h.detached()
	defer cancel()
	t, err := h.finish(ctx, f)
	if err != nil {
		h.unstored(ls, err)
		return 0, wrap(err, "finish turn %s", f.TurnID)
	}
	h.complete(l, t, usage)
	h.event("turn_finished", worker, t.ID, t.Error, map[string]string{"outcome": string(t.Outcome)})
	return h.rowOf(ctx, f), nil
}

func (h *Hub) finishedBefore(f store.Finish, notHeld error) (row int64, err error) {
	ctx, cancel := h.detached()
	defer cancel()
	t, err := h.store.Turn(ctx, f.TurnID)
	switch {
	case err != nil:
		return 0, wrap(err, "finish turn %s", f.TurnID)
	case t.State == store.TurnDone && t.Fence == f.Fence:
		return h.rowOf(ctx, f), nil
	}
	return 0, notHeld
}

// rowOf returns the row of a stored reply: appending it again is answered with that.
func (h *Hub) rowOf(ctx context.Context, f store.Finish) int64 {
	ids, err := h.store.AppendSteps(ctx, f.TurnID, f.Fence, []store.Message{f.Reply}, "")
	if err != nil || len(ids) == 0 {
		return 0
	}
	return ids[0]
}
