package store

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// Hermes keeps its full-text indices by triggers on messages, which run inside our inserts. An index that cannot be
// written (a tokenizer that only Hermes has, a damaged index) must not cost a message: its triggers are taken off and
// Hermes' own mark for a stale index is set, which makes Hermes build it again.

// indexTriggers returns the triggers on messages that write to full-text tables, with the table of each.
func indexTriggers(c *conn) (map[string]string, error) {
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
	found := map[string]string{}
	for _, g := range triggers {
		for _, table := range tables { // the longest name first: messages_fts is a part of messages_fts_trigram
			if strings.Contains(g.sql, table) {
				found[g.name] = table
				break
			}
		}
	}
	return found, nil
}

// checkIndex takes off the triggers of indices that this SQLite cannot open.
func checkIndex(c *conn, log hclog.Logger) error {
	triggers, err := indexTriggers(c)
	if err != nil {
		return err
	}
	broken := map[string]string{}
	for name, table := range triggers {
		if err := c.script("SELECT rowid FROM " + quote(table) + " LIMIT 0"); err != nil {
			log.Warn("a full-text index cannot be opened; its triggers are taken off until Hermes builds it again", "index", table, "error", err)
			broken[name] = table
		}
	}
	if len(broken) == 0 {
		return nil
	}
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback()
	if err := detach(c, broken); err != nil {
		return err
	}
	return c.exec("COMMIT")
}

func detach(c *conn, triggers map[string]string) error {
	t := &tx{conn: c, ctx: background}
	for name, table := range triggers {
		if err := c.script("DROP TRIGGER IF EXISTS " + quote(name)); err != nil {
			return err
		}
		mark := "fts_stale"
		if strings.HasSuffix(table, "_cjk") {
			mark = "fts_cjk_stale"
		}
		if _, err := t.run("INSERT INTO state_meta(key, value) VALUES(?, '1') ON CONFLICT(key) DO UPDATE SET value = '1'", mark); err != nil {
			return err
		}
	}
	return nil
}

// detachIndex takes off all full-text triggers after a write met a damaged index.
func (w *writer) detachIndex() {
	w.indexDetached = true
	triggers, err := indexTriggers(w.conn)
	if err == nil {
		err = w.ready(nil)
	}
	if err == nil {
		if err = detach(w.conn, triggers); err == nil {
			err = w.commit()
		}
		w.conn.rollback()
	}
	if err != nil {
		w.log.Error("the full-text index is damaged and cannot be detached", "path", w.path, "error", err)
		return
	}
	w.health.set(condIndex, stateDegraded, fmt.Sprintf("the full-text index of %s was damaged and is detached; Hermes builds it again", w.path))
	w.log.Error("the full-text index was damaged and is detached", "path", w.path)
}
