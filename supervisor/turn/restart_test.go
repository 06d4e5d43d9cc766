package turn

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// A killPoint is a state of a turn in which the supervisor is killed.
type killPoint struct {
	text    string
	reached func(r *rig, turnID string) bool // the state in which the supervisor is killed
	hang    string                           // where the agent waits for it
	want    string
	made    int
}

var killPoints = map[string]killPoint{
	"queued": {"hello", func(r *rig, id string) bool { return r.turn(id).State == store.TurnQueued }, "no agent", "hello", 0},
	"leased": {"hello", func(r *rig, id string) bool { return r.turn(id).State == store.TurnLeased }, "before finish", "hello", 0},
	"step stored, call not begun": {"call:quick", func(r *rig, id string) bool { return r.turn(id).NextSeq == 2 }, "after append",
		"twice", 1},
	"call with effects runs": {"call:work", callIs(store.CallRunning), "", "unknown whether this call of work had its effect", 1},
	"read-only call runs":    {"call:look", callIs(store.CallRunning), "", "seen", 2},
	"call done, result not appended": {"call:quick", callIs(store.CallDone), "after call",
		"done", 1},
	"result appended": {"call:quick", func(r *rig, id string) bool { return r.turn(id).NextSeq == 3 }, "before finish", "done", 1},
	"finished":        {"hello", func(r *rig, id string) bool { return r.turn(id).State == store.TurnDone }, "", "hello", 0},
}

// A kill of the supervisor in every state of a turn: the next one answers it, and makes no call with effects twice.
func TestRestartInEveryState(t *testing.T) {
	tools := map[string]scriptedTool{
		"work": {invoke: blocked}, "look": {readOnly: true, invoke: blocked}, "quick": {invoke: ok("done")},
	}
	after := map[string]scriptedTool{
		"work": {invoke: ok("again")}, "look": {readOnly: true, invoke: ok("seen")}, "quick": {invoke: ok("twice")},
	}
	for name, c := range killPoints {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.tools("tools", tools)
				if c.hang != "no agent" {
					r.agent("agent-1", lively(obey(func(a *agentRun, at string) bool {
						if at == c.hang {
							<-a.ctx.Done()
						}
						return false
					})))
				}
				a := r.accept("main", "m", c.text)
				next := r.accept("main", "m2", "next")
				r.eventually("the state is reached", func() bool { return c.reached(r, a.TurnID) })
				r.restart()
				r.tools("tools", after)
				r.agent("agent-1", obey(never))
				wantContains(t, r.final(a.TurnID).Text, c.want)
				if n := r.world.of(a.TurnID, "c0"); n != c.made {
					t.Errorf("the call was made %d times, want %d", n, c.made)
				}
				if again := r.accept("main", "m", c.text); !again.Duplicate || again.TurnID != a.TurnID {
					t.Errorf("the repeated message got %+v", again)
				}
				if got := r.final(next.TurnID).Text; got != "next" {
					t.Errorf("the next message got %q", got)
				}
				answers := 0
				for _, line := range r.transcript(a.SessionID) {
					if strings.HasPrefix(line, "assistant: ") && !strings.Contains(line, "[") {
						answers++
					}
				}
				if answers != 2 {
					t.Errorf("two messages have %d answers: %q", answers, r.transcript(a.SessionID))
				}
			})
		})
	}
}

func callIs(state store.CallState) func(*rig, string) bool {
	return func(r *rig, turnID string) bool {
		calls, err := r.state.Calls(r.t.Context(), turnID)
		return err == nil && len(calls) == 1 && calls[0].State == state
	}
}

// The count of lost leases is in the store: restarts of the supervisor count too.
func TestTurnThatEndsTheSupervisorIsParked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int32
		script := lively(func(a *agentRun) error {
			runs.Add(1)
			<-a.ctx.Done()
			return a.ctx.Err()
		})
		r.agent("agent-1", script)
		a := r.accept("main", "m", "hi")
		for i := range parkAfter {
			r.eventually("it runs", func() bool { return runs.Load() == int32(i+1) })
			time.Sleep(restartWindow) // else it were parked for that
			r.restart()
			r.agent("agent-1", script)
		}
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_PARKED {
			t.Fatalf("final is %v", f)
		}
		if runs.Load() != parkAfter {
			t.Errorf("it was run %d times", runs.Load())
		}
	})
}

