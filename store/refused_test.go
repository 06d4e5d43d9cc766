package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// remount makes a file system read-only or writable.
func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

func TestAReadOnlyFileSystemServesReadsUntilItIsWritable(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		before func(t *testing.T, path string)
		reads  func(s *store.State) error
	}{
		"a store of ours": {
			func(t *testing.T, path string) {
				s := openState(t, path)
				accept(t, s, "before")
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			},
			func(s *store.State) error { return openTurns(s, 1) },
		},
		"one whose last user was killed": {
			func(t *testing.T, path string) {
				killedWriter(t, path)
			},
			func(s *store.State) error { return openTurns(s, 1) },
		},
		"the same without the index of its WAL": {
			func(t *testing.T, path string) {
				killedWriter(t, path)
				if err := os.Remove(path + "-shm"); err != nil {
					t.Fatal(err)
				}
			},
			func(s *store.State) error { return openTurns(s, 1) },
		},
		"one of another program": {
			func(t *testing.T, path string) { copyFile(t, storetest.Fixture(t, "state-schema-v8.db"), path) },
			func(s *store.State) error {
				list, err := s.Sessions(ctx, "", 0)
				if err == nil && len(list) == 0 {
					err = errors.New("no sessions are found")
				}
				return errors.Join(err, openTurns(s, 0))
			},
		},
		"none": {func(*testing.T, string) {}, func(s *store.State) error { return openTurns(s, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, 16)
			path := filepath.Join(dir, "state.db")
			c.before(t, path)
			remount(t, dir, unix.MS_RDONLY)
			s := storetest.StateAt(t, path, store.Options{})
			if h := s.Health(); h.State != "readonly" || h.Condition != store.CondReadOnly || !strings.Contains(h.Detail, dir) {
				t.Errorf("health is %+v", h)
			}
			if err := c.reads(s); err != nil {
				t.Errorf("reads: %v", err)
			}
			if err := try(s, "refused"); !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("a write: %v", err)
			}
			if err := s.Vacuum(ctx); !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("a vacuum: %v", err)
			}
			remount(t, dir, 0)
			eventually(t, "writes", func() bool { return try(s, "after") == nil })
			if h := s.Health(); h.Condition == store.CondReadOnly {
				t.Errorf("health is %+v", h)
			}
			if _, err := s.Search(ctx, store.Search{Text: "after"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func openTurns(s *store.State, want int) error {
	list, err := s.Open(context.Background())
	if err == nil && len(list) != want {
		err = fmt.Errorf("%d turns are open", len(list))
	}
	return err
}

func init() { children["accept one message"] = acceptOne }

func acceptOne(args []string) error {
	s, err := store.OpenState(context.Background(), args[0], store.Options{})
	if err != nil {
		return err
	}
	if err := try(s, "before"); err != nil {
		return err
	}
	fmt.Println("accepted")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	return nil
}

// killedWriter leaves a store whose message is in its WAL alone.
func killedWriter(t *testing.T, path string) {
	t.Helper()
	c := startChild(t, "accept one message", path)
	c.expect("accepted")
	c.kill()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file with damaged pages is read around them, and nothing is written into it until there is another one.
func TestADamagedFileServesReadsUntilItIsReplaced(t *testing.T) {
	ctx := context.Background()
	sound := manyRows(t, 2000)
	path := filepath.Join(t.TempDir(), "state.db")
	b, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[pageOf(b, "message 1500 "):][:4096])
	// The WAL says that the last user was killed, so that the file is looked at.
	if err := errors.Join(os.WriteFile(path, b, 0o600), os.WriteFile(path+"-wal", []byte("of the damaged file"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s := storetest.StateAt(t, path, store.Options{})
	if h := s.Health(); h.State != "failed" || h.Condition != store.CondDamage || !strings.Contains(h.Advice, "sessions recover") {
		t.Errorf("health is %+v", h)
	}
	if list, err := s.Sessions(ctx, "", 0); err != nil || len(list) != 1 {
		t.Errorf("sessions are %v, %v", list, err)
	}
	if err := try(s, "refused"); !errors.Is(err, store.ErrFailed) {
		t.Errorf("a write: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(b) {
		t.Errorf("the damaged file was changed: %v", err)
	}
	copyFile(t, sound, path+".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes, as there is a sound file", func() bool { return try(s, "after") == nil })
	if h := s.Health(); h.State != "ok" {
		t.Errorf("health is %+v", h)
	}
	if list, err := s.Sessions(ctx, "", 0); err != nil || len(list) != 2 {
		t.Errorf("sessions are %v, %v", list, err)
	}
	if aside, _ := filepath.Glob(path + ".damaged-*-wal"); len(aside) != 1 {
		t.Errorf("the WAL of the damaged file was moved to %v", aside)
	}
}

func TestAFullDiskAtTheStartServesReadsUntilThereIsRoom(t *testing.T) {
	dir := smallDisk(t, 8)
	path, ballast := filepath.Join(dir, "state.db"), filepath.Join(dir, "ballast")
	killedWriter(t, path)
	if err := os.Remove(path + "-shm"); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(ballast, make([]byte, 16<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	s := storetest.StateAt(t, path, store.Options{})
	if h := s.Health(); h.Condition != store.CondFull {
		t.Errorf("health is %+v", h)
	}
	if err := openTurns(s, 1); err != nil {
		t.Error(err)
	}
	if err := try(s, "refused"); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("a write: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes", func() bool { return try(s, "after") == nil })
}

func TestAFullDiskAtTheFirstStartLeavesNoEmptyFile(t *testing.T) {
	dir := smallDisk(t, 2)
	path, ballast := filepath.Join(dir, "state.db"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	s := storetest.StateAt(t, path, store.Options{})
	if h := s.Health(); h.Condition != store.CondFull {
		t.Errorf("health is %+v", h)
	}
	if err := openTurns(s, 0); err != nil {
		t.Error(err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes", func() bool { return try(s, "after") == nil })
	if moved, _ := filepath.Glob(path + ".*.bak"); len(moved) > 0 {
		t.Errorf("an empty file was left and moved aside: %v", moved)
	}
}

// A store that is closed while it waits to be writable ends at once.
func TestARefusedStoreCloses(t *testing.T) {
	dir := smallDisk(t, 8)
	remount(t, dir, unix.MS_RDONLY)
	before := storetest.Descriptors(t)
	for _, wait := range []bool{false, true} {
		s := openState(t, filepath.Join(dir, "state.db"))
		if wait {
			beats := s.Progress()
			eventually(t, "beats", func() bool { return s.Progress() > beats+1 })
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := storetest.Descriptors(t); n != before {
		t.Errorf("%d descriptors are open, %d were", n, before)
	}
}

func TestTheJournalIsKeptInMemoryWhileItCannotBeWritten(t *testing.T) {
	dir := smallDisk(t, 8)
	path := filepath.Join(dir, "supervisor.db")
	j := journal(t, path)
	first := note(t, j, store.Event{Kind: "before", Worker: "agent-1"})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	remount(t, dir, unix.MS_RDONLY)
	j = journal(t, path)
	for i, kind := range []string{"one", "two", "three"} {
		if id := note(t, j, store.Event{Kind: kind, Worker: "agent-1"}); id != first+int64(i)+1 {
			t.Errorf("%s has the number %d", kind, id)
		}
	}
	kinds := func(f store.EventFilter) string {
		list, err := j.Events(context.Background(), f)
		if err != nil {
			t.Error(err)
		}
		var names []string
		for _, e := range list {
			names = append(names, e.Kind)
		}
		return strings.Join(names, " ")
	}
	check := func() {
		t.Helper()
		for want, f := range map[string]store.EventFilter{
			"before one two three": {}, "two three": {Limit: 2}, "one two": {AfterID: first, Limit: 2}, "": {Worker: "agent-2"},
			"before two": {Kinds: []string{"before", "two"}}, "one": {BeforeID: first + 2, Limit: 1},
		} {
			if got := kinds(f); got != want {
				t.Errorf("%+v: %s, not %s", f, got, want)
			}
		}
	}
	check()
	remount(t, dir, 0)
	eventually(t, "the file is written", func() bool { return j.Health().State == "ok" || j.Health().Condition == store.CondSpace })
	note(t, j, store.Event{Kind: "after", Worker: "agent-2"})
	if got := storetest.Query(t, path, "SELECT id, kind FROM events ORDER BY id"); strings.Join(got, " ") != "1|before 2|one 3|two 4|three 5|after" {
		t.Errorf("the file has %v", got)
	}
}

func TestAReadOnlyHomeHasOneOwner(t *testing.T) {
	dir := smallDisk(t, 1)
	remount(t, dir, unix.MS_RDONLY)
	lock, err := store.LockHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	remount(t, dir, 0) // while it is owned
	if _, err := store.LockHome(dir); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second owner: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if lock, err = store.LockHome(dir); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}
