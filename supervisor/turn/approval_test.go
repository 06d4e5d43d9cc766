package turn

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// guarded are tools of which each gets another verdict.
func guarded() map[string]scriptedTool {
	verdict := func(v toolv1.CheckResponse_Verdict) scriptedTool {
		return scriptedTool{check: &toolv1.CheckResponse{Verdict: v, Reason: "it deletes files", Summary: "rm -r build"}, invoke: ok("done")}
	}
	return map[string]scriptedTool{
		"safe":   verdict(toolv1.CheckResponse_VERDICT_ALLOW),
		"ask":    verdict(toolv1.CheckResponse_VERDICT_ASK),
		"never":  verdict(toolv1.CheckResponse_VERDICT_REFUSE),
		"silent": verdict(toolv1.CheckResponse_VERDICT_UNSPECIFIED),
	}
}

// asked waits until a turn asks and returns the request.
func (r *rig) asked(turnID string) store.Approval {
	r.t.Helper()
	var a []store.Approval
	r.eventually("it asks", func() bool {
		a, _ = r.state.Approvals(r.t.Context(), turnID)
		return len(a) == 1
	})
	return a[0]
}

func (r *rig) decide(id string, yes bool) (approved, before bool) {
	r.t.Helper()
	approved, before, err := r.hub.Decide(r.t.Context(), id, yes, "user")
	if err != nil {
		r.t.Fatal(err)
	}
	return approved, before
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		manual bool
		tool   string
		want   string
		made   int
	}{
		"allowed":          {true, "safe", "done", 1},
		"refused":          {true, "never", "BLOCKED: it deletes files. This is never done", 0},
		"refused with off": {false, "never", "BLOCKED: it deletes files. This is never done", 0},
		"asked with off":   {false, "ask", "done", 1},
		"no answer":        {true, "ask", "BLOCKED: nobody answered within 1m0s whether this may be done. Silence is not consent.", 0},
		"no verdict":       {false, "silent", "could not be checked", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleWith(t, Config{Approvals: ApprovalPolicy{Manual: c.manual}}, func(t *testing.T, r *rig) {
				r.tools("tools", guarded())
				r.agent("agent-1", lively(obey(never)))
				id, read := r.one("call:" + c.tool)
				wantContains(t, read, c.want)
				if n := r.world.of(id, "c0"); n != c.made {
					t.Errorf("the call was made %d times, want %d", n, c.made)
				}
			})
		})
	}
}

// lively makes an agent show activity while it waits.
func lively(script func(*agentRun) error) func(*agentRun) error {
	return func(a *agentRun) error {
		go func() {
			for a.ctx.Err() == nil {
				a.active()
				sleep(a.ctx, 10*time.Second)
			}
		}()
		return script(a)
	}
}

func TestPersonDecides(t *testing.T) {
	for name, c := range map[string]struct {
		yes  bool
		want string
		made int
	}{
		"yes": {true, "done", 1},
		"no":  {false, "BLOCKED: the person said no", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.tools("tools", guarded())
				r.agent("agent-1", lively(obey(never)))
				a := r.accept("main", "m", "call:ask")
				q := r.asked(a.TurnID)
				if q.Summary != "rm -r build" || q.Reason != "it deletes files" || q.Deadline.Sub(time.Now()) > time.Minute {
					t.Errorf("the request is %+v", q)
				}
				events := make(chan []*turnv1.TurnEvent)
				go func() { events <- r.follow(a.TurnID) }()
				time.Sleep(time.Second)
				if approved, before := r.decide(q.ID, c.yes); approved != c.yes || before {
					t.Errorf("the first answer gave %v, %v", approved, before)
				}
				if approved, before := r.decide(q.ID, !c.yes); approved != c.yes || !before {
					t.Errorf("the second answer gave %v, %v", approved, before)
				}
				wantContains(t, r.final(a.TurnID).Text, c.want)
				if n := r.world.of(a.TurnID, "c0"); n != c.made {
					t.Errorf("the call was made %d times", n)
				}
				all := <-events
				var kinds []string
				for _, e := range all {
					kinds = append(kinds, kindOf(e))
					if d := e.GetDecision(); d != nil && (d.Approved != c.yes || d.By != "user" || d.ApprovalId != q.ID) {
						t.Errorf("the decision is told as %v", d)
					}
				}
				if !slices.Equal(kinds, []string{"started", "text", "tool_started", "approval", "decision", "tool_finished", "final"}) {
					t.Errorf("events are %v", kinds)
				}
			})
		})
	}
}

