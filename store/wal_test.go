package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() { children["hold a read"] = holdRead }

// holdRead keeps a snapshot of a database open until its standard input ends.
func holdRead(args []string) error {
	db, err := sql.Open("sqlite3", "file:"+args[0]+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query("SELECT name FROM sqlite_schema")
	if err != nil || !rows.Next() {
		return fmt.Errorf("no row: %w", err)
	}
	defer rows.Close()
	fmt.Println("held")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	return nil
}

// put100 writes about 100 frames into the WAL.
func put100(t *testing.T, s *store.State, times int) {
	t.Helper()
	for range times {
		if err := s.Request(context.Background(), func(exec execFunc) error {
			return exec("INSERT INTO state_meta(key, value) VALUES('big', hex(randomblob(200000))) ON CONFLICT(key) DO UPDATE SET value = excluded.value")
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// smallWAL makes a WAL of a few hundred frames a long one. It is called before the store is opened.
func smallWAL(t *testing.T) {
	t.Helper()
	t.Cleanup(store.SetWALFrames(100, 500, 2000))
}

func frames(t *testing.T, s *store.State) int64 {
	t.Helper()
	n, err := s.Frames()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A read that does not end keeps the WAL from starting again. It is ended, and reads after it work.
func TestALongReadDoesNotLetTheWALGrow(t *testing.T) {
	smallWAL(t)
	s := storetest.State(t, store.Options{})
	reading := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- s.Read(context.Background(), func(ctx context.Context, count func(string) (int, error)) error {
			if _, err := count("SELECT count(*) FROM messages"); err != nil {
				return err
			}
			close(reading)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-reading
	put100(t, s, 16)
	if n := frames(t, s); n < 1000 {
		t.Fatalf("%d frames: the reader holds nothing", n)
	}
	if err := <-ended; err == nil {
		t.Error("the long read ended well")
	}
	eventually(t, "a WAL that starts again", func() bool {
		put100(t, s, 1)
		return frames(t, s) < 500
	})
	if _, err := s.Sessions(context.Background(), "", 0); err != nil {
		t.Error("a read afterwards: ", err)
	}
}

// With readers that overlap there is never a moment without one, unless they are held back.
func TestOverlappingReadsDoNotLetTheWALGrow(t *testing.T) {
	smallWAL(t)
	s := storetest.State(t, store.Options{Readers: 3})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Read(context.Background(), func(_ context.Context, count func(string) (int, error)) error {
					_, err := count("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT count(*) FROM n, sessions")
					return err
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	longest := int64(0)
	for range 60 {
		put100(t, s, 1)
		longest = max(longest, frames(t, s))
	}
	close(stop)
	wg.Wait()
	if longest > 4000 { // of 6000 written
		t.Errorf("the WAL grew to %d frames", longest)
	}
}

// A reader of another program cannot be ended, only told of. The WAL is small again soon after it has gone.
func TestAForeignReaderThatHoldsTheWALIsToldOf(t *testing.T) {
	smallWAL(t)
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "1")
	reader := startChild(t, "hold a read", path)
	reader.expect("held")
	put100(t, s, 40)
	if h := s.Health(); h.State != "degraded" || !strings.Contains(h.Detail, "a reader holds it") {
		t.Errorf("health is %+v", h)
	}
	if _, err := s.Sessions(context.Background(), "", 0); err != nil {
		t.Error("a read meanwhile: ", err)
	}
	if err := reader.wait(); err != nil {
		t.Fatal(err, reader.errs.String())
	}
	eventually(t, "a small WAL", func() bool {
		put100(t, s, 1)
		return frames(t, s) < 500 && s.Health().State == "ok"
	})
}
