package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

var chat7 = store.Place{Platform: "telegram", ChatID: "7", ChatType: "dm", UserID: "u"}

// hand hands a message of chat 7 over.
func hand(t *testing.T, s *store.State, id, text string, busy store.Busy) store.Accepted {
	t.Helper()
	a, err := s.Accept(context.Background(), store.Inbound{Platform: "telegram", ChatID: "7", ChatType: "dm", UserID: "u", MessageID: id, Text: text, Busy: busy})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// talk has a message answered.
func talk(t *testing.T, s *store.State, id, text, reply string) store.Accepted {
	t.Helper()
	a := hand(t, s, id, text, store.BusyQueue)
	finish(t, s, lease(t, s, a.TurnID), reply)
	return a
}

func contents(t *testing.T, s *store.State, session string) string {
	t.Helper()
	rows, err := s.Conversation(context.Background(), session)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range rows {
		out = append(out, m.Content)
	}
	return strings.Join(out, " | ")
}

func TestAnUndoTakesTheLastExchangesOutOnceAndKeepsTheirRows(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	a := talk(t, s, "1", "one", "eins")
	talk(t, s, "2", "two", "zwei")
	talk(t, s, "3", "three", "drei")
	for range 2 { // the platform hands the command over again
		u, err := s.Undo(ctx, chat7, 2, "m-undo")
		if err != nil || u.Exchanges != 2 || u.Messages != 4 || u.Text != "two" || u.SessionID != a.SessionID {
			t.Fatalf("%+v, %v", u, err)
		}
		if got := contents(t, s, a.SessionID); got != "one | eins" {
			t.Fatalf("conversation %q", got)
		}
	}
	sum, err := s.CurrentSession(ctx, chat7)
	if err != nil || sum.Messages != 2 || sum.Preview != "one" {
		t.Errorf("%+v, %v", sum, err)
	}
	if u, err := s.Undo(ctx, chat7, 5, "m-undo2"); err != nil || u.Exchanges != 1 {
		t.Errorf("more than there is: %+v, %v", u, err)
	}
	if u, err := s.Undo(ctx, chat7, 1, "m-undo3"); err != nil || u.Exchanges != 0 {
		t.Errorf("of nothing: %+v, %v", u, err)
	}
}

func TestWhileATurnIsOpenItsConversationStays(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	old := talk(t, s, "1", "one", "eins")
	if _, _, err := s.EndSession(ctx, chat7, "m-new"); err != nil {
		t.Fatal(err)
	}
	hand(t, s, "2", "two", store.BusyQueue)
	if _, err := s.Undo(ctx, chat7, 1, "m1"); !errors.Is(err, store.ErrTurnOpen) {
		t.Errorf("undo: %v", err)
	}
	if _, _, err := s.Retry(ctx, store.Inbound{Platform: "telegram", ChatID: "7", ChatType: "dm", UserID: "u", MessageID: "m2"}); !errors.Is(err, store.ErrTurnOpen) {
		t.Errorf("retry: %v", err)
	}
	if _, err := s.Bind(ctx, chat7, old.SessionID, "m3"); !errors.Is(err, store.ErrTurnOpen) {
		t.Errorf("resume: %v", err)
	}
}

func TestARetryReplacesTheLastExchangeOnce(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	talk(t, s, "1", "one", "eins")
	a := talk(t, s, "2", "two", "zwei")
	in := store.Inbound{Platform: "telegram", ChatID: "7", ChatType: "dm", UserID: "u", MessageID: "m-retry"}
	first, text, err := s.Retry(ctx, in)
	if err != nil || text != "two" || first.Duplicate || first.SessionID != a.SessionID || first.TurnID == a.TurnID {
		t.Fatalf("%+v %q, %v", first, text, err)
	}
	again, text, err := s.Retry(ctx, in)
	if err != nil || !again.Duplicate || again.TurnID != first.TurnID || text != "two" {
		t.Fatalf("%+v %q, %v", again, text, err)
	}
	finish(t, s, lease(t, s, first.TurnID), "ZWEI")
	if got := contents(t, s, a.SessionID); got != "one | eins | two | ZWEI" {
		t.Errorf("conversation %q", got)
	}
	if _, _, err := s.Retry(ctx, store.Inbound{Platform: "telegram", ChatID: "8", MessageID: "x"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("in a chat without a session: %v", err)
	}
}

func TestAChatGoesBackToAnOlderSessionAndStaysThere(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	first := talk(t, s, "1", "one", "eins")
	if _, err := s.SetTitle(ctx, chat7, "  First \u200btalk "); err != nil {
		t.Fatal(err)
	}
	ended, _, err := s.EndSession(ctx, chat7, "m-new")
	if err != nil || ended != first.SessionID {
		t.Fatalf("%q, %v", ended, err)
	}
	if _, err := s.CurrentSession(ctx, chat7); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after its end: %v", err)
	}
	second := talk(t, s, "2", "two", "zwei")
	if ended, dup, err := s.EndSession(ctx, chat7, "m-new"); err != nil || !dup || ended != first.SessionID {
		t.Errorf("handed over again: %q %v, %v", ended, dup, err)
	}
	for i, name := range []string{first.SessionID, first.SessionID[:20], "first TALK"} {
		if _, err := s.Bind(ctx, chat7, second.SessionID, fmt.Sprint("back", i)); err != nil {
			t.Fatal(err)
		}
		got, err := s.Bind(ctx, chat7, name, fmt.Sprint("resume", i))
		if err != nil || got.ID != first.SessionID || got.Title != "First talk" {
			t.Fatalf("%q: %+v, %v", name, got, err)
		}
		if a := talk(t, s, fmt.Sprint("n", i), "more", "mehr"); a.SessionID != first.SessionID {
			t.Errorf("%q: the next message went to %s", name, a.SessionID)
		}
	}
	if _, err := s.Bind(ctx, chat7, "nothing", "r"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := s.Bind(ctx, chat7, first.SessionID[:2], "r2"); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), second.SessionID) {
		t.Errorf("ambiguous: %v", err)
	}
	stranger := store.Place{Platform: "telegram", ChatID: "8", ChatType: "dm", UserID: "other"}
	if _, err := s.Bind(ctx, stranger, first.SessionID, "r3"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of another person: %v", err)
	}
}