func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		budget, turn time.Duration
		unfinished   int
	}{
		"finishes in time": {time.Minute, 10 * time.Second, 0},
		"takes too long":   {time.Minute, time.Hour, 1},
		"nothing runs":     {time.Minute, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.agent("agent-1", lively(func(a *agentRun) error {
					if !sleep(a.ctx, c.turn) {
						return a.ctx.Err()
					}
					return obey(never)(a)
				}))
				a := store.Accepted{}
				if c.turn > 0 {
					a = r.accept("main", "1", "running")
					r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
				}
				began := time.Now()
				ctx, cancel := contextFor(t, c.budget)
				defer cancel()
				drained := make(chan int)
				go func() { drained <- r.hub.Drain(ctx) }()
				time.Sleep(time.Second)
				late := r.accept("other", "2", "late") // taken, but not begun
				if n := <-drained; n != c.unfinished {
					t.Errorf("%d turns unfinished, want %d", n, c.unfinished)
				}
				if took := time.Since(began); took > c.budget {
					t.Errorf("the drain took %v", took)
				}
				if u := r.turn(late.TurnID); u.State != store.TurnQueued || u.Attempt != 0 {
					t.Errorf("a message during the drain is %+v", u)
				}
				if a.TurnID != "" {
					want := map[int]store.TurnState{0: store.TurnDone, 1: store.TurnLeased}[c.unfinished]
					if u := r.turn(a.TurnID); u.State != want {
						t.Errorf("the turn is %s, want %s", u.State, want)
					}
				}
				r.restart()
				r.agent("agent-1", obey(never))
				if got := r.final(late.TurnID).Text; got != "late" {
					t.Errorf("after the start the late message got %q", got)
				}
				if a.TurnID != "" && r.final(a.TurnID).Text != "running" {
					t.Errorf("after the start the first message got %q", r.final(a.TurnID).Text)
				}
			})
		})
	}
}

func TestClosedHubRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a := r.accept("main", "m", "hi")
		followed := make(chan error)
		go func() { followed <- r.hub.Follow(t.Context(), a.TurnID, func(*turnv1.TurnEvent) error { return nil }) }()
		time.Sleep(time.Second)
		r.hub.Close()
		if err := <-followed; ipc.ExitCode(err) != ipc.ExitTryAgain {
			t.Errorf("a follower was told %v", err)
		}
		_, err := r.hub.Accept(t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "n", Text: "hi"})
		if ipc.ExitCode(err) != ipc.ExitTryAgain {
			t.Errorf("an accept was told %v", err)
		}
		if err := r.hub.Start(t.Context()); err == nil {
			t.Error("a closed hub started")
		}
	})
}

// Whether an Accept that failed has stored its message is unknown; its turn must be run all the same, and in order.
func TestUnansweredAcceptIsRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		failing := &flaky{}
		r.wrap = func(s Store) Store {
			failing.Store = s
			return failing
		}
		r.restart()
		r.agent("agent-1", obey(never))
		// The message is in the store, the hub was never told.
		a, err := r.state.Accept(t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "1", Text: "lost"})
		if err != nil {
			t.Fatal(err)
		}
		failing.fail = errors.New("commit: disk I/O error")
		if _, err := r.hub.Accept(t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "2", Text: "x"}); err == nil {
			t.Fatal("the accept did not fail")
		}
		if got := r.final(a.TurnID).Text; got != "lost" {
			t.Fatalf("final text %q", got)
		}
	})
}

// A flaky store fails what it is told to, once, after it did it.
type flaky struct {
	Store
	fail error
}

func (f *flaky) Accept(ctx context.Context, in store.Inbound) (store.Accepted, error) {
	a, err := f.Store.Accept(ctx, in)
	if f.fail != nil {
		err, f.fail = f.fail, nil
	}
	return a, err
}

func contextFor(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