func TestQuestionSurvivesARestart(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(r *rig, q store.Approval) // while the agent is not back yet
		want      string
	}{
		"answered after it": {func(*rig, store.Approval) {}, "done"},
		"answered in it": {func(r *rig, q store.Approval) {
			if approved, before := r.decide(q.ID, true); !approved || before {
				r.t.Errorf("the answer gave %v, %v", approved, before)
			}
		}, "done"},
		"refused in it": {func(r *rig, q store.Approval) { r.decide(q.ID, false) }, "the person said no"},
		"never":         {nil, "Silence is not consent"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				script := lively(obey(never))
				r.tools("tools", guarded())
				r.agent("agent-1", script)
				a := r.accept("main", "m", "call:ask")
				q := r.asked(a.TurnID)
				time.Sleep(50 * time.Second)
				r.restart()
				// A person who comes back finds the question at once.
				var shown *turnv1.ApprovalRequest
				stop := errors.New("seen")
				err := r.hub.Follow(t.Context(), a.TurnID, func(e *turnv1.TurnEvent) error {
					if shown = e.GetApproval(); shown != nil {
						return stop
					}
					return nil
				})
				if !errors.Is(err, stop) || shown.ApprovalId != q.ID {
					t.Fatalf("after the restart %v is asked, %v", shown, err)
				}
				if c.meanwhile != nil {
					c.meanwhile(r, q)
				}
				time.Sleep(30 * time.Second) // past the first deadline
				r.tools("tools", guarded())
				r.agent("agent-1", script)
				if name == "answered after it" {
					time.Sleep(30 * time.Second)
					again := r.asked(a.TurnID)
					if again.ID != q.ID || !again.Deadline.After(time.Now()) {
						t.Fatalf("asked again as %+v, first as %+v", again, q)
					}
					r.decide(q.ID, true)
				}
				wantContains(t, r.final(a.TurnID).Text, c.want)
			})
		})
	}
}

func TestInterruptAnswersTheQuestion(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", guarded())
		r.agent("agent-1", func(a *agentRun) error {
			res, err := a.call("c0", "ask", "{}", 1)
			if err != nil {
				return err
			}
			return a.finish(1, res.Error.Kind.String())
		})
		a := r.accept("main", "m", "hi")
		q := r.asked(a.TurnID)
		r.interrupt(a.TurnID)
		if got := r.final(a.TurnID).Text; got != "KIND_CANCELLED" {
			t.Fatalf("the model reads %q", got)
		}
		if approved, before := r.decide(q.ID, true); approved || !before {
			t.Errorf("a late yes gave %v, %v", approved, before)
		}
		if n := r.world.of(a.TurnID, "c0"); n != 0 {
			t.Errorf("the call was made %d times", n)
		}
	})
}

func TestCheckIsRepeatedWhenItsWorkerDies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.tools("tools", guarded())
		r.agent("agent-1", lively(obey(never)))
		r.one("call:safe first")
		if err := p.conn.Close(); err != nil {
			t.Fatal(err)
		}
		a := r.accept("main", "m", "call:safe")
		time.Sleep(2 * time.Second)
		p.kill()
		r.tools("tools", guarded())
		if got := r.final(a.TurnID).Text; got != "done" {
			t.Fatalf("the model reads %q", got)
		}
	})
}

func TestDecideOfNoApproval(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		if _, _, err := r.hub.Decide(t.Context(), "ap_none", true, "user"); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("deciding nothing: %v", err)
		}
		if _, _, err := r.hub.Decide(t.Context(), "", true, "user"); !errors.Is(err, ipc.ErrInvalid) {
			t.Errorf("deciding without an id: %v", err)
		}
	})
}
