package turn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Who decided an approval.
const (
	byUser    = "user"
	byTimeout = "timeout"
)

var errNoVerdict = errors.New("its worker gave no verdict")

// permit finds out whether the call may be made. It returns a result if not, and nothing if it may.
func (c *call) permit(row *store.Call) (*toolv1.Result, error) {
	spec, verdict, err := c.check()
	switch {
	case c.live.ctx.Err() != nil:
		return nil, c.live.ctx.Err()
	case spec == nil && err != nil:
		return c.unavailable(err), nil
	case err != nil: // not judged is not allowed
		return failure(toolv1.ToolError_KIND_FAILED, fmt.Sprintf("The call of %s was not made, because it could not be checked: %v", row.Tool, err)), nil
	}
	c.show(verdict.GetSummary())
	switch verdict.GetVerdict() {
	case toolv1.CheckResponse_VERDICT_ALLOW:
		return nil, nil
	case toolv1.CheckResponse_VERDICT_REFUSE:
		return failure(toolv1.ToolError_KIND_DENIED, fmt.Sprintf("BLOCKED: %s. This is never done, whoever asks for it.", reasonOf(verdict))), nil
	}
	if !c.hub.approvals().Manual {
		return nil, nil
	}
	return c.ask(row, verdict)
}

func reasonOf(r *toolv1.CheckResponse) string {
	if r.Reason == "" {
		return "the tool refuses it"
	}
	return oneLine(r.Reason, maxToolError)
}

// check asks the tool's worker to judge the call. It has no effects, so it is repeated with the next life of a worker
// that dies. Without a spec the worker is not to be had.
func (c *call) check() (*toolv1.ToolSpec, *toolv1.CheckResponse, error) {
	patience := c.hub.now().Add(toolsWait)
	for {
		h, err := c.hub.tools.acquire(c.live.ctx, c.req.tool)
		if err != nil {
			return nil, nil, err
		}
		r, err := c.judge(h)
		if err == nil || !isGone(err) || c.hub.now().After(patience) {
			return h.spec, r, err
		}
		if !sleep(c.live.ctx, unreachedPause) {
			return nil, nil, c.live.ctx.Err()
		}
	}
}

// judge has the worker of the tool check the call, once.
func (c *call) judge(h *hold) (*toolv1.CheckResponse, error) {
	defer h.give()
	if !h.spec.Checked {
		return &toolv1.CheckResponse{Verdict: toolv1.CheckResponse_VERDICT_ALLOW}, nil
	}
	r, err := h.client.Check(c.live.ctx, &toolv1.CheckRequest{Tool: c.req.tool, ArgumentsJson: c.req.arguments})
	if err == nil && r.Verdict == toolv1.CheckResponse_VERDICT_UNSPECIFIED {
		err = errNoVerdict
	}
	return r, err
}

// ask waits for a person's yes. The question survives a restart: the repeated call finds it stored, with its answer if
// there was one meanwhile, else with a new deadline.
func (c *call) ask(row *store.Call, verdict *toolv1.CheckResponse) (*toolv1.Result, error) {
	h, patience := c.hub, c.hub.approvals().Timeout
	q := store.Approval{
		ID: "ap_" + rand.Text(), TurnID: row.TurnID, CallID: row.CallID, Tool: row.Tool,
		Summary: cut(verdict.Summary, maxToolError), Reason: cut(verdict.Reason, maxToolError), Deadline: h.now().Add(patience),
	}
	if q.Summary == "" {
		q.Summary = oneLine(summaryOf(c.req.arguments), maxToolError)
	}
	a, err := c.request(q)
	if err != nil {
		return nil, err
	}
	if a.Decided {
		h.decided(a, true) // followers may see it open since the start of this supervisor
		return verdictOf(a, patience), nil
	}
	row.State = store.CallApproval
	if err := c.save(*row); err != nil {
		return nil, err
	}
	if a, err = c.await(c.put(a, patience), patience); err != nil {
		return nil, err
	}
	return verdictOf(a, patience), nil
}

// request stores the question, and returns it as it stands.
func (c *call) request(q store.Approval) (a store.Approval, err error) {
	err = c.hub.persist(c.live.ctx, "request approval", func(ctx context.Context) (err error) {
		a, err = c.hub.store.RequestApproval(ctx, q)
		return err
	})
	return a, wrap(err, "request approval of call %s", q.CallID)
}

// put shows the question to followers, unless it was answered since it was read. Its time begins now and not before the
// store has it: what a slow store takes would be the person's.
func (c *call) put(a store.Approval, patience time.Duration) store.Approval {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(c.decided) > 0 {
		return a
	}
	a.Deadline = h.now().Add(patience)
	c.live.feed.ask(approvalToProto(a))
	// Without the summary: a command may hold what does not belong into a journal.
	h.event("approval_asked", "", a.TurnID, a.Reason, map[string]string{"approval": a.ID, "tool": a.Tool})
	return a
}

