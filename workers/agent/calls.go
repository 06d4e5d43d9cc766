package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

const (
	// interruptWait is how long the results of an interrupted turn's calls are waited for. The supervisor cancels the
	// calls itself and answers at once; this is for when it does not.
	interruptWait = 3 * time.Second
	// callTries is how often a call is asked for whose stream broke. It is not made again by that: the supervisor owns
	// it, and answers with its result.
	callTries = 4
)

// openCalls returns the last message of the turn that asked for calls, and those of them that have no result yet.
func (t *turn) openCalls() (*turnv1.Message, []*turnv1.ToolCall) {
	for i := len(t.steps) - 1; i > 0; i-- {
		m := t.steps[i]
		if m.Role != roleAssistant {
			continue
		}
		results := resultsAfter(t.steps[i+1:])
		var open []*turnv1.ToolCall
		for _, c := range m.ToolCalls {
			if results[c.Id] == nil {
				open = append(open, c)
			}
		}
		return m, open
	}
	return nil, nil
}

// makeCalls makes calls side by side and stores their results in the order of the calls.
func (t *turn) makeCalls(asking *turnv1.Message, open []*turnv1.ToolCall) error {
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	stop := context.AfterFunc(t.work, func() {
		if pause(ctx, interruptWait) {
			cancel(context.Cause(t.work))
		}
	})
	defer stop()
	t.feed.at("running " + namesOf(open))

	results := make([]*turnv1.Message, len(open))
	slots := make(chan struct{}, t.agent.cfg.ToolsAtOnce)
	var group sync.WaitGroup
	for _, lane := range lanes(open, t.readOnly) {
		group.Go(func() {
			for _, i := range lane {
				slots <- struct{}{}
				err := t.agent.guard(t, func() (err error) {
					results[i], err = t.makeCall(ctx, asking.Seq, open[i])
					return err
				})
				<-slots
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil && !errors.As(err, new(interruption)) {
		return err
	}
	if t.cancelled.Swap(false) {
		// The supervisor cancels the calls of an interrupted turn and tells us of the interrupt besides; the results may
		// come first, and the model must not be asked about them in between.
		pause(t.work, interruptWait)
	}
	for i, c := range open {
		if results[i] == nil {
			results[i] = result(c, fmt.Sprintf("[The call of %s was cancelled, because the person interrupted the turn. If it had begun, its effect is unknown.]", c.Name))
		}
		results[i].Seq = t.next() + uint32(i)
	}
	return t.appendRound(results...)
}

func (t *turn) readOnly(tool string) bool { return t.specs[tool].GetReadOnly() }

// makeCall returns the message with the result of a call. What is wrong with the call itself is a result for the model;
// an error is what keeps the turn from going on here.
func (t *turn) makeCall(ctx context.Context, seq uint32, c *turnv1.ToolCall) (*turnv1.Message, error) {
	if _, err := object(c.ArgumentsJson); err != nil {
		return result(c, fmt.Sprintf("Error: the arguments of this call are not a JSON object (%v), so it was not made. "+
			"Repeat it with arguments that fit the schema of %s; if they were cut off because they are long, make smaller calls.", err, c.Name)), nil
	}
	req := &hostv1.CallRequest{
		TurnId: t.req.TurnId, Fence: t.req.Fence, CallId: c.Id, Tool: c.Name, ArgumentsJson: argumentsOrEmpty(c.ArgumentsJson), Seq: seq,
	}
	for try, wait := 1, 100*time.Millisecond; ; try, wait = try+1, 3*wait {
		res, err := t.follow(ctx, req)
		switch {
		case err == nil:
			if res.GetError().GetKind() == toolv1.ToolError_KIND_CANCELLED {
				t.cancelled.Store(true)
			}
			return result(c, contentOf(res)), nil
		case ctx.Err() != nil:
			if errors.As(context.Cause(ctx), new(interruption)) {
				return nil, nil
			}
			return nil, context.Cause(ctx)
		case errors.Is(err, ipc.ErrInvalid), errors.Is(err, ipc.ErrNotFound), errors.Is(err, ipc.ErrDenied):
			return result(c, fmt.Sprintf("Error: %s was not called: %v", c.Name, err)), nil
		case errors.Is(err, ipc.ErrLeaseLost), try == callTries:
			return nil, fmt.Errorf("call %s: %w", c.Name, err)
		}
		pause(ctx, wait)
	}
}

func argumentsOrEmpty(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}

// follow asks for a call and waits for its result.
func (t *turn) follow(ctx context.Context, req *hostv1.CallRequest) (*toolv1.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := t.agent.host.Tools.Call(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		e, err := stream.Recv()
		if err == io.EOF {
			return nil, fmt.Errorf("the supervisor gave no result: %w", ipc.ErrGone)
		}
		if err != nil {
			return nil, err
		}
		t.agent.host.Work.Step()
		if res := e.GetResult(); res != nil {
			return res, nil
		}
	}
}

func result(c *turnv1.ToolCall, content string) *turnv1.Message {
	return &turnv1.Message{Role: roleTool, ToolCallId: c.Id, ToolName: c.Name, Content: content, Timestamp: toUnix(time.Now())}
}

// contentOf is what the model reads of a result: the tool's own words, and the error where they do not hold it.
func contentOf(r *toolv1.Result) string {
	content := r.Content
	if message := r.GetError().GetMessage(); message != "" && !strings.Contains(content, message) && !hasError(content) {
		fields := map[string]any{"error": message}
		if content != "" {
			fields["output"] = content
		}
		content = canonical(fields)
	}
	if r.SpillPath != "" && !strings.Contains(content, r.SpillPath) {
		content += "\n[The whole output is in " + r.SpillPath + "]"
	}
	return content
}

// hasError says whether content is an object that tells of an error.
func hasError(content string) bool {
	var fields struct {
		Error json.RawMessage `json:"error"`
	}
	return json.Unmarshal([]byte(content), &fields) == nil && len(fields.Error) > 0 && string(fields.Error) != "null"
}

func namesOf(calls []*turnv1.ToolCall) string {
	var names []string
	for _, c := range calls {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
