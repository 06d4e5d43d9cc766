package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A Turn is one message and what a script makes of it.
type Turn struct {
	ID        string
	SessionID string
	Message   *hostv1.AcceptRequest
	// Outcome, Error and Usage of the final event; a script may set them.
	Outcome turnv1.Outcome
	Error   string
	Usage   *turnv1.Usage

	h         *Host
	attempt   uint32
	step      uint32
	texts     map[uint32]string   // of this attempt
	log       []*turnv1.TurnEvent // all events, for followers that are there
	final     *turnv1.Final
	interrupt chan struct{} // closed when the turn is to end
	stopped   bool
	followers int // that have ever begun to follow
	approvals map[string]*approval
}

type approval struct {
	decided, approved bool
}

// Text is the message's text.
func (t *Turn) Text() string { return t.Message.Text }

// Final returns the final event, nil while the turn runs.
func (t *Turn) Final() *turnv1.Final {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	return t.final
}

// Interrupted is closed when somebody asked the turn to end.
func (t *Turn) Interrupted() <-chan struct{} { return t.interrupt }

// Over is closed when the host ends; a script that waits for something waits for this too.
func (t *Turn) Over() <-chan struct{} { return t.h.ctx.Done() }

// Followed returns when somebody has begun to follow the turn, so that all that is said from now on reaches it.
func (t *Turn) Followed() { t.h.wait(t.h.ctx, func() bool { return t.followers > 0 }) }

// Done returns when the turn has ended.
func (t *Turn) Done(ctx context.Context) bool {
	return t.h.wait(ctx, func() bool { return t.final != nil })
}

// Say adds text to the current step.
func (t *Turn) Say(text string) {
	t.h.mu.Lock()
	t.texts[t.step] += text
	t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Seq: t.step, Text: text}}})
	t.h.mu.Unlock()
	t.h.pass(TurnRuns)
}

// NextStep begins another step, as after the results of tools.
func (t *Turn) NextStep() {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.step++
}

// Restart begins another attempt: what was said of the current step is void.
func (t *Turn) Restart() {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.begin()
}

// Tool begins a tool call; done ends it.
func (t *Turn) Tool(name, summary string) (done func(ok bool)) {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	id := fmt.Sprintf("call_%d", len(t.log))
	t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolStarted{ToolStarted: &turnv1.ToolStarted{CallId: id, Tool: name, Summary: summary}}})
	return func(ok bool) {
		t.h.mu.Lock()
		defer t.h.mu.Unlock()
		t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolFinished{ToolFinished: &turnv1.ToolFinished{CallId: id, Tool: name, Ok: ok}}})
	}
}

// Ask asks a person for a yes and waits for the answer. The end of the host is a no.
func (t *Turn) Ask(tool, summary string) bool {
	t.h.mu.Lock()
	id := fmt.Sprintf("%s-approval-%d", t.ID, len(t.approvals))
	a := &approval{}
	t.approvals[id] = a
	t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Approval{Approval: &turnv1.ApprovalRequest{
		ApprovalId: id, CallId: "call_asked", Tool: tool, Summary: summary, Reason: "it is dangerous",
		DeadlineMs: time.Now().Add(time.Minute).UnixMilli(),
	}}})
	t.h.mu.Unlock()
	t.h.wait(t.h.ctx, func() bool { return a.decided })
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	return a.approved
}

// emit adds an event. With Host.mu held.
func (t *Turn) emit(e *turnv1.TurnEvent) {
	e.TurnId = t.ID
	t.log = append(t.log, e)
	t.h.change()
}

// stop asks the turn to end. With Host.mu held.
func (t *Turn) stop() {
	if t.stopped || t.final != nil {
		return
	}
	t.stopped = true
	close(t.interrupt)
	t.h.change()
}

func (t *Turn) begin() {
	t.attempt++
	t.texts = map[uint32]string{}
	t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Started{Started: &turnv1.Started{Attempt: t.attempt, Worker: "agent-1"}}})
}

// run is the life of a turn, in its session's queue.
func (h *Host) run(t *Turn) {
	h.mu.Lock()
	t.begin()
	h.mu.Unlock()
	text := h.Script(t) // which sees at once that it is to end, if it was stopped before it began
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.Outcome == 0 {
		t.Outcome = turnv1.Outcome_OUTCOME_COMPLETED
		if t.stopped {
			t.Outcome = turnv1.Outcome_OUTCOME_INTERRUPTED
		}
	}
	h.Desk.End(t.ID)
	t.final = &turnv1.Final{Outcome: t.Outcome, Text: text, Error: t.Error, SessionId: t.SessionID, Usage: t.Usage}
	t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Final{Final: t.final}})
	h.putOutbox(t.Message.ChatId, t.Message.ThreadId, t.Message.MessageId, t.ID, text)
}

// follow sends the events of a turn as the supervisor does: what has happened so far in short, then all that comes.
func (h *Host) follow(ctx context.Context, t *Turn, send func(*turnv1.TurnEvent) error) error {
	h.mu.Lock()
	next, first := t.soFar()
	t.followers++
	h.change()
	h.mu.Unlock()
	for seq := uint64(1); ; {
		for _, e := range first {
			if err := send(&turnv1.TurnEvent{Seq: seq, TurnId: t.ID, Event: e.Event}); err != nil {
				return err
			}
			seq++
			if e.GetFinal() != nil {
				return nil
			}
		}
		if !h.wait(ctx, func() bool { return len(t.log) > next }) {
			return ctx.Err()
		}
		h.mu.Lock()
		first = slices.Clone(t.log[next:])
		next = len(t.log)
		h.mu.Unlock()
	}
}

// soFar returns where in the log a new follower begins, and what stands for all before. With Host.mu held.
func (t *Turn) soFar() (next int, events []*turnv1.TurnEvent) {
	next = len(t.log)
	if t.final != nil {
		return next, t.log[next-1:]
	}
	if t.attempt == 0 {
		return next, nil
	}
	events = append(events, &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Started{Started: &turnv1.Started{Attempt: t.attempt}}})
	for step := uint32(1); step <= t.step; step++ {
		if text := t.texts[step]; text != "" {
			events = append(events, &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Seq: step, Text: text, Snapshot: true}}})
		}
	}
	for id, a := range t.approvals {
		if !a.decided {
			events = append(events, t.asked(id))
		}
	}
	return next, events
}

// asked finds the event of an approval request.
func (t *Turn) asked(id string) *turnv1.TurnEvent {
	at := slices.IndexFunc(t.log, func(e *turnv1.TurnEvent) bool { return e.GetApproval().GetApprovalId() == id })
	return t.log[at]
}
