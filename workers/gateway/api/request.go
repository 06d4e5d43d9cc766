package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// Limits of a request, as the existing system has them.
const (
	maxBody  = 10 << 20
	maxParts = 1000   // content parts of one message
	maxText  = 65_536 // characters of one text
)

// A request is a chat completion that can be answered.
type request struct {
	model  string
	user   string // who asks, as the client says; not trusted
	stream bool
	usage  bool // stream_options.include_usage

	system  string
	history []*turnv1.Message // what was said before
	text    string            // the message to answer
}

// wireRequest is what clients send. Fields that have no meaning here (temperature, max_tokens, seed, …) are left
// out and so ignored: they tune a model, and the model is the agent's to choose.
type wireRequest struct {
	Model         string        `json:"model"`
	Messages      []wireMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	User string `json:"user"`

	// Fields that change what an answer is. Answering as if they were not there would mislead.
	N              *int              `json:"n"`
	Tools          []json.RawMessage `json:"tools"`
	Functions      []json.RawMessage `json:"functions"`
	Logprobs       bool              `json:"logprobs"`
	Modalities     []string          `json:"modalities"`
	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

type wireMessage struct {
	Role       string      `json:"role"`
	Content    wireContent `json:"content"`
	ToolCalls  []wireCall  `json:"tool_calls"`
	ToolCallID string      `json:"tool_call_id"`
	Name       string      `json:"name"`
}

type wireCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// wireContent is a text, a list of parts or nothing.
type wireContent struct {
	parts []wirePart
	list  bool // given as a list
}

type wirePart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// UnmarshalJSON takes all three forms.
func (c *wireContent) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil
	case len(raw) > 0 && raw[0] == '[':
		c.list = true
		return json.Unmarshal(raw, &c.parts)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return errors.New("content is neither a text nor a list of parts")
	}
	c.parts = []wirePart{{Type: "text", Text: text}}
	return nil
}

// parse reads the body of a chat completion.
func parse(body []byte) (*request, *failure) {
	var w wireRequest
	if f := decode(body, &w); f != nil {
		return nil, f
	}
	if f := w.unsupported(); f != nil {
		return nil, f
	}
	r := &request{model: w.Model, user: w.User, stream: w.Stream}
	r.usage = w.StreamOptions != nil && w.StreamOptions.IncludeUsage
	if len(w.Messages) == 0 {
		return nil, invalid("messages", "missing_required_parameter", "messages must hold at least one message.")
	}
	if f := r.read(w.Messages); f != nil {
		return nil, f
	}
	return r, nil
}

