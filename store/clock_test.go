package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

// What must go on when the clock is set back by hours, while a store is open and between two starts.
const setBack = -5 * time.Hour

// setClockBack runs a test twice: the clock goes back while the store is open, or before it is opened again.
func setClockBack(t *testing.T, before, after func(t *testing.T, s *store.State, c *storetest.Clock)) {
	t.Helper()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("with a restart ", restart), func(t *testing.T) {
			path, clock := t.TempDir()+"/state.db", storetest.NewClock()
			o := store.Options{Now: clock.Now, Keep: 90 * 24 * time.Hour}
			s := openStateWith(t, path, o)
			before(t, s, clock)
			if restart {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			clock.Advance(setBack)
			if restart {
				s = openStateWith(t, path, o)
			}
			after(t, s, clock)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			storetest.Integrity(t, path)
		})
	}
}

func openStateWith(t *testing.T, path string, o store.Options) *store.State {
	t.Helper()
	s, err := store.OpenState(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAClockThatWentBackIsTold(t *testing.T) {
	setClockBack(t, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		accept(t, s, "1")
		eventually(t, "a beat", func() bool { return s.Health().State == "ok" && s.Progress() > 3 })
	}, func(t *testing.T, s *store.State, clock *storetest.Clock) {
		eventually(t, "the clock in the health", func() bool { return s.Health().Condition == store.CondClock })
		accept(t, s, "2")
		clock.Advance(-2 * setBack)
		eventually(t, "the clock's return", func() bool { return s.Health().State == "ok" })
		open, err := s.Open(context.Background())
		if err != nil || len(open) != 2 || open[0].MessageID != "1" {
			t.Errorf("turns are %+v, %v", open, err)
		}
	})
}

// The newest session of a chat counts. One that is opened by a clock that was set back is the newest all the same: else
// every message after it would open another one.
func TestAChatStaysInTheSessionThatItOpenedLast(t *testing.T) {
	chat := func(t *testing.T, s *store.State, message string, fresh bool) string {
		a, err := s.Accept(context.Background(), store.Inbound{Platform: "test", ChatID: "1", MessageID: message, NewSession: fresh})
		if err != nil {
			t.Fatal(err)
		}
		return a.SessionID
	}
	var first string
	setClockBack(t, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		first = chat(t, s, "1", false)
	}, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		second := chat(t, s, "2", true)
		if again := chat(t, s, "3", false); second == first || again != second {
			t.Errorf("the sessions are %s, %s and %s", first, second, again)
		}
		if third := chat(t, s, "4", true); third == second || chat(t, s, "5", false) != third {
			t.Errorf("the chat left its third session %s", third)
		}
	})
}

// A row that is to be tried again in half a minute does not wait for hours.
func TestAReplyIsTriedAgainSoon(t *testing.T) {
	ctx := context.Background()
	setClockBack(t, func(t *testing.T, s *store.State, clock *storetest.Clock) {
		for text, state := range map[string]store.OutboxState{"slow": store.OutboxPending, "lost": store.OutboxUnknown} {
			id, _, err := s.PutOutbox(ctx, store.OutboxRow{Key: text, Platform: "telegram", ChatID: text, Text: text})
			if err != nil {
				t.Fatal(err)
			}
			begin(t, s, id)
			report(t, s, id, store.OutboxReport{State: state, NextAttempt: clock.Now().Add(30 * time.Second)})
		}
		if got := due(t, s, clock.Now()); len(got) != 0 {
			t.Errorf("due at once are %v", got)
		}
	}, func(t *testing.T, s *store.State, clock *storetest.Clock) {
		got := due(t, s, clock.Now())
		if slices.Sort(got); !slices.Equal(got, []string{"lost", "slow"}) {
			t.Errorf("due are %v", got)
		}
	})
}

func TestANoticeIsNotWithheldForHours(t *testing.T) {
	put := func(t *testing.T, s *store.State, key string) bool {
		put, err := s.PutNotice(context.Background(), store.OutboxRow{Key: key, Platform: "telegram", ChatID: "1", Text: "x"}, "restart", 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return put
	}
	setClockBack(t, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		if !put(t, s, "1") || put(t, s, "2") {
			t.Error("not one notice within the pause")
		}
	}, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		if !put(t, s, "3") || put(t, s, "4") {
			t.Error("not one notice by the new clock")
		}
	})
}

