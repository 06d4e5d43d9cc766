package store

import (
	"fmt"
	"strings"
)

// gate is the condition under which a trigger touches an index: the message is in it, or is to be put in at once.
func gate(row string) string {
	return fmt.Sprintf(`(%[1]s.id > coalesce((SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '%[2]s'), -1)
	OR %[1]s.id <= coalesce((SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '%[3]s'), -1))`, row, markHigh, markProgress)
}

// changed says that an update has changed something that an index holds.
const changed = `(old.content IS NOT new.content OR old.tool_name IS NOT new.tool_name OR old.tool_calls IS NOT new.tool_calls
	OR old.role IS NOT new.role)`

// searchable selects the sessions whose messages are in the index of trigrams: not what runs by itself, which nobody
// looks for and which would be most of it.
func searchable(session string) string {
	return fmt.Sprintf(`%[1]ssource NOT IN ('cron', 'subagent')
	AND CASE WHEN json_valid(%[1]smodel_config) THEN json_extract(%[1]smodel_config, '$._delegate_from') END IS NULL`, session)
}

func inTrigram(row string) string {
	return fmt.Sprintf("%[1]s.role <> 'tool' AND EXISTS (SELECT 1 FROM sessions WHERE id = %[1]s.session_id AND %[2]s)", row, searchable(""))
}

// toolText is how much of what a tool returned is indexed: enough to find it, not a whole file that it printed.
func toolText(row string) string {
	return fmt.Sprintf("CASE WHEN %[1]srole = 'tool' THEN substr(%[1]scontent, 1, 8192) ELSE %[1]scontent END", row)
}

// viewIndex makes the indices of Hermes' storage version 3, whose text stays in messages.
var viewIndex = `
CREATE VIEW IF NOT EXISTS messages_fts_src AS
	SELECT id, ` + toolText("") + ` AS content, tool_name, tool_calls FROM messages;
CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, tool_calls, content='messages_fts_src', content_rowid='id');
CREATE VIEW IF NOT EXISTS messages_fts_trigram_src AS
	SELECT m.id, m.role, m.content, m.tool_name FROM messages AS m JOIN sessions AS s ON s.id = m.session_id
	WHERE m.role <> 'tool' AND ` + searchable("s.") + `;
CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tool_name, content='messages_fts_trigram_src', content_rowid='id', tokenize='trigram');
` + triggersFor("messages_fts", "content, tool_name, tool_calls", "true", "true", func(row string) string {
	return toolText(row+".") + fmt.Sprintf(", %[1]s.tool_name, %[1]s.tool_calls", row)
}) + triggersFor("messages_fts_trigram", "content, tool_name", inTrigram("old"), inTrigram("new"), func(row string) string {
	return fmt.Sprintf("%[1]s.content, %[1]s.tool_name", row)
})

// triggersFor makes the triggers that keep an index without text of its own. was and is say whether a row is in the index
// before and after a change.
func triggersFor(table, columns, was, is string, values func(row string) string) string {
	put := fmt.Sprintf("INSERT INTO %s(rowid, %s) SELECT new.id, %s WHERE %s;", table, columns, values("new"), is)
	take := fmt.Sprintf("INSERT INTO %[1]s(%[1]s, rowid, %[2]s) SELECT 'delete', old.id, %[3]s WHERE %[4]s;", table, columns, values("old"), was)
	return triggers(table, put, take)
}

func triggers(table, put, take string) string {
	return fmt.Sprintf(`
CREATE TRIGGER IF NOT EXISTS %[1]s_insert AFTER INSERT ON messages WHEN %[2]s BEGIN %[4]s END;
CREATE TRIGGER IF NOT EXISTS %[1]s_delete AFTER DELETE ON messages WHEN %[3]s BEGIN %[5]s END;
CREATE TRIGGER IF NOT EXISTS %[1]s_update AFTER UPDATE OF content, tool_name, tool_calls, role ON messages WHEN %[6]s AND %[3]s
BEGIN %[5]s %[4]s END;
`, table, gate("new"), gate("old"), put, take, changed)
}

// legacyIndex makes the indices of a Hermes before version 23 again, as they were, with triggers that ask the marks.
func legacyIndex(old *index) string {
	var b strings.Builder
	for _, f := range []*ftsTable{old.words, old.trigram} {
		switch {
		case f == nil:
		case f.inline:
			text := func(row string) string {
				return fmt.Sprintf("coalesce(%[1]s.content, '') || ' ' || coalesce(%[1]s.tool_name, '') || ' ' || coalesce(%[1]s.tool_calls, '')", row)
			}
			option := ""
			if f == old.trigram {
				option = ", tokenize='trigram'"
			}
			fmt.Fprintf(&b, "CREATE VIRTUAL TABLE %s USING fts5(content%s);", f.name, option)
			b.WriteString(triggers(f.name, fmt.Sprintf("INSERT INTO %s(rowid, content) VALUES(new.id, %s);", f.name, text("new")),
				fmt.Sprintf("DELETE FROM %s WHERE rowid = old.id;", f.name)))
		default:
			fmt.Fprintf(&b, "CREATE VIRTUAL TABLE %s USING fts5(content, content=messages, content_rowid=id);", f.name)
			b.WriteString(triggersFor(f.name, "content", "true", "true", func(row string) string { return row + ".content" }))
		}
	}
	return b.String()
}
