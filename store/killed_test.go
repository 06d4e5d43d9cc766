package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// What rewrites, copies or opens a file is killed at any moment. Nothing is lost, the next one does it, and what is left
// behind is gone then.

func init() {
	for name, run := range killed {
		children[name] = func(args []string) error {
			fmt.Println("begun")
			return run(context.Background(), args[0])
		}
	}
}

// killed are the works that are killed, by name. They are done in a folder with a file "state.db".
var killed = map[string]func(ctx context.Context, dir string) error{
	"open a home": func(ctx context.Context, dir string) error {
		return onState(ctx, dir, func(*store.State) error { return nil })
	},
	"vacuum": func(ctx context.Context, dir string) error {
		return onState(ctx, dir, func(s *store.State) error { return s.Vacuum(ctx) })
	},
	"optimize": func(ctx context.Context, dir string) error {
		return onState(ctx, dir, func(s *store.State) error { _, err := s.Optimize(ctx); return err })
	},
	"optimize-storage": func(ctx context.Context, dir string) error {
		return onState(ctx, dir, func(s *store.State) error { return s.ConvertIndex(ctx, func(int) {}) })
	},
	"copy": func(ctx context.Context, dir string) error {
		return onState(ctx, dir, func(s *store.State) error {
			return errors.Join(ignoreMissing(os.Remove(filepath.Join(dir, "state.db.copy"))), s.CopyTo(ctx, filepath.Join(dir, "state.db.copy")))
		})
	},
	"copy of a file in rest": func(ctx context.Context, dir string) error {
		return errors.Join(ignoreMissing(os.Remove(filepath.Join(dir, "state.db.copy"))),
			store.CopyFile(ctx, filepath.Join(dir, "state.db"), filepath.Join(dir, "state.db.copy")))
	},
	"recover": func(ctx context.Context, dir string) error {
		output := filepath.Join(dir, "saved.db")
		if err := ignoreMissing(os.Remove(output)); err != nil {
			return err
		}
		_, err := store.Recover(ctx, store.RecoverOptions{Source: filepath.Join(dir, "state.db"), Output: output})
		return err
	},
	"delete": func(ctx context.Context, dir string) error {
		return onState(ctx, dir, func(s *store.State) error {
			list, _, err := s.ListSessions(ctx, store.Selection{Title: "old"})
			for i := 0; err == nil && i < len(list); i++ {
				_, err = s.DeleteSession(ctx, list[i].ID)
			}
			return err
		})
	},
}

