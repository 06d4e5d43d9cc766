package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
)

// A read that is ended because it is old is told from a supervisor that does not answer: nothing is frozen.
func TestAReadThatIsEndedForItsAgeSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	w, err := dial(path, "_foreign_keys=1", "journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.script("CREATE TABLE a(b)"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := openReaders(path, "mode=ro", 1, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		err = r.do(t.Context(), func(t *tx) error { <-t.ctx.Done(); return t.ctx.Err() })
		if !errors.Is(err, ErrReadTooLong) || !strings.Contains(err.Error(), "ended after 5s") || strings.Contains(err.Error(), "deadline") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.do(ctx, func(t *tx) error { return t.ctx.Err() }); errors.Is(err, ErrReadTooLong) {
			t.Errorf("a caller that went away: %v", err)
		}
	})
}
