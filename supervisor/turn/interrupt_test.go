package turn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func (r *rig) interrupt(turnID string) bool {
	r.t.Helper()
	was, err := r.hub.Interrupt(r.t.Context(), turnID, "enough")
	if err != nil {
		r.t.Fatal(err)
	}
	return was
}

// obedient waits for its interruption and finishes with what it has.
func obedient(a *agentRun) error {
	a.say(1, "so far")
	<-a.stopped
	_, err := a.turns().Finish(a.ctx, &hostv1.FinishRequest{
		TurnId: a.req.TurnId, Fence: a.req.Fence, Outcome: turnv1.Outcome_OUTCOME_INTERRUPTED,
		Reply: &turnv1.Message{Content: "so far", Seq: 1},
	})
	return err
}

func TestInterruptOfARunningTurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.agent("agent-1", func(a *agentRun) error {
			<-a.stopped
			<-release
			return obedient(a)
		})
		a := r.accept("main", "m", "hi")
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		for range 2 { // a second time is no fault
			if !r.interrupt(a.TurnID) {
				t.Fatal("a running turn was not interrupted")
			}
		}
		close(release)
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED || f.Text != "so far" {
			t.Fatalf("final is %v", f)
		}
		if r.interrupt(a.TurnID) {
			t.Error("an ended turn was interrupted")
		}
		if n := len(r.eventsOf("turn_interrupted")); n != 1 {
			t.Errorf("%d events of one interruption", n)
		}
	})
}

func TestInterruptOfAWaitingTurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.accept("main", "m", "hi")
		r.interrupt(a.TurnID)
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED || f.Error != "interrupted: enough" {
			t.Fatalf("final is %v", f)
		}
		r.wantTranscript(a.SessionID, "user: hi", "assistant: Stopped, as asked, before there was an answer.")
	})
}

// The rows of a turn that is ended unrun must not come between those of the one that runs.
func TestInterruptBehindARunningTurnKeepsTheConversationInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("done")}})
		release := make(chan struct{})
		r.agent("agent-1", func(a *agentRun) error {
			<-release
			return obey(never)(a)
		})
		first := r.accept("main", "1", "call:work")
		second := r.accept("main", "2", "never mind")
		third := r.accept("main", "3", "last")
		r.interrupt(second.TurnID)
		time.Sleep(time.Minute / 2)
		close(release)
		events := r.follow(second.TurnID)
		if f := events[len(events)-1].GetFinal(); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
			t.Fatalf("final is %v", f)
		}
		r.final(third.TurnID)
		r.wantTranscript(first.SessionID, "user: call:work", "assistant:  [c0 work]", "tool: done", "assistant: done",
			"user: never mind", "assistant: Stopped, as asked, before there was an answer.", "user: last", "assistant: last")
	})
}

func TestInterruptCancelsCallsAndThoseToCome(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		cancelled := make(chan struct{})
		r.tools("tools", map[string]scriptedTool{"work": {invoke: func(ctx context.Context, in *invocation) (*toolv1.Result, error) {
			<-ctx.Done()
			close(cancelled)
			return nil, ctx.Err()
		}}})
		r.agent("agent-1", func(a *agentRun) error {
			res, err := a.call("c0", "work", "{}", 1)
			if err != nil {
				return err
			}
			late, err := a.call("c1", "work", "{}", 1)
			if err != nil {
				return err
			}
			return a.finish(1, res.Content+" / "+late.Error.Kind.String())
		})
		a := r.accept("main", "m", "hi")
		<-r.reached("work")
		r.interrupt(a.TurnID)
		<-cancelled
		text := r.final(a.TurnID).Text
		wantContains(t, text, "The call was cancelled because the turn was interrupted")
		wantContains(t, text, "KIND_CANCELLED")
		if n := r.world.of(a.TurnID, "c1"); n != 0 {
			t.Errorf("a call after the interruption was made %d times", n)
		}
	})
}

// Neither a deaf agent nor a dead one keeps a person from stopping a turn.
func TestInterruptedTurnEndsWhateverItsAgentDoes(t *testing.T) {
	for name, script := range map[string]func(*agentRun) error{
		"deaf": func(a *agentRun) error {
			for a.ctx.Err() == nil {
				a.active()
				sleep(a.ctx, time.Second)
			}
			return a.ctx.Err()
		},
		"dead": func(a *agentRun) error {
			<-a.stopped
			return a.die()
		},
		"confused": func(a *agentRun) error {
			<-a.stopped
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var runs atomic.Int32
				r.agent("agent-1", func(a *agentRun) error {
					runs.Add(1)
					return script(a)
				})
				a := r.accept("main", "m", "hi")
				r.eventually("it runs", func() bool { return runs.Load() == 1 })
				r.interrupt(a.TurnID)
				if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
					t.Fatalf("final is %v", f)
				}
				if runs.Load() != 1 {
					t.Errorf("it was run %d times", runs.Load())
				}
			})
		})
	}
}

// A turn may be interrupted between its lease and the agent's first word.
func TestInterruptReachesAnAgentThatDoesNotKnowTheTurnYet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obedient)
		var wrong atomic.Int32
		for i := range 20 {
			a := r.accept(string(rune('a'+i)), "m", "hi")
			r.interrupt(a.TurnID)
			if r.final(a.TurnID).Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
				wrong.Add(1)
			}
		}
		if wrong.Load() != 0 {
			t.Errorf("%d of 20 turns were not interrupted", wrong.Load())
		}
	})
}

func TestInterruptOfNoTurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		if _, err := r.hub.Interrupt(t.Context(), "turn_none", ""); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("interrupting no turn: %v", err)
		}
		if _, err := r.hub.Interrupt(t.Context(), "", ""); !errors.Is(err, ipc.ErrInvalid) {
			t.Errorf("interrupting without an id: %v", err)
		}
	})
}

func TestEndedTurnLeavesNoCallWithoutResult(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"quick": {invoke: ok("done")}, "work": {invoke: dies}})
		r.agent("agent-1", func(a *agentRun) error {
			_ = a.append(&turnv1.Message{Role: "assistant", Seq: 1, ToolCalls: []*turnv1.ToolCall{
				{Id: "a", Name: "quick", ArgumentsJson: "{}"}, {Id: "b", Name: "work", ArgumentsJson: "{}"}, {Id: "c", Name: "quick", ArgumentsJson: "{}"},
			}})
			_, _ = a.call("a", "quick", "{}", 1)
			_, _ = a.call("b", "work", "{}", 1)
			<-a.stopped
			return a.die()
		})
		a := r.accept("main", "m", "hi")
		r.eventually("two calls have ended", func() bool {
			calls, _ := r.state.Calls(t.Context(), a.TurnID)
			return len(calls) == 2 && calls[0].State == store.CallDone && calls[1].State == store.CallUnknown
		})
		r.interrupt(a.TurnID)
		r.final(a.TurnID)
		rows := r.transcript(a.SessionID)
		if len(rows) != 6 || rows[2] != "tool: done" || rows[4] != "tool: The call was not made: the turn was ended first." {
			t.Fatalf("conversation is %q", rows)
		}
		wantContains(t, rows[3], "unknown whether this call of work")
	})
}
