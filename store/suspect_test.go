package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// The file was closed in order, so nobody looks for damage when it is opened. The read that meets it ends all writing, until
// a person has put a sound file in its place.
func TestDamageThatAReadMeetsEndsWriting(t *testing.T) {
	ctx := context.Background()
	sound := manyRows(t, 3000)
	path := filepath.Join(t.TempDir(), "state.db")
	b, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[pageOf(b, "message 1500 "):][:4096])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := storetest.StateAt(t, path, store.Options{})
	accept(t, s, "before")
	if _, err := s.Conversation(ctx, "s"); !errors.Is(err, store.ErrFailed) {
		t.Fatalf("the conversation was read: %v", err)
	}
	eventually(t, "the damage has its name", func() bool { return s.Health().Condition == store.CondDamage })
	if err := try(s, "refused"); !errors.Is(err, store.ErrFailed) {
		t.Errorf("a write: %v", err)
	}
	if err := openTurns(s, 1); err != nil {
		t.Error(err)
	}
	copyFile(t, sound, path+".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes, as there is a sound file", func() bool { return try(s, "after") == nil })
	if list, err := s.Conversation(ctx, "s"); err != nil || len(list) != 3000 {
		t.Errorf("%d messages, %v", len(list), err)
	}
	if h := s.Health(); h.State != "ok" {
		t.Errorf("health is %+v", h)
	}
}

// A badDisk cannot be read from a byte on.
type badDisk struct{ size, bad int64 }

func (d badDisk) ReadAt(b []byte, at int64) (int, error) {
	switch n := min(int64(len(b)), d.size-at); {
	case at+n > d.bad:
		return 0, syscall.EIO
	case n < int64(len(b)):
		return int(max(n, 0)), io.EOF
	}
	return len(b), nil
}

// SQLite calls a sector that cannot be read damage. The disk itself says which it is.
func TestALookThroughAFileSaysWhereTheDiskFails(t *testing.T) {
	for _, c := range []struct {
		disk badDisk
		want string
	}{
		{badDisk{size: 5<<20 + 1, bad: 9 << 20}, ""},
		{badDisk{size: 5 << 20, bad: 3<<20 + 17}, "input/output error, in the MiB from byte 3145728 on"},
	} {
		if got := store.ReadThrough(t.Context(), c.disk); got != c.want {
			t.Errorf("%+v: %q, want %q", c.disk, got, c.want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got := store.ReadThrough(ended, badDisk{size: 1}); got != "" {
		t.Errorf("a look that was ended says %q", got)
	}
}

// Damage of the full-text index alone is found by a search, which finds everything nevertheless, and costs no write.
func TestAnIndexThatASearchFindsDamagedIsBuiltAgain(t *testing.T) {
	ctx := context.Background()
	path := manyRows(t, 3000)
	if _, err := storetest.Exec(path, "UPDATE messages_fts_data SET block = zeroblob(length(block)) WHERE id > 10"); err != nil {
		t.Fatal(err)
	}
	s := storetest.StateAt(t, path, store.Options{})
	find := func() (int, bool) {
		found, err := s.Search(ctx, store.Search{Text: `"message 1500"`})
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Hits), found.Index.Stale
	}
	if n, _ := find(); n != 1 {
		t.Errorf("%d hits in a damaged index", n)
	}
	written := 0
	eventually(t, "the index is given up", func() bool {
		accept(t, s, fmt.Sprint(written))
		written++
		return s.Health().Condition == store.CondIndex
	})
	eventually(t, "the index is whole again", func() bool { return s.Health().State == "ok" })
	if n, stale := find(); n != 1 || stale {
		t.Errorf("%d hits in the new index, stale %v", n, stale)
	}
}
