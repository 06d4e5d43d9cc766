package store

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	fillRows     = 100                   // messages put into the index at once while others wait to write
	fillIdleRows = 500                   // the same while nobody waits
	fillTime     = 10 * time.Millisecond // of filling in one go, so that it delays few
	fillEvery    = 50 * time.Millisecond // between two looks at what is to be put in
	fillBehind   = 4000                  // messages that may wait for the end of a rush; a search puts them in an index in memory, in 0.5 s
	fillRetry    = 5 * time.Second       // after an error
	fillAtClose  = 5 * time.Second       // of filling when the store is closed; what is left is done by the next
	clearRows    = 200                   // blocks of a discarded index removed at once; each is up to 4 KiB
	mergeAfter   = 16                    // fills after which the idle loop merges what they left
	mergePages   = 64                    // written in one step of that
	tellFrom     = 5000                  // messages not in the index from which health tells the progress
)

// A filler puts messages into the full-text index between the writer's groups. It belongs to the loop.
type filler struct {
	index index
	timer *time.Timer
	due   bool // the timer runs
	fills int  // since the last merge
	told  bool // health tells the progress
	busy  bool // a step is being taken, whose own commits are no news
}

func (f *filler) init(x index) {
	f.index = x
	f.timer = time.NewTimer(fillEvery) // what a killed process left is taken up at once
	f.due = true
}

// fires is the channel on which the loop's turn at the index comes.
func (f *filler) fires() <-chan time.Time {
	if f.timer == nil {
		return nil
	}
	return f.timer.C
}

// wake has the loop look at new messages soon. Indices that their triggers keep whole need it not.
func (f *filler) wake(in time.Duration) {
	if f.due || f.busy || f.timer == nil || !f.index.gated && !f.index.stale {
		return
	}
	f.due = true
	f.timer.Reset(in)
}

// rush says that many write now and the index can wait: a message costs more time there than in its own table, which those
// who write would wait for.
func (w *writer) rush() bool {
	if w.linger.size < lingerFrom || time.Since(w.lastWrite) > fillEvery || w.filler.index.stale {
		return false
	}
	t := &tx{conn: w.conn, ctx: background}
	last, err := lastMessage(t)
	if err != nil {
		return false
	}
	progress, _, marked, err := marks(t)
	return err == nil && marked && last-progress < fillBehind
}

// fill is the loop's turn at the index. It ends after fillTime, or at once when somebody waits and it has done its share.
func (w *writer) fill() {
	f := &w.filler
	f.due = false
	if w.rush() {
		f.wake(fillEvery)
		return
	}
	next := w.fillShare()
	if next > 0 {
		f.wake(next)
	}
}

// fillShare fills for a while and says when to go on; 0 means when there is something new.
func (w *writer) fillShare() (next time.Duration) {
	f := &w.filler
	f.busy = true
	defer func() { f.busy = false }()
	if !f.index.gated && !f.index.stale || w.health.failure() != nil {
		return 0
	}
	for start := time.Now(); ; {
		w.progress.Add(1)
		rows := fillIdleRows
		if len(w.queue) > 0 {
			rows = fillRows
		}
		more, err := w.fillOnce(rows)
		if err != nil {
			w.fillFailed(err)
			return fillRetry
		}
		if !more {
			w.tellFill(0, 0)
			return 0
		}
		if time.Since(start) < fillTime {
			continue
		}
		if len(w.queue) > 0 {
			return fillEvery
		}
		return time.Microsecond // at once, but the loop turns first
	}
}

// fillOnce takes one step in a transaction of its own and says whether there is more to do.
func (w *writer) fillOnce(rows int) (more bool, err error) {
	if err := w.space(); err != nil {
		return false, err
	}
	if err := w.conn.exec("BEGIN IMMEDIATE"); err != nil {
		return false, err
	}
	defer w.conn.rollback()
	t := &tx{conn: w.conn, ctx: background}
	if w.filler.index.stale {
		more, err = w.discard(t)
	} else {
		more, err = w.fillRange(t, rows)
	}
	if err != nil {
		return false, err
	}
	if !w.conn.wrote {
		return more, nil
	}
	return more, w.commit()
}

