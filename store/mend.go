package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// A Repair is what of a store is made again from what it holds: nothing of it can lose a row.
type Repair struct {
	FullText bool     // the indices of messages are built again
	Reindex  []string // ordinary indices
	Missing  bool     // indices that this version makes and the file has no more
}

// Repair is what Mend has to do about what was found.
func (i Inspection) Repair() Repair {
	return Repair{FullText: len(i.IndexDamage) > 0, Reindex: i.WrongIndices, Missing: len(i.MissingIndices) > 0}
}

// Mend makes a repair and returns what it did. Requests go on between its steps; one of them reads a whole table.
func (d *database) Mend(ctx context.Context, r Repair) (done []string, err error) {
	if d.w.readOnly.Load() {
		return nil, fmt.Errorf("mend %s: %w", d.path, d.w.health.refusal())
	}
	for _, name := range r.Reindex {
		if err := d.reindex(ctx, name); err != nil {
			return done, fmt.Errorf("build index %s again: %w", name, err)
		}
		done = append(done, "index "+name+" was built again")
	}
	if r.Missing {
		made, err := d.makeIndices(ctx)
		for _, name := range made {
			done = append(done, "index "+name+" was made")
		}
		if err != nil {
			return done, err
		}
	}
	if r.FullText && d.w.indexed {
		if err := d.rebuildFullText(ctx); err != nil {
			return done, err
		}
		done = append(done, "the search index was built again")
	}
	return done, nil
}

func (d *database) reindex(ctx context.Context, name string) error {
	_, err := write(ctx, d, func(t *tx) (any, error) {
		t.wrote = true
		return nil, t.script("REINDEX main." + quote(name))
	})
	return err
}

// makeIndices makes the indices that are missing. One that the rows do not allow, a unique one, is named in the error; the
// others are made.
func (d *database) makeIndices(ctx context.Context) (made []string, err error) {
	missing, err := read(ctx, d, func(t *tx) ([]string, error) { return missingIndices(t.conn) })
	if err != nil {
		return nil, err
	}
	declared, err := declaredIndices(d.kind.migrations)
	if err != nil {
		return nil, err
	}
	for _, name := range missing {
		_, werr := write(ctx, d, func(t *tx) (any, error) {
			// A statement that is run, unlike one that is only read, sees that another program has changed the schema.
			var there bool
			if err := t.get("SELECT count(*) FROM sqlite_schema WHERE name = ?", []any{name}, &there); err != nil || there {
				return nil, err
			}
			t.wrote = true
			return nil, t.script(declared[name])
		})
		if werr != nil {
			err = errors.Join(err, fmt.Errorf("make index %s: %w", name, werr))
			continue
		}
		made = append(made, name)
	}
	return made, err
}

// rebuildFullText gives the indices of messages up and waits until they are built.
func (d *database) rebuildFullText(ctx context.Context) error {
	err := d.w.between(ctx, func(*conn) error {
		d.w.filler.wake(fillEvery)
		if d.w.filler.index.stale {
			return nil // it is being done
		}
		if err := d.w.giveUpIndex(); err != nil {
			return err
		}
		d.w.filler.wake(fillEvery)
		return nil
	})
	if err != nil {
		return err
	}
	return (&State{database: d}).awaitIndex(ctx, func(int) {})
}

// missingIndices lists the indices that this version makes in a file of this kind and that it does not have. A file that
// was never opened by it misses none: it gets them then.
func missingIndices(c *conn) ([]string, error) {
	number, err := migrationNumber(c)
	if err != nil || number == 0 {
		return nil, err
	}
	kind := "board"
	switch tables, err := all(&tx{conn: c, ctx: background}, scanString, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('messages', 'events')"); {
	case err != nil:
		return nil, err
	case len(tables) == 1 && tables[0] == "messages":
		kind = "state"
	case len(tables) > 0:
		kind = "telemetry"
	}
	declared, err := declaredIndices(kind)
	if err != nil {
		return nil, err
	}
	have, err := all(&tx{conn: c, ctx: background}, scanString, "SELECT name FROM sqlite_schema WHERE type = 'index'")
	if err != nil {
		return nil, err
	}
	for _, name := range have {
		delete(declared, name)
	}
	return slices.Sorted(maps.Keys(declared)), nil
}

// declaredIndices returns the statements of the indices that the newest migration of a kind has, by name.
func declaredIndices(kind string) (map[string]string, error) {
	steps, err := migrationsOf(kind)
	if err != nil {
		return nil, err
	}
	empty, err := dial(memory, "")
	if err != nil {
		return nil, err
	}
	defer empty.close()
	for _, m := range steps {
		if err := empty.script(m.sql); err != nil {
			return nil, fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	list, err := all(&tx{conn: empty, ctx: background}, func(row scanner) (p [2]string, err error) { return p, row.Scan(&p[0], &p[1]) },
		"SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
	declared := map[string]string{}
	for _, p := range list {
		declared[p[0]] = p[1]
	}
	return declared, err
}

// MendFile opens a store of a home in which no supervisor runs, mends it and closes it, which empties its WAL. The caller
// owns the home.
func MendFile(ctx context.Context, path string, r Repair, o Options) (done []string, err error) {
	o.Readers = 1
	if filepath.Base(path) == "state.db" {
		s, err := OpenState(ctx, path, o)
		if err != nil {
			return nil, err
		}
		done, err = s.Mend(ctx, r)
		return done, errors.Join(err, s.Close())
	}
	b, err := OpenBoard(ctx, path, strings.TrimSuffix(filepath.Base(path), ".db"), o)
	if err != nil {
		return nil, err
	}
	done, err = b.Mend(ctx, r)
	return done, errors.Join(err, b.Close())
}

// Leftovers lists what killed processes left half made beside a database.
func Leftovers(path string) (left []string) {
	for _, pattern := range leftoverPatterns {
		found, _ := filepath.Glob(scratch.Literal(path) + pattern)
		for _, name := range found {
			if !alive(name) {
				left = append(left, name)
			}
		}
	}
	return left
}
