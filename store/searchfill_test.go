package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() {
	children["fill"] = func(args []string) error {
		s, err := store.OpenState(context.Background(), args[0], store.Options{})
		if err != nil {
			return err
		}
		fmt.Println("open")
		for i := 0; ; i++ {
			a, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "fill", MessageID: fmt.Sprint(time.Now().UnixNano()), Text: fmt.Sprint("written ", i)})
			if err != nil {
				return err
			}
			if _, err := s.Lease(context.Background(), a.TurnID, "agent-1"); err != nil {
				return err
			}
		}
	}
}

// manyMessages makes a closed file with n messages that are in no index.
func manyMessages(t testing.TB, n int) (path string) {
	t.Helper()
	path = t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "1", "first", "reply")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Exec(path, `DROP TRIGGER messages_fts_insert; DROP TRIGGER messages_fts_trigram_insert;
		INSERT INTO state_meta VALUES('fts_stale', '1');
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < `+fmt.Sprint(n)+`)
		INSERT INTO messages(session_id, role, content, timestamp) SELECT (SELECT id FROM sessions), 'user', 'zanzibar number' || i || ' 数据库', i FROM n`); err != nil {
		t.Fatal(err)
	}
	return path
}

// An index that is not whole is built again while others write and search, and goes on after kill -9.
func TestAnIndexIsBuiltInTheBackground(t *testing.T) {
	const n = 12_000
	path := manyMessages(t, n)
	for range 4 {
		c := startChild(t, "fill", path)
		c.expect("open")
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		c.kill()
	}
	s := storetest.StateAt(t, path, store.Options{})
	found := search(t, s, store.Search{Text: "number11999"})
	if len(found.Hits) != 1 || found.Partial {
		t.Errorf("found %+v while the index is built", found)
	}
	indexed(t, s)
	for query, want := range map[string]int{"number77": 1, "number11999": 1} {
		if got := search(t, s, store.Search{Text: query}); len(got.Hits) != want {
			t.Errorf("%q finds %d, not %d", query, len(got.Hits), want)
		}
	}
	if h := s.Health(); h.State != "ok" {
		t.Errorf("health is %+v", h)
	}
}

// A store that is closed in the middle of a build leaves marks by which the other program's triggers do the right thing.
func TestABuildThatIsCutShortIsLeftInOrder(t *testing.T) {
	path := manyMessages(t, 100)
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	indexed(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As after a close whose time was too short.
	for _, change := range []string{
		"DELETE FROM messages WHERE id > 50", "INSERT INTO state_meta VALUES('fts_rebuild_high_water', '1000'), ('fts_rebuild_progress', '50')",
		"INSERT INTO messages(session_id, role, content, timestamp) SELECT id, 'user', 'kilimanjaro', 0 FROM sessions",
		"INSERT INTO messages(id, session_id, role, content, timestamp) SELECT 1001, id, 'user', 'kilimanjaro', 0 FROM sessions",
		"UPDATE messages SET content = 'kilimanjaro' WHERE id = 20",
	} {
		if _, err := storetest.Exec(path, change); err != nil {
			t.Fatal(change, err)
		}
	}
	s = storetest.StateAt(t, path, store.Options{})
	indexed(t, s)
	if got := search(t, s, store.Search{Text: "kilimanjaro"}); len(got.Hits) != 3 {
		t.Errorf("finds %d, not 3", len(got.Hits))
	}
}

// While many write, messages wait for their index; a search finds each from its acknowledgement on, and the index is whole
// soon after the rush.
func TestWhatIsWrittenInARushIsFoundAtOnce(t *testing.T) {
	s, err := store.OpenState(context.Background(), t.TempDir()+"/state.db", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const writers, each = 16, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				word := fmt.Sprintf("rush%dx%d", w, i)
				say(t, s, fmt.Sprint("rush", w), word, "reply")
				if i%5 != 0 {
					continue
				}
				found, err := s.Search(context.Background(), store.Search{Text: word})
				if err != nil || len(found.Hits) != 1 {
					t.Errorf("%s, which is stored, is found %d times (%v)", word, len(found.Hits), err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "a whole index", func() bool {
		x, err := s.IndexState(context.Background())
		return err == nil && x.Indexed == x.Total
	})
}
