package turn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// interruptGrace is how long an interrupted agent may take to finish with what it has. After that its lease is
	// taken away and the hub ends the turn.
	interruptGrace = 30 * time.Second
	// interruptRepeat is the pause before an agent that did not know the turn yet is told again.
	interruptRepeat = 250 * time.Millisecond
	// hubWorker names the hub as the holder of a lease.
	hubWorker = "supervisor"
)

// Interrupt asks the running turn to end with what it has and cancels its calls; a waiting one is ended unrun. It
// returns false if the turn has ended.
func (h *Hub) Interrupt(ctx context.Context, turnID, reason string) (bool, error) {
	if err := checkID("turn_id", turnID); err != nil {
		return false, err
	}
	leave, err := h.enter()
	if err != nil {
		return false, err
	}
	defer leave()
	l, _, err := h.find(ctx, turnID)
	if l == nil || err != nil {
		return false, err
	}
	reason = cut(reason, maxID)
	if !h.stopTurn(l, reason) {
		return false, nil
	}
	// The turn is ending already; what is stored is for a supervisor that dies before it has.
	wctx, cancel := h.detached()
	defer cancel()
	if err := h.store.Stop(wctx, turnID, reason); err != nil {
		h.log.Warn("an interruption is not stored and does not outlive the supervisor", "turn", turnID, "error", err)
	}
	return true, nil
}

// interruptStored stops a turn whose interruption is in the store.
func (h *Hub) interruptStored(ctx context.Context, turnID string) error {
	l, _, err := h.find(ctx, turnID)
	if l == nil || err != nil {
		return err
	}
	t, err := h.store.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	h.stopTurn(l, t.StopReason)
	return nil
}

// stopTurn makes a turn end. It returns false if it has ended.
func (h *Hub) stopTurn(l *live, reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.halt(l, reason)
}

// halt is stopTurn for callers that hold h.mu.
func (h *Hub) halt(l *live, reason string) bool {
	if l.done {
		return false
	}
	if !l.stopped {
		l.stopped, l.reason = true, reason
		h.event("turn_interrupted", "", l.id, l.reason, nil)
		if h.lines[l.session][0] != l {
			// Its row of the conversation must not come between those of the turn that runs before it.
			l.feed.notice("Will not be run. It ends when the messages before it have been answered.")
		}
		h.spawn("stopping turn "+l.id, func() { h.stopRun(l) }, func() { h.cutOff(l) })
	}
	l.cancel()
	h.wake()
	return true
}

// stopRun tells the agent to end the turn until it has heard, and takes the lease away if it does not end.
func (h *Hub) stopRun(l *live) {
	grace := time.NewTimer(interruptGrace)
	defer grace.Stop()
	heard := (*lease)(nil)
	for {
		h.mu.Lock()
		ls, running, changed := l.lease, l.busy && !l.done, h.idle
		h.mu.Unlock()
		if !running {
			return // ended, or waiting: the dispatch loop ends it
		}
		if ls != nil && ls != heard && h.tell(ls, l.id, l.reason) {
			heard = ls
		}
		again := time.NewTimer(interruptRepeat)
		if ls == heard && ls != nil {
			again.Stop() // only an end is waited for
		}
		select {
		case <-again.C:
		case <-changed:
		case <-grace.C:
			if ls != nil {
				ls.cancel(errStopped)
			}
			return
		case <-h.ctx.Done():
			return
		}
		again.Stop()
	}
}

// cutOff takes the lease away from an agent that could not be told to end the turn.
func (h *Hub) cutOff(l *live) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.lease != nil {
		l.lease.cancel(errStopped)
	}
}

func (h *Hub) tell(ls *lease, turnID, reason string) bool {
	r, err := ls.agent.client.Interrupt(ls.ctx, &agentv1.InterruptRequest{TurnId: turnID, Reason: reason})
	return err == nil && r.Running
}

// endUnrun ends a turn that no agent will run any more: it was interrupted by a person, or lost too often.
func (h *Hub) endUnrun(l *live) {
	h.mu.Lock()
	t, f := l.turn, store.Finish{TurnID: l.id, Outcome: store.OutcomeInterrupted}
	text := "Stopped, as asked, before there was an answer."
	switch {
	case l.stopped:
		f.Error = "interrupted: " + l.reason
	case l.turn.Looped:
		f.Outcome = store.OutcomeParked
		text, f.Error = loopedText, "ran at two restarts of the supervisor within "+restartWindow.String()
	default:
		f.Outcome = store.OutcomeParked
		text, f.Error = parkedText(l.lost, l.lastLoss)
	}
	h.mu.Unlock()

	t, err := h.endInStore(l, t, f, text)
	switch {
	case err == nil:
		h.event("turn_"+string(t.Outcome), t.Worker, l.id, t.Error, nil)
		h.complete(l, t, nil)
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
		h.adopt(l)
	default:
		if h.ctx.Err() == nil {
			h.log.Warn("cannot end turn, will try again", "turn", l.id, "error", err)
		}
		h.mu.Lock()
		l.notBefore = h.now().Add(storePause)
		h.mu.Unlock()
	}
	h.mu.Lock()
	h.settled(l)
	h.mu.Unlock()
}

