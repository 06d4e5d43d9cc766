package turn

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

func TestAgentDeathAtEveryBoundaryIsAnsweredOnce(t *testing.T) {
	for _, point := range []string{"before append", "after append", "during call", "after call", "before finish", "after finish"} {
		t.Run(point, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				slow := func(ctx context.Context, _ *invocation) (*toolv1.Result, error) {
					select {
					case <-time.After(5 * time.Second):
						return &toolv1.Result{Content: "done"}, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				r.tools("tools", map[string]scriptedTool{"work": {invoke: slow}})
				var died atomic.Bool
				script := obey(func(_ *agentRun, at string) bool { return at == point && died.CompareAndSwap(false, true) })
				r.agent("agent-1", script)
				a := r.accept("main", "m1", "please call:work now")
				r.eventually("the agent dies", died.Load)
				r.agent("agent-1", script)
				if got := r.final(a.TurnID); got.Text != "please done now" || got.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
					t.Fatalf("final is %v", got)
				}
				if n := r.world.of(a.TurnID, "c1"); n != 1 {
					t.Fatalf("the call was made %d times", n)
				}
				r.wantTranscript(a.SessionID, "user: please call:work now", "assistant:  [c1 work]", "tool: done", "assistant: please done now")
			})
		})
	}
}

func TestTurnLostThreeTimesIsParkedWithReasons(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: func(ctx context.Context, _ *invocation) (*toolv1.Result, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}})
		var deaths atomic.Int32
		script := obey(func(_ *agentRun, at string) bool {
			if at == "during call" {
				deaths.Add(1)
			}
			return at == "during call"
		})
		a := r.accept("main", "m1", "call:work")
		next := r.accept("main", "m2", "hello")
		for i := range 3 {
			r.agent("agent-1", script)
			r.eventually("the agent dies", func() bool { return deaths.Load() == int32(i+1) })
		}
		f := r.final(a.TurnID)
		if f.Outcome != turnv1.Outcome_OUTCOME_PARKED {
			t.Fatalf("final is %v", f)
		}
		for _, want := range []string{"3 times in a row", "agent-1", "Send /retry"} {
			wantContains(t, f.Text, want)
		}
		if n := r.world.of(a.TurnID, "c0"); n != 1 {
			t.Fatalf("the call was made %d times", n)
		}
		rows := r.transcript(a.SessionID)
		if len(rows) != 4 || rows[1] != "assistant:  [c0 work]" {
			t.Fatalf("conversation is %q", rows)
		}
		wantContains(t, rows[2], "tool: ")
		if len(r.eventsOf("turn_parked")) != 1 {
			t.Fatal("no event says that the turn was parked")
		}
		r.agent("agent-1", obey(never))
		if got := r.final(next.TurnID).Text; got != "hello" {
			t.Fatalf("the next message got %q", got)
		}
	})
}

// Planned ends are no fault of the turn's: any number of them may cut it, and it goes on.
func TestTurnCutByPlanThreeTimesIsNotParked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {readOnly: true, invoke: ok("done")}})
		var ends atomic.Int32
		script := obey(func(run *agentRun, at string) bool {
			if at != "before append" || ends.Load() >= 5 {
				return false
			}
			r.hub.Leaving(run.id)
			ends.Add(1)
			return true
		})
		a := r.accept("main", "m1", "call:work")
		for i := range 5 {
			r.agent("agent-1", script)
			r.eventually("the agent is replaced", func() bool { return ends.Load() >= int32(i+1) })
		}
		r.agent("agent-1", script)
		if got := r.final(a.TurnID); got.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
			t.Fatalf("final is %v", got)
		}
		if u := r.turn(a.TurnID); u.Interrupted != 0 {
			t.Errorf("%d interruptions were counted", u.Interrupted)
		}
	})
}

// A step in between shows that the turn gets on, so its deaths are counted anew.
func TestTurnThatGetsOnIsNotParked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("done")}})
		var deaths atomic.Int32
		script := obey(func(a *agentRun, at string) bool {
			// Two deaths for each step that is stored.
			die := deaths.Load() < 8 && (at == "before append" && a.req.Attempt%2 == 1 || at == "after append" && a.req.Attempt%2 == 0)
			if die {
				deaths.Add(1)
			}
			return die
		})
		a := r.accept("main", "m1", "call:work call:work call:work call:work call:work")
		for i := range 8 {
			r.agent("agent-1", script)
			r.eventually("the agent dies", func() bool { return deaths.Load() >= int32(i+1) })
		}
		r.agent("agent-1", script)
		if got := r.final(a.TurnID); got.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
			t.Fatalf("final is %v", got)
		}
	})
}

// An agent that refuses a run, because it drains, says nothing about the turn.
func TestRefusedRunsDoNotParkATurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var refused atomic.Int32
		r.agent("agent-1", func(*agentRun) error {
			refused.Add(1)
			return fmt.Errorf("draining: %w", ipc.ErrRefused)
		})
		a := r.accept("main", "m1", "hello")
		r.eventually("it is refused five times", func() bool { return refused.Load() >= 5 })
		r.restart()
		r.agent("agent-1", obey(never))
		if got := r.final(a.TurnID); got.Text != "hello" {
			t.Fatalf("final is %v", got)
		}
	})
}

func TestRunThatEndsWithoutFinishIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int32
		began := time.Now()
		r.agent("agent-1", func(a *agentRun) error {
			if runs.Add(1) == 1 {
				return nil
			}
			return obey(never)(a)
		})
		a := r.accept("main", "m1", "hello")
		if got := r.final(a.TurnID); got.Text != "hello" {
			t.Fatalf("final is %v", got)
		}
		if took := time.Since(began); took >= time.Second {
			t.Fatalf("it took %v until the turn was run again", took)
		}
	})
}

func TestSilentRunLosesItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int32
		cancelled := make(chan struct{})
		script := func(a *agentRun) error {
			switch runs.Add(1) {
			case 1:
				for range 10 { // shows activity for longer than IdleRun, then falls silent
					a.active()
					time.Sleep(10 * time.Second)
				}
				<-a.ctx.Done()
				close(cancelled)
				return a.ctx.Err()
			default:
				return obey(never)(a)
			}
		}
		r.agent("agent-1", script)
		began := time.Now()
		a := r.accept("main", "m1", "hello")
		if got := r.final(a.TurnID); got.Text != "hello" {
			t.Fatalf("final is %v", got)
		}
		<-cancelled
		if took := time.Since(began); took < 90*time.Second+defaultIdleRun || took > 100*time.Second+defaultIdleRun {
			t.Fatalf("the lease was taken away after %v", took)
		}
		wantContains(t, r.eventsOf("turn_requeued")[0].Message, "sent no event for 1m0s")
	})
}
