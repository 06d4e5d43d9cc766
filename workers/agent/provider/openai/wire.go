package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	sdk "github.com/sashabaranov/go-openai"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// request puts a conversation into the shape of the protocol.
func request(req provider.Request, usage bool) sdk.ChatCompletionRequest {
	out := sdk.ChatCompletionRequest{Model: req.Model, Stream: true}
	if usage {
		out.StreamOptions = &sdk.StreamOptions{IncludeUsage: true}
	}
	if req.System != "" {
		out.Messages = append(out.Messages, sdk.ChatCompletionMessage{Role: sdk.ChatMessageRoleSystem, Content: req.System})
	}
	current := 0 // first message after the last user message
	for i, m := range req.Messages {
		if m.Role == sdk.ChatMessageRoleUser {
			current = i
		}
	}
	for i, m := range req.Messages {
		out.Messages = append(out.Messages, message(m, i > current))
	}
	for _, t := range req.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, sdk.Tool{Type: sdk.ToolTypeFunction, Function: &sdk.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: schema,
		}})
	}
	return out
}

// message converts one message. Reasoning goes back only within the turn that it belongs to: models that reason
// between tool calls refuse to go on without it, and none wants that of earlier turns.
func message(m *turnv1.Message, current bool) sdk.ChatCompletionMessage {
	out := sdk.ChatCompletionMessage{Role: m.Role, Content: m.Content, ToolCallID: m.ToolCallId}
	if current && m.Role == sdk.ChatMessageRoleAssistant {
		out.ReasoningContent = m.Reasoning
	}
	if m.Content == "" && m.Role != sdk.ChatMessageRoleAssistant {
		out.Content = "(empty)" // an absent content is an error to some servers
	}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, sdk.ToolCall{
			ID: c.Id, Type: sdk.ToolTypeFunction, Function: sdk.FunctionCall{Name: c.Name, Arguments: c.ArgumentsJson},
		})
	}
	return out
}

// chunk is one event of a stream, or a whole answer of a server that does not stream. The library's own type loses
// errors and refuses arguments that are objects.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Delta        *delta          `json:"delta"`
	Message      *delta          `json:"message"`
	FinishReason string          `json:"finish_reason"`
	Error        json.RawMessage `json:"error"`
}

type delta struct {
	Content          string     `json:"content"`
	Refusal          string     `json:"refusal"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"`
	ToolCalls        []callPart `json:"tool_calls"`
}

type callPart struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// An accumulator puts an answer together.
type accumulator struct {
	emit   func(provider.Delta)
	think  thinkFilter
	text   strings.Builder
	reason strings.Builder
	calls  calls
	finish string
	usage  provider.Usage
	chunks int // that were of the protocol
	size   int
}

func newAccumulator(emit func(provider.Delta)) *accumulator { return &accumulator{emit: emit} }

func (a *accumulator) reply() provider.Reply {
	a.flush()
	return provider.Reply{
		Text: a.text.String(), Reasoning: a.reason.String(), ToolCalls: a.calls.list(),
		FinishReason: a.finish, Usage: a.usage,
	}
}

// add takes the data of one event.
func (a *accumulator) add(line []byte) error {
	if a.size += len(line); a.size > maxBody {
		return &provider.Error{Class: provider.TooLarge, Message: "the answer does not end"}
	}
	var c chunk
	if err := json.Unmarshal(line, &c); err != nil {
		return &provider.Error{Class: provider.Malformed, Message: "a part of the answer cannot be read: " + provider.Shorten(string(line)), Err: err}
	}
	if failed(c.Error) {
		return inStream(line)
	}
	if u := c.Usage; u != nil {
		cached := min(u.PromptTokensDetails.CachedTokens, u.PromptTokens)
		a.usage = provider.Usage{
			Input: u.PromptTokens - cached, Output: u.CompletionTokens, CacheRead: cached,
			Reasoning: u.CompletionTokensDetails.ReasoningTokens,
		}
	}
	if c.Choices != nil || c.Usage != nil {
		a.chunks++
	}
	if len(c.Choices) == 0 {
		return nil // usage, or a proxy's preamble
	}
	first := c.Choices[0]
	if failed(first.Error) {
		return inStream([]byte(`{"error":` + string(first.Error) + `}`))
	}
	a.finish = cmp.Or(first.FinishReason, a.finish)
	if d := cmp.Or(first.Delta, first.Message); d != nil {
		return a.delta(d)
	}
	return nil
}

func (a *accumulator) delta(d *delta) error {
	text, thought := a.think.add(d.Content)
	a.out(text+d.Refusal, thought+cmp.Or(d.ReasoningContent, d.Reasoning))
	for _, part := range d.ToolCalls {
		a.calls.add(part)
	}
	if a.text.Len()+a.reason.Len()+a.calls.size > provider.MaxReply {
		return &provider.Error{Class: provider.TooLarge, Message: "the answer is larger than 768 KiB"}
	}
	return nil
}

// flush gives out what was held back because it might have become a tag.
func (a *accumulator) flush() { a.out(a.think.rest()) }

func (a *accumulator) out(text, thought string) {
	if text == "" && thought == "" {
		return
	}
	a.text.WriteString(text)
	a.reason.WriteString(thought)
	a.emit(provider.Delta{Text: text, Reasoning: thought})
}

// failed says whether an error field says something.
func failed(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "{}", `""`, "false":
		return false
	}
	return true
}