// loopedText tells the person why a turn is not resumed.
const loopedText = "I was restarted twice within ten minutes while I worked on your message, so I do not go on with it by myself: " +
	"the work may be what caused it. Everything up to here is kept. Send /retry to have it tried anew, or tell me how to go on; " +
	"`hermes-supervisor ctl events` shows what happened."

// parkedText tells the person what happened and what to do.
func parkedText(lost int, last string) (text, errText string) {
	errText = fmt.Sprintf("interrupted %d times in a row without a step", lost)
	if last != "" {
		errText += "; last: " + last
	}
	text = fmt.Sprintf("I could not finish this. The work on your message was interrupted %d times in a row without getting "+
		"any further, so it is not tried again by itself.", lost)
	if last != "" {
		text += " The last time: " + last + "."
	}
	return text + " Everything up to here is kept. Send /retry, or the message again, to have it tried anew; " +
		"`hermes-supervisor ctl events` shows what happened.", errText
}

// endInStore ends a turn in the store. One that was run before is leased once more by the hub, so that nobody else
// writes it, and its open tool calls get results: a conversation must not end in a call without one.
func (h *Hub) endInStore(l *live, t store.Turn, f store.Finish, text string) (store.Turn, error) {
	h.endCalls(l)
	ctx, cancel := h.detached()
	defer cancel()
	t, err := h.store.Lease(ctx, t.ID, hubWorker)
	if err != nil {
		return t, err
	}
	rows, err := h.store.Conversation(ctx, t.SessionID)
	if err != nil {
		return t, err
	}
	f.Fence, f.Outbox = t.Fence, h.pushed(t.Platform)
	if reply, ok := storedReply(rows, t.ID); ok {
		f.Reply, f.Outcome, f.Error = reply, endOf(reply), ""
		return h.finish(ctx, f)
	}
	steps, err := h.openResults(ctx, t, rows)
	if err != nil {
		return t, err
	}
	if len(steps) > 0 {
		if _, err := h.store.AppendSteps(ctx, t.ID, t.Fence, steps, ""); err != nil {
			return t, err
		}
	}
	f.Reply = store.Message{Role: "assistant", Content: text, Seq: t.NextSeq + uint32(len(steps)), FinishReason: "stop", Time: h.now()}
	return h.finish(ctx, f)
}

// storedReply returns the final reply of a turn whose agent had stored it and was lost before it could finish the turn. A
// second one would be another answer to the same message.
func storedReply(rows []store.Message, turnID string) (m store.Message, ok bool) {
	for _, row := range rows {
		if row.TurnID == turnID {
			m, ok = row, row.Role == "assistant" && len(row.ToolCalls) == 0 && row.Content != ""
		}
	}
	return m, ok
}

// endOf is how a turn with that final reply ends: agents keep it as the reason why the reply ended.
func endOf(reply store.Message) store.Outcome {
	switch reply.FinishReason {
	case "error":
		return store.OutcomeFailed
	case "interrupted":
		return store.OutcomeInterrupted
	case "budget":
		return store.OutcomeBudget
	}
	return store.OutcomeCompleted
}

// endCalls cancels the calls of a turn and waits until their ends are stored.
func (h *Hub) endCalls(l *live) {
	h.mu.Lock()
	l.cancel()
	var running []*call
	for _, c := range l.calls {
		running = append(running, c)
	}
	h.mu.Unlock()
	for _, c := range running {
		<-c.done
	}
}

// openResults returns a result for each tool call of the turn that has none in the conversation.
func (h *Hub) openResults(ctx context.Context, t store.Turn, rows []store.Message) ([]store.Message, error) {
	calls, err := h.store.Calls(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	known := map[string]store.Call{}
	for _, c := range calls {
		known[c.CallID] = c
	}
	var asked []store.ToolCall
	answered := map[string]bool{}
	for _, m := range rows {
		if m.TurnID == t.ID {
			asked = append(asked, m.ToolCalls...)
			answered[m.ToolCallID] = m.Role == "tool" || answered[m.ToolCallID]
		}
	}
	var steps []store.Message
	for _, c := range asked {
		if !answered[c.ID] {
			answered[c.ID] = true
			steps = append(steps, store.Message{
				Role: "tool", ToolCallID: c.ID, ToolName: c.Name, Content: lateResult(known[c.ID]), Time: h.now(),
				Seq: t.NextSeq + uint32(len(steps)),
			})
		}
	}
	return steps, nil
}

// lateResult is what the conversation says of a call whose turn is ended by the hub.
func lateResult(c store.Call) string {
	switch {
	case c.State == store.CallDone, c.State == store.CallUnknown:
		return c.Result
	case c.State == store.CallRunning && !c.ReadOnly:
		return unknownText(c.Tool, "the turn was ended")
	}
	return "The call was not made: the turn was ended first."
}

// isGone says that a call failed because the process at the other end is dead or its connection closed.
func isGone(err error) bool { return errors.Is(err, ipc.ErrGone) || errors.Is(err, ipc.ErrCancelled) }
