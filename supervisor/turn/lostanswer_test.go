package turn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// A mute is a store that does what it is asked and whose answer is lost, as when its deadline passes with the commit under way.
type mute struct {
	Store
	finish, reads, begin, request, decision, accept atomic.Bool // once each

	opened func() // after the open turns were read, if it is set
}

var errNoAnswer = errors.New("no answer in time")

func (m *mute) FinishTurn(ctx context.Context, f store.Finish) (store.Turn, error) {
	t, err := m.Store.FinishTurn(ctx, f)
	if m.finish.CompareAndSwap(true, false) {
		return store.Turn{}, errNoAnswer
	}
	return t, err
}

func (m *mute) Turn(ctx context.Context, id string) (store.Turn, error) {
	if m.reads.CompareAndSwap(true, false) {
		return store.Turn{}, errNoAnswer
	}
	return m.Store.Turn(ctx, id)
}

func (m *mute) Accept(ctx context.Context, in store.Inbound) (store.Accepted, error) {
	a, err := m.Store.Accept(ctx, in)
	if m.accept.CompareAndSwap(true, false) {
		return store.Accepted{}, errNoAnswer
	}
	return a, err
}

func (m *mute) Open(ctx context.Context) ([]store.Turn, error) {
	open, err := m.Store.Open(ctx)
	if m.opened != nil {
		m.opened()
	}
	return open, err
}

func (m *mute) BeginCall(ctx context.Context, fence uint64, c store.Call) (store.Call, bool, error) {
	c, known, err := m.Store.BeginCall(ctx, fence, c)
	if m.begin.CompareAndSwap(true, false) {
		return store.Call{}, false, errNoAnswer
	}
	return c, known, err
}

func (m *mute) RequestApproval(ctx context.Context, a store.Approval) (store.Approval, error) {
	a, err := m.Store.RequestApproval(ctx, a)
	if m.request.CompareAndSwap(true, false) {
		return store.Approval{}, errNoAnswer
	}
	return a, err
}

func (m *mute) DecideApproval(ctx context.Context, id string, approve bool, by string) (store.Approval, bool, error) {
	a, before, err := m.Store.DecideApproval(ctx, id, approve, by)
	if m.decision.CompareAndSwap(true, false) {
		return store.Approval{}, false, errNoAnswer
	}
	return a, before, err
}

// unanswered hands a message over whose acceptance is not confirmed.
func (r *rig) unanswered(m *mute, in store.Inbound) {
	r.t.Helper()
	m.accept.Store(true)
	if _, err := r.hub.Accept(r.t.Context(), in); !errors.Is(err, errNoAnswer) {
		r.t.Fatalf("the answer of the store was not lost: %v", err)
	}
}

func (r *rig) muted() *mute {
	m := &mute{}
	r.wrap = func(s Store) Store {
		m.Store = s
		return m
	}
	r.restart()
	return m
}

// A text that comes too late for its turn is the next turn, which only the answer to the end of the first one names. When
// that answer is lost and its agent with it, nobody is left to ask again.
func TestATextThatCameTooLateIsAnsweredThoughTheEndOfItsTurnIsNotConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := r.muted()
		r.agent("agent-1", func(a *agentRun) error {
			_, rows, err := a.load()
			if err != nil {
				return err
			}
			if text := rows[len(rows)-1].Content; text != "hi" {
				return a.finish(1, "heard: "+text)
			}
			late, err := r.hub.Accept(a.ctx, store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "2", Text: "and this", Busy: store.BusySteer})
			if err != nil || late.Disposition != store.Steered {
				t.Errorf("accepted: %+v, %v", late, err)
			}
			m.finish.Store(true)
			_ = a.finish(1, "hello")
			return errors.New("gone with the answer")
		})
		first := r.accept("main", "1", "hi")
		if f := r.final(first.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED || f.Text != "hello" {
			t.Errorf("final is %v", f)
		}
		r.eventually("the text that came too late is answered", func() bool {
			lines := r.transcript(first.SessionID)
			return lines[len(lines)-1] == "assistant: heard: and this"
		})
	})
}

