package maintenance_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/maintenance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// one is a home with a state.db that is open.
type one struct{ *store.State }

func (o one) Names() ([]string, error) { return []string{"state.db"}, nil }

func (o one) Copy(ctx context.Context, _, to string) error { return o.CopyTo(ctx, to) }

func (o one) Mend(ctx context.Context, _ string, r store.Repair) ([]string, error) {
	return o.State.Mend(ctx, r)
}

func (o one) Convert(ctx context.Context, tell func(int)) (bool, error) {
	return o.ConvertIfLegacy(ctx, tell)
}

func open(t *testing.T) (*maintenance.Service, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.Rename(storetest.Fixture(t, "hermes-home-2026-07/state.db"), path); err != nil {
		t.Fatal(err)
	}
	return maintenance.New(filepath.Dir(path), one{storetest.StateAt(t, path, store.Options{})}), path
}

func TestAStoreIsMendedWhileItIsOpen(t *testing.T) {
	s, path := open(t)
	if _, err := storetest.Exec(path, "DROP INDEX idx_sessions_source"); err != nil {
		t.Fatal(err)
	}
	check, err := s.Check(t.Context(), &controlv1.CheckStoresRequest{})
	if err != nil || len(check.Stores) != 1 || !slices.Equal(check.Stores[0].MissingIndices, []string{"idx_sessions_source"}) {
		t.Fatalf("%v, %v", check, err)
	}
	done, err := s.Mend(t.Context(), &controlv1.MendStoreRequest{Store: "state.db"})
	if err != nil || !slices.Equal(done.Done, []string{"index idx_sessions_source was made"}) {
		t.Errorf("%v, %v", done, err)
	}
	if done, err = s.Mend(t.Context(), &controlv1.MendStoreRequest{Store: "state.db"}); err != nil || len(done.Done) != 0 {
		t.Errorf("a second time: %v, %v", done, err)
	}
	if _, err := s.Mend(t.Context(), &controlv1.MendStoreRequest{Store: "../x"}); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("another file: %v", err)
	}
}

func TestACopyIsMadeOfOpenStoresAlone(t *testing.T) {
	s, path := open(t)
	to := filepath.Join(t.TempDir(), "copy.db")
	r, err := s.Copy(t.Context(), &controlv1.CopyStoreRequest{Store: "state.db", Path: to})
	if err != nil || r.Bytes == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	storetest.Integrity(t, to)
	for _, c := range []struct {
		store, path string
		want        error
	}{{"state.db", to, ipc.ErrExists}, {"state.db", "relative.db", ipc.ErrInvalid}, {"other.db", path + ".copy", ipc.ErrNotFound}} {
		if _, err := s.Copy(t.Context(), &controlv1.CopyStoreRequest{Store: c.store, Path: c.path}); !errors.Is(err, c.want) {
			t.Errorf("copy %s to %s: %v, want %v", c.store, c.path, err, c.want)
		}
	}
	if r, err := s.Optimize(t.Context(), &controlv1.OptimizeStoreRequest{}); err != nil {
		t.Errorf("%v, %v", r, err)
	}
}

// folderless is a home whose folder of boards cannot be read.
type folderless struct{ one }

func (f folderless) Names() ([]string, error) {
	return []string{"state.db"}, errors.New("list boards: input/output error")
}

// A folder of boards that cannot be read must not cost the backup of the conversations.
func TestAStoreIsCopiedThoughOthersCannotBeListed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.Rename(storetest.Fixture(t, "hermes-home-2026-07/state.db"), path); err != nil {
		t.Fatal(err)
	}
	s := maintenance.New(filepath.Dir(path), folderless{one{storetest.StateAt(t, path, store.Options{})}})
	if r, err := s.Copy(t.Context(), &controlv1.CopyStoreRequest{Store: "state.db", Path: path + ".copy"}); err != nil || r.Bytes == 0 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.Copy(t.Context(), &controlv1.CopyStoreRequest{Store: "kanban/boards/a/kanban.db", Path: path + ".other"}); err == nil || errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("a board of which it is not known whether it exists: %v", err)
	}
}
