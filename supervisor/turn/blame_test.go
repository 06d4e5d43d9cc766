package turn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// The first reply of a session is stored as a step before its turn is finished. A turn that is lost between the two until
// it is given up has its answer, and gets no second one.
func TestAStoredReplyIsTheAnswerOfATurnThatTheHubEnds(t *testing.T) {
	for reason, want := range map[string]turnv1.Outcome{
		"stop": turnv1.Outcome_OUTCOME_COMPLETED, "error": turnv1.Outcome_OUTCOME_FAILED, "budget": turnv1.Outcome_OUTCOME_BUDGET,
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var deaths atomic.Int32
				script := func(a *agentRun) error {
					if a.req.Attempt == 1 {
						if err := a.append(&turnv1.Message{Role: "assistant", Seq: 1, Content: "the answer", FinishReason: reason}); err != nil {
							return err
						}
					}
					deaths.Add(1)
					return a.die()
				}
				a := r.accept("main", "m", "hello")
				for i := range parkAfter {
					r.agent("agent-1", script)
					r.eventually("the agent dies", func() bool { return deaths.Load() >= int32(i+1) })
				}
				if f := r.final(a.TurnID); f.Text != "the answer" || f.Outcome != want {
					t.Errorf("final is %v", f)
				}
				r.wantTranscript(a.SessionID, "user: hello", "assistant: the answer")
			})
		})
	}
}

// A supervisor that is killed twice with the reply stored ends the turn with that reply.
func TestAStoredReplyIsTheAnswerOfATurnThatRanAtTwoRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int32
		script := lively(func(a *agentRun) error {
			if a.req.Attempt == 1 {
				if err := a.append(&turnv1.Message{Role: "assistant", Seq: 1, Content: "the answer", FinishReason: "stop"}); err != nil {
					return err
				}
			}
			runs.Add(1)
			<-a.ctx.Done()
			return a.ctx.Err()
		})
		a := r.accept("main", "m", "hello")
		for i := range 2 {
			r.agent("agent-1", script)
			r.eventually("it runs", func() bool { return runs.Load() == int32(i+1) })
			r.restart()
		}
		// A kill of which the hub saw the agent's death first is no second restart: the turn is run once more.
		r.agent("agent-1", func(a *agentRun) error { return a.finish(1, "the answer") })
		if f := r.final(a.TurnID); f.Text != "the answer" || f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
			t.Errorf("final is %v", f)
		}
		r.wantTranscript(a.SessionID, "user: hello", "assistant: the answer")
	})
}

// An agent that dies takes all its turns with it, and at most one of them is the cause: they are tried twice as often.
func TestTurnsThatAreLostTogetherAreTriedLonger(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const turns, deaths = 4, parkAfter + 1
		var running, lives atomic.Int32
		script := func(a *agentRun) error {
			if lives.Load() > deaths {
				return obey(never)(a)
			}
			if running.Add(1) == turns {
				running.Store(0)
				return a.die()
			}
			<-a.dead
			return errKilled
		}
		var all []store.Accepted
		for i := range turns {
			all = append(all, r.accept(fmt.Sprint("chat ", i), "m", "hello"))
		}
		for range deaths {
			lives.Add(1)
			p := r.agent("agent-1", script)
			<-p.dead
		}
		lives.Add(1)
		r.agent("agent-1", script)
		for _, a := range all {
			if f := r.final(a.TurnID); f.Text != "hello" {
				t.Errorf("final is %v", f)
			}
		}
	})
}

// A turn that kills every agent that has it is given up in company as well, if later.
func TestATurnThatIsAlwaysLostInCompanyIsParked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int32
		script := func(a *agentRun) error {
			_, rows, err := a.load()
			if err != nil {
				return err
			}
			if slices.ContainsFunc(rows, func(m *turnv1.Message) bool { return strings.HasPrefix(m.Content, "company") }) {
				<-a.dead
				return errKilled
			}
			time.Sleep(time.Second) // the company has come
			runs.Add(1)
			return a.die()
		}
		a := r.accept("main", "m", "poison")
		r.accept("other", "m", "company")
		for range 2 * parkAfter {
			p := r.agent("agent-1", script)
			<-p.dead
		}
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_PARKED {
			t.Errorf("final is %v", f)
		}
		if n := runs.Load(); n != 2*parkAfter {
			t.Errorf("it was run %d times", n)
		}
	})
}

// A store that is too slow to be read, or an agent that waits too long for the supervisor, says nothing about the turn.
func TestASlowMachineIsNoFaultOfATurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var refused atomic.Int32
		slow := &slowReads{}
		r.wrap = func(s Store) Store { slow.Store = s; return slow }
		r.restart()
		r.agent("agent-1", func(a *agentRun) error {
			a.active()
			if refused.Load() >= parkAfter {
				slow.off.Store(true)
			}
			if n := refused.Add(1); n > parkAfter && n <= 2*parkAfter {
				return fmt.Errorf("list tools: %w", ipc.ErrTimeout)
			}
			return obey(never)(a)
		})
		a := r.accept("main", "m", "hello")
		if f := r.final(a.TurnID); f.Text != "hello" {
			t.Errorf("final is %v", f)
		}
		// What the store refused is not counted; what took too long is, towards the limit of turns that are lost together.
		if u := r.turn(a.TurnID); u.Interrupted != parkAfter {
			t.Errorf("%d interruptions were counted", u.Interrupted)
		}
	})
}

// slowReads is a store whose reads of conversations take too long.
type slowReads struct {
	Store
	off atomic.Bool
}

func (s *slowReads) Conversation(ctx context.Context, session string) ([]store.Message, error) {
	if s.off.Load() {
		return s.Store.Conversation(ctx, session)
	}
	return nil, fmt.Errorf("read took too long: %w", context.DeadlineExceeded)
}

// A turn that no agent took is not lost when the supervisor ends.
func TestATurnThatWasRefusedIsNotLostByARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var refused atomic.Int32
		script := func(*agentRun) error {
			refused.Add(1)
			return fmt.Errorf("draining: %w", ipc.ErrRefused)
		}
		a := r.accept("main", "m", "hello")
		for i := range 2 {
			r.agent("agent-1", script)
			r.eventually("it is refused", func() bool { return refused.Load() == int32(i+1) && r.turn(a.TurnID).State == store.TurnQueued })
			r.restart()
		}
		r.agent("agent-1", obey(never))
		if f := r.final(a.TurnID); f.Text != "hello" {
			t.Errorf("final is %v", f)
		}
	})
}
