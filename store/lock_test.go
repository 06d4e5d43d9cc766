package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() { children["hold the lock"] = holdLock }

// holdLock takes the write lock of a database and keeps it until its standard input ends.
func holdLock(args []string) error {
	db, err := sql.Open("sqlite3", "file:"+args[0]+"?_busy_timeout=5000")
	if err != nil {
		return err
	}
	defer db.Close()
	c, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	if _, err := c.ExecContext(context.Background(), "BEGIN IMMEDIATE; INSERT INTO state_meta(key, value) VALUES('foreign', hex(randomblob(8)))"); err != nil {
		return err
	}
	fmt.Println("held")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	_, err = c.ExecContext(context.Background(), "COMMIT")
	return err
}

// accepting starts an Accept that has to wait for a lock.
func accepting(ctx context.Context, s *store.State, id string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: id, Text: "hello"})
		done <- err
	}()
	return done
}

func TestAWriteWaitsForAForeignWriter(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	holder := startChild(t, "hold the lock", path)
	holder.expect("held")
	done := accepting(context.Background(), s, "1")

	named := fmt.Sprintf("pid %d (", holder.cmd.Process.Pid)
	eventually(t, "the holder's name in the health", func() bool {
		h := s.Health()
		return h.State == "degraded" && strings.Contains(h.Detail, named)
	})
	before := s.Progress()
	eventually(t, "progress of the waiting writer", func() bool { return s.Progress() > before })
	if _, err := s.Sessions(context.Background(), "", 0); err != nil {
		t.Error("a read while the lock is held: ", err)
	}
	waitFor(t, 3*time.Second, s)
	select {
	case err := <-done:
		t.Fatal("the write ended while the lock was held: ", err)
	default:
	}
	if err := holder.wait(); err != nil {
		t.Fatal(err, holder.errs.String())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if h := s.Health(); h.State != "ok" && h.Condition != store.CondForeign { // a beat may have seen what the other wrote
		t.Errorf("health afterwards is %+v", h)
	}
}

// waitFor lets the lock be held that long, as told by the store itself.
func waitFor(t *testing.T, d time.Duration, s *store.State) {
	t.Helper()
	want := fmt.Sprintf("for %.0f s", d.Seconds())
	eventually(t, "the time waited in the health", func() bool { return strings.HasSuffix(s.Health().Detail, want) })
}

// Who only reads waits for nobody, and changes nothing.
func TestAReadingStoreWaitsForNoForeignWriter(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	holder := startChild(t, "hold the lock", path)
	holder.expect("held")
	s = openStateWith(t, path, store.Options{Readers: 1, Reading: true})
	if err := openTurns(s, 1); err != nil {
		t.Error(err)
	}
	if found, err := s.Search(context.Background(), store.Search{Text: "hello"}); err != nil || len(found.Hits) != 0 {
		t.Errorf("%+v, %v", found, err) // the message is of a turn that was not begun
	}
	if err := try(s, "2"); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("a write: %v", err)
	}
	beats := s.Progress()
	eventually(t, "beats", func() bool { return s.Progress() > beats })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := holder.wait(); err != nil {
		t.Fatal(err, holder.errs.String())
	}
}

func TestAWaitingWriteEndsWithItsContext(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	holder := startChild(t, "hold the lock", path)
	holder.expect("held")
	ctx, cancel := context.WithCancel(context.Background())
	done := accepting(ctx, s, "1")
	eventually(t, "the lock in the health", func() bool { return s.Health().State == "degraded" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "holds the write lock") {
		t.Errorf("error is %v", err)
	}
	if err := holder.wait(); err != nil {
		t.Fatal(err)
	}
	a, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: "1", Text: "hello"})
	if err != nil || a.Duplicate {
		t.Errorf("after a cancelled accept: %+v, %v", a, err)
	}
}

