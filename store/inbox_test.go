package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func TestARepeatedMessageIsAnsweredWithItsFirstTurn(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	in := store.Inbound{Platform: "telegram", ChatID: "7", MessageID: "m1", Text: "hello"}
	answers := make([]store.Accepted, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			var err error
			if answers[i], err = s.Accept(ctx, in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fresh := 0
	for _, a := range answers {
		if !a.Duplicate {
			fresh++
		}
		if a.TurnID != answers[0].TurnID || a.SessionID != answers[0].SessionID {
			t.Fatalf("%+v and %+v", a, answers[0])
		}
	}
	if fresh != 1 {
		t.Errorf("%d of them were not duplicates", fresh)
	}
	finish(t, s, lease(t, s, answers[0].TurnID), "reply")
	if a, err := s.Accept(ctx, in); err != nil || !a.Duplicate {
		t.Errorf("after its end: %+v, %v", a, err)
	}
	for _, other := range []store.Inbound{
		{Platform: "discord", ChatID: "7", MessageID: "m1"}, {Platform: "telegram", ChatID: "8", MessageID: "m1"}, {Platform: "telegram", ChatID: "7", MessageID: "m2"},
	} {
		if a, err := s.Accept(ctx, other); err != nil || a.Duplicate {
			t.Errorf("%+v is taken for a duplicate: %v", other, err)
		}
	}
}

func TestAMessageWithoutAnAddressIsRefused(t *testing.T) {
	s := storetest.State(t, store.Options{})
	for _, in := range []store.Inbound{{ChatID: "1", MessageID: "1"}, {Platform: "p", MessageID: "1"}, {Platform: "p", ChatID: "1"}} {
		if _, err := s.Accept(context.Background(), in); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

func TestSessionKeyFor(t *testing.T) {
	for want, in := range map[string]store.Inbound{
		"agent:main:telegram:dm:7":           {Platform: "telegram", ChatID: "7", UserID: "u"},
		"agent:main:telegram:dm:7:3":         {Platform: "telegram", ChatID: "7", ChatType: "dm", ThreadID: "3"},
		"agent:main:telegram:group:-100:u":   {Platform: "telegram", ChatID: "-100", ChatType: "group", UserID: "u"},
		"agent:main:discord:channel:c":       {Platform: "discord", ChatID: "c", ChatType: "channel"},
		"agent:main:telegram:group:-100:42":  {Platform: "telegram", ChatID: "-100", ChatType: "group", ThreadID: "42", UserID: "u"},
		"agent:main:discord:thread:c:thread": {Platform: "discord", ChatID: "c", ChatType: "thread", ThreadID: "thread", UserID: "u"},
	} {
		if got := store.SessionKeyFor(in); got != want {
			t.Errorf("%+v: %s, not %s", in, got, want)
		}
	}
}

// next accepts one more message of a chat and returns its session.
func next(t *testing.T, s *store.State, in store.Inbound) string {
	t.Helper()
	in.Platform, in.MessageID = "telegram", time.Now().Format(time.RFC3339Nano)
	if in.ChatID == "" {
		in.ChatID = "7"
	}
	a, err := s.Accept(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return a.SessionID
}

func TestAChatKeepsItsSession(t *testing.T) {
	ctx, clock := context.Background(), storetest.NewClock()
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{Now: clock.Now})
	first := next(t, s, store.Inbound{})
	clock.Advance(1000 * time.Hour)
	if again := next(t, s, store.Inbound{}); again != first {
		t.Errorf("session %s became %s", first, again)
	}
	if other := next(t, s, store.Inbound{ChatID: "8"}); other == first {
		t.Error("another chat shares the session")
	}
	clock.Advance(time.Second)
	second := next(t, s, store.Inbound{NewSession: true})
	if second == first || next(t, s, store.Inbound{}) != second {
		t.Error("a new session was asked for and is not used")
	}
	old, err := s.Session(ctx, first)
	if err != nil || old.EndReason != "session_reset" || old.EndedAt.IsZero() {
		t.Errorf("the session before is %+v, %v", old, err)
	}
	if got := storetest.Query(t, path, "SELECT source, session_key, generation FROM conversation_generations"); !slices.Equal(got, []string{"telegram|agent:main:telegram:dm:7|1"}) {
		t.Errorf("generations are %v", got)
	}
	if back := next(t, s, store.Inbound{SessionID: first}); back != first {
		t.Errorf("asked for %s, got %s", first, back)
	}
	if old, err = s.Session(ctx, first); err != nil || old.EndReason != "" || !old.EndedAt.IsZero() {
		t.Errorf("the session that is used again is %+v, %v", old, err)
	}
	if _, err := s.Accept(ctx, store.Inbound{Platform: "p", ChatID: "1", MessageID: "1", SessionID: "nothing"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown session: %v", err)
	}
}

// How a session ended says whether the next message goes on with it.
func TestTheEndOfASessionHoldsIfSomebodyWantedIt(t *testing.T) {
	for reason, goesOn := range map[string]bool{
		"agent_close": true, "startup_orphan_reap": true, "idle_timeout": true, "ws_disconnect": true,
		"session_reset": false, "new_session": false, "user_exit": false, "suspended": false, "branched": false,
	} {
		path := t.TempDir() + "/state.db"
		s := storetest.StateAt(t, path, store.Options{})
		first := next(t, s, store.Inbound{})
		if _, err := storetest.Exec(path, "UPDATE sessions SET ended_at = started_at + 1, end_reason = ?", reason); err != nil {
			t.Fatal(err)
		}
		if again := next(t, s, store.Inbound{}); (again == first) != goesOn {
			t.Errorf("%s: goes on is %v", reason, again == first)
		}
	}
}

func TestACompressedSessionGoesOnInItsChild(t *testing.T) {
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	first := next(t, s, store.Inbound{})
	for _, change := range []string{
		"UPDATE sessions SET ended_at = started_at, end_reason = 'compression'",
		"INSERT INTO sessions(id, source, session_key, parent_session_id, started_at) SELECT 'child', source, session_key, id, started_at + 1 FROM sessions",
	} {
		if _, err := storetest.Exec(path, change); err != nil {
			t.Fatal(err)
		}
	}
	for what, in := range map[string]store.Inbound{"by its key": {}, "by its id": {SessionID: first}} {
		if got := next(t, s, in); got != "child" {
			t.Errorf("%s: %s", what, got)
		}
	}
	if _, err := storetest.Exec(path, "UPDATE sessions SET ended_at = 1, end_reason = 'compression', parent_session_id = 'child'"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(context.Background(), store.Inbound{Platform: "p", ChatID: "1", MessageID: "1", SessionID: "child"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a session that is its own parent: %v", err)
	}
}

func TestAChatThatWentBackToAnOlderSessionStaysThere(t *testing.T) {
	path := t.TempDir() + "/state.db"
	clock := storetest.NewClock()
	s := storetest.StateAt(t, path, store.Options{Now: clock.Now})
	first := next(t, s, store.Inbound{})
	second := next(t, s, store.Inbound{NewSession: true})
	for id, change := range map[string]string{ // as Hermes' /resume does it
		first:  "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?",
		second: "UPDATE sessions SET ended_at = 1, end_reason = 'session_switch' WHERE id = ?",
	} {
		if _, err := storetest.Exec(path, change, id); err != nil {
			t.Fatal(err)
		}
	}
	if got := next(t, s, store.Inbound{}); got != first {
		t.Errorf("%s, not %s", got, first)
	}
}

func TestANewSessionBeginsWithItsHistory(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	history := []store.Message{{Role: "user", Content: "before"}, {Role: "assistant", Content: "yes"}}
	in := store.Inbound{Platform: "api", ChatID: "1", MessageID: "1", Text: "now", History: history, System: "Be brief.", Model: "m"}
	a, err := s.Accept(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	in.MessageID = "2"
	b, err := s.Accept(ctx, in)
	if err != nil || b.SessionID != a.SessionID {
		t.Fatal(b, err)
	}
	lease(t, s, a.TurnID)
	if got := texts(t, s, a.SessionID); !slices.Equal(got, []string{"user: before", "assistant: yes", "user: now"}) {
		t.Errorf("conversation is %v", got)
	}
	x, err := s.Session(ctx, a.SessionID)
	if err != nil || x.SystemPrompt != "Be brief." || x.Model != "m" || x.Messages != 3 || x.Source != "api" {
		t.Errorf("session is %+v, %v", x, err)
	}
	_, err = s.Accept(ctx, store.Inbound{Platform: "api", ChatID: "2", MessageID: "1", History: []store.Message{{Content: "who?"}}})
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a message without a role: %v", err)
	}
	if list, err := s.Sessions(ctx, "api", 0); err != nil || len(list) != 1 {
		t.Errorf("a refused message left a session: %+v, %v", list, err)
	}
}

func TestSessionsAreListedByActivity(t *testing.T) {
	ctx, clock := context.Background(), storetest.NewClock()
	s := storetest.State(t, store.Options{Now: clock.Now})
	one := next(t, s, store.Inbound{ChatID: "1"})
	two := next(t, s, store.Inbound{ChatID: "2"})
	a, err := s.Accept(ctx, store.Inbound{Platform: "telegram", ChatID: "1", MessageID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	lease(t, s, a.TurnID)
	list, err := s.Sessions(ctx, "telegram", 0)
	if err != nil || len(list) != 2 || list[0].ID != one || list[1].ID != two {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = s.Sessions(ctx, "", 1); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = s.Sessions(ctx, "discord", 0); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.Session(ctx, "nothing"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown session: %v", err)
	}
}

func TestARepeatedIdWithAnotherContentIsRefusedAndChangesNothing(t *testing.T) {
	s := storetest.State(t, store.Options{})
	in := store.Inbound{Platform: "api", ChatID: "c", MessageID: "key", Text: "first", Fingerprint: "a"}
	first, err := s.Accept(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fingerprint string
		want        error
	}{{"a", nil}, {"", nil}, {"b", store.ErrExists}} {
		in.Fingerprint = c.fingerprint
		again, err := s.Accept(t.Context(), in)
		if !errors.Is(err, c.want) {
			t.Errorf("fingerprint %q: %v, want %v", c.fingerprint, err, c.want)
		}
		if c.want == nil && (!again.Duplicate || again.TurnID != first.TurnID) {
			t.Errorf("fingerprint %q: %+v", c.fingerprint, again)
		}
	}
}
