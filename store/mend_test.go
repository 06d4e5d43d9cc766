package store_test

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// A real index of an old Hermes gets the newest layout; nothing but the index changes, and it finds what it found.
func TestAnIndexOfAnOldHermesGetsTheNewestLayout(t *testing.T) {
	want := readExpected(t).Search
	for _, fixture := range []string{"state-schema-v6.db", "state-schema-v8.db", "hermes-home-2026-07/state.db"} {
		t.Run(fixture, func(t *testing.T) {
			ctx := context.Background()
			path := storetest.Fixture(t, fixture)
			tables := tablesOf(t, path)
			for table := range tables {
				if strings.HasPrefix(table, "messages_fts") || table == "state_meta" {
					delete(tables, table)
				}
			}
			before := dump(t, path, tables)
			s, err := store.OpenState(ctx, path, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if legacy, err := s.IndexLayout(ctx); err != nil || !legacy {
				t.Fatalf("legacy is %v, %v", legacy, err)
			}
			if err := s.ConvertIndex(ctx, func(int) {}); err != nil {
				t.Fatal(err)
			}
			if legacy, err := s.IndexLayout(ctx); err != nil || legacy {
				t.Errorf("legacy is %v, %v", legacy, err)
			}
			finish(t, s, lease(t, s, accept(t, s, "1").TurnID), "zanzibar reply")
			for query, ids := range want {
				if !strings.HasPrefix(fixture, "hermes-home") {
					break
				}
				found, err := s.Search(ctx, store.Search{Text: query, Limit: 2000})
				if err != nil {
					t.Fatal(err)
				}
				var got []int64
				for _, h := range found.Hits {
					got = append(got, h.MessageID)
				}
				if slices.Sort(got); !slices.Equal(got, ids) {
					t.Errorf("%s: found %d messages, Hermes %d", query, len(got), len(ids))
				}
			}
			if err := s.Vacuum(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			after := dump(t, path, tables)
			for table, rows := range before {
				if kept := after[table]; len(kept) < len(rows) || !reflect.DeepEqual(kept[:len(rows)], rows) {
					t.Errorf("%s has changed", table)
				}
			}
			storetest.Integrity(t, path)
			if got := storetest.Query(t, path, "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'zanzibar'"); got[0] != "1" {
				t.Errorf("the index finds %s of 1 new messages", got[0])
			}
			if got := storetest.Query(t, path, "SELECT value FROM state_meta WHERE key LIKE 'fts_storage_version'"); !slices.Equal(got, []string{"3"}) {
				t.Errorf("fts_storage_version is %v", got)
			}
			// It stays so when it has to be built again.
			if _, err := storetest.Exec(path, "DELETE FROM messages_fts_data WHERE id = 10"); err != nil {
				t.Fatal(err)
			}
			again := storetest.StateAt(t, path, store.Options{})
			finish(t, again, lease(t, again, accept(t, again, "2").TurnID), "reply")
			indexed(t, again)
			if legacy, err := again.IndexLayout(ctx); err != nil || legacy {
				t.Errorf("after it was built again legacy is %v, %v", legacy, err)
			}
		})
	}
}

// inspect is what is found in the closed or open file.
func inspect(t *testing.T, path string) store.Inspection {
	t.Helper()
	i, err := store.Inspect(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// wrongIndex makes an index that does not fit its table, as a torn write leaves one.
func wrongIndex(t *testing.T, path, index, table, column string) {
	t.Helper()
	for _, statement := range []string{
		"PRAGMA writable_schema = ON; CREATE TABLE harm AS SELECT sql FROM sqlite_schema WHERE name = '" + index + "'; UPDATE sqlite_schema SET sql = sql || ' WHERE 0' WHERE name = '" + index + "'",
		"INSERT INTO " + table + "(" + column + ") VALUES('unindexed', 'terminal', 1)",
		"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = (SELECT sql FROM harm) WHERE name = '" + index + "'; DROP TABLE harm",
	} {
		if _, err := storetest.Exec(path, statement); err != nil {
			t.Fatal(statement, err)
		}
	}
}

func TestWhatIsDerivedIsFoundAndMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(t *testing.T, path string)
		found func(i store.Inspection) string
		done  string
	}{
		"an index that does not fit": {
			func(t *testing.T, path string) {
				wrongIndex(t, path, "idx_sessions_source", "sessions", "id, source, started_at")
			},
			func(i store.Inspection) string { return fmt.Sprint(i.WrongIndices, i.Damage) },
			"[idx_sessions_source] [] index idx_sessions_source was built again",
		},
		"missing indices": {
			func(t *testing.T, path string) {
				if _, err := storetest.Exec(path, "DROP INDEX idx_messages_session; DROP INDEX hs_turns_session"); err != nil {
					t.Fatal(err)
				}
			},
			func(i store.Inspection) string { return fmt.Sprint(i.MissingIndices, i.Damage) },
			"[hs_turns_session idx_messages_session] [] index hs_turns_session was made, index idx_messages_session was made",
		},
		"a damaged search index": {
			func(t *testing.T, path string) {
				if _, err := storetest.Exec(path, "UPDATE messages_fts_data SET block = zeroblob(20) WHERE id > 10"); err != nil {
					t.Fatal(err)
				}
			},
			func(i store.Inspection) string { return fmt.Sprint(len(i.IndexDamage) > 0, i.Damage) },
			"true [] the search index was built again",
		},
	} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", open ", running), func(t *testing.T) {
				ctx := context.Background()
				path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
				s, err := store.OpenState(ctx, path, store.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if i := inspect(t, path); len(i.Damage)+len(i.IndexDamage)+len(i.WrongIndices)+len(i.MissingIndices) > 0 {
					t.Fatalf("a sound file: %+v", i)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				c.harm(t, path)
				i := inspect(t, path)
				found := c.found(i)
				var done []string
				if running {
					open := storetest.StateAt(t, path, store.Options{})
					done, err = open.Mend(ctx, i.Repair())
				} else {
					done, err = store.MendFile(ctx, path, i.Repair(), store.Options{})
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := found + " " + strings.Join(done, ", "); got != c.done {
					t.Errorf("%s, want %s", got, c.done)
				}
				if i := inspect(t, path); len(i.Damage)+len(i.IndexDamage)+len(i.WrongIndices)+len(i.MissingIndices) > 0 {
					t.Errorf("after it was mended: %+v", i)
				}
			})
		}
	}
}

// A unique index that the rows do not allow is named, the others are made all the same.
func TestAnIndexThatTheRowsDoNotAllowIsNamed(t *testing.T) {
	ctx := context.Background()
	path := storetest.Fixture(t, "hermes-home-2026-07/state.db")
	s, err := store.OpenState(ctx, path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Exec(path, "DROP INDEX idx_sessions_title_unique; DROP INDEX idx_sessions_source; UPDATE sessions SET title = 'same'"); err != nil {
		t.Fatal(err)
	}
	done, err := store.MendFile(ctx, path, inspect(t, path).Repair(), store.Options{})
	if err == nil || !strings.Contains(err.Error(), "idx_sessions_title_unique") || !slices.Equal(done, []string{"index idx_sessions_source was made"}) {
		t.Errorf("%v, %v", done, err)
	}
}

// The WAL that a killed process left goes into the file.
func TestMendingAClosedStoreEmptiesItsWAL(t *testing.T) {
	path := t.TempDir() + "/kanban.db"
	c := startChild(t, "hold a board", path)
	c.expect("ready")
	c.kill()
	if st, err := os.Stat(path + "-wal"); err != nil || st.Size() == 0 {
		t.Fatalf("there is no WAL: %v", err)
	}
	if _, err := store.MendFile(context.Background(), path, store.Repair{}, store.Options{}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path + "-wal"); err == nil && st.Size() > 0 {
		t.Errorf("the WAL has %d bytes", st.Size())
	}
	if got := storetest.Query(t, path, "SELECT title FROM tasks"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("tasks are %v", got)
	}
}

func init() {
	children["hold a board"] = func(args []string) error {
		b, err := store.OpenBoard(context.Background(), args[0], "default", store.Options{})
		if err != nil {
			return err
		}
		if _, _, err := b.CreateTask(context.Background(), store.NewTask{Title: "kept"}); err != nil {
			return err
		}
		fmt.Println("ready")
		select {}
	}
}