func decode(body []byte, into *wireRequest) *failure {
	if len(bytes.TrimSpace(body)) == 0 {
		return invalid("", "invalid_json", "The body is empty. It must be a JSON object with messages.")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		return invalid("", "invalid_json", "The body goes on after its JSON object, at byte %d.", d.InputOffset())
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return invalid("", "invalid_json", "The body is not JSON: %s, at byte %d.", syntax, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("", "invalid_json", "The body is not JSON: it ends too early, at byte %d.", len(body))
	case errors.As(err, &kind) && kind.Field == "":
		return invalid("", "invalid_type", "The body must be a JSON object, it is %s.", kind.Value)
	case errors.As(err, &kind):
		return invalid(kind.Field, "invalid_type", "%s cannot be %s.", kind.Field, kind.Value)
	}
	return invalid("messages", "invalid_type", "The body cannot be read: %s.", err)
}

// unsupported refuses what would give another kind of answer than the client counts on.
func (w *wireRequest) unsupported() *failure {
	refuse := func(param, why string) *failure { return invalid(param, "unsupported_parameter", "%s", why) }
	switch {
	case w.N != nil && *w.N != 1:
		return refuse("n", "n must be 1: an agent gives one answer.")
	case len(w.Tools) > 0:
		return refuse("tools", "tools of the client are not supported: the agent uses its own and answers when it is done.")
	case len(w.Functions) > 0:
		return refuse("functions", "functions of the client are not supported: the agent uses its own tools and answers when it is done.")
	case w.Logprobs:
		return refuse("logprobs", "logprobs are not supported.")
	case w.ResponseFormat != nil && w.ResponseFormat.Type != "" && w.ResponseFormat.Type != "text":
		return refuse("response_format", "response_format "+w.ResponseFormat.Type+" is not supported, only text.")
	}
	for _, m := range w.Modalities {
		if m != "text" {
			return refuse("modalities", "modality "+m+" is not supported, only text.")
		}
	}
	return nil
}

// read sorts the messages: instructions, what was said before, and the message to answer.
func (r *request) read(messages []wireMessage) *failure {
	last := -1
	var system []string
	for i, m := range messages {
		text, f := m.text(i)
		if f != nil {
			return f
		}
		switch m.Role {
		case "system", "developer":
			system = append(system, text)
			continue
		case "user":
			last = len(r.history)
		}
		h, f := m.said(i, text)
		if f != nil {
			return f
		}
		r.history = append(r.history, h)
	}
	if last < 0 || last != len(r.history)-1 {
		return invalid("messages", "invalid_value", "The last message must be one of role user: it is the one to answer.")
	}
	r.text = r.history[last].Content
	r.history = r.history[:last]
	if strings.TrimSpace(r.text) == "" {
		return invalid(fmt.Sprintf("messages[%d].content", len(messages)-1), "invalid_value", "The message to answer is empty.")
	}
	r.system = strings.Join(system, "\n\n")
	return nil
}

// text joins the texts of a message.
func (m *wireMessage) text(i int) (string, *failure) {
	param := fmt.Sprintf("messages[%d].content", i)
	if n := len(m.Content.parts); n > maxParts {
		return "", invalid(param, "too_many_parts", "%s has %d parts, the limit is %d.", param, n, maxParts)
	}
	texts := make([]string, 0, len(m.Content.parts))
	for j, p := range m.Content.parts {
		if m.Content.list {
			param = fmt.Sprintf("messages[%d].content[%d]", i, j)
		}
		text := p.Text
		switch p.Type {
		case "text", "input_text", "output_text":
		case "refusal":
			text = p.Refusal
		default:
			return "", invalid(param, "unsupported_content", "%s is of type %q, only text is supported.", param, p.Type)
		}
		if n := utf8.RuneCountInString(text); n > maxText {
			return "", invalid(param, "string_above_max_length", "%s has %d characters, the limit is %d.", param, n, maxText)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}

// said turns a message into one of a conversation.
func (m *wireMessage) said(i int, text string) (*turnv1.Message, *failure) {
	h := &turnv1.Message{Role: m.Role, Content: text}
	switch m.Role {
	case "user":
	case "assistant":
		for j, c := range m.ToolCalls {
			if c.ID == "" || c.Function.Name == "" {
				param := fmt.Sprintf("messages[%d].tool_calls[%d]", i, j)
				return nil, invalid(param, "missing_required_parameter", "%s needs an id and the name of its function.", param)
			}
			h.ToolCalls = append(h.ToolCalls, &turnv1.ToolCall{Id: c.ID, Name: c.Function.Name, ArgumentsJson: c.Function.Arguments})
		}
	case "tool":
		if m.ToolCallID == "" {
			param := fmt.Sprintf("messages[%d].tool_call_id", i)
			return nil, invalid(param, "missing_required_parameter", "%s is missing: a tool's message says which call it answers.", param)
		}
		h.ToolCallId, h.ToolName = m.ToolCallID, m.Name
	default:
		param := fmt.Sprintf("messages[%d].role", i)
		return nil, invalid(param, "invalid_value", "%s is %q, it must be one of system, developer, user, assistant, tool.", param, m.Role)
	}
	return h, nil
}

// fingerprint is the same for requests that ask for the same answer. How it is sent (streamed or not) is no part
// of it, so that a client may ask again for a stream that broke, in either way.
func (r *request) fingerprint(session string) string {
	h := sha256.New()
	field := func(s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }
	for _, s := range []string{session, r.model, r.system, r.text} {
		field(s)
	}
	for _, m := range r.history {
		for _, s := range []string{m.Role, m.Content, m.ToolCallId, m.ToolName} {
			field(s)
		}
		for _, c := range m.ToolCalls {
			for _, s := range []string{c.Id, c.Name, c.ArgumentsJson} {
				field(s)
			}
		}
		field("")
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