// A message that interrupts is handed over again when its acknowledgement failed. The turn it was to interrupt must not go on
// for an hour because the first try came only half the way.
func TestAnInterruptionIsMadeWhenItsMessageIsHandedOverAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := r.muted()
		running := make(chan struct{}, 4)
		r.agent("agent-1", func(a *agentRun) error {
			if a.req.Attempt == 1 && len(running) == 0 {
				running <- struct{}{}
				select {
				case <-a.stopped:
				case <-a.ctx.Done():
				}
				return a.end(turnv1.Outcome_OUTCOME_INTERRUPTED, &turnv1.Message{Content: "stopped", Seq: 1})
			}
			return a.finish(1, "new")
		})
		first := r.accept("main", "1", "hi")
		r.eventually("the first turn runs", func() bool { return len(running) == 1 })
		in := store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "2", Text: "no, that", Busy: store.BusyInterrupt}
		m.reads.Store(true)
		if _, err := r.hub.Accept(t.Context(), in); !errors.Is(err, errNoAnswer) {
			t.Fatalf("the store's read did not fail: %v", err)
		}
		again, err := r.hub.Accept(t.Context(), in)
		if err != nil || !again.Duplicate {
			t.Fatalf("%+v, %v", again, err)
		}
		r.eventually("the first turn is interrupted", func() bool { return len(r.eventsOf("turn_interrupted")) == 1 })
		if f := r.final(first.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
			t.Errorf("final is %v", f)
		}
		if f := r.final(again.TurnID); f.Text != "new" {
			t.Errorf("final is %v", f)
		}
	})
}

// Nobody need hand such a message over again: a terminal tells its person, who sees the next turn begin.
func TestAnInterruptionThatIsStoredUnconfirmedIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := r.muted()
		r.agent("agent-1", func(a *agentRun) error {
			_, rows, err := a.load()
			if err != nil {
				return err
			}
			if text := rows[len(rows)-1].Content; text != "hi" {
				return a.finish(1, "heard: "+text)
			}
			return lively(obedient)(a)
		})
		first := r.accept("main", "1", "hi")
		r.eventually("the first turn runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		r.unanswered(m, store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "2", Text: "no, that", Busy: store.BusyInterrupt})
		if f := r.final(first.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
			t.Errorf("final is %v", f)
		}
		r.eventually("the message is answered", func() bool {
			lines := r.transcript(first.SessionID)
			return lines[len(lines)-1] == "assistant: heard: no, that"
		})
		if n := len(r.eventsOf("turn_interrupted")); n != 1 {
			t.Errorf("%d events of one interruption", n)
		}
	})
}

// What the store says of its open turns is old when it arrives: one may have ended since, and is not taken up again.
func TestATurnThatEndsWhileOpenTurnsAreReadHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := r.muted()
		end := make(chan struct{})
		p := r.agent("agent-1", func(a *agentRun) error {
			<-end
			return a.finish(1, "hello")
		})
		a := r.accept("main", "1", "hi")
		r.eventually("the turn runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		read, ended := make(chan struct{}), make(chan struct{})
		m.opened = func() {
			close(read)
			<-ended
		}
		r.unanswered(m, store.Inbound{Platform: PlatformTerminal, ChatID: "other", MessageID: "2", Text: "and this"})
		<-read
		close(end)
		r.final(a.TurnID)
		p.kill() // whatever is taken up now stays
		close(ended)
		r.eventually("the other message has its turn", func() bool {
			r.hub.mu.Lock()
			defer r.hub.mu.Unlock()
			return r.hub.tickets.hold == 0
		})
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		if len(r.hub.turns) != 1 || r.hub.turns[a.TurnID] != nil {
			t.Errorf("open turns are %v, and %s has ended", r.hub.turns, a.TurnID)
		}
	})
}
