package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxImportLine is the length of a session in an import. A conversation of ten thousand messages has some 5 MiB.
const MaxImportLine = 128 << 20

// An Imported session is a line of an import that has been understood.
type Imported struct {
	ID       string
	Parent   string
	Line     int
	Messages int

	session  map[string]any
	messages []map[string]any
	usage    []map[string]any
	prompts  map[string]string
}

// ReadImport reads lines of JSON, one a session, and calls f with each. An error names the line and what is wrong in it.
// Empty lines are passed over.
func ReadImport(in io.Reader, f func(Imported) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, MaxImportLine)
	seen := map[string]int{}
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if len(text) == 0 {
			continue
		}
		s, err := parseImport(text)
		if err != nil {
			return fmt.Errorf("line %d: %w: %w", n, ErrInvalid, err)
		}
		if first, twice := seen[s.ID]; twice {
			return fmt.Errorf("line %d: %w: session %s is in line %d already", n, ErrInvalid, s.ID, first)
		}
		seen[s.ID], s.Line = n, n
		if err := f(s); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%w: a line has more than %d MiB", ErrInvalid, MaxImportLine>>20)
	}
	return lines.Err()
}

// parseImport understands one line.
func parseImport(text []byte) (s Imported, err error) {
	if !utf8.Valid(text) {
		return s, errors.New("it is not UTF-8")
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil || raw == nil {
		return s, errors.New("it is not a JSON object: " + jsonProblem(err))
	}
	lists := struct {
		Messages []map[string]json.RawMessage
		Usage    []map[string]json.RawMessage
	}{}
	for key, to := range map[string]any{"messages": &lists.Messages, "model_usage": &lists.Usage, "system_prompts": &s.prompts} {
		if part, ok := raw[key]; ok {
			if err := json.Unmarshal(part, to); err != nil {
				return s, fmt.Errorf("%s: %s", key, jsonProblem(err))
			}
			delete(raw, key)
		}
	}
	if s.session, err = importRow(raw); err != nil {
		return s, err
	}
	if err := s.check(); err != nil {
		return s, err
	}
	for i, m := range lists.Messages {
		row, err := importRow(m)
		if err == nil {
			err = checkImported(row)
		}
		if text, ok := row["content"].(string); ok && m["content"][0] != '"' && m["content"][0] != '{' || ok && isJSONList(text) && m["content"][0] == '{' {
			row["content"] = jsonContent + text // parts, as Hermes stores them
		}
		if err != nil {
			return s, fmt.Errorf("message %d: %w", i+1, err)
		}
		s.messages = append(s.messages, row)
	}
	for i, u := range lists.Usage {
		row, err := importRow(u)
		if err == nil {
			_, err = textOf(row, "model", true)
		}
		if err != nil {
			return s, fmt.Errorf("model_usage %d: %w", i+1, err)
		}
		s.usage = append(s.usage, row)
	}
	s.Messages = len(s.messages)
	return s, nil
}

func jsonProblem(err error) string {
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return "it is null"
	case errors.As(err, &kind):
		return "a " + kind.Value + " is not what belongs there"
	}
	return err.Error()
}

// importRow makes values of SQLite of a JSON object, the reverse of exportValue.
func importRow(raw map[string]json.RawMessage) (map[string]any, error) {
	out := make(map[string]any, len(raw))
	for name, v := range raw {
		value, err := importValue(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = value
	}
	return out, nil
}

func importValue(v json.RawMessage) (any, error) {
	switch text := string(v); text[0] {
	case 'n':
		return nil, nil
	case 't':
		return int64(1), nil
	case 'f':
		return int64(0), nil
	case '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err
	case '{':
		var b struct {
			Base64 *string
			Text   bool
		}
		if json.Unmarshal(v, &b) == nil && b.Base64 != nil {
			data, err := base64.StdEncoding.DecodeString(*b.Base64)
			if b.Text {
				return string(data), err
			}
			return data, err
		}
		return text, nil
	case '[':
		return text, nil
	default:
		if !strings.ContainsAny(text, ".eE") {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				return n, nil
			}
		}
		f, err := strconv.ParseFloat(text, 64)
		if err == nil && (math.IsInf(f, 0) || math.IsNaN(f)) {
			err = errors.New("it is not a finite number")
		}
		return f, err
	}
}

