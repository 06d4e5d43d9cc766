package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// The full-text indices are Hermes': messages_fts of words, messages_fts_trigram of every three characters. Two marks in
// state_meta say which messages are in them, P (fts_rebuild_progress) and H (fts_rebuild_high_water): those with
// id <= P or id > H, and without the marks all. Hermes' triggers ask the marks before they touch an index, so an index
// can be filled while others write. This store keeps H ahead of all messages: then no trigger fires when a message is
// stored, and the writer loop fills the index between the groups (searchfill.go). When the store is closed everything is
// in it and the marks go. After kill -9 they stay, and whoever opens the file next goes on where they point.

const (
	markHigh     = "fts_rebuild_high_water"
	markProgress = "fts_rebuild_progress"
	markStale    = "fts_stale" // the index misses messages, or is damaged: it must be built again

	// ahead is how far H is kept above the last message. Between two looks of the loop it must not be overtaken, and it
	// is small because Hermes shows P of H as its progress.
	ahead = 4096

	// viewsSince is the version of Hermes' schema from which it knows an index over views.
	viewsSince = 23
)

// An index is what a file has of full-text indices.
type index struct {
	words, trigram *ftsTable
	gated          bool // all triggers ask the marks
	stale          bool
}

// An ftsTable is one FTS5 table and where its text comes from.
type ftsTable struct {
	name   string
	fill   string // INSERT … SELECT of the messages with ?1 < id <= ?2
	inline bool   // has its own copy of the text
	tools  bool   // has what tools returned, and the rows of scheduled and delegated sessions
}

// inspectIndex looks at the indices of a file.
func inspectIndex(t *tx) (x index, err error) {
	for name, to := range map[string]**ftsTable{"messages_fts": &x.words, "messages_fts_trigram": &x.trigram} {
		if *to, err = inspectTable(t, name); err != nil {
			return x, err
		}
	}
	if x.words == nil && x.trigram == nil {
		return x, nil
	}
	triggers, err := indexTriggers(t.conn)
	if err != nil {
		return x, err
	}
	var tables, ungated int
	for _, f := range []*ftsTable{x.words, x.trigram} {
		if f == nil {
			continue
		}
		tables++
		if len(triggers[f.name]) == 0 {
			x.stale = true // nobody keeps it up
		}
		for _, name := range triggers[f.name] {
			var sql string
			if err := t.get("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", []any{name}, &sql); err != nil {
				return x, err
			}
			if !strings.Contains(sql, markHigh) || !strings.Contains(sql, markProgress) {
				ungated++
			}
		}
	}
	x.gated = tables > 0 && ungated == 0 && !x.stale
	if _, marked, err := meta(t, markStale); err != nil || marked {
		x.stale = true
		return x, err
	}
	return x, nil
}

// inspectTable reads how a table is declared. nil means that there is none.
func inspectTable(t *tx, name string) (*ftsTable, error) {
	var sql string
	err := t.get("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", []any{name}, &sql)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	columns, source := ftsDeclaration(sql)
	f := &ftsTable{name: name, tools: source != "messages_fts_trigram_src"}
	switch {
	case len(columns) == 0:
		return nil, nil
	case source == "":
		f.inline = true
		f.fill = "INSERT INTO " + name + "(rowid, content) SELECT id, " + inlineText + " FROM messages WHERE id > ?1 AND id <= ?2"
	default:
		list := strings.Join(columns, ", ")
		f.fill = "INSERT INTO " + name + "(rowid, " + list + ") SELECT id, " + list + " FROM " + quote(source) + " WHERE id > ?1 AND id <= ?2"
	}
	return f, nil
}

// inlineText is what the indices of schema 11 to 22 hold of a message.
const inlineText = "COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '')"

// ftsDeclaration takes columns and content table out of CREATE VIRTUAL TABLE … USING fts5(…).
func ftsDeclaration(sql string) (columns []string, source string) {
	_, list, ok := strings.Cut(sql, "(")
	if !ok {
		return nil, ""
	}
	for _, part := range strings.Split(strings.TrimRight(strings.TrimSpace(list), ");\n\t "), ",") {
		name, value, option := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		switch {
		case !option && name != "":
			columns = append(columns, strings.Fields(name)[0])
		case name == "content":
			source = strings.Trim(strings.TrimSpace(value), `'"`)
		}
	}
	return columns, source
}

