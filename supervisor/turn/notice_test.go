package turn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestNoticesOfATerminal(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		put := func(key, chat string) {
			t.Helper()
			_, _, err := r.state.PutOutbox(t.Context(), store.OutboxRow{Key: key, Platform: PlatformTerminal, ChatID: chat, Text: key})
			if err != nil {
				t.Fatal(err)
			}
			r.hub.outbox.wake()
		}
		put("one", "main")
		put("other", "elsewhere")
		listen := func(n int) (rows []store.OutboxRow) {
			ctx, cancel := contextFor(t, time.Minute)
			defer cancel()
			err := r.hub.Notices(ctx, "main", func(row store.OutboxRow) error {
				if rows = append(rows, row); len(rows) == n {
					time.Sleep(time.Second)
					cancel()
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return rows
		}
		go func() {
			time.Sleep(10 * time.Second)
			put("two", "main")
		}()
		rows := listen(2)
		if len(rows) != 2 || rows[0].Text != "one" || rows[1].Text != "two" {
			t.Fatalf("notices are %+v", rows)
		}
		for range 2 { // a repeated acknowledgement is one
			if err := r.hub.Acknowledge(t.Context(), rows[0].ID); err != nil && !errors.Is(err, ipc.ErrNotFound) {
				t.Fatal(err)
			}
		}
		if rows := listen(1); len(rows) != 1 || rows[0].Text != "two" {
			t.Fatalf("after an acknowledgement the notices are %+v", rows)
		}
	})
}

func TestOnlyShownNoticesCanBeAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		id, _, err := r.state.PutOutbox(t.Context(), store.OutboxRow{Key: "k", Platform: push, ChatID: "a", Text: "hi"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.hub.Acknowledge(t.Context(), id); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("acknowledging a row of a gateway: %v", err)
		}
		if len(r.outbox("a")) != 1 {
			t.Error("the row is gone")
		}
	})
}
