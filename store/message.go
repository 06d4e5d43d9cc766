package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Conversation returns the messages of a session that the model sees, in order.
func (s *State) Conversation(ctx context.Context, sessionID string) ([]Message, error) {
	return read(ctx, s.database, func(t *tx) ([]Message, error) {
		return all(t, messageScan(sessionID), `SELECT m.id, coalesce(p.turn_id, ''), coalesce(p.seq, 0), m.role, coalesce(m.content, ''),
			coalesce(m.tool_calls, ''), coalesce(m.tool_call_id, ''), coalesce(m.tool_name, ''), coalesce(m.reasoning, ''),
			coalesce(m.finish_reason, ''), coalesce(m.token_count, 0), m.timestamp
			FROM messages AS m LEFT JOIN hs_steps AS p ON p.message_id = m.id
			WHERE m.session_id = ? AND m.active = 1 ORDER BY m.id`, sessionID)
	})
}

// messageScan reads rows of one session into the same variables. A conversation is loaded at the start of every turn and while
// others write, so it should take no more of the processor than it must.
func messageScan(sessionID string) func(scanner) (Message, error) {
	var m Message
	var calls string
	var at *float64
	dest := []any{&m.ID, &m.TurnID, &m.Seq, &m.Role, &m.Content, &calls, &m.ToolCallID, &m.ToolName, &m.Reasoning, &m.FinishReason, &m.Usage.Output, &at}
	return func(row scanner) (Message, error) {
		if err := row.Scan(dest...); err != nil {
			return m, err
		}
		out := m
		out.SessionID = sessionID
		out.Content, out.ToolCalls, out.Time = decodeContent(m.Content), decodeCalls(calls), instant(at)
		return out, nil
	}
}

func scanMessage(row scanner) (m Message, err error) {
	var calls string
	var at *float64
	err = row.Scan(&m.ID, &m.SessionID, &m.TurnID, &m.Seq, &m.Role, &m.Content, &calls, &m.ToolCallID, &m.ToolName,
		&m.Reasoning, &m.FinishReason, &m.Usage.Output, &at)
	m.Content, m.ToolCalls, m.Time = decodeContent(m.Content), decodeCalls(calls), instant(at)
	return m, err
}

// appendMessage adds a row to a session and counts it as Hermes does.
func appendMessage(t *tx, session string, m Message, platformID string, now time.Time) (int64, error) {
	calls, err := encodeCalls(m.ToolCalls)
	if err != nil {
		return 0, err
	}
	var tokens any
	if m.Usage.Output > 0 {
		tokens = m.Usage.Output
	}
	id, err := t.insert(`INSERT INTO messages(session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp,
		token_count, finish_reason, reasoning, platform_message_id) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		session, m.Role, valid(m.Content), text(m.ToolCallID), calls, text(m.ToolName), seconds(now),
		tokens, text(m.FinishReason), text(m.Reasoning), text(platformID))
	if err != nil {
		return 0, err
	}
	return id, count(t, session, m, now)
}

// count brings the session's totals up to date, and those of its model if the message tells what it cost.
func count(t *tx, session string, m Message, now time.Time) error {
	u, request := m.Usage, 0
	if u != (Usage{}) {
		request = 1
	}
	_, err := t.run(`UPDATE sessions SET message_count = coalesce(message_count, 0) + 1,
		tool_call_count = coalesce(tool_call_count, 0) + ?, input_tokens = coalesce(input_tokens, 0) + ?,
		output_tokens = coalesce(output_tokens, 0) + ?, cache_read_tokens = coalesce(cache_read_tokens, 0) + ?,
		reasoning_tokens = coalesce(reasoning_tokens, 0) + ?, api_call_count = coalesce(api_call_count, 0) + ?,
		last_activity_at = ? WHERE id = ?`,
		len(m.ToolCalls), u.Input, u.Output, u.CacheRead, u.Reasoning, request, seconds(now), session)
	if err != nil || request == 0 {
		return err
	}
	_, err = t.run(`INSERT INTO session_model_usage(session_id, model, api_call_count, input_tokens, output_tokens,
		cache_read_tokens, reasoning_tokens, first_seen, last_seen)
		SELECT id, model, 1, ?2, ?3, ?4, ?5, ?6, ?6 FROM sessions WHERE id = ?1 AND model <> ''
		ON CONFLICT(session_id, model, billing_provider, billing_base_url, billing_mode, task) DO UPDATE SET
		api_call_count = api_call_count + 1, input_tokens = input_tokens + excluded.input_tokens,
		output_tokens = output_tokens + excluded.output_tokens, cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens,
		reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens, last_seen = excluded.last_seen`,
		session, u.Input, u.Output, u.CacheRead, u.Reasoning, seconds(now))
	return err
}

// wireCall is a tool call as the OpenAI interface writes it and Hermes stores it.
type wireCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func encodeCalls(calls []ToolCall) (any, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	list := make([]wireCall, len(calls))
	for i, c := range calls {
		list[i].ID, list[i].Type = valid(c.ID), "function"
		list[i].Function.Name, list[i].Function.Arguments = valid(c.Name), valid(c.Arguments)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the text is indexed for search
	if err := e.Encode(list); err != nil {
		return nil, fmt.Errorf("tool calls: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// decodeCalls reads what is readable; a row of another program that is not stays a message without calls.
func decodeCalls(s string) []ToolCall {
	if s == "" {
		return nil
	}
	var list []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if json.Unmarshal([]byte(s), &list) != nil {
		return nil
	}
	var calls []ToolCall
	for _, c := range list {
		arguments := string(c.Function.Arguments)
		var quoted string
		if json.Unmarshal(c.Function.Arguments, &quoted) == nil {
			arguments = quoted
		}
		calls = append(calls, ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: arguments})
	}
	return calls
}

// jsonContent marks content that is not text: Hermes stores lists of parts that way.
const jsonContent = "\x00json:"

// decodeContent returns the text of a row. Of a list of parts these are the text parts.
func decodeContent(s string) string {
	raw, ok := strings.CutPrefix(s, jsonContent)
	if !ok {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal([]byte(raw), &parts) != nil {
		return raw
	}
	var texts []string
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}