// prepareIndex gives a file its indices, or takes up those that it has. What takes long is left to the loop.
func prepareIndex(ctx context.Context, c *conn, log hclog.Logger) (x index, err error) {
	if err := beginMigration(ctx, c); err != nil {
		return x, err
	}
	defer c.rollback()
	t := &tx{conn: c, ctx: background}
	if x, err = inspectIndex(t); err != nil {
		return x, err
	}
	version, err := schemaVersion(t)
	if err != nil {
		return x, err
	}
	switch {
	case x.words == nil && x.trigram == nil && version >= viewsSince:
		if err := createIndex(t, version, nil); err != nil {
			return x, err
		}
		if x, err = inspectIndex(t); err != nil {
			return x, err
		}
	case x.stale:
		log.Warn("the full-text index is not whole; it is built again in the background")
		return x, nil
	case x.gated:
		if _, _, marked, err := marks(t); err != nil || marked {
			return x, err
		}
		last, err := lastMessage(t)
		if err != nil {
			return x, err
		}
		if err := setMarks(t, last, last+ahead); err != nil {
			return x, err
		}
	default:
		return x, nil // an older Hermes' triggers, which keep the index whole by themselves
	}
	return x, c.exec("COMMIT")
}

// createIndex makes empty indices with their triggers and the marks that say that everything is still to be put in.
// Files of a Hermes that knows only indices with their own text get those again.
func createIndex(t *tx, version int, old *index) error {
	views := old == nil || version >= viewsSince
	if !views {
		wanted, err := viewsWanted(t)
		if err != nil {
			return err
		}
		views = wanted
	}
	script := viewIndex
	if !views {
		script = legacyIndex(old)
	}
	if err := t.script(script); err != nil {
		return fmt.Errorf("make the full-text index: %w", err)
	}
	if views {
		if err := setMeta(t, "fts_storage_version", 3); err != nil {
			return err
		}
	}
	last, err := lastMessage(t)
	if err != nil {
		return err
	}
	if _, err := t.run("DELETE FROM state_meta WHERE key IN ('fts_stale', 'fts_rebuild_deferral')"); err != nil {
		return err
	}
	return setMarks(t, 0, last+ahead)
}

func schemaVersion(t *tx) (version int, err error) {
	err = t.get("SELECT coalesce(max(version), 0) FROM schema_version WHERE typeof(version) = 'integer'", nil, &version)
	return version, err
}

func lastMessage(t *tx) (id int64, err error) {
	err = t.get("SELECT coalesce(max(id), 0) FROM messages", nil, &id)
	return id, err
}

// meta reads a key of Hermes' state_meta.
func meta(t *tx, key string) (value string, ok bool, err error) {
	err = t.get("SELECT coalesce(value, '') FROM state_meta WHERE key = ?", []any{key}, &value)
	if errors.Is(err, ErrNotFound) {
		return "", false, nil
	}
	return value, err == nil, err
}

func setMeta(t *tx, key string, value int64) error {
	_, err := t.run("INSERT INTO state_meta(key, value) VALUES(?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
		key, strconv.FormatInt(value, 10))
	return err
}

// marks returns P and H. A mark alone, or one that is no number, counts as Hermes' triggers count it.
func marks(t *tx) (progress, high int64, ok bool, err error) {
	p, hasP, err := meta(t, markProgress)
	if err != nil {
		return 0, 0, false, err
	}
	h, hasH, err := meta(t, markHigh)
	if err != nil || !hasH {
		return 0, 0, false, err
	}
	high, _ = strconv.ParseInt(h, 10, 64)
	if hasP {
		progress, _ = strconv.ParseInt(p, 10, 64)
	}
	return progress, high, true, nil
}

func setMarks(t *tx, progress, high int64) error {
	return errors.Join(setMeta(t, markProgress, progress), setMeta(t, markHigh, high))
}

func clearMarks(t *tx) error {
	_, err := t.run("DELETE FROM state_meta WHERE key IN ('" + markHigh + "', '" + markProgress + "')")
	return err
}