// fillRange puts the next messages into the index, or moves the marks when there are none.
func (w *writer) fillRange(t *tx, rows int) (more bool, err error) {
	last, err := lastMessage(t)
	if err != nil {
		return false, err
	}
	progress, high, marked, err := marks(t)
	if err != nil {
		return false, err
	}
	if !marked { // another program has finished the index
		return false, setMarks(t, last, last+ahead)
	}
	var top, n int64
	err = t.get(`SELECT coalesce(max(id), 0), count(*) FROM (SELECT id FROM messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)`,
		[]any{progress, high, rows}, &top, &n)
	if err != nil {
		return false, err
	}
	switch {
	case n == 0 && last > high: // what follows H was put in by triggers
		return false, setMarks(t, last, last+ahead)
	case n == 0 && high-last < ahead/2:
		return false, setMarks(t, progress, last+ahead)
	case n == 0:
		return false, nil
	}
	for _, f := range []*ftsTable{w.filler.index.words, w.filler.index.trigram} {
		if f == nil {
			continue
		}
		if _, err := t.run(f.fill, progress, top); err != nil {
			return false, fmt.Errorf("fill %s: %w", f.name, err)
		}
	}
	if last <= high && high-last < ahead/2 {
		high = last + ahead
	}
	w.filler.fills++
	w.tellFill(top, last)
	return true, setMarks(t, top, high) // the next step looks what is beyond
}

// tellFill shows in health how far a long build is.
func (w *writer) tellFill(done, last int64) {
	f := &w.filler
	if last-done < tellFrom && !f.told {
		return
	}
	if last-done < fillIdleRows {
		f.told = false
		if w.health.clear(CondBuild) {
			w.log.Info("the full-text index is whole", "path", w.path)
		}
		w.health.clear(CondIndex)
		return
	}
	f.told = true
	w.health.set(CondBuild, stateOK, fmt.Sprintf("the full-text index is being built: %d %% of %d messages; search looks through the others itself",
		100*done/max(last, 1), last))
}

// fillFailed decides what an error says about index and data. The index is only derived: if the messages can be read, it
// is given up and built again.
func (w *writer) fillFailed(err error) {
	if !mayBeIndex(err) {
		if !isBusy(err) {
			w.notice(err)
		}
		return
	}
	if damage := w.readable(); damage != nil {
		w.notice(damage)
		return
	}
	w.rebuildIndex(err.Error())
}

// rebuildIndex gives the index up, because of what was found, and has it built again.
func (w *writer) rebuildIndex(found string) {
	if err := w.giveUpIndex(); err != nil {
		w.notice(err)
		return
	}
	w.filler.wake(fillEvery)
	detail := fmt.Sprintf("the full-text index of %s was damaged and is built again (%s)", w.path, found)
	if w.health.set(CondIndex, stateDegraded, detail) {
		w.log.Error(detail)
	}
}

// readable says whether the messages that were to be put in can be read, which tells damage of the index from damage of
// the data.
func (w *writer) readable() error {
	t := &tx{conn: w.conn, ctx: background}
	progress, high, _, err := marks(t)
	if err != nil {
		return err
	}
	var sum int64
	return t.get(`SELECT coalesce(sum(length(content) + length(tool_calls)), 0) FROM (SELECT content, tool_calls FROM messages
		WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)`, []any{progress, high, fillIdleRows}, &sum)
}

// giveUpIndex takes the triggers off and marks the index, in one transaction.
func (w *writer) giveUpIndex() error {
	if err := abandonIndex(w.conn); err != nil {
		return err
	}
	w.filler.index.stale, w.filler.index.gated = true, false
	return nil
}

// abandonIndex is giveUpIndex before the loop runs.
func abandonIndex(c *conn) error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback()
	triggers, err := indexTriggers(c)
	if err != nil {
		return err
	}
	if err := detach(c, triggers, ownTables(triggers)); err != nil {
		return err
	}
	return c.exec("COMMIT")
}