func TestATitleBelongsToOneSession(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	first := talk(t, s, "1", "one", "eins")
	if _, err := s.SetTitle(ctx, chat7, "plans"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.SetTitle(ctx, chat7, "plans"); err != nil || got.Title != "plans" {
		t.Errorf("its own again: %+v, %v", got, err)
	}
	if _, _, err := s.EndSession(ctx, chat7, ""); err != nil {
		t.Fatal(err)
	}
	talk(t, s, "2", "two", "zwei")
	if _, err := s.SetTitle(ctx, chat7, "plans"); !errors.Is(err, store.ErrExists) || !strings.Contains(err.Error(), first.SessionID) {
		t.Errorf("taken: %v", err)
	}
	if _, err := s.SetTitle(ctx, chat7, strings.Repeat("ä", store.MaxTitle+1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("too long: %v", err)
	}
	if got, err := s.SetTitle(ctx, chat7, ""); err != nil || got.Title != "" {
		t.Errorf("none: %+v, %v", got, err)
	}
	list, err := s.RecentSessions(ctx, store.SessionFilter{Platform: "telegram", ChatID: "7"})
	if err != nil || len(list) != 2 || list[1].Title != "plans" || list[0].Preview != "two" {
		t.Errorf("%+v, %v", list, err)
	}
	if got, err := s.SetModel(ctx, chat7, "big"); err != nil || got.Model != "big" {
		t.Errorf("model: %+v, %v", got, err)
	}
}

func TestASteerIsTheNextStepOfItsTurnWhateverDies(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	a := hand(t, s, "1", "one", store.BusyQueue)
	if a.Disposition != store.Started {
		t.Errorf("%+v", a)
	}
	u := lease(t, s, a.TurnID)
	for i := range 2 {
		got := hand(t, s, "2", "more to the left", store.BusySteer)
		if got.Disposition != store.Steered || got.TurnID != a.TurnID || got.Duplicate != (i > 0) {
			t.Fatalf("%+v", got)
		}
	}
	// The agent dies and another takes the turn.
	if _, err := s.Requeue(ctx, u.ID, u.Fence); err != nil {
		t.Fatal(err)
	}
	u = lease(t, s, a.TurnID)
	steps := []store.Message{{Role: "assistant", Seq: 1, ToolCalls: []store.ToolCall{{ID: "c", Name: "x"}}}}
	if _, err := s.AppendSteps(ctx, u.ID, u.Fence, steps, ""); err != nil {
		t.Fatal(err)
	}
	results := []store.Message{{Role: "tool", ToolCallID: "c", Content: "done", Seq: 2}}
	for range 2 { // the answer of the first was lost
		_, added, err := s.AppendRound(ctx, u.ID, u.Fence, results, "")
		if err != nil || len(added) != 1 || added[0].Seq != 3 || added[0].Content != "more to the left" || added[0].Role != "user" {
			t.Fatalf("%+v, %v", added, err)
		}
	}
	done, err := s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence, Outcome: store.OutcomeCompleted, Reply: store.Message{Content: "ok", Seq: 4}})
	if err != nil || done.Followed != "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := contents(t, s, a.SessionID); got != "one |  | done | more to the left | ok" {
		t.Errorf("conversation %q", got)
	}
	if u, err := s.Undo(ctx, chat7, 1, "u"); err != nil || u.Text != "one" || u.Messages != 5 {
		t.Errorf("the exchange with its steer: %+v, %v", u, err)
	}
}

