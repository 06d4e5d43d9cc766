package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func init() {
	children["hold the file open"] = holdFile
	children["write one row"] = writeRow
}

// holdFile opens a file as any program might, and keeps it open until its stdin ends.
func holdFile(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Println("held")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	return nil
}

func openState(t *testing.T, path string) *store.State {
	t.Helper()
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try accepts a message and returns what the store says.
func try(s *store.State, message string) error {
	_, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: message, Text: "hello " + message})
	return err
}

// captured returns the folders with captured WALs beside a database.
func captured(t *testing.T, path string) []string {
	t.Helper()
	dirs, err := filepath.Glob(path + ".retired-wal-*")
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// checkManifest compares a capture with its manifest.
func checkManifest(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	type file struct {
		Bytes    int64
		File     string
		SHA256   string
		Identity []uint64
	}
	var m struct {
		Version  int
		Trigger  string
		PID      int
		Database string
		Main     struct {
			file
			Mode string
		}
		WAL, SHM file
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.Version != 1 || m.Trigger != "halt" || m.PID == 0 || m.Main.Mode != "copied" {
		t.Errorf("manifest is %+v", m)
	}
	for _, f := range []file{m.Main.file, m.WAL, m.SHM} {
		data, err := os.ReadFile(filepath.Join(dir, f.File))
		sum := sha256.Sum256(data)
		if err != nil || int64(len(data)) != f.Bytes || hex.EncodeToString(sum[:]) != f.SHA256 || len(f.Identity) != 2 {
			t.Errorf("%s: %d bytes, manifest %+v, %v", f.File, len(data), f, err)
		}
	}
	if m.WAL.Bytes == 0 {
		t.Error("the captured WAL is empty")
	}
}

// The WAL is deleted under a running store, and nobody else has the files open: what it holds is captured, put into the
// file, and writing goes on.
func TestADeletedWALIsCapturedAndHealed(t *testing.T) {
	for _, suffix := range []string{"-wal", "-shm"} {
		t.Run(suffix, func(t *testing.T) {
			path := t.TempDir() + "/state.db"
			s := openState(t, path)
			for i := range 20 {
				accept(t, s, fmt.Sprint("before", i))
			}
			if err := os.Remove(path + suffix); err != nil {
				t.Fatal(err)
			}
			if err := try(s, "during"); err != nil && !errors.Is(err, store.ErrSuspended) {
				t.Errorf("a write into a retired WAL: %v", err)
			}
			eventually(t, "writes after the loss", func() bool { return try(s, "after") == nil })
			if h := s.Health(); h.State != "ok" {
				t.Errorf("health is %+v", h)
			}
			dirs := captured(t, path)
			if len(dirs) != 1 {
				t.Fatalf("captured %v", dirs)
			}
			checkManifest(t, dirs[0])
			if list, err := s.Open(context.Background()); err != nil || len(list) < 21 {
				t.Errorf("%d turns, %v", len(list), err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			storetest.Integrity(t, path)
			if got := storetest.Query(t, path, "SELECT count(*) FROM hs_inbox WHERE message_id <> 'during'"); got[0] != "21" {
				t.Errorf("%s messages", got[0])
			}
		})
	}
}

// While another process has the file open it may have a WAL of its own in mind, so nothing goes on until it has ended.
func TestARetiredWALIsNotHealedUnderAnotherProcess(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := openState(t, path)
	accept(t, s, "1")
	c := startChild(t, "hold the file open", path)
	c.expect("held")
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	holder := fmt.Sprintf("pid %d (", c.cmd.Process.Pid)
	eventually(t, "the name of the holder", func() bool { return strings.Contains(s.Health().Detail, holder) })
	h := s.Health()
	if err := try(s, "2"); !errors.Is(err, store.ErrSuspended) || h.State != "failed" || h.Condition != store.CondWALRetired || h.Advice == "" {
		t.Errorf("%v; health is %+v", err, h)
	}
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes after the holder's end", func() bool { return try(s, "2") == nil })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	storetest.Integrity(t, path)
}

// Another WAL is at the path: what we wrote since cannot be put into the file. The store stays down, and everything that
// was acknowledged is in the copy.
func TestAReplacedWALIsNeverMerged(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := openState(t, path)
	for i := range 10 {
		accept(t, s, fmt.Sprint(i))
	}
	if err := replace(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the final refusal", func() bool { return errors.Is(try(s, "late"), store.ErrFailed) })
	if h := s.Health(); h.Condition != store.CondWALRetired || !strings.Contains(h.Detail, "begun a WAL of its own") {
		t.Errorf("health is %+v", h)
	}
	if err := s.Close(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("close says %v", err)
	}
	dirs := captured(t, path)
	if len(dirs) != 1 {
		t.Fatalf("captured %v", dirs)
	}
	copied := filepath.Join(dirs[0], "state.db")
	if got := storetest.Query(t, copied, "SELECT count(*) FROM hs_inbox WHERE message_id <> 'late'"); got[0] != "10" {
		t.Errorf("%s messages are in the copy", got[0])
	}
	storetest.Integrity(t, copied)
}

// A restored file was put in the place of an open one. The next start must read it as it is, without the WAL of the old
// one, whose content is kept aside.
func TestARestoredFileIsNotMixedWithTheOldWAL(t *testing.T) {
	dir := t.TempDir()
	path, other := dir+"/state.db", dir+"/other.db"
	o := openState(t, other)
	accept(t, o, "restored")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	s := openState(t, path)
	for i := range 10 {
		accept(t, s, fmt.Sprint(i))
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if err := try(s, "late"); !errors.Is(err, store.ErrFailed) {
		t.Errorf("a write into a replaced file: %v", err)
	}
	if h := s.Health(); h.Condition != store.CondReplaced || !strings.Contains(h.Advice, "restart") {
		t.Errorf("health is %+v", h)
	}
	if err := s.Close(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("close says %v", err)
	}
	s = openState(t, path)
	if list, err := s.Open(context.Background()); err != nil || len(list) != 1 || list[0].MessageID != "restored" {
		t.Errorf("turns are %+v, %v", list, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	storetest.Integrity(t, path)
	kept := captured(t, path)
	if len(kept) != 1 {
		t.Fatalf("captured %v", kept)
	}
	if got := storetest.Query(t, filepath.Join(kept[0], "state.db"), "SELECT count(*) FROM hs_inbox WHERE message_id <> 'late'"); got[0] != "10" {
		t.Errorf("%s messages are in the copy", got[0])
	}
}

// cp over an open file keeps its inode, so only its header tells.
func TestAFileCopiedOverAnOpenOneIsNoticed(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/state.db"
	s := openState(t, path)
	accept(t, s, "1")
	other, err := os.ReadFile(storetest.Fixture(t, "state-schema-v8.db"))
	if err != nil {
		t.Fatal(err)
	}
	other[68] ^= 0x55 // the application's id
	if err := os.WriteFile(path, other, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss", func() bool { return s.Health().Condition == store.CondReplaced })
	if err := s.Close(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("close says %v", err)
	}
}

// writeRow writes to the file as a program would that knows nothing of an owner.
func writeRow(args []string) error {
	if _, err := storetest.Exec(args[0], "INSERT INTO state_meta(key, value) VALUES('foreign', '1')"); err != nil {
		return err
	}
	return holdFile(args)
}

func TestAForeignWriterIsNamed(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "1")
	eventually(t, "a first look", func() bool { return s.Progress() > 3 })
	c := startChild(t, "write one row", path)
	c.expect("held")
	want := fmt.Sprintf("pid %d (", c.cmd.Process.Pid)
	eventually(t, "the foreign writer's name", func() bool {
		h := s.Health()
		return h.Condition == store.CondForeign && strings.Contains(h.Detail, want) && h.State == "degraded"
	})
	accept(t, s, "2")
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
}
