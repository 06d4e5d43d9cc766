package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// outbox is a state with rows for two chats: a1, b1, a2, a3, b2 in that order.
func outbox(t *testing.T) (s *store.State, clock *storetest.Clock, ids map[string]int64) {
	t.Helper()
	return outboxAt(t, t.TempDir()+"/state.db")
}

func outboxAt(t *testing.T, path string) (s *store.State, clock *storetest.Clock, ids map[string]int64) {
	t.Helper()
	clock, ids = storetest.NewClock(), map[string]int64{}
	s = storetest.StateAt(t, path, store.Options{Now: clock.Now})
	for _, text := range []string{"a1", "b1", "a2", "a3", "b2"} {
		id, duplicate, err := s.PutOutbox(context.Background(), store.OutboxRow{Key: text, Platform: "telegram", ChatID: text[:1], Text: text})
		if err != nil || duplicate {
			t.Fatal(id, duplicate, err)
		}
		ids[text] = id
	}
	return s, clock, ids
}

func due(t *testing.T, s *store.State, now time.Time) (texts []string) {
	t.Helper()
	list, err := s.DueOutbox(context.Background(), now, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		texts = append(texts, r.Text)
	}
	return texts
}

func report(t *testing.T, s *store.State, id int64, r store.OutboxReport) {
	t.Helper()
	if err := s.ReportSend(context.Background(), id, r); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, s *store.State, id int64) store.OutboxRow {
	t.Helper()
	r, err := s.BeginSend(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEachChatIsServedInOrder(t *testing.T) {
	s, clock, ids := outbox(t)
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Fatalf("due are %v", got)
	}
	if r := begin(t, s, ids["a1"]); r.State != store.OutboxSending || r.Attempt != 1 {
		t.Errorf("row is %+v", r)
	}
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("a row left in sending by a death is not due: %v", got)
	}
	report(t, s, ids["a1"], store.OutboxReport{State: store.OutboxSent, MessageIDs: []string{"100", "101"}})
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"b1", "a2"}) {
		t.Errorf("due are %v", got)
	}
	later := clock.Now().Add(time.Minute)
	begin(t, s, ids["a2"])
	report(t, s, ids["a2"], store.OutboxReport{State: store.OutboxPending, NextAttempt: later, Detail: "flood"})
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"b1"}) {
		t.Errorf("a later row overtakes one that waits: %v", got)
	}
	if got := due(t, s, later); !slices.Equal(got, []string{"b1", "a2"}) {
		t.Errorf("due are %v", got)
	}
	report(t, s, ids["a2"], store.OutboxReport{State: store.OutboxRejected, Detail: "the bot was blocked"})
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"b1", "a3"}) {
		t.Errorf("due are %v", got)
	}
	if list, err := s.DueOutbox(context.Background(), clock.Now(), 1); err != nil || len(list) != 1 {
		t.Errorf("with a limit: %v, %v", list, err)
	}
}

func TestARowOfUnknownFateIsTriedAgainAndHoldsNothingUp(t *testing.T) {
	s, clock, ids := outbox(t)
	begin(t, s, ids["a1"])
	report(t, s, ids["a1"], store.OutboxReport{State: store.OutboxUnknown, MessageIDs: []string{"100"}, Detail: "timeout"})
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("due are %v", got)
	}
	if r := begin(t, s, ids["a1"]); r.Attempt != 2 || !slices.Equal(r.MessageIDs, []string{"100"}) {
		t.Errorf("the second try is %+v", r)
	}
	later := clock.Now().Add(time.Hour)
	report(t, s, ids["a1"], store.OutboxReport{State: store.OutboxUnknown, NextAttempt: later})
	if got := due(t, s, clock.Now()); !slices.Equal(got, []string{"b1", "a2"}) {
		t.Errorf("due are %v", got)
	}
	if got := due(t, s, later); !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("due later are %v", got)
	}
	c, err := s.Counts(context.Background())
	if err != nil || c.OutboxUnknown != 1 || c.OutboxPending != 4 {
		t.Errorf("counts are %+v, %v", c, err)
	}
}

