package turn

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A frozen agent that comes back after its lease was given to another must not write a word.
func TestOldFenceIsRefusedEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("done")}})
		zombies := make(chan *agentRun, 1)
		release := make(chan struct{})
		var runs atomic.Int32
		script := func(a *agentRun) error {
			if runs.Add(1) == 1 {
				zombies <- a
				<-a.ctx.Done()
				return a.ctx.Err()
			}
			<-release
			return obey(never)(a)
		}
		r.agent("agent-1", script)
		a := r.accept("main", "m1", "hello")
		zombie := <-zombies
		r.eventually("another run has begun", func() bool { return runs.Load() == 2 })

		old := *zombie
		old.ctx = t.Context() // its own calls are not cancelled
		for name, write := range map[string]func() error{
			"load":   func() error { _, _, err := old.load(); return err },
			"append": func() error { return old.append(&turnv1.Message{Role: "assistant", Seq: 1, Content: "late"}) },
			"call":   func() error { _, err := old.call("c0", "work", "{}", 1); return err },
			"finish": func() error { return old.finish(1, "late") },
		} {
			if err := write(); !errors.Is(err, ipc.ErrLeaseLost) {
				t.Errorf("%s under an old fence: %v", name, err)
			}
		}
		close(release)
		if got := r.final(a.TurnID).Text; got != "hello" {
			t.Fatalf("final text %q", got)
		}
		if err := old.finish(1, "late"); !errors.Is(err, ipc.ErrLeaseLost) {
			t.Errorf("finish after the end under an old fence: %v", err)
		}
		if n := r.world.of(a.TurnID, "c0"); n != 0 {
			t.Errorf("the old call was made %d times", n)
		}
		r.wantTranscript(a.SessionID, "user: hello", "assistant: hello")
	})
}

func TestAnotherWorkerMayNotWriteUnderTheFence(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		runs := make(chan *agentRun, 1)
		release := make(chan struct{})
		r.agent("agent-1", func(a *agentRun) error {
			runs <- a
			<-release
			return obey(never)(a)
		})
		a := r.accept("main", "m1", "hello")
		thief := *<-runs
		thief.process = r.agent("agent-2", obey(never))
		thief.ctx = t.Context()
		if err := thief.finish(1, "mine"); !errors.Is(err, ipc.ErrLeaseLost) {
			t.Errorf("finish by another worker: %v", err)
		}
		close(release)
		r.final(a.TurnID)
	})
}

func TestRepeatedFinishIsAnsweredAlike(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ends := make(chan error, 2)
		r.agent("agent-1", func(a *agentRun) error {
			ends <- a.finish(1, "once")
			ends <- a.finish(1, "once")
			return nil
		})
		a := r.accept("main", "m1", "hello")
		r.final(a.TurnID)
		for range 2 {
			if err := <-ends; err != nil {
				t.Fatal(err)
			}
		}
		r.wantTranscript(a.SessionID, "user: hello", "assistant: once")
	})
}
