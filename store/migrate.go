package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

//go:embed migrations
var migrationFiles embed.FS

// A migration is one script of migrations/<kind>/, numbered by its name from 1 without gaps.
//
// A script declares: CREATE ... IF NOT EXISTS, and changes that may be made twice. Before it runs, tables that are
// there already get the columns that it declares and they lack. So one script makes a new file, completes one of an
// older Hermes, and leaves alone what a newer Hermes has added.
type migration struct {
	number int
	name   string
	sql    string
}

func migrationsOf(kind string) ([]migration, error) {
	dir := path.Join("migrations", kind)
	entries, err := fs.ReadDir(migrationFiles, dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var list []migration
	for i, e := range entries {
		number, err := strconv.Atoi(strings.SplitN(e.Name(), "_", 2)[0])
		if err != nil || number != i+1 {
			return nil, fmt.Errorf("migration %s/%s is not number %d", dir, e.Name(), i+1)
		}
		text, err := fs.ReadFile(migrationFiles, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, migration{number, e.Name(), string(text)})
	}
	return list, nil
}

// migrationHook is called by tests inside (committed false) and after each migration.
var migrationHook = func(number int, committed bool) {}

// migrate brings the file to the newest migration, each in one transaction together with its number, which is kept in
// hs_meta: Hermes uses application_id for itself and user_version may be anybody's.
func migrate(ctx context.Context, c *conn, file, kind string, log hclog.Logger) error {
	steps, err := migrationsOf(kind)
	if err != nil {
		return err
	}
	have, err := migrationNumber(c)
	if err != nil {
		return err
	}
	if have > len(steps) {
		return fmt.Errorf("%w of hermes-supervisor: its migration number is %d, this version knows %d", ErrTooNew, have, len(steps))
	}
	if have == len(steps) {
		return nil
	}
	scratch, err := dial(memory, "")
	if err != nil {
		return err
	}
	defer scratch.close()
	for _, m := range steps {
		if err := scratch.script(m.sql); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
		if m.number <= have {
			continue
		}
		if err := step(ctx, c, scratch, m); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
		log.Info("store migrated", "path", file, "migration", m.name)
	}
	return nil
}

// migrationNumber is 0 for a file that this program has not migrated yet.
func migrationNumber(c *conn) (number int, err error) {
	t := &tx{conn: c, ctx: background}
	var there bool
	if err := t.get("SELECT count(*) FROM sqlite_schema WHERE name = 'hs_meta'", nil, &there); err != nil || !there {
		return 0, err
	}
	err = t.get("SELECT value FROM hs_meta WHERE key = 'migration'", nil, &number)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return number, err
}

func step(ctx context.Context, c, scratch *conn, m migration) error {
	if err := beginMigration(ctx, c); err != nil {
		return err
	}
	defer c.rollback()
	if have, err := migrationNumber(c); err != nil || have >= m.number { // another process was faster
		return err
	}
	if err := addColumns(c, scratch); err != nil {
		return err
	}
	if err := c.script(m.sql); err != nil {
		return err
	}
	t := &tx{conn: c, ctx: background}
	if err := c.script("CREATE TABLE IF NOT EXISTS hs_meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID"); err != nil {
		return err
	}
	if _, err := t.run("INSERT INTO hs_meta(key, value) VALUES('migration', ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value", m.number); err != nil {
		return err
	}
	migrationHook(m.number, false)
	if err := c.exec("COMMIT"); err != nil {
		return err
	}
	migrationHook(m.number, true)
	return nil
}

// beginMigration waits for a foreign writer as long as ctx and patience allow, and says so.
func beginMigration(ctx context.Context, c *conn) error {
	// Each try waits in C, where nothing is said and no ctx ends it.
	if err := c.script("PRAGMA busy_timeout = 500"); err != nil {
		return err
	}
	defer func() { _ = c.script("PRAGMA busy_timeout = 5000") }()
	told := false
	for start := time.Now(); ; {
		err := c.exec("BEGIN IMMEDIATE")
		waited := time.Since(start)
		if !isBusy(err) || waited > patience {
			if told {
				c.held(0)
			}
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w while waiting for the write lock: %w", ctx.Err(), explain(err))
		}
		if c.held != nil {
			told = true
			c.held(waited)
		}
	}
}

// addColumns adds to the tables of c the columns that the tables of the same name in scratch have and they lack.
func addColumns(c, scratch *conn) error {
	want, err := columns(scratch)
	if err != nil {
		return err
	}
	have, err := columns(c)
	if err != nil {
		return err
	}
	there, tables := map[[2]string]bool{}, map[string]bool{}
	for _, col := range have {
		there[[2]string{col.table, col.name}] = true
		tables[col.table] = true
	}
	for _, col := range want {
		if !tables[col.table] || there[[2]string{col.table, col.name}] {
			continue
		}
		if err := c.script("ALTER TABLE " + quote(col.table) + " ADD COLUMN " + col.declaration()); err != nil {
			return err
		}
	}
	return nil
}

type column struct {
	table, name, kind string
	notNull           bool
	fallback          *string
}

// declaration is what ADD COLUMN takes: it cannot make a column part of a key, nor NOT NULL without a default.
func (c column) declaration() string {
	s := quote(c.name) + " " + c.kind
	if c.fallback != nil {
		if c.notNull {
			s += " NOT NULL"
		}
		s += " DEFAULT " + *c.fallback
	}
	return s
}

func columns(c *conn) ([]column, error) {
	return all(&tx{conn: c, ctx: background}, func(row scanner) (col column, err error) {
		err = row.Scan(&col.table, &col.name, &col.kind, &col.notNull, &col.fallback)
		return col, err
	}, `SELECT t.name, c.name, c.type, c."notnull", c.dflt_value
		FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
		WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\' AND t.sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY t.name, c.cid`)
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
