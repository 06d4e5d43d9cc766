package turn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// shown returns what the events say of approvals, in order.
func shown(events []*turnv1.TurnEvent) (kinds []string) {
	for _, e := range events {
		if e.GetApproval() != nil || e.GetDecision() != nil {
			kinds = append(kinds, kindOf(e))
		}
	}
	return kinds
}

// A write of the hub's own is repeated when its answer is lost: as it was, and not with what the failed one returned.
func TestAWriteOfACallIsRepeatedAsItWas(t *testing.T) {
	for name, c := range map[string]struct {
		lose   func(m *mute)
		answer bool
		want   string
	}{
		"its intent":             {func(m *mute) { m.begin.Store(true) }, true, "done"},
		"its question":           {func(m *mute) { m.request.Store(true) }, true, "done"},
		"the end of its silence": {func(m *mute) { m.decision.Store(true) }, false, "nobody answered within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				m := r.muted()
				r.tools("tools", guarded())
				r.agent("agent-1", lively(obey(never)))
				c.lose(m)
				a := r.accept("main", "m", "call:ask")
				q := r.asked(a.TurnID)
				if c.answer {
					time.Sleep(time.Second)
					r.decide(q.ID, true)
				}
				events := r.follow(a.TurnID)
				wantContains(t, events[len(events)-1].GetFinal().Text, c.want)
				if u := r.turn(a.TurnID); u.Attempt != 1 {
					t.Errorf("the turn was run %d times", u.Attempt)
				}
				if got := shown(events); !c.answer && !slices.Equal(got, []string{"approval", "decision"}) {
					t.Errorf("followers were shown %v", got)
				}
				if n := len(r.eventsOf("approval_decided")); n != 1 {
					t.Errorf("one decision is told %d times", n)
				}
			})
		})
	}
}

// An answer that the store took without saying so is the answer: the call goes on, and is not left to wait for silence.
func TestAnAnswerThatTheStoreDidNotConfirmIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		yes  bool
		want string
	}{"yes": {true, "done"}, "no": {false, "the person said no"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				m := r.muted()
				r.tools("tools", guarded())
				r.agent("agent-1", lively(obey(never)))
				a := r.accept("main", "m", "call:ask")
				q := r.asked(a.TurnID)
				events := make(chan []*turnv1.TurnEvent)
				go func() { events <- r.follow(a.TurnID) }()
				time.Sleep(time.Second)
				m.decision.Store(true)
				if _, _, err := r.hub.Decide(t.Context(), q.ID, c.yes, "user"); !errors.Is(err, errNoAnswer) {
					t.Fatalf("the answer of the store was not lost: %v", err)
				}
				time.Sleep(time.Second) // long before the question ends by itself
				all := <-events
				wantContains(t, all[len(all)-1].GetFinal().Text, c.want)
				if time.Until(q.Deadline) < 30*time.Second {
					t.Error("the call went on only at the end of its time")
				}
				if got := shown(all); !slices.Equal(got, []string{"approval", "decision"}) {
					t.Errorf("followers were shown %v", got)
				}
				if n := len(r.eventsOf("approval_decided")); n != 1 {
					t.Errorf("one decision is told %d times", n)
				}
			})
		})
	}
}

// A questions is a store in which something happens while a question is stored.
type questions struct {
	Store
	stored func() // after each of its two writes
}

func (q *questions) SetCall(ctx context.Context, c store.Call) error {
	err := q.Store.SetCall(ctx, c)
	if c.State == store.CallApproval {
		q.stored()
	}
	return err
}

func (q *questions) RequestApproval(ctx context.Context, a store.Approval) (store.Approval, error) {
	a, err := q.Store.RequestApproval(ctx, a)
	q.stored()
	return a, err
}

func (r *rig) questions(stored func()) *questions {
	q := &questions{stored: stored}
	r.wrap = func(s Store) Store {
		q.Store = s
		return q
	}
	r.restart()
	return q
}

// The time to answer is the person's: what the store takes of it is added.
func TestAQuestionHasItsWholeTimeHoweverSlowTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.questions(func() { time.Sleep(25 * time.Second) })
		r.tools("tools", guarded())
		r.agent("agent-1", lively(obey(never)))
		a := r.accept("main", "m", "call:ask")
		var left, waited time.Duration
		began := time.Time{}
		err := r.hub.Follow(t.Context(), a.TurnID, func(e *turnv1.TurnEvent) error {
			if q := e.GetApproval(); q != nil {
				began, left = time.Now(), time.Until(time.UnixMilli(q.DeadlineMs))
			}
			if e.GetDecision() != nil {
				waited = time.Since(began)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if left < time.Minute-time.Second || waited < time.Minute-time.Second {
			t.Errorf("%v were said to be left and %v waited, want a minute", left, waited)
		}
	})
}

// A question that is answered while its call comes back after a restart is not shown as open once more.
func TestAnAnsweredQuestionIsNotShownAsOpen(t *testing.T) {
	for name, unheard := range map[string]bool{"in the moment it is asked again": false, "before, and the supervisor did not hear of it": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				answer := func() {}
				q := r.questions(func() { answer() })
				r.tools("tools", guarded())
				r.agent("agent-1", lively(obey(never)))
				a := r.accept("main", "m", "call:ask")
				id := r.asked(a.TurnID).ID
				r.restart()
				if unheard {
					if _, _, err := q.Store.DecideApproval(t.Context(), id, true, "user"); err != nil {
						t.Fatal(err)
					}
				} else {
					answer = func() {
						answer = func() {}
						r.decide(id, true)
					}
				}
				tools := guarded()
				end := make(chan struct{})
				tools["ask"] = scriptedTool{check: tools["ask"].check, invoke: waitFor(end)}
				events := make(chan []*turnv1.TurnEvent)
				go func() { events <- r.follow(a.TurnID) }()
				r.tools("tools", tools)
				r.agent("agent-1", lively(obey(never)))
				<-r.reached("ask")
				late := make(chan []*turnv1.TurnEvent)
				go func() { late <- r.follow(a.TurnID) }()
				time.Sleep(time.Second)
				close(end)
				if got := shown(<-events); !slices.Equal(got, []string{"approval", "decision"}) {
					t.Errorf("who followed was shown %v", got)
				}
				if got := shown(<-late); len(got) != 0 {
					t.Errorf("who came after the answer was shown %v", got)
				}
			})
		})
	}
}
