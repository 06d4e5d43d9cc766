package agenttest

import (
	"context"
	"fmt"
	"sync"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// A Step answers one provider call.
type Step func(ctx context.Context, req provider.Request, emit func(provider.Delta)) (provider.Reply, error)

// A Script is a provider that answers by a list of steps.
type Script struct {
	// Steps answer the calls. After the last one every call is answered with an error.
	Steps []Step
	// ByRound chooses the step by how many assistant messages follow the last user message, so that a conversation that
	// is taken up again is answered as the first time; otherwise steps are used up one a call.
	ByRound bool

	mu    sync.Mutex
	calls []provider.Request
}

var _ provider.Provider = (*Script)(nil)

// Name returns "script".
func (*Script) Name() string { return "script" }

// Endpoint returns an address of nowhere.
func (*Script) Endpoint() string { return "http://model.invalid/v1" }

// Close does nothing.
func (*Script) Close() {}

// Stream answers by the script.
func (s *Script) Stream(ctx context.Context, req provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
	s.mu.Lock()
	s.calls = append(s.calls, req)
	n := len(s.calls) - 1
	s.mu.Unlock()
	if s.ByRound {
		n = round(req.Messages)
	}
	if n >= len(s.Steps) {
		return provider.Reply{}, &provider.Error{Class: provider.BadRequest, Message: fmt.Sprintf("the script has no step %d", n)}
	}
	return s.Steps[n](ctx, req, emit)
}

func round(messages []*turnv1.Message) (n int) {
	for _, m := range messages {
		switch m.Role {
		case "user":
			n = 0
		case "assistant":
			n++
		}
	}
	return n
}

// Calls returns the requests so far.
func (s *Script) Calls() []provider.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]provider.Request(nil), s.calls...)
}

// Say answers with text.
func Say(text string) Step {
	return Reply(provider.Reply{Text: text, FinishReason: provider.FinishStop})
}

// Ask answers with tool calls, given as id, name and arguments in turn.
func Ask(fields ...string) Step {
	r := provider.Reply{FinishReason: provider.FinishToolCalls}
	for i := 0; i < len(fields); i += 3 {
		r.ToolCalls = append(r.ToolCalls, &turnv1.ToolCall{Id: fields[i], Name: fields[i+1], ArgumentsJson: fields[i+2]})
	}
	return Reply(r)
}

// Reply answers with r.
func Reply(r provider.Reply) Step {
	return func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
		if r.Text != "" || r.Reasoning != "" {
			emit(provider.Delta{Text: r.Text, Reasoning: r.Reasoning})
		}
		return r, nil
	}
}

// Fail says text and fails with err.
func Fail(text string, err error) Step {
	return func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
		if text != "" {
			emit(provider.Delta{Text: text})
		}
		return provider.Reply{Text: text}, err
	}
}

// Hang says text and nothing more until the call is given up.
func Hang(text string) Step {
	return func(ctx context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
		if text != "" {
			emit(provider.Delta{Text: text})
		}
		<-ctx.Done()
		return provider.Reply{Text: text}, context.Cause(ctx)
	}
}
