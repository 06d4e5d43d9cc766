package transcript

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A traceLine is one event of a trace, in the shape that Claude Code writes and viewers of agent traces read: a line a
// message, each with the one before it as its parent; tool calls and their results are parts of messages.
type traceLine struct {
	Type      string       `json:"type"` // user, assistant or system
	UUID      string       `json:"uuid"`
	Parent    *string      `json:"parentUuid"`
	Session   string       `json:"sessionId"`
	Cwd       string       `json:"cwd,omitempty"`
	Timestamp string       `json:"timestamp,omitempty"`
	Message   traceMessage `json:"message"`
}

type traceMessage struct {
	Role    string      `json:"role"`
	Model   string      `json:"model,omitempty"`
	Content []tracePart `json:"content"`
	Usage   *traceUsage `json:"usage,omitempty"`
}

type traceUsage struct {
	OutputTokens int64 `json:"output_tokens"`
}

type tracePart struct {
	Type      string          `json:"type"` // text, thinking, tool_use or tool_result
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
}

// Trace writes a conversation as lines of JSON, one a message.
func Trace(out io.Writer, sessions []Session) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	var parent *string
	for _, s := range sessions {
		for n, m := range s.Messages {
			l := m.trace(s)
			l.UUID, l.Parent = fmt.Sprintf("%s-%d", s.ID, n), parent
			if err := e.Encode(l); err != nil {
				return fmt.Errorf("trace of session %s: %w", s.ID, err)
			}
			id := l.UUID
			parent = &id
		}
	}
	return nil
}

func (m Message) trace(s Session) traceLine {
	l := traceLine{Type: m.Role, Session: s.ID, Cwd: s.Cwd, Message: traceMessage{Role: m.Role, Content: []tracePart{}}}
	if !m.At.IsZero() {
		l.Timestamp = m.At.Format(time.RFC3339Nano)
	}
	add := func(p tracePart) { l.Message.Content = append(l.Message.Content, p) }
	if m.Role == "tool" { // results come from the user's side there
		l.Type, l.Message.Role = "user", "user"
		add(tracePart{Type: "tool_result", ToolUseID: m.ToolCallID, Content: m.Content})
		return l
	}
	if m.Reasoning != "" {
		add(tracePart{Type: "thinking", Thinking: m.Reasoning})
	}
	if m.Content != "" {
		add(tracePart{Type: "text", Text: m.Content})
	}
	for _, c := range m.Calls {
		input := json.RawMessage(c.Arguments)
		if !json.Valid(input) {
			input, _ = json.Marshal(map[string]string{"arguments": c.Arguments})
		}
		add(tracePart{Type: "tool_use", ID: c.ID, Name: c.Name, Input: input})
	}
	if m.Role == "assistant" {
		l.Message.Model = s.Model
		if m.OutputTokens > 0 {
			l.Message.Usage = &traceUsage{OutputTokens: m.OutputTokens}
		}
	}
	return l
}
