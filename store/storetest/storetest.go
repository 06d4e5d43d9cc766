// Package storetest opens stores for tests, copies of real Hermes files among them, and checks what is left behind.
package storetest

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver that Query and Integrity open files with

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// State opens a new state.db that is closed with the test, which fails if the file is not sound then.
func State(t testing.TB, o store.Options) *store.State {
	t.Helper()
	return StateAt(t, filepath.Join(t.TempDir(), "state.db"), o)
}

// StateAt is State for the file at path.
func StateAt(t testing.TB, path string, o store.Options) *store.State {
	t.Helper()
	s, err := store.OpenState(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAndCheck(t, s, path) })
	return s
}

// Board opens a new kanban board, like State.
func Board(t testing.TB, slug string, o store.Options) *store.Board {
	t.Helper()
	return BoardAt(t, filepath.Join(t.TempDir(), "kanban.db"), slug, o)
}

// BoardAt is Board for the file at path.
func BoardAt(t testing.TB, path, slug string, o store.Options) *store.Board {
	t.Helper()
	b, err := store.OpenBoard(context.Background(), path, slug, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAndCheck(t, b, path) })
	return b
}

func closeAndCheck(t testing.TB, s interface{ Close() error }, path string) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close %s: %v", path, err)
	}
	Integrity(t, path)
}

// Integrity fails the test unless the closed database at path is sound, its full-text indices included.
func Integrity(t testing.TB, path string) {
	t.Helper()
	for _, found := range Query(t, path, "PRAGMA integrity_check(5)") {
		if found != "ok" {
			t.Errorf("%s: integrity_check: %s", path, found)
		}
	}
	for _, row := range Query(t, path, "PRAGMA foreign_key_check") {
		t.Errorf("%s: foreign_key_check: %s", path, row)
	}
	for _, table := range Query(t, path, "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%fts5%'") {
		if _, err := Exec(path, `INSERT INTO "`+table+`"("`+table+`", rank) VALUES('integrity-check', 1)`); err != nil {
			t.Errorf("%s: full-text index %s: %v", path, table, err)
		}
	}
}

// Query runs a query as another program would, and returns the rows with their columns joined by |.
func Query(t testing.TB, path, query string, args ...any) []string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=rw&_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %s: %v", path, query, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rows.Next() {
		cells, dest := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			dest[i] = &cells[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = c.String
		}
		out = append(out, strings.Join(texts, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %s: %v", path, query, err)
	}
	return out
}

// Exec changes a file as another program would.
func Exec(path, statement string, args ...any) (sql.Result, error) {
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=rw&_busy_timeout=5000")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return db.Exec(statement, args...)
}

// Fixture copies a file that Hermes itself has written to a new directory. name is a path below store/testdata.
func Fixture(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(moduleRoot(t), "store", "testdata", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// moduleRoot is looked for upwards from the folder that a test runs in: names of source files say nothing in a build
// with -trimpath.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the folder of this test: ", err)
	return ""
}

// Descriptors counts the open descriptors of this process.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd here: ", err)
	}
	return len(entries) - 1 // one is the directory itself
}

// A Clock is the time of a test. Each look at it is a millisecond later.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at a fixed day.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
}

// Now is for store.Options.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