func onState(ctx context.Context, dir string, f func(*store.State) error) error {
	s, err := store.OpenState(ctx, filepath.Join(dir, "state.db"), store.Options{Readers: 1})
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// A home with messages that are there in the end whatever was killed, and some that a delete may take.
const (
	keptMessages = 800
	oldSessions  = 50
)

func homeToKill(t *testing.T, fixture string) (dir, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	if fixture == "" {
		if err := onState(context.Background(), filepath.Dir(path), func(*store.State) error { return nil }); err != nil {
			t.Fatal(err)
		}
	} else {
		copyFile(t, storetest.Fixture(t, fixture), path)
		for _, table := range storetest.Query(t, path, "SELECT name FROM sqlite_schema WHERE name = 'session_model_usage'") {
			if _, err := storetest.Exec(path, "DELETE FROM "+table); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, statement := range []string{
		"DELETE FROM messages", "DELETE FROM sessions",
		"INSERT INTO sessions(id, source, started_at, title) VALUES('kept', 'test', 1, 'kept')",
		fmt.Sprintf(`INSERT INTO sessions(id, source, started_at, title) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT 'old' || i, 'test', i, 'old ' || i FROM n`, oldSessions),
		fmt.Sprintf(`INSERT INTO messages(session_id, role, content, timestamp) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT 'kept', 'user', 'kept ' || i || ' ' || hex(randomblob(500)), i FROM n`, keptMessages),
		"INSERT INTO messages(session_id, role, content, timestamp) SELECT id, 'user', 'old ' || hex(randomblob(3000)), 1 FROM sessions WHERE id <> 'kept'",
	} {
		if _, err := storetest.Exec(path, statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	return filepath.Dir(path), path
}

// left are the files in a folder that do not belong there.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"state.db", "state.db-wal", "state.db-shm", "state.db.copy", "saved.db", "state.db" + store.SnapshotSuffix}, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// isWhole looks at a copy or at the file itself: what must be there is, and what a delete was about is whole or gone.
func isWhole(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return // not made yet
	}
	for what, query := range map[string]string{
		"damage":                      "SELECT * FROM (SELECT integrity_check AS x FROM pragma_integrity_check) WHERE x <> 'ok' AND x NOT LIKE '%fts5%'", // which is taken apart on purpose
		"messages missing":            fmt.Sprintf("SELECT count(*) FROM messages WHERE session_id = 'kept' HAVING count(*) <> %d", keptMessages),
		"sessions without a message":  "SELECT id FROM sessions WHERE id NOT IN (SELECT session_id FROM messages)",
		"messages without a session":  "SELECT id FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)",
		"messages under other a text": "SELECT id FROM messages WHERE content NOT LIKE CASE session_id WHEN 'kept' THEN 'kept %' ELSE 'old %' END",
	} {
		if got := storetest.Query(t, path, query); len(got) > 0 {
			t.Errorf("%s: %s: %v", filepath.Base(path), what, got)
		}
	}
}

// killAtAnyMoment runs a work to its end, to see how long it takes, and then kills it so many times at other moments.
func killAtAnyMoment(t *testing.T, work, dir string, times int, check func()) {
	t.Helper()
	one := func(at time.Duration) (took time.Duration) {
		c := startChildEnv(t, []string{"SQLITE_TMPDIR=" + dir}, work, dir) // where it puts the file of a VACUUM
		c.expect("begun")
		start := time.Now()
		if at == 0 {
			if err := c.wait(); err != nil {
				t.Fatal(err, c.errs.String())
			}
			return time.Since(start)
		}
		time.Sleep(at)
		c.kill()
		return at
	}
	took := one(0)
	check()
	for range times {
		one(time.Duration(rand.Int64N(int64(took) + 1)))
		check()
		if names := left(t, dir); len(names) > 1 {
			t.Errorf("left behind after a kill: %v", names)
		}
	}
	one(0)
	check()
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left behind in the end: %v", names)
	}
}

func TestWorkThatIsKilledLosesNothing(t *testing.T) {
	for work := range killed {
		if work == "open a home" {
			continue
		}
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			dir, path := homeToKill(t, "")
			killAtAnyMoment(t, work, dir, kills(t, 3), func() {
				for _, name := range []string{"state.db", "state.db.copy", "saved.db"} {
					isWhole(t, filepath.Join(dir, name))
				}
			})
			storetest.StateAt(t, path, store.Options{})
			if work == "delete" {
				if got := storetest.Query(t, path, "SELECT count(*) FROM sessions"); got[0] != "1" {
					t.Errorf("%s sessions are left", got[0])
				}
			}
		})
	}
}

// An old home is taken up however often that is cut off: the copy of what it was is whole, and made once.
func TestAnOldHomeThatIsOpenedAndKilledLosesNothing(t *testing.T) {
	for _, fixture := range []string{"state-schema-v6.db", "state-schema-v8.db", "hermes-home-2026-07/state.db"} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel()
			for range kills(t, 2) {
				dir, path := homeToKill(t, fixture)
				version := storetest.Query(t, path, "SELECT max(version) FROM schema_version")
				killAtAnyMomentOnce(t, "open a home", dir)
				isWhole(t, path)
				storetest.StateAt(t, path, store.Options{})
				isWhole(t, path)
				isWhole(t, path+store.SnapshotSuffix)
				if got := storetest.Query(t, path+store.SnapshotSuffix, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'hs\\_%' ESCAPE '\\'"); got[0] != "0" {
					t.Error("the copy is one of a file that was changed")
				}
				if got := storetest.Query(t, path, "SELECT max(version) FROM schema_version"); !slices.Equal(got, version) {
					t.Errorf("the version is %v, was %v", got, version)
				}
				if names := left(t, dir); len(names) > 0 {
					t.Errorf("left behind: %v", names)
				}
			}
		})
	}
}

// killAtAnyMomentOnce kills a work that cannot be done twice. It takes about a tenth of a second.
func killAtAnyMomentOnce(t *testing.T, work, dir string) {
	t.Helper()
	c := startChild(t, work, dir)
	c.expect("begun")
	time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
	c.kill()
}

func init() { children["vacuum in little memory"] = vacuumInLittleMemory }

// vacuumInLittleMemory tells how much memory this process had at most, in KiB.
func vacuumInLittleMemory(args []string) error {
	if err := killed["vacuum"](context.Background(), args[0]); err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Println(strings.Fields(rest)[0])
	return nil
}

func TestAVacuumDoesNotGatherTheFileInMemory(t *testing.T) {
	dir, path := homeToKill(t, "")
	const size = 96 << 20
	if _, err := storetest.Exec(path, fmt.Sprintf(`CREATE TABLE large AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		SELECT zeroblob(1 << 20) FROM n`, size>>20)); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "vacuum in little memory", dir)
	var most int64
	if _, err := fmt.Sscan(c.line(), &most); err != nil {
		t.Fatal(err, c.errs.String())
	}
	if most<<10 > size {
		t.Errorf("a vacuum of %d MiB took %d MiB of memory", size>>20, most>>10)
	}
}

// kills is how often a test kills: STORE_KILLS, or few.
func kills(t *testing.T, few int) int {
	t.Helper()
	if testing.Short() {
		few = 1
	}
	if v := os.Getenv("STORE_KILLS"); v != "" {
		if _, err := fmt.Sscan(strings.TrimSpace(v), &few); err != nil {
			t.Fatal(err)
		}
	}
	return few
}
