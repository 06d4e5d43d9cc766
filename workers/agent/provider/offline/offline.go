// Package offline is the embedded default: a rule-based stand-in that streams and calls tools as a model does, so
// that everything around it runs without a key and without a network. It says that it is a stand-in.
//
// Rules: the same conversation gets the same answer in the same pieces; nothing is remembered between calls; a line
// "run: COMMAND" (and read, write, search, remember, task) becomes a tool call, several lines parallel calls, "wait:
// SECONDS" a slow stream, and anything else is answered with what this is and how to set a real model.
package offline

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// pieceBytes is about the size of a model's token or two: small enough that whoever shows or forwards the stream
// has pieces to deal with.
const pieceBytes = 12

// beat is how often a waiting stream says something.
const beat = 250 * time.Millisecond

// A Provider is the stand-in.
type Provider struct {
	home string
}

var _ provider.Provider = (*Provider)(nil)

// New returns a stand-in that names the files of home in its advice.
func New(home string) *Provider { return &Provider{home: home} }

// Name returns "offline".
func (*Provider) Name() string { return "offline" }

// Endpoint is empty: nothing leaves the process.
func (*Provider) Endpoint() string { return "" }

// Close does nothing, as nothing is held.
func (*Provider) Close() {}

// Stream answers the last user message of the conversation, or the results of the tool calls after it.
func (p *Provider) Stream(ctx context.Context, req provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
	s := &stream{ctx: ctx, emit: emit}
	message, calls, results := split(req.Messages)
	r := parse(message)
	switch {
	case len(calls) > 0:
		s.say(summarise(r, calls, results))
	default:
		s.wait(r.wait)
		s.reply.ToolCalls = r.toolCalls()
		if len(r.calls) == 0 && r.wait == 0 {
			s.say(introduce(message, p.home))
		}
	}
	s.reply.Text = s.text.String()
	s.reply.FinishReason = provider.FinishStop
	if len(s.reply.ToolCalls) > 0 {
		s.reply.FinishReason = provider.FinishToolCalls
	}
	s.reply.Usage = provider.Usage{Input: tokens(req), Output: int64(len(s.reply.Text)+3) / 4}
	return s.reply, context.Cause(ctx)
}

// split finds the last user message, the calls of the last assistant message after it, and their results.
func split(messages []*turnv1.Message) (message string, calls []*turnv1.ToolCall, results map[string]string) {
	results = map[string]string{}
	for _, m := range messages {
		switch m.Role {
		case "user":
			message, calls = m.Content, nil
			clear(results)
		case "assistant":
			calls = m.ToolCalls
		case "tool":
			results[m.ToolCallId] = m.Content
		}
	}
	return message, calls, results
}

// tokens is the usual estimate of four bytes a token.
func tokens(req provider.Request) int64 {
	n := len(req.System)
	for _, m := range req.Messages {
		n += len(m.Content)
	}
	return int64(n+3) / 4
}

// stream is one answer under way.
type stream struct {
	ctx   context.Context
	emit  func(provider.Delta)
	text  strings.Builder
	reply provider.Reply
}

// say streams text in small pieces, until the context ends.
func (s *stream) say(text string) {
	for len(text) > 0 && s.ctx.Err() == nil {
		n := min(pieceBytes, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		s.emit(provider.Delta{Text: text[:n]})
		s.text.WriteString(text[:n])
		text = text[n:]
	}
}

// wait streams for d, with a sign of life at each beat.
func (s *stream) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	s.say(fmt.Sprintf("Waiting %s ", d))
	tick := time.NewTicker(beat)
	defer tick.Stop()
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		select {
		case <-tick.C:
			s.say(".")
		case <-end.C:
			s.say(" done.")
			return
		case <-s.ctx.Done():
			return
		}
	}
}