// await returns the approval as it is decided: by a person, by silence, or by the end of the turn.
func (c *call) await(a store.Approval, patience time.Duration) (store.Approval, error) {
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for {
		select {
		case a = <-c.decided:
			return a, nil
		case <-c.unheard:
			if now, err := c.request(a); err == nil && now.Decided {
				c.hub.decided(now, true)
				return now, nil
			}
		case <-silence.C:
			return c.refuse(a, byTimeout)
		case <-c.live.ctx.Done():
			return c.refuse(a, byUser) // who interrupted the turn does not want it
		}
	}
}

// refuse decides a question that nobody has answered. An answer that came before holds.
func (c *call) refuse(a store.Approval, by string) (store.Approval, error) {
	h := c.hub
	if h.ctx.Err() != nil {
		return a, errClosing
	}
	var d store.Approval
	var before bool
	err := h.persist(h.ctx, "decide approval", func(ctx context.Context) (err error) {
		d, before, err = h.store.DecideApproval(ctx, a.ID, false, by)
		return err
	})
	if err != nil {
		return a, wrap(err, "decide approval %s", a.ID)
	}
	h.decided(d, before)
	return d, c.live.ctx.Err()
}

// verdictOf returns nothing for a yes, and what the model reads of a no.
func verdictOf(a store.Approval, waited time.Duration) *toolv1.Result {
	switch {
	case a.Approved:
		return nil
	case a.By == byTimeout:
		return failure(toolv1.ToolError_KIND_DENIED, fmt.Sprintf("BLOCKED: nobody answered within %v whether this may be done. Silence is not consent. "+
			"Do not try the same by other means; ask the person in your reply.", waited))
	}
	return failure(toolv1.ToolError_KIND_DENIED, "BLOCKED: the person said no. They have NOT consented to this: do not repeat it, and do not reach for "+
		"the same effect by other means.")
}

// Decide answers an approval request. The first answer holds: a later one is told what that was.
func (h *Hub) Decide(ctx context.Context, approvalID string, approve bool, by string) (approved, before bool, err error) {
	return h.decide(ctx, approvalID, approve, by, "")
}

// decide is Decide for approvals of the turns of platform, or of any if that is empty.
func (h *Hub) decide(ctx context.Context, id string, approve bool, by, platform string) (approved, before bool, err error) {
	if err := errors.Join(checkID("approval_id", id), checkID("by", by)); err != nil {
		return false, false, err
	}
	leave, err := h.enter()
	if err != nil {
		return false, false, err
	}
	defer leave()
	if platform != "" {
		if err := h.ownApproval(ctx, id, platform); err != nil {
			return false, false, err
		}
	}
	wctx, cancel := h.detached()
	defer cancel()
	a, before, err := h.store.DecideApproval(wctx, id, approve, by)
	if err != nil {
		if !definite(err) {
			h.unheard()
		}
		return false, false, wrap(err, "approval %s", id)
	}
	if before {
		// Decided before means decided: only whose turn it was is left to see.
		if err := h.ownTurn(ctx, a.TurnID, platform); err != nil {
			return false, false, err
		}
	}
	h.decided(a, before)
	return a.Approved, before, nil
}

// unheard has every call that waits for an answer look for it: the store may have one that it did not confirm.
func (h *Hub) unheard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.turns {
		for _, c := range l.calls {
			select {
			case c.unheard <- struct{}{}:
			default:
			}
		}
	}
}

// ownApproval refuses a gateway the open approvals of other platforms.
func (h *Hub) ownApproval(ctx context.Context, id, platform string) error {
	open, err := h.store.Approvals(ctx, "")
	if err != nil {
		return wrap(err, "approval %s", id)
	}
	for _, a := range open {
		if a.ID == id {
			return h.ownTurn(ctx, a.TurnID, platform)
		}
	}
	return nil // decided before, or none
}

func (h *Hub) ownTurn(ctx context.Context, turnID, platform string) error {
	if platform == "" {
		return nil
	}
	t, err := h.store.Turn(ctx, turnID)
	if err != nil {
		return wrap(err, "turn %s", turnID)
	}
	return own(platform, t.Platform, turnID)
}

// decided tells followers and the call that waits. before says that the answer was stored by an earlier write, which was
// told of already unless its own answer was lost: then followers still see the question.
func (h *Hub) decided(a store.Approval, before bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.turns[a.TurnID]
	if open := l != nil && l.feed.decided(a.ID, a.Approved, a.By); open || !before {
		h.event("approval_decided", "", a.TurnID, "", map[string]string{"approval": a.ID, "approved": fmt.Sprint(a.Approved), "by": a.By})
	}
	if l == nil {
		return
	}
	if c := l.calls[a.CallID]; c != nil {
		select {
		case c.decided <- a:
		default:
		}
	}
}

func approvalToProto(a store.Approval) *turnv1.ApprovalRequest {
	return &turnv1.ApprovalRequest{
		ApprovalId: a.ID, CallId: a.CallID, Tool: a.Tool, Summary: a.Summary, Reason: a.Reason, DeadlineMs: a.Deadline.UnixMilli(),
	}
}