func TestASteerThatCameTooLateIsTheNextMessage(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	a := hand(t, s, "1", "one", store.BusyQueue)
	u := lease(t, s, a.TurnID)
	hand(t, s, "2", "two", store.BusySteer)
	hand(t, s, "3", "three", store.BusySteer)
	f := store.Finish{TurnID: u.ID, Fence: u.Fence, Outcome: store.OutcomeCompleted, Reply: store.Message{Content: "ok"}}
	var next string
	for range 2 {
		done, err := s.FinishTurn(ctx, f)
		if err != nil || done.Followed == "" || next != "" && done.Followed != next {
			t.Fatalf("%+v, %v", done, err)
		}
		next = done.Followed
	}
	for _, id := range []string{"2", "3"} {
		if got := hand(t, s, id, "again", store.BusySteer); got.TurnID != next || !got.Duplicate {
			t.Errorf("message %s handed over again: %+v", id, got)
		}
	}
	finish(t, s, lease(t, s, next), "ok too")
	if got := contents(t, s, a.SessionID); got != "one | ok | two\nthree | ok too" {
		t.Errorf("conversation %q", got)
	}
}

func TestASteerOfAStoppedTurnStaysInTheConversationAndIsNotRun(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	a := hand(t, s, "1", "one", store.BusyQueue)
	u := lease(t, s, a.TurnID)
	hand(t, s, "2", "two", store.BusySteer)
	done, err := s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence, Outcome: store.OutcomeInterrupted, Reply: store.Message{Content: "stopped", Seq: 1}})
	if err != nil || done.Followed != "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := contents(t, s, a.SessionID); got != "one | two | stopped" {
		t.Errorf("conversation %q", got)
	}
	if open, err := s.Open(ctx); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

func TestAMessageInterruptsOnceAndSaysWhatItDid(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	a := hand(t, s, "1", "one", store.BusyQueue)
	if b := hand(t, s, "0", "zero", store.BusyInterrupt); b.Disposition != store.Queued || b.Ahead != 1 || b.Interrupted != "" {
		t.Errorf("a turn that has not begun was interrupted: %+v", b)
	}
	lease(t, s, a.TurnID)
	for i := range 2 {
		got := hand(t, s, "2", "two", store.BusyInterrupt)
		want := store.Accepted{TurnID: got.TurnID, SessionID: a.SessionID, Duplicate: i > 0, Disposition: store.Interrupted, Ahead: 2, Interrupted: a.TurnID}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	if got := hand(t, s, "3", "three", store.BusyInterrupt); got.Disposition != store.Queued {
		t.Errorf("a turn that is about to end was interrupted again: %+v", got)
	}
	open, err := s.Open(ctx)
	if err != nil || len(open) != 4 || !open[0].Stopped || open[0].StopReason == "" || slices.ContainsFunc(open[1:], func(u store.Turn) bool { return u.Stopped }) {
		t.Errorf("%+v, %v", open, err)
	}
}
