package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// optimizePages is how much of an index one step merges: a few milliseconds.
const optimizePages = 64

// Optimize merges the full-text indices of the file, in steps between which requests run, until nothing is left to merge.
// It returns the number of steps that did something.
func (s *State) Optimize(ctx context.Context) (steps int64, err error) {
	if s.w.readOnly.Load() {
		return 0, fmt.Errorf("optimize: %w", s.w.refusal())
	}
	tables, err := read(ctx, s.database, func(t *tx) ([]string, error) { return ftsTables(t) })
	if err != nil {
		return 0, err
	}
	for _, table := range tables {
		for first := true; ; first = false {
			more, err := s.mergeStep(ctx, table, first)
			if err != nil {
				return steps, fmt.Errorf("optimize %s: %w", table, err)
			}
			if !more {
				break
			}
			steps++
		}
	}
	return steps, nil
}

// mergeStep merges a part of an index. The first one of an index has it merge everything into one in the end. FTS5 tells
// by the number of changed rows whether it did anything.
func (s *State) mergeStep(ctx context.Context, table string, first bool) (more bool, err error) {
	pages := optimizePages
	if first {
		pages = -pages
	}
	return write(ctx, s.database, func(t *tx) (bool, error) {
		var before, after int64
		if err := t.get("SELECT total_changes()", nil, &before); err != nil {
			return false, err
		}
		if _, err := t.run(fmt.Sprintf("INSERT INTO %s(%s, rank) VALUES('merge', %d)", quote(table), quote(table), pages)); err != nil {
			return false, err
		}
		err := t.get("SELECT total_changes()", nil, &after)
		return after-before >= 2, err
	})
}

func ftsTables(t *tx) ([]string, error) {
	return all(t, scanString, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%fts5%' ORDER BY name")
}

// Vacuum rewrites the file without what is empty in it. It holds all requests up for its time, some seconds a GiB, and is for
// a file that this process alone uses. What is kept is gathered in a temporary file without a name (in SQLITE_TMPDIR, else
// where the system has such files) and comes back through the WAL, so that much room is needed twice. A killed one leaves the
// file as it was, and nothing else.
func (s *State) Vacuum(ctx context.Context) error {
	if s.w.readOnly.Load() {
		return fmt.Errorf("vacuum: %w", s.w.refusal())
	}
	need, err := read(ctx, s.database, func(t *tx) (n int64, err error) {
		return n, t.get("SELECT 2 * (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size", nil, &n)
	})
	if err != nil {
		return fmt.Errorf("vacuum %s: %w", s.path, err)
	}
	need += captureRoom
	if free, err := freeSpace(s.path); err == nil && free < need {
		return fmt.Errorf("vacuum: %w: it needs %d MiB, %d are free", ErrDiskFull, need>>20, free>>20)
	}
	err = s.w.between(ctx, func(c *conn) error {
		stop := s.w.beatWhile()
		defer stop()
		// Elsewhere memory is right for what is gathered; here it may be as large as the file.
		return errors.Join(c.script("PRAGMA temp_store = FILE; VACUUM"), c.script("PRAGMA temp_store = MEMORY"))
	})
	if err != nil {
		return fmt.Errorf("vacuum %s: %w", s.path, explain(err))
	}
	return nil
}

// beatWhile keeps the progress going while the loop is in one long call on purpose.
func (w *writer) beatWhile() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.progress.Add(1)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// IndexLayout says whether the full-text index of the file has the layout of older versions of Hermes, in which each text
// is stored a second time.
func (s *State) IndexLayout(ctx context.Context) (legacy bool, err error) {
	return read(ctx, s.database, func(t *tx) (bool, error) {
		var sql string
		err := t.get("SELECT coalesce((SELECT sql FROM sqlite_schema WHERE name = 'messages_fts'), 'tool_name')", nil, &sql)
		return !strings.Contains(sql, "tool_name"), err
	})
}

// ConvertIfLegacy is ConvertIndex for an index that has an older layout, and says whether it had.
func (s *State) ConvertIfLegacy(ctx context.Context, tell func(percent int)) (converted bool, err error) {
	legacy, err := s.IndexLayout(ctx)
	if err != nil || !legacy {
		return false, err
	}
	return true, s.ConvertIndex(ctx, tell)
}

// ConvertIndex builds the full-text index of the file again in the newest layout, if it has the one of older versions of
// Hermes. It returns when the index is whole; requests go on meanwhile, and a process that is killed is followed by one that
// goes on. tell is called once in a while with how much is done, in percent.
//
// A file keeps its schema number, so that its Hermes can go on with it. One of a number below 23 has a Hermes that does not
// make this layout itself; a newer one takes it as its own.
func (s *State) ConvertIndex(ctx context.Context, tell func(percent int)) error {
	if free, err := freeSpace(s.path); err == nil && free < sizeOf(s.path)*3/10+captureRoom {
		return fmt.Errorf("convert the full-text index: %w: it needs %d MiB, %d are free", ErrDiskFull, (sizeOf(s.path)*3/10+captureRoom)>>20, free>>20)
	}
	err := s.w.between(ctx, func(c *conn) error {
		if err := wantViews(c); err != nil {
			return err
		}
		if err := s.w.giveUpIndex(); err != nil {
			return err
		}
		s.w.filler.wake(fillEvery)
		return nil
	})
	if err == nil {
		err = s.awaitIndex(ctx, tell)
	}
	if err != nil {
		return fmt.Errorf("convert the full-text index of %s: %w", s.path, err)
	}
	return nil
}

// awaitIndex returns when the index is whole.
func (s *State) awaitIndex(ctx context.Context, tell func(percent int)) error {
	for {
		x, err := s.IndexState(ctx)
		if err != nil {
			return err
		}
		if tell(x.Percent()); x.Present && !x.Stale && x.Indexed >= x.Total {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-s.w.ended:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// markViews in hs_meta says that a person wanted the newest layout of the index in a file of an older schema.
const markViews = "index_views"

func wantViews(c *conn) error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback()
	if err := c.exec("INSERT INTO hs_meta(key, value) VALUES('" + markViews + "', 1) ON CONFLICT(key) DO NOTHING"); err != nil {
		return err
	}
	return c.exec("COMMIT")
}

func viewsWanted(t *tx) (wanted bool, err error) {
	err = t.get("SELECT EXISTS (SELECT 1 FROM hs_meta WHERE key = ?)", []any{markViews}, &wanted)
	return wanted, err
}