// check looks at what of the session everything else depends on.
func (s *Imported) check() (err error) {
	if s.ID, err = textOf(s.session, "id", true); err != nil {
		return err
	}
	if len(s.ID) > 512 || strings.ContainsFunc(s.ID, unicode.IsControl) {
		return fmt.Errorf("id: %q cannot be one", firstRunes(s.ID, 60))
	}
	if _, err := textOf(s.session, "source", true); err != nil {
		return err
	}
	if s.Parent, err = textOf(s.session, "parent_session_id", false); err != nil {
		return err
	}
	for _, name := range []string{"started_at", "ended_at", "last_activity_at"} {
		if err := numberOf(s.session, name, name == "started_at"); err != nil {
			return err
		}
	}
	if title, err := textOf(s.session, "title", false); err != nil {
		return err
	} else if title != "" {
		if _, err := checkTitle(title); err != nil {
			return fmt.Errorf("title: %w", err)
		}
	}
	return nil
}

func checkImported(m map[string]any) error {
	role, err := textOf(m, "role", true)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"system", "user", "assistant", "tool", "developer", "session_meta"}, role) {
		return fmt.Errorf("role: %q is not system, user, assistant or tool", firstRunes(role, 60))
	}
	for _, name := range []string{"tool_call_id", "tool_name", "finish_reason"} {
		if _, err := textOf(m, name, false); err != nil {
			return err
		}
	}
	return numberOf(m, "timestamp", true)
}

func textOf(row map[string]any, name string, needed bool) (string, error) {
	switch v := row[name].(type) {
	case string:
		if v == "" && needed {
			return "", fmt.Errorf("%s is empty", name)
		}
		return v, nil
	case nil:
		if needed {
			return "", fmt.Errorf("%s is missing", name)
		}
		return "", nil
	}
	return "", fmt.Errorf("%s is not a text", name)
}

func numberOf(row map[string]any, name string, needed bool) error {
	switch row[name].(type) {
	case int64, float64:
		return nil
	case nil:
		if !needed {
			return nil
		}
		return fmt.Errorf("%s is missing", name)
	}
	return fmt.Errorf("%s is not a number of seconds", name)
}

// ImportResult is what became of one session.
type ImportResult struct {
	Exists bool   // it was there already and has been left alone
	Note   string // what could not be kept as it was
}

// Import stores a session in one transaction. One whose id is there already is left alone, so an import that was cut short
// is simply made again.
func (s *State) Import(ctx context.Context, i Imported) (ImportResult, error) {
	return write(ctx, s.database, func(t *tx) (ImportResult, error) {
		var r ImportResult
		if err := t.get("SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?)", []any{i.ID}, &r.Exists); err != nil || r.Exists {
			return r, err
		}
		return r, storeImported(t, i, &r)
	})
}

func storeImported(t *tx, i Imported, r *ImportResult) error {
	known, err := columnNames(t)
	if err != nil {
		return err
	}
	for hash, prompt := range i.prompts {
		if _, err := t.run("INSERT INTO system_prompts(hash, prompt) VALUES(?, ?) ON CONFLICT DO NOTHING", hash, prompt); err != nil {
			return err
		}
	}
	if err := i.fit(t, r); err != nil {
		return err
	}
	if err := insertRow(t, "sessions", known["sessions"], i.session); err != nil {
		return fmt.Errorf("session %s: %w", i.ID, err)
	}
	if err := storeImportedMessages(t, i, known["messages"]); err != nil {
		return err
	}
	for _, u := range i.usage {
		u["session_id"] = i.ID
		if err := insertRow(t, "session_model_usage", known["session_model_usage"], u); err != nil {
			return fmt.Errorf("session %s: %w", i.ID, err)
		}
	}
	return nil
}

// mostTitles of one name are counted through; the next has a random number.
const mostTitles = 100