func TestTheEndOfARowIsFinal(t *testing.T) {
	ctx, path := context.Background(), t.TempDir()+"/state.db"
	s, _, ids := outboxAt(t, path)
	begin(t, s, ids["a1"])
	report(t, s, ids["a1"], store.OutboxReport{State: store.OutboxSent, MessageIDs: []string{"100"}})
	report(t, s, ids["a1"], store.OutboxReport{State: store.OutboxUnknown, Detail: "late"})
	if _, err := s.BeginSend(ctx, ids["a1"]); !errors.Is(err, store.ErrExists) {
		t.Errorf("a sent row is sent again: %v", err)
	}
	if got := storetest.Query(t, path, "SELECT state, message_ids, detail, sent_at > 0, attempt FROM hs_outbox WHERE id = ?", ids["a1"]); got[0] != `sent|["100"]||1|1` {
		t.Errorf("a sent row became %v", got)
	}
	if _, err := s.BeginSend(ctx, 1000); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown row: %v", err)
	}
	if err := s.ReportSend(ctx, 1000, store.OutboxReport{State: store.OutboxSent}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a report of an unknown row: %v", err)
	}
	if err := s.ReportSend(ctx, ids["b1"], store.OutboxReport{State: "lost"}); err == nil {
		t.Error("a state that does not exist was taken")
	}
}

func TestARowIsQueuedOnce(t *testing.T) {
	ctx := context.Background()
	s, _, ids := outbox(t)
	id, duplicate, err := s.PutOutbox(ctx, store.OutboxRow{Key: "a1", Platform: "telegram", ChatID: "other", Text: "other"})
	if err != nil || !duplicate || id != ids["a1"] {
		t.Errorf("%d, %v, %v", id, duplicate, err)
	}
	for _, r := range []store.OutboxRow{{Platform: "p", ChatID: "c"}, {Key: "k", ChatID: "c"}, {Key: "k", Platform: "p"}} {
		if _, _, err := s.PutOutbox(ctx, r); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestPendingOfAChat(t *testing.T) {
	ctx := context.Background()
	s, _, ids := outbox(t)
	report(t, s, ids["a1"], store.OutboxReport{State: store.OutboxSent})
	begin(t, s, ids["a2"])
	list, err := s.PendingOutbox(ctx, "telegram", "a", 0)
	if err != nil || len(list) != 2 || list[0].Text != "a2" || list[1].Text != "a3" {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = s.PendingOutbox(ctx, "telegram", "a", 1); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = s.PendingOutbox(ctx, "discord", "a", 0); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestARowKeepsItsFields(t *testing.T) {
	clock := storetest.NewClock()
	s := storetest.State(t, store.Options{Now: clock.Now})
	want := store.OutboxRow{Key: "k", Platform: "p", ChatID: "c", ThreadID: "t", ReplyTo: "r", TurnID: "u", Text: "text",
		State: store.OutboxPending, MessageIDs: []string{}, NextAttempt: clock.Now().UTC()}
	var err error
	if want.ID, _, err = s.PutOutbox(context.Background(), want); err != nil {
		t.Fatal(err)
	}
	list, err := s.PendingOutbox(context.Background(), "p", "c", 0)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	got := list[0]
	if !got.NextAttempt.Equal(want.NextAttempt) || got.CreatedAt.IsZero() {
		t.Errorf("times of %+v", got)
	}
	got.NextAttempt, got.CreatedAt = want.NextAttempt, want.CreatedAt
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v\nnot\n%+v", got, want)
	}
}

func TestRowsOfAPlatformWithoutAGatewayHideNoOthers(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	for i := range 20 {
		if _, _, err := s.PutOutbox(ctx, store.OutboxRow{Key: fmt.Sprint("x", i), Platform: "discord", ChatID: fmt.Sprint(i), Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.PutOutbox(ctx, store.OutboxRow{Key: "t", Platform: "telegram", ChatID: "7", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	rows, err := s.DueOutbox(ctx, time.Now(), 10, "telegram", "slack")
	if err != nil || len(rows) != 1 || rows[0].Text != "t" {
		t.Errorf("%v, %v", rows, err)
	}
}
