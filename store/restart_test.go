package store_test

import (
	"context"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func TestAChatThatAskedForARestartIsToldOnceAndItsMessageAsksOnce(t *testing.T) {
	ctx := context.Background()
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	wish := store.RestartRequest{Platform: "telegram", ChatID: "7", MessageID: "m"}
	for i := range 2 {
		if again, err := s.RequestRestart(ctx, wish); err != nil || again != (i > 0) {
			t.Fatalf("%v, %v", again, err)
		}
	}
	for i, want := range []int{1, 0} {
		if n, err := s.TellRestarts(ctx, "back"); err != nil || n != want {
			t.Errorf("start %d: told %d, %v", i, n, err)
		}
	}
	if again, err := s.RequestRestart(ctx, wish); err != nil || !again {
		t.Errorf("handed over after the restart: %v, %v", again, err)
	}
	rows, err := s.PendingOutbox(ctx, "telegram", "7", 10)
	if err != nil || len(rows) != 1 || rows[0].Text != "back" || rows[0].ReplyTo != "m" {
		t.Errorf("%v, %v", rows, err)
	}
}
