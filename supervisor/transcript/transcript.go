// Package transcript writes exported sessions for people and for other programs: as Markdown, as a page of HTML and as a
// trace; and takes secrets out of them.
//
// Rules: its input is the lines of `sessions export`, so that it needs no store; it writes what a person has seen in the
// chat, in that order, without scaffolding and without what was taken back. What sessions hold comes from anywhere: it is
// text for a page, never part of it.
package transcript

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Session is a conversation as it is shown.
type Session struct {
	ID, Source, Title, Model, Cwd, Parent, EndReason string
	Started, Ended                                   time.Time // zero: unknown, or open
	Messages                                         []Message
}

// A Message is one row of a conversation.
type Message struct {
	ID                        int64
	Role                      string // user, assistant, tool or system
	Content                   string
	Reasoning                 string
	ToolName, ToolCallID      string // of a result
	Calls                     []Call
	At                        time.Time
	Summary                   bool // stands for messages that no model sees any more
	InputTokens, OutputTokens int64
}

// A Call is what the model asked a tool for.
type Call struct {
	ID, Name, Arguments string
}

// line is what of a line of an export is used here.
type line struct {
	ID        string  `json:"id"`
	Source    string  `json:"source"`
	Title     string  `json:"title"`
	Model     string  `json:"model"`
	Cwd       string  `json:"cwd"`
	Parent    string  `json:"parent_session_id"`
	EndReason string  `json:"end_reason"`
	Started   float64 `json:"started_at"`
	Ended     float64 `json:"ended_at"`
	Messages  []row   `json:"messages"`
}

type row struct {
	ID           int64           `json:"id"`
	Role         string          `json:"role"`
	Content      json.RawMessage `json:"content"`
	Reasoning    json.RawMessage `json:"reasoning"`
	ToolName     string          `json:"tool_name"`
	ToolCallID   string          `json:"tool_call_id"`
	ToolCalls    json.RawMessage `json:"tool_calls"`
	Timestamp    float64         `json:"timestamp"`
	Tokens       int64           `json:"token_count"`
	Active       *int64          `json:"active"`
	Compacted    int64           `json:"compacted"`
	Summary      int64           `json:"_compressed_summary"`
	DisplayKind  string          `json:"display_kind"`
	DisplayOrder int64           `json:"display_order"`
}

// Parse reads one line of an export.
func Parse(text []byte) (Session, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Session{}, fmt.Errorf("read an exported session: %w", err)
	}
	if l.ID == "" {
		return Session{}, errors.New("read an exported session: it has no id")
	}
	s := Session{
		ID: l.ID, Source: l.Source, Title: l.Title, Model: l.Model, Cwd: l.Cwd, Parent: l.Parent, EndReason: l.EndReason,
		Started: instant(l.Started), Ended: instant(l.Ended),
	}
	shown := map[int64]bool{}
	for _, r := range l.Messages {
		if !r.visible() || r.DisplayOrder != 0 && shown[r.DisplayOrder] {
			continue // a message that is kept twice is shown once
		}
		shown[r.DisplayOrder] = true
		s.Messages = append(s.Messages, Message{
			ID: r.ID, Role: r.Role, Content: contentText(r.Content), Reasoning: plainText(r.Reasoning), ToolName: r.ToolName, ToolCallID: r.ToolCallID,
			Calls: calls(r.ToolCalls), At: instant(r.Timestamp), Summary: r.Summary != 0, OutputTokens: r.Tokens,
		})
	}
	return s, nil
}

// visible says that a person has seen the message.
func (r row) visible() bool {
	active := r.Active == nil || *r.Active != 0
	return (active || r.Compacted != 0) && r.DisplayKind != "hidden" && r.Role != "session_meta"
}

func instant(seconds float64) time.Time {
	if seconds <= 0 || seconds > 1e11 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6)).UTC()
}

// partsMark begins content that is a list of parts and not text.
const partsMark = "\x00json:"

// contentText returns the text of content: of a list of parts that of the parts that have one.
func contentText(raw json.RawMessage) string {
	text := plainText(raw)
	list, isList := strings.CutPrefix(text, partsMark)
	if !isList {
		if len(raw) == 0 || raw[0] != '[' {
			return text
		}
		list = string(raw)
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal([]byte(list), &parts) != nil {
		return list
	}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Text != "":
			texts = append(texts, p.Text)
		case p.Type != "" && p.Type != "text":
			texts = append(texts, "["+p.Type+"]")
		}
	}
	return strings.Join(texts, "\n")
}

// plainText is a JSON string, or nothing.
func plainText(raw json.RawMessage) string {
	var text string
	_ = json.Unmarshal(raw, &text) // bytes and null are no text
	return text
}

// calls reads what is readable of the calls of a message.
func calls(raw json.RawMessage) (list []Call) {
	text := raw
	if inner := plainText(raw); inner != "" {
		text = json.RawMessage(inner)
	}
	var wire []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if json.Unmarshal(text, &wire) != nil {
		return nil
	}
	for _, c := range wire {
		arguments := plainText(c.Function.Arguments)
		if arguments == "" {
			arguments = string(c.Function.Arguments)
		}
		list = append(list, Call{ID: c.ID, Name: c.Function.Name, Arguments: arguments})
	}
	return list
}

// Prompts returns the session with what people wrote alone.
func (s Session) Prompts() Session {
	var list []Message
	for _, m := range s.Messages {
		if m.Role == "user" && !m.Summary {
			list = append(list, m)
		}
	}
	s.Messages = list
	return s
}

// Name is what a person knows a conversation by: its title, or how it began.
func Name(sessions []Session) string {
	for i := len(sessions) - 1; i >= 0; i-- {
		if sessions[i].Title != "" {
			return sessions[i].Title
		}
	}
	for _, s := range sessions {
		for _, m := range s.Messages {
			if m.Role == "user" && !m.Summary && strings.TrimSpace(m.Content) != "" {
				return short(m.Content, 60)
			}
		}
	}
	return sessions[0].ID
}

// short is the beginning of a text on one line.
func short(text string, n int) string {
	r := []rune(strings.Join(strings.Fields(text), " "))
	if len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return string(r)
}

// Count is the number of messages of a conversation.
func Count(sessions []Session) (n int) {
	for _, s := range sessions {
		n += len(s.Messages)
	}
	return n
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02 15:04:05 UTC")
}
