// Package provider is the seam between the turn loop and what answers: a language model behind an HTTP interface,
// or the offline stand-in. Implementations are in the packages below.
//
// Rules: a call streams, always, because only a stream shows that the other side is alive; a call returns what it
// has received so far together with its error, so that nothing a person has seen is lost; every error is an *Error
// with a class, and what is done about a class is in one table. Implementations do not retry and store nothing.
package provider

import (
	"context"
	"encoding/json"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A Provider answers conversations. It is safe for concurrent use.
type Provider interface {
	// Name says who answers, for the prompt, logs and status: "offline", "openai".
	Name() string
	// Endpoint is where calls go, without anything secret; empty if nothing leaves the process.
	Endpoint() string
	// Stream makes one call. It hands pieces of the answer to emit, in order and from one goroutine, and returns
	// when the answer is complete, has failed, or ctx has ended. The reply holds what was received in every case;
	// the error is an *Error, or the cause of ctx's end.
	Stream(ctx context.Context, req Request, emit func(Delta)) (Reply, error)
	// Close ends what outlives a call (idle connections). No call may be running.
	Close()
}

// A Request is one conversation to be continued.
type Request struct {
	Model    string
	System   string
	Messages []*turnv1.Message // roles user, assistant and tool; they are read only
	Tools    []Tool            // none: the model must answer in words
}

// A Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments
}

// A Delta is a piece of an answer. Tool calls are not streamed: half a call is of use to nobody.
type Delta struct {
	Text      string
	Reasoning string
}

// A Reply is an answer, whole or as far as it came.
type Reply struct {
	Text         string
	Reasoning    string
	ToolCalls    []*turnv1.ToolCall // ids and arguments as the model wrote them, so perhaps missing, repeated or no JSON
	FinishReason string             // stop | tool_calls | length | content_filter, or the provider's own word
	Usage        Usage
}

// Usage counts tokens. Input does not include CacheRead.
type Usage struct {
	Input, Output, CacheRead, Reasoning int64
}

// Add returns the sum of two counts.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input:     u.Input + v.Input,
		Output:    u.Output + v.Output,
		CacheRead: u.CacheRead + v.CacheRead,
		Reasoning: u.Reasoning + v.Reasoning,
	}
}

// Finish reasons that the turn loop decides on.
const (
	FinishStop          = "stop"
	FinishToolCalls     = "tool_calls"
	FinishLength        = "length"
	FinishContentFilter = "content_filter"
)

// MaxReply bounds text, reasoning and arguments of one reply together. The longest replies of models are under 512 KiB;
// the supervisor takes 1 MiB in one step, and what a failed turn says has to fit beside the text so far.
const MaxReply = 768 << 10
