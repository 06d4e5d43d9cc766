package turn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// maxInvokeBytes bounds what one call may stream besides its result. A tool that floods costs its own call.
	maxInvokeBytes = 64 << 20
	// unreachedPause is between tries to hand a call to a worker whose end is not yet noticed.
	unreachedPause = 200 * time.Millisecond
	maxToolError   = 8 << 10
)

// An ending says how one Invoke ended.
type ending int

const (
	ended     ending = iota
	unreached        // the request never left: it can be made again
	died             // the worker is gone while the call ran
)

// perform hands the call to its worker. It is made again only if it cannot have been made, or has no effects.
func (c *call) perform(row *store.Call) (*toolv1.Result, error) {
	patience := c.hub.now().Add(toolsWait)
	for {
		h, err := c.hub.tools.acquire(c.live.ctx, row.Tool)
		if c.live.ctx.Err() != nil {
			return nil, c.live.ctx.Err()
		}
		if err != nil {
			return c.unavailable(err), nil
		}
		res, how, err := c.attempt(h, row)
		switch {
		case err != nil:
			return nil, err
		case how == ended || c.live.ctx.Err() != nil:
			return res, nil
		case how == unreached && c.hub.now().After(patience):
			return c.unavailable(errToolsAway), nil
		case how == unreached:
			row.Attempt--
			sleep(c.live.ctx, unreachedPause)
		case !row.ReadOnly:
			return unknownResult(row.Tool, "its worker "+h.worker+" ended while it ran"), nil
		case c.madeEnough(*row):
			return c.tooDeadly(*row), nil
		}
	}
}

// attempt makes the call once, after it is stored that it runs.
func (c *call) attempt(h *hold, row *store.Call) (*toolv1.Result, ending, error) {
	defer h.give()
	row.State = store.CallRunning
	row.Attempt++
	if err := c.save(*row); err != nil {
		return nil, ended, err
	}
	c.show("")
	c.last = h
	res, how := c.invoke(h, row.Attempt)
	return res, how, nil
}

// invoke hands the call to the worker that is held.
func (c *call) invoke(h *hold, attempt int) (*toolv1.Result, ending) {
	limit := deadlineOf(h.spec)
	ctx, cancel := context.WithTimeout(c.live.ctx, limit)
	defer cancel()
	t := c.origin()
	stream, err := h.client.Invoke(ctx, &toolv1.InvokeRequest{
		Tool: c.req.tool, ArgumentsJson: c.req.arguments, CallId: c.req.id, Attempt: uint32(attempt), Origin: t,
	})
	if err != nil && isGone(err) && ctx.Err() == nil {
		return nil, unreached
	}
	streamed := 0
	for err == nil {
		var ev *toolv1.InvokeEvent
		if ev, err = stream.Recv(); err != nil {
			break
		}
		switch e := ev.Event.(type) {
		case *toolv1.InvokeEvent_Result:
			return c.taken(h, e.Result), ended
		case *toolv1.InvokeEvent_Progress:
			streamed += len(e.Progress)
			c.progress(e.Progress)
		case *toolv1.InvokeEvent_Chunk:
			streamed += len(e.Chunk)
		}
		if streamed > maxInvokeBytes {
			return failure(toolv1.ToolError_KIND_FAILED, fmt.Sprintf("%s was stopped: it sent over %d MiB of output. It may have had part of its effect.", c.req.tool, maxInvokeBytes>>20)), ended
		}
	}
	return c.broken(ctx, h, limit, err, streamed > 0)
}

// broken judges an Invoke that ended without a result; began says that something of it was seen.
func (c *call) broken(ctx context.Context, h *hold, limit time.Duration, err error, began bool) (*toolv1.Result, ending) {
	partly := " It may have had part of its effect."
	if h.spec.ReadOnly {
		partly = ""
	}
	switch {
	case c.live.ctx.Err() != nil:
		return nil, ended // the caller knows what cancelled it
	case ctx.Err() != nil, errors.Is(err, ipc.ErrTimeout):
		return failure(toolv1.ToolError_KIND_TIMEOUT, fmt.Sprintf("%s did not end within %v and was stopped.%s", c.req.tool, limit, partly)), ended
	case isGone(err):
		return nil, died
	case errors.Is(err, ipc.ErrRefused) && !began && h.builtin:
		return nil, unreached // it drains: nothing was done, and its successor will do it
	case err == io.EOF && h.spec.ReadOnly:
		return failure(toolv1.ToolError_KIND_FAILED, h.worker+" ended the call without a result."), ended
	case err == io.EOF:
		return unknownResult(c.req.tool, h.worker+" ended the call without a result"), ended
	case (errors.Is(err, ipc.ErrInvalid) || errors.Is(err, ipc.ErrNotFound)) && outOfProtocol(h.worker, err) == "":
		return failure(toolv1.ToolError_KIND_BAD_ARGUMENTS, cut(err.Error(), maxToolError)), ended
	}
	text := cut(err.Error(), maxToolError)
	if h.guest != nil {
		if odd := outOfProtocol(h.guest.Plugin, err); odd != "" {
			text = odd
		}
	}
	return failure(toolv1.ToolError_KIND_FAILED, text+"."+partly), ended
}

func (c *call) origin() *toolv1.Origin {
	c.hub.mu.Lock()
	t := c.live.turn
	c.hub.mu.Unlock()
	return &toolv1.Origin{TurnId: t.ID, SessionId: t.SessionID, Platform: t.Platform, ChatId: t.ChatID, ThreadId: t.ThreadID, UserId: t.UserID}
}

// capResult bounds a result. Tools cap their own, with a file for the rest; this is for those that do not.
func capResult(r *toolv1.Result) *toolv1.Result {
	if r == nil {
		return failure(toolv1.ToolError_KIND_FAILED, "The tool gave an empty result.")
	}
	res := &toolv1.Result{Content: r.Content, SpillPath: cut(r.SpillPath, maxPath)}
	if len(r.Content) > maxResult {
		res.Content = cut(r.Content, maxResult) + fmt.Sprintf("\n[cut by the supervisor: the first %d KiB of %d bytes]", maxResult>>10, len(r.Content))
	}
	if r.Error != nil {
		res.Error = &toolv1.ToolError{Kind: r.Error.Kind, Message: cut(r.Error.Message, maxToolError)}
		switch r.Error.Kind {
		case toolv1.ToolError_KIND_BAD_ARGUMENTS, toolv1.ToolError_KIND_FAILED, toolv1.ToolError_KIND_TIMEOUT,
			toolv1.ToolError_KIND_CANCELLED, toolv1.ToolError_KIND_PANIC:
		default: // the rest are the supervisor's to say
			res.Error.Kind = toolv1.ToolError_KIND_FAILED
		}
	}
	return res
}
