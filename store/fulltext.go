package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	sqlite3 "github.com/mattn/go-sqlite3"
)

// Hermes keeps its full-text indices by triggers on messages, which run inside our inserts. An index that cannot be
// written (a tokenizer that only Hermes has, a damaged index) must not cost a message: its triggers are taken off and
// Hermes' own mark for a stale index is set, which makes Hermes build it again.

// indexTriggers returns the triggers on messages that write to full-text tables, by table.
func indexTriggers(c *conn) (map[string][]string, error) {
	type trigger struct{ name, sql string }
	t := &tx{conn: c, ctx: background}
	triggers, err := all(t, func(row scanner) (g trigger, err error) { return g, row.Scan(&g.name, &g.sql) },
		"SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'messages'")
	if err != nil {
		return nil, err
	}
	tables, err := all(t, scanString,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY length(name) DESC")
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, g := range triggers {
		for _, table := range tables { // the longest name first: messages_fts is a part of messages_fts_trigram
			if strings.Contains(g.sql, table) {
				found[table] = append(found[table], g.name)
				break
			}
		}
	}
	return found, nil
}

// tryMessage stores a message, changes it, deletes it and takes that back, so that every trigger is tried. The inner savepoints
// make the indices write what they have gathered.
func tryMessage(c *conn) error {
	if err := c.exec("SAVEPOINT probe"); err != nil {
		return err
	}
	_ = c.script("DELETE FROM state_meta WHERE key IN ('" + markHigh + "', '" + markProgress + "')") // the triggers are to fire; older files have no such table
	err := c.script(`INSERT INTO sessions(id, source, started_at) VALUES('hs_probe', 'probe', 0);
		INSERT INTO messages(session_id, role, content, timestamp) VALUES('hs_probe', 'user', 'probe', 0);
		SAVEPOINT written; RELEASE written;
		UPDATE messages SET content = 'another' WHERE session_id = 'hs_probe';
		SAVEPOINT written; RELEASE written;
		DELETE FROM messages WHERE session_id = 'hs_probe';
		SAVEPOINT written; RELEASE written`)
	return errors.Join(err, c.script("ROLLBACK TO probe; RELEASE probe"))
}

// detachBroken takes off the triggers of the indices because of which a message cannot be stored, and names those. An
// index is guilty if it fails alone, with the triggers of the others off. begin starts each transaction.
func detachBroken(c *conn, begin func() error) (broken []string, err error) {
	triggers, err := indexTriggers(c)
	if err != nil || len(triggers) == 0 {
		return nil, err
	}
	try := func(off ...string) error {
		defer c.rollback() // with what the indices keep in memory
		if err := errors.Join(begin(), detach(c, triggers, off)); err != nil {
			return err
		}
		return tryMessage(c)
	}
	tables := slices.Sorted(maps.Keys(triggers))
	if try() == nil || try(tables...) != nil {
		return nil, nil // nothing is wrong, or something else
	}
	for _, table := range tables {
		others := slices.DeleteFunc(slices.Clone(tables), func(s string) bool { return s == table })
		if try(others...) != nil {
			broken = append(broken, table)
		}
	}
	if err := begin(); err != nil {
		return nil, err
	}
	defer c.rollback()
	if err := detach(c, triggers, broken); err != nil {
		return nil, err
	}
	return broken, c.exec("COMMIT")
}

func detach(c *conn, triggers map[string][]string, tables []string) error {
	t := &tx{conn: c, ctx: background}
	for _, table := range tables {
		for _, name := range triggers[table] {
			if err := c.script("DROP TRIGGER IF EXISTS " + quote(name)); err != nil {
				return err
			}
		}
		mark := "fts_stale"
		if strings.HasSuffix(table, "_cjk") {
			mark = "fts_cjk_stale"
		}
		if err := c.script("CREATE TABLE IF NOT EXISTS state_meta (key TEXT PRIMARY KEY, value TEXT)"); err != nil {
			return err
		}
		if _, err := t.run("INSERT INTO state_meta(key, value) VALUES(?, '1') ON CONFLICT(key) DO UPDATE SET value = '1'", mark); err != nil {
			return err
		}
	}
	return nil
}

// checkIndex takes off the triggers of indices that cannot be written. It runs before the migrations, whose statements
// could not be prepared with such a trigger either.
func checkIndex(ctx context.Context, c *conn, log hclog.Logger) error {
	broken, err := detachBroken(c, func() error { return beginMigration(ctx, c) })
	for _, table := range broken {
		log.Warn("a full-text index cannot be written; it is detached until Hermes builds it again", "index", table)
	}
	return err
}

// mayBeIndex says that an error could come from a damaged full-text index. Depending on what is damaged, SQLite calls it
// a damaged database, a failed constraint without a name, or a logic error.
func mayBeIndex(err error) bool {
	c, extended := code(err)
	return c == sqlite3.ErrCorrupt || c == sqlite3.ErrError || c == sqlite3.ErrConstraint && int(extended) == int(sqlite3.ErrConstraint)
}

// blameIndex looks whether full-text indices are why a write failed, and takes them off if so.
func (w *writer) blameIndex() (guilty bool) {
	broken, err := detachBroken(w.conn, func() error { return w.ready(nil) })
	if err != nil || len(broken) == 0 {
		return false
	}
	detail := fmt.Sprintf("the full-text index %s of %s was damaged and is built again", strings.Join(broken, ", "), w.path)
	w.health.set(CondIndex, stateDegraded, detail)
	w.log.Error(detail)
	if slices.ContainsFunc(broken, isOwnTable) {
		w.filler.index.stale, w.filler.index.gated = true, false
		w.filler.wake(fillEvery)
	}
	return true
}
