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
		if !h.spec.Checked {
			h.give()
			return h.spec, &toolv1.CheckResponse{Verdict: toolv1.CheckResponse_VERDICT_ALLOW}, nil
		}
		r, err := h.client.Check(c.live.ctx, &toolv1.CheckRequest{Tool: c.req.tool, ArgumentsJson: c.req.arguments})
		h.give()
		if err == nil && r.Verdict == toolv1.CheckResponse_VERDICT_UNSPECIFIED {
			err = errNoVerdict
		}
		if err == nil || !isGone(err) || c.hub.now().After(patience) {
			return h.spec, r, err
		}
		if !sleep(c.live.ctx, unreachedPause) {
			return nil, nil, c.live.ctx.Err()
		}
	}
}

// ask waits for a person's yes. The question survives a restart: the repeated call finds it stored, with its answer if
// there was one meanwhile, else with a new deadline.
func (c *call) ask(row *store.Call, verdict *toolv1.CheckResponse) (*toolv1.Result, error) {
	h, patience := c.hub, c.hub.approvals().Timeout
	a := store.Approval{
		ID: "ap_" + rand.Text(), TurnID: row.TurnID, CallID: row.CallID, Tool: row.Tool,
		Summary: cut(verdict.Summary, maxToolError), Reason: cut(verdict.Reason, maxToolError), Deadline: h.now().Add(patience),
	}
	if a.Summary == "" {
		a.Summary = oneLine(summaryOf(c.req.arguments), maxToolError)
	}
	err := h.persist(c.live.ctx, "request approval", func(ctx context.Context) (err error) {
		a, err = h.store.RequestApproval(ctx, a)
		return err
	})
	if err != nil {
		return nil, wrap(err, "request approval of call %s", row.CallID)
	}
	if !a.Decided {
		row.State = store.CallApproval
		if err := c.save(*row); err != nil {
			return nil, err
		}
		c.live.feed.ask(approvalToProto(a))
		// Without the summary: a command may hold what does not belong into a journal.
		h.event("approval_asked", "", row.TurnID, a.Reason, map[string]string{"approval": a.ID, "tool": a.Tool})
		if a, err = c.await(a); err != nil {
			return nil, err
		}
	}
	return verdictOf(a, patience), nil
}

// await returns the approval as it is decided: by a person, by silence, or by the end of the turn.
func (c *call) await(a store.Approval) (store.Approval, error) {
	silence := time.NewTimer(a.Deadline.Sub(c.hub.now()))
	defer silence.Stop()
	by := byTimeout
	select {
	case a = <-c.decided:
		return a, nil
	case <-silence.C:
	case <-c.live.ctx.Done():
		by = byUser // who interrupted the turn does not want it
	}
	if c.hub.ctx.Err() != nil {
		return a, errClosing
	}
	var before bool
	err := c.hub.persist(c.hub.ctx, "decide approval", func(ctx context.Context) (err error) {
		a, before, err = c.hub.store.DecideApproval(ctx, a.ID, false, by)
		return err
	})
	if err != nil {
		return a, wrap(err, "decide approval %s", a.ID)
	}
	if !before {
		c.hub.decided(a)
	}
	return a, c.live.ctx.Err()
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
		return false, false, wrap(err, "approval %s", id)
	}
	if before {
		// Decided before means decided: only whose turn it was is left to see.
		if err := h.ownTurn(ctx, a.TurnID, platform); err != nil {
			return false, false, err
		}
		return a.Approved, true, nil
	}
	h.decided(a)
	return a.Approved, false, nil
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

// decided tells followers and the call that waits.
func (h *Hub) decided(a store.Approval) {
	h.event("approval_decided", "", a.TurnID, "", map[string]string{"approval": a.ID, "approved": fmt.Sprint(a.Approved), "by": a.By})
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.turns[a.TurnID]
	if l == nil {
		return
	}
	l.feed.decided(a.ID, a.Approved, a.By)
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
