package store

import (
	"fmt"
	"slices"
	"strings"
)

// knownSchema is the newest version of Hermes' schema of which the meaning of every column is known here.
const knownSchema = 31

// usedColumns are the columns without which nothing here works, with their type. All are there since schema 6, so a file
// that lacks one of them has another meaning for what it has instead.
var usedColumns = map[string]map[string]string{
	"sessions": {"id": "TEXT", "source": "TEXT", "user_id": "TEXT", "model": "TEXT", "parent_session_id": "TEXT", "started_at": "REAL",
		"ended_at": "REAL", "end_reason": "TEXT", "message_count": "INTEGER", "tool_call_count": "INTEGER", "title": "TEXT"},
	"messages": {"id": "INTEGER", "session_id": "TEXT", "role": "TEXT", "content": "TEXT", "tool_call_id": "TEXT", "tool_calls": "TEXT",
		"tool_name": "TEXT", "timestamp": "REAL", "token_count": "INTEGER", "finish_reason": "TEXT"},
}

// checkSchema refuses a file of a Hermes newer than known here whose tables are not what they were, before anything in
// it is changed. Columns, tables and indices that were added are no reason.
func checkSchema(c *conn) error {
	t := &tx{conn: c, ctx: background}
	var there bool
	if err := t.get("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_version'", nil, &there); err != nil || !there {
		return err
	}
	version, err := schemaVersion(t)
	if err != nil || version <= knownSchema {
		return err
	}
	have, err := columns(c)
	if err != nil {
		return err
	}
	var odd []string
	for table, want := range usedColumns {
		missing := map[string]bool{}
		for name := range want {
			missing[name] = true
		}
		for _, col := range have {
			if col.table != table {
				continue
			}
			kind, used := want[col.name]
			delete(missing, col.name)
			switch {
			case used && !strings.EqualFold(kind, col.kind):
				odd = append(odd, fmt.Sprintf("%s.%s is %s, not %s", table, col.name, col.kind, kind))
			case !used && col.notNull && col.fallback == nil:
				odd = append(odd, fmt.Sprintf("%s.%s must be given and is not known here", table, col.name))
			}
		}
		for name := range missing {
			odd = append(odd, fmt.Sprintf("%s.%s is missing", table, name))
		}
	}
	if len(odd) == 0 {
		return nil
	}
	slices.Sort(odd)
	return fmt.Errorf("%w of Hermes: its schema is %d, this version knows those up to %d, and %s", ErrTooNew, version, knownSchema, strings.Join(odd, ", "))
}
