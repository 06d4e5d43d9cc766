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

// month is what a supervisor keeps in its own tables in a month: everything of each kind once.
type month struct {
	t     *testing.T
	s     *store.State
	clock *storetest.Clock
	n     int
}

func (m month) id(what string) string { return fmt.Sprint(what, "-", m.n) }

func (m month) must(what string, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("month %d, %s: %v", m.n, what, err)
	}
}

// turn is one that was steered, stopped, restarted, asked for an approval and called a tool.
func (m month) turn() {
	ctx := context.Background()
	a := accept(m.t, m.s, m.id("message"))
	u := lease(m.t, m.s, a.TurnID)
	steer, err := m.s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: m.id("steer"), Text: "more", Busy: store.BusySteer})
	m.must("steer", err)
	if steer.Disposition != store.Steered {
		m.t.Fatalf("month %d: steered is %+v", m.n, steer)
	}
	_, err = m.s.Restarted(ctx, u.ID, u.Fence, time.Minute)
	m.must("restarted", err)
	u = lease(m.t, m.s, a.TurnID)
	_, _, err = m.s.BeginCall(ctx, u.Fence, store.Call{TurnID: u.ID, CallID: "c", Tool: "terminal", State: store.CallIntent})
	m.must("call", err)
	approval, err := m.s.RequestApproval(ctx, store.Approval{TurnID: u.ID, CallID: "c", Tool: "terminal", Deadline: m.clock.Now().Add(time.Minute)})
	m.must("approval", err)
	_, _, err = m.s.DecideApproval(ctx, approval.ID, true, "user")
	m.must("decide", err)
	m.must("call", m.s.SetCall(ctx, store.Call{TurnID: u.ID, CallID: "c", State: store.CallDone, Result: "done"}))
	m.must("stop", m.s.Stop(ctx, u.ID, "enough"))
	_, err = m.s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence, Reply: store.Message{Role: "assistant", Content: "reply", Seq: 1}, Outcome: store.OutcomeInterrupted, Outbox: true})
	m.must("finish", err)
}

// chat is a command, questions of every end, a restart and a notice.
func (m month) chat() {
	ctx := context.Background()
	place := store.Place{Platform: "test", ChatID: "1"}
	here, err := m.s.CurrentSession(ctx, place)
	m.must("session", err)
	_, err = m.s.Bind(ctx, store.Place{Platform: "test", ChatID: "1", UserID: "1"}, here.ID, m.id("resume"))
	m.must("resume", err)
	for _, end := range []store.ConfirmationState{store.ConfirmOnce, store.ConfirmAlways, store.ConfirmCancelled, store.ConfirmPending} {
		c, err := m.s.Ask(ctx, store.Confirmation{Platform: "test", ChatID: "1", Key: m.id(string(end)), UserID: "1", Command: string(end), Deadline: m.clock.Now().Add(time.Hour)})
		m.must("ask", err)
		if end == store.ConfirmPending {
			continue // nobody answers
		}
		_, _, err = m.s.Answer(ctx, "test", c.ID, end, "1")
		m.must("answer", err)
		if end != store.ConfirmCancelled {
			m.must("done", m.s.ConfirmationDone(ctx, "test", c.ID))
		}
	}
	_, err = m.s.RequestRestart(ctx, store.RestartRequest{Platform: "test", ChatID: "1", MessageID: m.id("restart")})
	m.must("restart", err)
	_, err = m.s.TellRestarts(ctx, "back again")
	m.must("tell", err)
	_, err = m.s.PutNotice(ctx, store.OutboxRow{Key: m.id("notice"), Platform: "test", ChatID: m.id("chat"), Text: "down"}, "conflict", time.Hour)
	m.must("notice", err)
}

// send delivers everything that is owed.
func (m month) send() {
	ctx := context.Background()
	for {
		due, err := m.s.DueOutbox(ctx, m.clock.Now(), 100)
		m.must("due", err)
		if len(due) == 0 {
			return
		}
		for _, r := range due {
			_, err := m.s.BeginSend(ctx, r.ID)
			m.must("send", err)
			m.must("report", m.s.ReportSend(ctx, r.ID, store.OutboxReport{State: store.OutboxSent, MessageIDs: []string{"1"}}))
		}
	}
}

// ownTables counts the rows of every table of this system.
func ownTables(t *testing.T, path string) map[string]string {
	t.Helper()
	counts := map[string]string{}
	for _, table := range storetest.Query(t, path, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'hs\_%' ESCAPE '\'`) {
		counts[table] = storetest.Query(t, path, "SELECT count(*) FROM "+table)[0]
	}
	return counts
}

// A supervisor that runs for months keeps as much as in the time of its retention. A table that is new must be in a month
// above, and in the retention.
func TestNoTableGrowsOverMonths(t *testing.T) {
	path := t.TempDir() + "/state.db"
	clock := storetest.NewClock()
	s := storetest.StateAt(t, path, store.Options{Now: clock.Now, Keep: 80 * 24 * time.Hour})
	var after []map[string]string
	for n := range 7 {
		m := month{t, s, clock, n}
		m.turn()
		m.chat()
		m.send()
		clock.Advance(31 * 24 * time.Hour)
		want := fmt.Sprint(min(n+1, 2)) // months that are younger
		eventually(t, "the old months to be forgotten", func() bool {
			s.Retain()
			return ownTables(t, path)["hs_notices"] == want && storetest.Query(t, path, "SELECT count(*) FROM hs_turns WHERE state = 'done'")[0] == want
		})
		s.Retain()
		after = append(after, ownTables(t, path))
	}
	for table, rows := range after[6] {
		if rows == "0" {
			t.Errorf("%s is never used in this test: make the month use it", table)
		}
		if rows != after[3][table] {
			t.Errorf("%s has %s rows after four months and %s after seven", table, after[3][table], rows)
		}
	}
}

// What comes a second time within the retention is known, however often it was looked for what is old.
func TestRetentionForgetsNothingThatMayComeAgain(t *testing.T) {
	ctx := context.Background()
	clock := storetest.NewClock()
	s := storetest.StateAt(t, t.TempDir()+"/state.db", store.Options{Now: clock.Now, Keep: 30 * 24 * time.Hour})
	m := month{t, s, clock, 0}
	m.turn()
	m.chat()
	m.send()
	for range 5 {
		clock.Advance(5 * 24 * time.Hour)
		s.Retain()
		m.must("ping", s.Ping(ctx))
	}
	if a := accept(t, s, m.id("message")); !a.Duplicate {
		t.Error("a message is taken a second time")
	}
	a, err := s.Accept(ctx, store.Inbound{Platform: "test", ChatID: "1", MessageID: m.id("steer"), Text: "more", Busy: store.BusySteer})
	if err != nil || !a.Duplicate {
		t.Errorf("a text for a turn is taken a second time: %+v, %v", a, err)
	}
	if again, err := s.RequestRestart(ctx, store.RestartRequest{Platform: "test", ChatID: "1", MessageID: m.id("restart")}); err != nil || !again {
		t.Errorf("a restart is asked for a second time: %v", err)
	}
	if _, again, err := s.PutOutbox(ctx, store.OutboxRow{Key: m.id("notice"), Platform: "test", ChatID: m.id("chat"), Text: "down"}); err != nil || !again {
		t.Errorf("a text is owed a second time: %v", err)
	}
	if c, err := s.Ask(ctx, store.Confirmation{Platform: "test", ChatID: "1", Key: m.id("cancelled"), Command: "x"}); err != nil || c.State != store.ConfirmCancelled {
		t.Errorf("a question is asked a second time: %+v, %v", c, err)
	}
}
