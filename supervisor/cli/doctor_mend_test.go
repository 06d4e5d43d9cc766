package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// A home in rest: doctor says what is wrong with a store, mends it under the lock of the home, and finds it sound.
func TestDoctorMendsAStoreInRest(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, "state.db")
	if err := os.Rename(storetest.Fixture(t, "hermes-home-2026-07/state.db"), path); err != nil {
		t.Fatal(err)
	}
	s, err := store.OpenState(context.Background(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Exec(path, "DROP INDEX idx_messages_session; UPDATE messages_fts_data SET block = zeroblob(20) WHERE id > 10"); err != nil {
		t.Fatal(err)
	}
	doctor := func(args ...string) string {
		var out, errs bytes.Buffer
		execute(context.Background(), append([]string{"--home", home, "--run-dir", t.TempDir(), "doctor"}, args...), streams{in: strings.NewReader(""), out: &out, err: &errs})
		return out.String() + errs.String()
	}
	for _, step := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"warn  store state.db: the search index is damaged", "hermes-supervisor doctor --fix"}},
		{[]string{"--fix", "--dry-run"}, []string{"would be mended: state.db: index idx_messages_session is made", "would be mended: state.db: the search index is built again"}},
		{[]string{"--fix"}, []string{"(mended)", "index idx_messages_session was made", "the search index was built again", "state.db is sound now"}},
		{nil, []string{"ok    store state.db: "}},
	} {
		got := doctor(step.args...)
		for _, want := range step.want {
			if !strings.Contains(got, want) {
				t.Errorf("doctor %v lacks %q:\n%s", step.args, want, got)
			}
		}
	}
	storetest.Integrity(t, path)
	if got := storetest.Query(t, path, "SELECT count(*) FROM messages"); got[0] != "832" {
		t.Errorf("%s messages are left", got[0])
	}
}

func TestAHomeOfAnotherUserIsNotJudged(t *testing.T) {
	home, own := t.TempDir(), os.Geteuid()
	for _, tt := range []struct {
		home   string
		uid    int
		denied bool
	}{{home, own, false}, {home, own + 1, true}, {home, 0, false}, {filepath.Join(home, "none"), own + 1, false}} {
		if err := foreignHome(tt.home, tt.uid); errors.Is(err, ipc.ErrDenied) != tt.denied {
			t.Errorf("%s for %d: %v", tt.home, tt.uid, err)
		}
	}
}