// fit takes out of a session what points at something that is not there, and gives it a title of its own.
func (i Imported) fit(t *tx, r *ImportResult) error {
	var there bool
	if hash, _ := i.session["system_prompt_hash"].(string); hash != "" {
		if err := t.get("SELECT EXISTS (SELECT 1 FROM system_prompts WHERE hash = ?)", []any{hash}, &there); err != nil {
			return err
		}
		if !there {
			i.session["system_prompt_hash"] = nil
		}
	}
	if i.Parent != "" { // LinkParents sets those that follow
		if err := t.get("SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?)", []any{i.Parent}, &there); err != nil {
			return err
		}
		if !there {
			i.session["parent_session_id"] = nil
		}
	}
	title, _ := i.session["title"].(string)
	if title == "" {
		i.session["title"] = nil
		return nil
	}
	for n := 2; ; n++ {
		if err := t.get("SELECT EXISTS (SELECT 1 FROM sessions WHERE title = ?)", []any{i.session["title"]}, &there); err != nil || !there {
			return err
		}
		i.session["title"] = fmt.Sprintf("%s #%d", firstRunes(title, maxTitle-12), n)
		if n > mostTitles {
			i.session["title"] = fmt.Sprintf("%s #%s", firstRunes(title, maxTitle-12), randomHex(4))
		}
		r.Note = fmt.Sprintf("title %q is taken, it is %q now", title, i.session["title"])
	}
}

// maxKeptID is the greatest number under which a message is stored again: the next new one gets a greater.
const maxKeptID = 1 << 40

// storeImportedMessages keeps the numbers of messages if all are free, which an empty home has, and gives new ones in the
// same order otherwise. What refers to a number follows.
func storeImportedMessages(t *tx, i Imported, known []string) error {
	keep := len(i.messages) > 0
	last := int64(0)
	for _, m := range i.messages {
		id, ok := m["id"].(int64)
		var taken bool
		if err := t.get("SELECT EXISTS (SELECT 1 FROM messages WHERE id = ?)", []any{id}, &taken); err != nil {
			return err
		}
		keep = keep && ok && id > last && id < maxKeptID && !taken
		last = id
	}
	numbers := map[int64]int64{}
	for n, m := range i.messages {
		old, hasOld := m["id"].(int64)
		if !keep {
			delete(m, "id")
		}
		m["session_id"] = i.ID
		order, ordered := m["display_order"].(int64)
		delete(m, "display_order")
		if m["active"] == nil {
			m["active"] = int64(1)
		}
		if err := insertRow(t, "messages", known, m); err != nil {
			return fmt.Errorf("session %s, message %d: %w", i.ID, n+1, err)
		}
		var id int64
		if err := t.get("SELECT max(id) FROM messages WHERE session_id = ?", []any{i.ID}, &id); err != nil {
			return err
		}
		if hasOld {
			numbers[old] = id
		}
		if place, ok := numbers[order]; ordered && ok {
			if _, err := t.run("UPDATE messages SET display_order = ? WHERE id = ?", place, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// columnNames returns the columns of Hermes' tables that the file has.
func columnNames(t *tx) (map[string][]string, error) {
	list, err := columns(t.conn)
	out := map[string][]string{}
	for _, c := range list {
		out[c.table] = append(out[c.table], c.name)
	}
	return out, err
}

// insertRow stores those values for which the table has a column. The rest is what a program derives for its export.
func insertRow(t *tx, table string, known []string, values map[string]any) error {
	var names, marks []string
	var args []any
	for _, name := range known {
		v, given := values[name]
		if !given || v == nil {
			continue // the default, as for a program that did not know the column
		}
		names, marks, args = append(names, quote(name)), append(marks, "?"), append(args, v)
	}
	t.wrote = true
	_, err := t.c.ExecContext(t.ctx, "INSERT INTO "+table+"("+strings.Join(names, ", ")+") VALUES("+strings.Join(marks, ", ")+")", args...)
	return err
}

// LinkParents joins imported sessions with those that they continue, once all are there.
func (s *State) LinkParents(ctx context.Context, parents map[string]string) error {
	_, err := write(ctx, s.database, func(t *tx) (struct{}, error) {
		for child, parent := range parents {
			if _, err := t.run(`UPDATE sessions SET parent_session_id = ?2 WHERE id = ?1 AND parent_session_id IS NULL
				AND EXISTS (SELECT 1 FROM sessions WHERE id = ?2) AND ?1 <> ?2`, child, parent); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}