// A turn that ran at two ends of the supervisor far from each other is no loop.
func TestATurnIsNotTakenForALoop(t *testing.T) {
	var id string
	restarted := func(t *testing.T, s *store.State) store.Turn {
		u, err := s.Restarted(context.Background(), id, lease(t, s, id).Fence, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	setClockBack(t, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		id = accept(t, s, "1").TurnID
		restarted(t, s)
	}, func(t *testing.T, s *store.State, clock *storetest.Clock) {
		if u := restarted(t, s); u.Looped {
			t.Errorf("turn is %+v", u)
		}
		clock.Advance(time.Minute)
		if u := restarted(t, s); u.State == store.TurnQueued && !u.Looped {
			t.Errorf("twice within the window, by the new clock: %+v", u)
		}
	})
}

func TestNothingIsForgottenEarly(t *testing.T) {
	setClockBack(t, func(t *testing.T, s *store.State, _ *storetest.Clock) {
		finish(t, s, lease(t, s, accept(t, s, "1").TurnID), "reply")
	}, func(t *testing.T, s *store.State, clock *storetest.Clock) {
		finish(t, s, lease(t, s, accept(t, s, "2").TurnID), "reply")
		clock.Advance(89 * 24 * time.Hour)
		beats := s.Progress()
		s.Retain()
		eventually(t, "beats", func() bool { return s.Progress() > beats+2 })
		if a := accept(t, s, "1"); !a.Duplicate {
			t.Error("the first message is forgotten")
		}
	})
}

// A question that is open for minutes is not open for hours: a yes of the afternoon must not do what was asked for before the
// clock went back. A time server's correction ends none.
func TestAQuestionIsNotOpenForHours(t *testing.T) {
	ctx := context.Background()
	ask := func(t *testing.T, s *store.State, c *storetest.Clock, key string) store.Confirmation {
		q, err := s.Ask(ctx, store.Confirmation{Platform: "test", ChatID: "1", Key: key, Command: "reset", Deadline: c.Now().Add(5 * time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	var old store.Confirmation
	setClockBack(t, func(t *testing.T, s *store.State, c *storetest.Clock) {
		old = ask(t, s, c, "old")
	}, func(t *testing.T, s *store.State, c *storetest.Clock) {
		if q, err := s.Confirmation(ctx, "test", old.ID); err != nil || q.State != store.ConfirmExpired {
			t.Errorf("the question is %+v, %v", q, err)
		}
		if a, before, err := s.Answer(ctx, "test", old.ID, store.ConfirmOnce, "u"); err != nil || !before || a.State != store.ConfirmExpired {
			t.Errorf("a late yes gave %+v, %v, %v", a, before, err)
		}
		young := ask(t, s, c, "young")
		c.Advance(-30 * time.Second)
		if list, err := s.Confirmations(ctx, "test", ""); err != nil || len(list) != 1 || list[0].ID != young.ID {
			t.Errorf("open are %+v, %v", list, err)
		}
		if a, before, err := s.Answer(ctx, "test", young.ID, store.ConfirmOnce, "u"); err != nil || before || a.State != store.ConfirmOnce {
			t.Errorf("a yes gave %+v, %v, %v", a, before, err)
		}
	})
}

// A clock that is wrong by years for a while, as of a machine that has just been switched on, makes everything old. What is kept
// for 90 days is kept over it.
func TestNothingIsForgottenByAClockThatIsYearsAhead(t *testing.T) {
	const ahead = 4 * 365 * 24 * time.Hour
	path, clock := t.TempDir()+"/state.db", storetest.NewClock()
	open := func() *store.State {
		return openStateWith(t, path, store.Options{Now: clock.Now, Keep: 90 * 24 * time.Hour})
	}
	s := open()
	known := func(when string) {
		t.Helper()
		if a := accept(t, s, "1"); !a.Duplicate {
			t.Fatalf("%s the message is forgotten", when)
		}
	}
	finish(t, s, lease(t, s, accept(t, s, "1").TurnID), "reply")
	s.RetainAfter(func() { clock.Advance(ahead) })
	known("with the clock set forward")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	beats := s.Progress()
	eventually(t, "beats", func() bool { return s.Progress() > beats+2 })
	known("after a start with the clock ahead")
	clock.Advance(-ahead)
	known("with the clock set right")
	s.RetainAfter(func() {})
	known("at a look with the clock set right")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