// ownTables are the indices that can be built here. The one for which only Hermes has the tokenizer is Hermes'.
func ownTables(triggers map[string][]string) (names []string) {
	for name := range triggers {
		if isOwnTable(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func isOwnTable(name string) bool { return name == "messages_fts" || name == "messages_fts_trigram" }

// discard removes an index that is not whole, a piece at a time, and makes an empty one when all is gone. The mark for a
// stale index stays until then, so that a killed process is followed by one that goes on.
func (w *writer) discard(t *tx) (more bool, err error) {
	for _, table := range []string{"messages_fts", "messages_fts_trigram"} {
		for _, part := range []string{"_data", "_content", "_docsize"} {
			var there bool
			if err := t.get("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", []any{table + part}, &there); err != nil {
				return false, err
			}
			if !there {
				continue
			}
			n, err := t.run("DELETE FROM " + table + part + " WHERE rowid IN (SELECT rowid FROM " + table + part + " LIMIT " + fmt.Sprint(clearRows) + ")")
			if err == nil && n > 0 {
				return true, nil
			}
		}
	}
	version, err := schemaVersion(t)
	if err != nil {
		return false, err
	}
	old := w.filler.index
	for _, table := range []string{"messages_fts", "messages_fts_trigram"} {
		if err := dropIndex(t, table); err != nil {
			return false, fmt.Errorf("remove the old %s: %w", table, err)
		}
	}
	if err := createIndex(t, version, &old); err != nil {
		return false, err
	}
	fresh, err := inspectIndex(t)
	if err != nil {
		return false, err
	}
	w.filler.index = fresh
	w.filler.told = true // so that its end clears what health says
	return true, nil
}

// dropIndex removes an index, its parts, triggers and view, also one that is so damaged that SQLite cannot open it.
func dropIndex(t *tx, table string) error {
	script := "SAVEPOINT removal; "
	for _, kind := range []string{"_insert", "_delete", "_update"} {
		script += "DROP TRIGGER IF EXISTS " + table + kind + "; "
	}
	if err := t.script(script); err != nil {
		return err
	}
	if err := t.script("DROP TABLE IF EXISTS " + table); err != nil {
		if err := t.script("ROLLBACK TO removal; " + strings.TrimPrefix(script, "SAVEPOINT removal; ") + `PRAGMA writable_schema = ON;
			DELETE FROM sqlite_schema WHERE type = 'table' AND name = '` + table + `'; PRAGMA writable_schema = RESET`); err != nil {
			return err
		}
		for _, part := range []string{"_data", "_idx", "_content", "_docsize", "_config"} {
			if err := t.script("DROP TABLE IF EXISTS " + table + part); err != nil {
				return err
			}
		}
	}
	return t.script("RELEASE removal; DROP VIEW IF EXISTS " + table + "_src")
}

// mergeIndex lets the index become smaller and faster while nothing else is to be done, one short step at a time.
func (w *writer) mergeIndex() {
	f := &w.filler
	if f.fills < mergeAfter || f.due || f.index.stale {
		return
	}
	f.fills = 0
	for _, table := range []*ftsTable{f.index.words, f.index.trigram} {
		if table == nil {
			continue
		}
		if w.conn.exec("BEGIN IMMEDIATE") != nil {
			return
		}
		t := &tx{conn: w.conn, ctx: background}
		_, err := t.run("INSERT INTO "+table.name+"("+table.name+", rank) VALUES('merge', ?)", mergePages)
		if err == nil {
			err = w.commit()
		}
		w.conn.rollback()
		if err != nil {
			w.fillFailed(err)
			return
		}
	}
}

// closeIndex brings the index up to date and takes the marks off, so that the next program finds it whole. If there is
// too much to do, the marks tell what is left.
func (w *writer) closeIndex() {
	f := &w.filler
	if !f.index.gated || w.health.failure() != nil {
		return
	}
	for start := time.Now(); time.Since(start) < fillAtClose; {
		more, err := w.fillOnce(fillIdleRows)
		if err != nil {
			w.log.Warn("the full-text index could not be brought up to date; the next start does it", "path", w.path, "error", err)
			return
		}
		if !more {
			break
		}
	}
	if err := w.settleMarks(); err != nil {
		w.log.Warn("the full-text index is left to the next start", "path", w.path, "error", err)
	}
}

func (w *writer) settleMarks() error {
	if err := w.conn.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer w.conn.rollback()
	t := &tx{conn: w.conn, ctx: background}
	progress, high, marked, err := marks(t)
	if err != nil || !marked {
		return err
	}
	last, err := lastMessage(t)
	if err != nil {
		return err
	}
	var left bool
	if err := t.get("SELECT EXISTS(SELECT 1 FROM messages WHERE id > ? AND id <= ?)", []any{progress, high}, &left); err != nil {
		return err
	}
	if left {
		err = setMarks(t, progress, max(min(high, last), progress))
	} else {
		err = clearMarks(t)
	}
	if err != nil {
		return err
	}
	return w.commit()
}
