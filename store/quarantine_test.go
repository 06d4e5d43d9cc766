package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func TestWhatIsNoDatabaseIsMovedAside(t *testing.T) {
	for name, c := range map[string]struct {
		content, wal []byte
		kind         string
	}{
		"an empty file":              {nil, nil, "zeroed"},
		"an empty file with a WAL":   {nil, []byte("all that is left"), "zeroed"},
		"zeros":                      {make([]byte, 8192), nil, "zeroed"},
		"another kind of file":       {[]byte("Dear diary, this is no database."), nil, "notadb"},
		"a damaged header":           {bytes.Repeat([]byte("SQLite format 4\x00"), 300), []byte("wal"), "notadb"},
		"less than a header of ours": {[]byte("SQLite"), nil, "notadb"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path, c.content, 0o644); err != nil {
				t.Fatal(err)
			}
			if c.wal != nil {
				if err := os.WriteFile(path+"-wal", c.wal, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s := storetest.StateAt(t, path, store.Options{})
			accept(t, s, "1")
			h := s.Health()
			if h.State != "degraded" || h.Condition != store.CondQuarantined || !strings.Contains(h.Advice, "sessions recover") {
				t.Errorf("health is %+v", h)
			}
			moved, err := filepath.Glob(path + ".*.bak")
			if err != nil || len(moved) != 1 || !regexp.MustCompile(`state\.db\.`+c.kind+`-\d{8}-\d{6}-\d+\.bak$`).MatchString(moved[0]) {
				t.Fatalf("moved to %v, %v", moved, err)
			}
			if got, err := os.ReadFile(moved[0]); err != nil || !bytes.Equal(got, c.content) {
				t.Errorf("what was moved has %d bytes, %v", len(got), err)
			}
			if got, err := os.ReadFile(moved[0] + "-wal"); c.wal != nil && (err != nil || !bytes.Equal(got, c.wal)) {
				t.Errorf("the WAL that was moved has %d bytes, %v", len(got), err)
			}
			if exists := func(p string) bool { _, err := os.Stat(p); return err == nil }; exists(path + ".quarantine.lock") {
				t.Error("the lock is left")
			}
		})
	}
}

func TestWhatAnotherProcessHoldsIsNotMovedAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, []byte("not a database, but somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "hold the file open", path)
	c.expect("held")
	s := openState(t, path)
	if err := try(s, "1"); !errors.Is(err, store.ErrFailed) || !strings.Contains(err.Error(), fmt.Sprintf("PID %d (", c.cmd.Process.Pid)) {
		t.Errorf("a write: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "not a database, but somebody's" {
		t.Errorf("the file is %q, %v", got, err)
	}
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
}

func TestLeftoversOfAKilledProcessAreRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	gone := path + ".retired-wal-20261201-120000-4194303.partial"
	mine := fmt.Sprintf("%s.retired-wal-20261201-120000-%d.partial", path, os.Getppid()) // another process, which lives
	part := path + store.SnapshotSuffix + ".part"
	for _, dir := range []string{gone, mine} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(part, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	storetest.StateAt(t, path, store.Options{})
	for name, there := range map[string]bool{gone: false, part: false, mine: true} {
		if _, err := os.Stat(name); (err == nil) != there {
			t.Errorf("%s: there is %v wanted, %v", filepath.Base(name), there, err)
		}
	}
}

const nfs = 0x6969

// On a network file system there is a rollback journal: readers and the writer wait for each other, and nothing is lost.
func TestARemoteFileSystemGetsARollbackJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := storetest.StateAt(t, path, store.Options{}) // in WAL mode, as it was before the home moved
	accept(t, s, "0")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	restore := store.PretendFileSystem(nfs, false)
	defer restore()
	s = openState(t, path)
	if h := s.Health(); h.State != "degraded" || h.Condition != store.CondNoWAL || !strings.Contains(h.Detail, "NFS") {
		t.Errorf("health is %+v", h)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20 {
				if err := try(s, fmt.Sprint(g, "-", i)); err != nil {
					t.Error(err)
				}
				if _, err := s.Open(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("there is a WAL")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := storetest.Query(t, path, "PRAGMA journal_mode"); got[0] != "delete" {
		t.Errorf("the journal mode is %s", got[0])
	}
	storetest.Integrity(t, path)
	restore()
	s = storetest.StateAt(t, path, store.Options{})
	if list, err := s.Open(context.Background()); err != nil || len(list) != 81 {
		t.Errorf("%d turns, %v", len(list), err)
	}
	if h := s.Health(); h.State != "ok" {
		t.Errorf("health is %+v", h)
	}
}

// A person may choose a rollback journal where a WAL is safe. The choice holds at every start, and is no fault.
func TestAChosenRollbackJournalStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "0")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mode := func() string { return storetest.Query(t, path, "PRAGMA journal_mode")[0] }
	for i := range 2 {
		s = openStateWith(t, path, store.Options{Rollback: true})
		accept(t, s, fmt.Sprint("a", i))
		if h := s.Health(); h.State != "ok" || mode() != "delete" {
			t.Errorf("health is %+v, the mode %s", h, mode())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if mode() != "delete" {
		t.Errorf("the mode is %s in the end", mode())
	}
	// Another program that has the file open in WAL mode keeps it so: that is told, and the store works.
	if _, err := storetest.Exec(path, "PRAGMA journal_mode = WAL"); err != nil {
		t.Fatal(err)
	}
	reader := startChild(t, "hold a read", path)
	reader.expect("held")
	var log bytes.Buffer
	s = openStateWith(t, path, store.Options{Rollback: true, Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	accept(t, s, "b")
	if mode() != "wal" {
		t.Errorf("the mode is %s under another program", mode())
	}
	if err := errors.Join(s.Close(), reader.wait()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "is not the one that is wanted") {
		t.Errorf("the log has %s", log.String())
	}
}
