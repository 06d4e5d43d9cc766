package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An exported session is one line of JSON: the columns of its row in sessions, and under "messages" those of its rows in
// messages, all of them with the values that the file has. That is what Hermes exports, so each can read the other's.
// Besides there are "system_prompts" (those the row refers to, by hash) and "model_usage". Text that is JSON by its column
// (tool_calls, model_config and others) is written as JSON, byte for byte; what is not text is {"base64": "…"}.

// jsonColumns hold JSON, which is written as such where it is one line.
var jsonColumns = map[string]bool{"tool_calls": true, "reasoning_details": true, "codex_reasoning_items": true, "codex_message_items": true}

// Export writes a session as one line. Sessions are read one at a time and messages in pieces, so a large one is no read
// that holds the WAL.
func (s *State) Export(ctx context.Context, id string, out io.Writer) error {
	return export(id, out, func(fn func(*tx) error) error {
		_, err := read(ctx, s.database, func(t *tx) (any, error) { return nil, fn(t) })
		return err
	})
}

// export writes a session as one line. What it reads, it reads in steps, each inside a call of in.
func export(id string, out io.Writer, in func(func(*tx) error) error) error {
	var text []byte
	err := in(func(t *tx) (err error) {
		text, err = exportHead(t, id)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	after, n := firstMessage, 0
	for separator := ""; ; separator = "," {
		err := in(func(t *tx) (err error) {
			text, n, after, err = exportMessages(t, id, after, separator)
			return err
		})
		if err != nil {
			return fmt.Errorf("export session %s: %w", id, err)
		}
		if n == 0 {
			break
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, exportTail)
	return err
}

const (
	firstMessage   = int64(-1 << 62) // before every id
	exportedAtOnce = 500             // messages of one read
	exportTail     = "]}\n"
)

// exportMessages writes the next messages of a session, the first after a separator, and says how many and where they end.
func exportMessages(t *tx, id string, after int64, separator string) (text []byte, n int, last int64, err error) {
	var b bytes.Buffer
	err = eachRow(t, "SELECT * FROM messages WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?", []any{id, after, exportedAtOnce}, func(r row) error {
		b.WriteString(separator)
		separator = ","
		n++
		last, _ = r.value("id").(int64)
		return r.write(&b)
	})
	return b.Bytes(), n, last, err
}

// exportHead writes everything of a session up to its first message.
func exportHead(t *tx, id string) ([]byte, error) {
	var b bytes.Buffer
	found := false
	err := eachRow(t, "SELECT * FROM sessions WHERE id = ?", []any{id}, func(r row) error {
		found = true
		return r.write(&b)
	})
	if err != nil {
		return nil, fmt.Errorf("export session %s: %w", id, err)
	}
	if !found {
		return nil, fmt.Errorf("session %q: %w", id, ErrNotFound)
	}
	b.Truncate(b.Len() - 1) // the object goes on
	b.WriteString(`,"system_prompts":{`)
	separator := ""
	err = eachRow(t, `SELECT p.hash, p.prompt FROM system_prompts AS p JOIN sessions AS s ON p.hash IN (s.system_prompt_hash, s.tool_names) WHERE s.id = ?`, []any{id}, func(r row) error {
		hash, _ := r.value("hash").(string)
		prompt, _ := r.value("prompt").(string)
		b.WriteString(separator + quoteJSON(hash) + ":" + quoteJSON(prompt))
		separator = ","
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("export session %s: %w", id, err)
	}
	b.WriteString(`},"model_usage":[`)
	separator = ""
	err = eachRow(t, "SELECT * FROM session_model_usage WHERE session_id = ? ORDER BY rowid", []any{id}, func(r row) error {
		b.WriteString(separator)
		separator = ","
		return r.write(&b)
	})
	if err != nil {
		return nil, fmt.Errorf("export session %s: %w", id, err)
	}
	b.WriteString(`],"messages":[`)
	return b.Bytes(), nil
}

// A row is one row with the names of its columns.
type row struct {
	names  []string
	values []any
	order  []int // the id first, then by name: files differ in the order of their columns
}

func (r row) value(name string) any {
	for i, n := range r.names {
		if n == name {
			return r.values[i]
		}
	}
	return nil
}

// eachRow calls f with every row of a query, whatever columns it has. TEXT comes as string, BLOB as []byte.
func eachRow(t *tx, query string, args []any, f func(row) error) error {
	rows, err := t.c.QueryContext(t.ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	r := row{}
	if r.names, err = rows.Columns(); err != nil {
		return err
	}
	for i := range r.names {
		r.order = append(r.order, i)
	}
	slices.SortFunc(r.order, func(a, b int) int {
		if (r.names[a] == "id") != (r.names[b] == "id") {
			return map[bool]int{true: -1, false: 1}[r.names[a] == "id"]
		}
		return strings.Compare(r.names[a], r.names[b])
	})
	for rows.Next() {
		r.values = make([]any, len(r.names))
		dest := make([]any, len(r.names))
		for i := range dest {
			dest[i] = &r.values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// write writes a row as a JSON object.
func (r row) write(b *bytes.Buffer) error {
	b.WriteByte('{')
	for n, i := range r.order {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoteJSON(r.names[i]) + ":" + exportValue(r.names[i], r.values[i]))
	}
	b.WriteByte('}')
	return nil
}

// exportValue writes a value of SQLite so that it can be told again what it was.
func exportValue(column string, v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return map[bool]string{true: "1", false: "0"}[v]
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return "null"
		}
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if math.Abs(v) >= 1e15 {
			text = strconv.FormatFloat(v, 'g', -1, 64)
		}
		if !strings.ContainsAny(text, ".e") {
			text += ".0" // a whole number in a column of floats
		}
		return text
	case []byte:
		return `{"base64":` + quoteJSON(base64.StdEncoding.EncodeToString(v)) + "}"
	case string:
		if !utf8.ValidString(v) {
			return `{"base64":` + quoteJSON(base64.StdEncoding.EncodeToString([]byte(v))) + `,"text":true}`
		}
		if jsonColumns[column] && !strings.ContainsAny(v, "\n\r") && isJSONList(v) {
			return v
		}
		return quoteJSON(v)
	}
	return "null"
}

// isJSONList says that a text is a JSON list or object, which reading gives back as the same text.
func isJSONList(v string) bool {
	return v != "" && (v[0] == '[' || v[0] == '{') && (v[len(v)-1] == ']' || v[len(v)-1] == '}') && json.Valid([]byte(v))
}

func quoteJSON(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can
	return strings.TrimSuffix(b.String(), "\n")
}
