package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

func TestAnInterruptedTurnIsFinishedWithWhatThereIs(t *testing.T) {
	untilStopped := agenttest.Tool{Do: func(ctx context.Context, _ string) *toolv1.Result {
		<-ctx.Done()
		return agenttest.Failed(toolv1.ToolError_KIND_CANCELLED, "stopped half way")
	}}
	deaf := agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
		time.Sleep(time.Hour)
		return agenttest.Result("too late")
	}}
	down := agenttest.Fail("", &provider.Error{Class: provider.Server})
	for _, c := range []struct {
		name   string
		tool   agenttest.Tool
		steps  []agenttest.Step
		text   []string // of the final reply
		rows   []string
		within time.Duration
	}{
		{"while the model answers", untilStopped, []agenttest.Step{agenttest.Hang("The answer is 4")}, []string{"The answer is 4"}, nil, 0},
		{"before the model answers", untilStopped, []agenttest.Step{agenttest.Hang("")}, []string{"Interrupted after 1.0 s", "waiting for the model"}, nil, 0},
		{"between two tries", untilStopped, []agenttest.Step{down}, []string{"Interrupted after 1.0 s", "server_error"}, nil, 0},
		{"between two tries, with text", untilStopped, []agenttest.Step{agenttest.Fail("half", &provider.Error{Class: provider.CutStream})}, []string{"half"}, nil, 0},
		{"in a tool", untilStopped, []agenttest.Step{agenttest.Ask("a", "tool", "{}", "b", "echo", "{}")}, []string{"Interrupted after 1.0 s", "tool, echo"},
			[]string{"tool a: stopped half way", "tool b: {}"}, 0},
		{"in a tool that does not stop", deaf, []agenttest.Step{agenttest.Ask("a", "tool", "{}", "b", "echo", "{}")}, []string{"Interrupted after 4.0 s"},
			[]string{"tool a: [The call of tool was cancelled", "tool b: {}"}, interruptWait},
		{"in the last answer of the budget", untilStopped, []agenttest.Step{
			agenttest.Ask("a", "echo", "{}"), agenttest.Ask("b", "echo", "{}"), agenttest.Hang("so far"),
		}, []string{"so far"}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.MaxTurns = 2
				r.host.Tools["tool"] = c.tool
				r.script.Steps = c.steps
				r.host.Accept("t1", "go")
				w := r.agent()
				run := w.Run(t, "t1")
				time.Sleep(time.Second)
				r.interrupt(w)
				began := time.Now()
				if err := run.Wait(); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d > c.within {
					t.Errorf("took %s", d)
				}
				text := r.ended(turnv1.Outcome_OUTCOME_INTERRUPTED)
				contains(t, text, c.text...)
				contains(t, r.rows(), c.rows...)
				contains(t, r.host.End("t1").Error, "the user pressed Ctrl-C")
				allAnswered(t, r.host.Steps("t1"))
				time.Sleep(2 * time.Hour) // the deaf tool ends with its bubble
			})
		})
	}
}

// allAnswered checks that every call has one result: a conversation where one lacks is refused by providers for ever.
func allAnswered(t *testing.T, rows []*turnv1.Message) {
	t.Helper()
	results := map[string]int{}
	for _, m := range rows {
		results[m.ToolCallId]++
	}
	for _, m := range rows {
		for _, c := range m.ToolCalls {
			if results[c.Id] != 1 {
				t.Errorf("call %s has %d results", c.Id, results[c.Id])
			}
		}
	}
}

func TestAnInterruptedTurnThatIsTakenUpMakesNoNewCalls(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		block := make(chan struct{})
		r.host.Fault = func(method string) error {
			if method == "Load" {
				<-block
			}
			return nil
		}
		r.host.Accept("t1", "go")
		r.host.Store(&turnv1.Message{TurnId: "t1", Seq: 1, Role: "assistant", ToolCalls: []*turnv1.ToolCall{{Id: "a", Name: "echo", ArgumentsJson: "{}"}}})
		w := r.agent()
		run := w.Run(t, "t1")
		time.Sleep(time.Second)
		r.interrupt(w)
		close(block)
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		r.ended(turnv1.Outcome_OUTCOME_INTERRUPTED)
		allAnswered(t, r.host.Steps("t1"))
		if n := r.host.Made("t1", "a"); n != 0 {
			t.Errorf("the call was made %d times", n)
		}
		if n := len(r.script.Calls()); n != 0 {
			t.Errorf("the provider was asked %d times", n)
		}
	})
}

func TestInterruptOfAnotherTurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		w := r.agent()
		reply, err := w.Agent.Interrupt(t.Context(), &agentv1.InterruptRequest{TurnId: "unknown"})
		if err != nil || reply.Running {
			t.Errorf("%v, running %v", err, reply.GetRunning())
		}
	})
}

func TestARunShowsThatItIsAlive(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Hang("")}
		r.host.Accept("t1", "go")
		w := r.agent()
		run := w.Run(t, "t1")
		for range 10 {
			before := len(run.Events())
			time.Sleep(10 * time.Second)
			if len(run.Events()) == before {
				t.Fatal("nothing for 10 s")
			}
		}
		var doing []string
		for _, e := range run.Events() {
			doing = append(doing, e.GetActivity().GetDoing())
		}
		contains(t, strings.Join(doing, "\n"), "waiting for the model")
		r.interrupt(w)
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}
