package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() {
	children["open and close"] = openAndClose
	children["hold a deleted WAL"] = holdDeletedWAL
}

// openAndClose is a short-lived other program: it writes a row and closes the database.
func openAndClose(args []string) error {
	_, err := storetest.Exec(args[0], "INSERT INTO state_meta(key, value) VALUES(hex(randomblob(8)), 'foreign')")
	return err
}

// oldSQLite is the same by Python's SQLite, which may be older than ours and guards its WAL less.
const oldSQLite = `
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
c.execute("INSERT INTO state_meta(key, value) VALUES(hex(randomblob(8)), 'foreign')")
c.close()
`

// others run another program once on the database at path.
func others(t *testing.T) map[string]func(path string) {
	list := map[string]func(path string){
		"same SQLite": func(path string) {
			if err := startChild(t, "open and close", path).wait(); err != nil {
				t.Fatal(err)
			}
		},
	}
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import sqlite3").Run() != nil {
		t.Log("no python3 with sqlite3 here: the older SQLite is left out")
		return list
	}
	list["older SQLite"] = func(path string) {
		if out, err := exec.Command(python, "-c", oldSQLite, path).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	return list
}

// Closing any descriptor of the files drops all POSIX locks of the process on them; without the guard another program
// then deletes the live WAL when it closes, and later writes are seen by nobody else.
func TestReadingTheFilesDoesNotLoseTheWAL(t *testing.T) {
	for name, other := range others(t) {
		for _, files := range [][]string{{""}, {"", "-wal", "-shm"}} {
			t.Run(fmt.Sprintf("%s, %d files read", name, len(files)), func(t *testing.T) {
				path := t.TempDir() + "/state.db"
				s := storetest.StateAt(t, path, store.Options{})
				accept(t, s, "1")
				for _, suffix := range files {
					if _, err := os.ReadFile(path + suffix); err != nil {
						t.Fatal(err)
					}
				}
				other(path)
				accept(t, s, "2")
				if got := storetest.Query(t, path, "SELECT count(*) FROM hs_inbox"); got[0] != "2" {
					t.Errorf("another program sees %s of 2 messages", got[0])
				}
				if h := s.Health(); h.State != "ok" && h.Condition != store.CondForeign { // the other program wrote
					t.Errorf("health is %+v", h)
				}
			})
		}
	}
}

func accept(t *testing.T, s *store.State, message string) store.Accepted {
	t.Helper()
	a, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: message, Text: "hello " + message})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAReplacedFileFailsTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		harm   func(path string) error
		detail string
	}{
		"database deleted": {os.Remove, "was replaced"},
		"database replaced": {func(p string) error {
			return replace(p)
		}, "was replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/state.db"
			s, err := store.OpenState(context.Background(), path, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			accept(t, s, "1")
			if err := c.harm(path); err != nil {
				t.Fatal(err)
			}
			for _, message := range []string{"2", "3"} {
				_, err = s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: message})
				if !errors.Is(err, store.ErrFailed) || !strings.Contains(err.Error(), c.detail) {
					t.Errorf("a write into a replaced file: %v", err)
				}
			}
			if h := s.Health(); h.State != "failed" || !strings.Contains(h.Detail, c.detail) {
				t.Errorf("health is %+v", h)
			}
			if _, err := s.Sessions(context.Background(), "", 0); err != nil {
				t.Error("reads go on: ", err)
			}
			if err := s.Close(); !errors.Is(err, store.ErrFailed) {
				t.Errorf("close says %v", err)
			}
		})
	}
}

// replace puts another file of the same content in the place of path.
func replace(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func TestAnIdleStoreNoticesItsLoss(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failure of an idle store", func() bool { return s.Health().State == "failed" })
}

// holdDeletedWAL opens a database, writes, deletes its WAL and keeps it open.
func holdDeletedWAL(args []string) error {
	s, err := store.OpenState(context.Background(), args[0], store.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := os.Remove(args[0] + "-wal"); err != nil {
		return err
	}
	fmt.Println("held")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	return nil
}

func TestNothingIsTouchedWhileAnotherHoldsARetiredWAL(t *testing.T) {
	path := t.TempDir() + "/state.db"
	holder := startChild(t, "hold a deleted WAL", path)
	holder.expect("held")
	before := ls(t, path)
	s := storetest.StateAt(t, path, store.Options{})
	if h := s.Health(); h.State != "failed" || h.Condition != store.CondWALRetired || !strings.Contains(h.Detail, fmt.Sprintf("pid %d (", holder.cmd.Process.Pid)) {
		t.Errorf("health is %+v", h)
	}
	if err := try(s, "1"); !errors.Is(err, store.ErrFailed) {
		t.Errorf("a write: %v", err)
	}
	if _, err := s.Open(context.Background()); !errors.Is(err, store.ErrFailed) {
		t.Errorf("a read, which would make a second WAL: %v", err)
	}
	if after := ls(t, path); !slices.Equal(before, after) {
		t.Errorf("the files are %v, before %v", after, before)
	}
	if err := holder.wait(); err != nil {
		t.Fatal(err, holder.errs.String())
	}
	eventually(t, "writes, as the process has gone", func() bool { return try(s, "1") == nil })
}
