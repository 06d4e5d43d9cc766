package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// What has ended long ago is forgotten, what is owed or runs never, and the conversation is not touched.
func TestOldTurnsAreForgottenAndUnfinishedOnesKept(t *testing.T) {
	ctx := context.Background()
	path := t.TempDir() + "/state.db"
	clock := storetest.NewClock()
	s := storetest.StateAt(t, path, store.Options{Now: clock.Now, Keep: 30 * 24 * time.Hour})
	var session string
	for i := range 120 {
		a := accept(t, s, fmt.Sprint("old", i))
		session = a.SessionID
		finish(t, s, lease(t, s, a.TurnID), "reply")
	}
	owed := accept(t, s, "owed")
	u := lease(t, s, owed.TurnID)
	if _, err := s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence, Reply: store.Message{Content: "reply"}, Outcome: store.OutcomeCompleted, Outbox: true}); err != nil {
		t.Fatal(err)
	}
	waiting := accept(t, s, "waiting")
	talk, err := s.Conversation(ctx, session)
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(31 * 24 * time.Hour)
	young := accept(t, s, "young")
	s.Retain()
	for _, table := range []string{"hs_turns", "hs_inbox"} {
		table := table
		eventually(t, table+" without what is old", func() bool {
			s.Retain()
			return storetest.Query(t, path, "SELECT count(*) FROM "+table)[0] == "3"
		})
	}
	for _, a := range []store.Accepted{owed, waiting, young} {
		if _, err := s.Turn(ctx, a.TurnID); err != nil {
			t.Errorf("an unfinished turn is gone: %v", err)
		}
	}
	if after, err := s.Conversation(ctx, session); err != nil || len(after) != len(talk) {
		t.Errorf("%d messages of %d are left: %v", len(after), len(talk), err)
	}
	if got := storetest.Query(t, path, "SELECT state FROM hs_outbox"); len(got) != 1 || got[0] != "pending" {
		t.Errorf("the outbox has %v", got)
	}
}