func TestCloseDoesNotWaitLongForAForeignWriter(t *testing.T) {
	path := t.TempDir() + "/state.db"
	var log bytes.Buffer // written to by one goroutine, which has ended when it is read
	s := openStateWith(t, path, store.Options{Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	holder := startChild(t, "hold the lock", path)
	holder.expect("held")
	done := accepting(context.Background(), s, "1")
	eventually(t, "the lock in the health", func() bool { return s.Health().State == "degraded" })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, store.ErrBusy) {
		t.Errorf("the write that could not be made: %v", err)
	}
	if h := s.Health(); h.Refused != 1 {
		t.Errorf("%d writes are counted as given up", h.Refused)
	}
	if !strings.Contains(log.String(), "[WARN]  writes were given up") {
		t.Errorf("the log has %s", log.String())
	}
	if err := holder.wait(); err != nil {
		t.Error(err)
	}
	storetest.Integrity(t, path)
}

func TestLockLine(t *testing.T) {
	for _, c := range []struct {
		line string
		pid  int
		ok   bool
	}{
		{"1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120", 1234, true},
		{"1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", 1234, true},
		{"1: OFDLCK ADVISORY  WRITE -1 fe:00:5678 120 120", -1, true},
		{"1: POSIX  ADVISORY  READ 1234 fe:00:5678 120 120", 0, false},
		{"1: POSIX  ADVISORY  WRITE 1234 fe:00:5679 120 120", 0, false},
		{"1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 121 121", 0, false},
		{"1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 119", 0, false},
		{"1: -> POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120", 0, false},
		{"1: POSIX  ADVISORY  WRITE 1234 fe:00:x 120 120", 0, false},
		{"1: POSIX  ADVISORY  WRITE x fe:00:5678 120 120", 0, false},
		{"1: POSIX  ADVISORY  WRITE 1 fe:00:5678 a b", 0, false},
		{"", 0, false},
	} {
		pid, ok := store.LockLine(c.line, 5678, 120)
		if ok != c.ok || ok && pid != c.pid {
			t.Errorf("%q: %d, %v", c.line, pid, ok)
		}
	}
}

func FuzzLockLine(f *testing.F) {
	f.Add("1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120")
	f.Fuzz(func(t *testing.T, line string) { store.LockLine(line, 5678, 120) })
}

// An opening that has to wait says for whom, in either journal mode, and is not ended by it.
func TestAnOpeningSaysForWhomItWaits(t *testing.T) {
	for _, rollback := range []bool{false, true} {
		t.Run(fmt.Sprintf("rollback journal %v", rollback), func(t *testing.T) {
			path := t.TempDir() + "/state.db"
			if err := openStateWith(t, path, store.Options{Rollback: rollback}).Close(); err != nil {
				t.Fatal(err)
			}
			holder := startChild(t, "hold the lock", path)
			holder.expect("held")
			said := make(chan string, 1000)
			opened := make(chan error, 1)
			var log bytes.Buffer // written to by one goroutine, which has ended when it is read
			go func() {
				s, err := store.OpenState(context.Background(), path, store.Options{
					Rollback: rollback, Waiting: func(what string) { said <- what }, Log: hclog.New(&hclog.LoggerOptions{Output: &log}),
				})
				if err == nil {
					err = s.Close()
				}
				opened <- err
			}()
			want := fmt.Sprintf("pid %d (", holder.cmd.Process.Pid)
			if what := <-said; !strings.HasPrefix(what, want) || !strings.Contains(what, "holds the write lock of "+path) {
				t.Errorf("said %q, want %s…", what, want)
			}
			if err := holder.wait(); err != nil {
				t.Fatal(err, holder.errs.String())
			}
			if err := <-opened; err != nil {
				t.Fatal(err)
			}
			close(said)
			last := "nothing"
			for what := range said {
				last = what
			}
			if last != "" {
				t.Errorf("in the end it says %q", last)
			}
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has %s", log.String())
			}
		})
	}
}
