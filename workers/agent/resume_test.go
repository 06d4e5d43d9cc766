package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
)

// TestGoesOnFromEveryStoredPrefix takes a turn up where an agent may have died, and expects the same turn.
func TestGoesOnFromEveryStoredPrefix(t *testing.T) {
	steps := []agenttest.Step{
		agenttest.Ask("a", "echo", `{"n":1}`, "a", "echo", `{"n":2}`, "", "echo", `{"n":3}`),
		agenttest.Ask("a", "echo", `{"n":4}`),
		agenttest.Say("done"),
	}
	var whole []*turnv1.Message
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps, r.script.ByRound = steps, true
		r.answer("go")
		whole = r.host.Steps("t1")
	})
	if len(whole) != 8 {
		t.Fatalf("%d steps", len(whole))
	}
	for n := 1; n <= len(whole); n++ {
		t.Run(fmt.Sprintf("%d stored", n), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.script.Steps, r.script.ByRound = steps, true
				r.host.Store(&turnv1.Message{Role: "user", Content: "earlier"}, &turnv1.Message{Role: "assistant", Content: "answer"})
				r.host.Store(whole[:n]...)
				if err := r.agent().Run(t, "t1").Wait(); err != nil {
					t.Fatal(err)
				}
				r.ended(completed)
				want := &rig{T: t, host: agenttest.NewHost()}
				want.host.Store(whole...)
				if d := cmp.Diff(want.rows(), r.rows()); d != "" {
					t.Errorf("rows (-want +got):\n%s", d)
				}
				ids := map[string]bool{}
				for i, m := range whole {
					for _, c := range m.ToolCalls {
						if ids[c.Id] {
							t.Errorf("id %q twice in the turn", c.Id)
						}
						ids[c.Id] = true
					}
					if m.ToolCallId != "" && r.host.Made("t1", m.ToolCallId) != map[bool]int{true: 0, false: 1}[i < n] {
						t.Errorf("call %s was made %d times with %d steps stored", m.ToolCallId, r.host.Made("t1", m.ToolCallId), n)
					}
				}
			})
		})
	}
}

// TestNothingIsDoneTwice breaks the connection at every single call to the supervisor, before and after it took effect,
// and lets another agent go on.
func TestNothingIsDoneTwice(t *testing.T) {
	steps := []agenttest.Step{agenttest.Ask("a", "echo", `{"n":1}`, "b", "echo", `{"n":2}`), agenttest.Ask("c", "echo", "{}"), agenttest.Say("done")}
	want := "user: go\nassistant [a echo {\"n\":1}] [b echo {\"n\":2}]\ntool a: {\"n\":1}\ntool b: {\"n\":2}\nassistant [c echo {}]\ntool c: {}\nassistant: done\n"
	for _, kind := range []error{ipc.ErrGone, ipc.ErrTimeout, ipc.ErrBusy, errors.New("some bug")} {
		for _, after := range []bool{false, true} {
			for n := int32(1); ; n++ {
				var calls int32
				bubble(t, func(t *testing.T, r *rig) {
					r.script.Steps, r.script.ByRound = steps, true
					fault := func(method string) error {
						if atomic.AddInt32(&calls, 1) == n {
							return fmt.Errorf("%s: %w", method, kind)
						}
						return nil
					}
					if after {
						r.host.Lost = fault
					} else {
						r.host.Fault = fault
					}
					r.host.Accept("t1", "go")
					first := r.agent()
					if err := first.Run(t, "t1").Wait(); err != nil {
						first.Kill()
						if err := r.agent().Run(t, "t1").Wait(); err != nil {
							t.Fatalf("call %d: second run: %v", n, err)
						}
					}
					r.ended(completed)
					if d := cmp.Diff(want, r.rows()); d != "" {
						t.Errorf("call %d, %v, after %v: rows (-want +got):\n%s", n, kind, after, d)
					}
					for _, id := range []string{"a", "b", "c"} {
						if m := r.host.Made("t1", id); m != 1 {
							t.Errorf("call %d: %s was made %d times", n, id, m)
						}
					}
				})
				if calls < n {
					break
				}
			}
		}
	}
}

func TestADeadAgentsCallIsNotMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.Tools["slow"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			time.Sleep(5 * time.Second)
			return agenttest.Result("its effect")
		}}
		r.script.Steps, r.script.ByRound = []agenttest.Step{agenttest.Ask("a", "slow", "{}"), agenttest.Say("done")}, true
		r.host.Accept("t1", "go")
		w := r.agent()
		w.Run(t, "t1")
		time.Sleep(2 * time.Second)
		w.Kill()
		if err := r.agent().Run(t, "t1").Wait(); err != nil {
			t.Fatal(err)
		}
		r.ended(completed)
		if n := r.host.Made("t1", "a"); n != 1 {
			t.Errorf("made %d times", n)
		}
		contains(t, r.rows(), "tool a: its effect")
	})
}

func TestALostLeaseEndsInSilence(t *testing.T) {
	for _, method := range []string{"Load", "Append", "Call", "Finish"} {
		t.Run(method, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.script.Steps = []agenttest.Step{agenttest.Ask("a", "echo", "{}"), agenttest.Say("done")}
				lost := false
				r.host.Fault = func(m string) error {
					if lost = lost || m == method; lost {
						return fmt.Errorf("%s: %w", m, ipc.ErrLeaseLost)
					}
					return nil
				}
				r.host.Accept("t1", "go")
				w := r.agent()
				if err := w.Run(t, "t1").Wait(); !errors.Is(err, ipc.ErrLeaseLost) {
					t.Errorf("run ended with %v", err)
				}
				if r.host.End("t1") != nil {
					t.Error("it was finished")
				}
				if log := w.Log(); strings.Contains(log, "[WARN]") || strings.Contains(log, "[ERROR]") {
					t.Errorf("log:\n%s", log)
				}
			})
		})
	}
}

func TestANewerLeaseTakesTheTurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Hang("old"), agenttest.Say("new")}
		r.host.Accept("t1", "go")
		w := r.agent()
		old := w.Run(t, "t1")
		time.Sleep(time.Second)
		if err := w.Run(t, "t1").Wait(); err != nil {
			t.Fatal(err)
		}
		if err := old.Wait(); !errors.Is(err, ipc.ErrLeaseLost) {
			t.Errorf("the old run ended with %v", err)
		}
		if text := r.ended(completed); text != "new" {
			t.Errorf("answer %q", text)
		}
	})
}

func TestADroppedRunEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Hang("text")}
		r.host.Accept("t1", "go")
		w := r.agent()
		run := w.Run(t, "t1")
		time.Sleep(time.Second)
		run.Drop()
		<-w.Work.Idle()
		if r.host.End("t1") != nil {
			t.Error("it was finished")
		}
	})
}

func TestABusyStoreIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Ask("a", "echo", "{}"), agenttest.Say("done")}
		until := time.Now().Add(30 * time.Second)
		r.host.Fault = func(method string) error {
			if (method == "Append" || method == "Finish") && time.Now().Before(until) {
				return ipc.ErrBusy
			}
			return nil
		}
		r.answer("go")
		r.ended(completed)
	})
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Say("done")}
		r.host.Fault = func(method string) error {
			if method == "Finish" {
				return ipc.ErrBusy
			}
			return nil
		}
		r.host.Accept("t1", "go")
		if err := r.agent().Run(t, "t1").Wait(); !errors.Is(err, ipc.ErrBusy) {
			t.Errorf("got %v", err)
		}
	})
}
