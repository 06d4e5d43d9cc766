package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

const completed = turnv1.Outcome_OUTCOME_COMPLETED

func TestATurnIsAnsweredAndStored(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Reply(provider.Reply{
			Text: "Hello.", Reasoning: "a greeting", FinishReason: "stop", Usage: provider.Usage{Input: 7, Output: 2, CacheRead: 3, Reasoning: 1},
		})}
		_, run := r.answer("hi")
		if text := r.ended(completed); text != "Hello." || run.Shown(1) != "Hello." {
			t.Errorf("answered %q, shown %q", text, run.Shown(1))
		}
		m := r.host.Steps("t1")[1]
		if m.Seq != 1 || m.Reasoning != "a greeting" || m.FinishReason != "stop" || m.Timestamp == 0 ||
			m.Usage.InputTokens != 7 || m.Usage.OutputTokens != 2 || m.Usage.CacheReadTokens != 3 || m.Usage.ReasoningTokens != 1 {
			t.Errorf("stored %v", m)
		}
		req := r.script.Calls()[0]
		if req.Model != "the-model" || len(req.Tools) != 1 || req.Tools[0].Name != "echo" || req.System != r.host.Session.SystemPrompt {
			t.Errorf("request %+v", req)
		}
	})
}

func TestThePromptIsWrittenOnceAndReplayed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Say("one"), agenttest.Say("two")}
		soul := filepath.Join(r.cfg.Home, "SOUL.md")
		if err := os.WriteFile(soul, []byte("You are Ada."), 0o600); err != nil {
			t.Fatal(err)
		}
		r.answer("hi")
		first := r.host.Session.SystemPrompt
		contains(t, first, "You are Ada.", "Session ID: "+r.host.Session.Id, "Model: the-model", "Provider: script")
		if err := os.WriteFile(soul, []byte("You are Bob."), 0o600); err != nil {
			t.Fatal(err)
		}
		r.host.Accept("t2", "again")
		if err := r.agent().Run(t, "t2").Wait(); err != nil {
			t.Fatal(err)
		}
		if got := r.script.Calls()[1].System; got != first {
			t.Errorf("second turn had another prompt:\n%s", cmp.Diff(first, got))
		}
	})
}

func TestACallersPromptIsAddedToOurs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Say("one")}
		r.host.Session.SystemPrompt = "Answer in JSON."
		r.answer("hi")
		contains(t, r.script.Calls()[0].System, "You are Hermes", "Answer in JSON.", "Conversation started:")
		if r.host.Session.SystemPrompt != "Answer in JSON." {
			t.Error("the stored one was replaced")
		}
	})
}

func TestAPromptOfHermesIsReplayed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Say("one")}
		r.host.Session.SystemPrompt = "Old identity.\n\nConversation started: Monday, June 01, 2026\nModel: x"
		r.answer("hi")
		if got := r.script.Calls()[0].System; got != r.host.Session.SystemPrompt {
			t.Errorf("prompt %q", got)
		}
	})
}

func TestToolCallsAndResults(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.Tools["slow"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			time.Sleep(time.Minute)
			return agenttest.Result("slow")
		}}
		r.script.Steps = []agenttest.Step{
			agenttest.Reply(provider.Reply{Text: "Let me see.", ToolCalls: []*turnv1.ToolCall{
				{Id: "a", Name: "slow"}, {Id: "b", Name: "echo", ArgumentsJson: `{"x":1}`},
			}}),
			agenttest.Ask("c", "echo", "{}"),
			agenttest.Say("done"),
		}
		_, run := r.answer("go")
		r.ended(completed)
		want := "user: go\n" +
			"assistant: Let me see. [a slow ] [b echo {\"x\":1}]\n" +
			"tool a: slow\n" + // in the order of the calls, not of their ends
			"tool b: {\"x\":1}\n" +
			"assistant [c echo {}]\n" +
			"tool c: {}\n" +
			"assistant: done\n"
		if d := cmp.Diff(want, r.rows()); d != "" {
			t.Errorf("rows (-want +got):\n%s", d)
		}
		if run.Shown(1) != "Let me see." || run.Shown(6) != "done" {
			t.Errorf("shown %q and %q", run.Shown(1), run.Shown(6))
		}
		if got := r.script.Calls()[1].Messages; len(got) != 4 || got[1].ToolCalls[0].ArgumentsJson != "{}" || got[3].Content != `{"x":1}` {
			t.Errorf("second request %v", got)
		}
	})
}

func TestWhatAPersonSaysToARunningTurnFollowsTheNextResults(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		said, lost := false, false
		r.host.Lost = func(method string) error {
			if method == "Append" && said && !lost {
				lost = true // the answer that tells of what was said
				return fmt.Errorf("the answer was lost: %w", ipc.ErrTimeout)
			}
			return nil
		}
		r.host.Tools["slow"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			r.host.Say("t1", "to the left")
			r.host.Say("t1", "and fast")
			said = true
			return agenttest.Result("slow")
		}}
		r.script.Steps = []agenttest.Step{agenttest.Ask("a", "slow", "{}"), agenttest.Say("done")}
		r.answer("go")
		r.ended(completed)
		want := "user: go\nassistant [a slow {}]\ntool a: slow\nuser: to the left\nuser: and fast\nassistant: done\n"
		if d := cmp.Diff(want, r.rows()); d != "" || !lost {
			t.Errorf("rows (-want +got), answer lost %v:\n%s", lost, d)
		}
		got := r.script.Calls()[1].Messages
		if last := got[len(got)-1]; len(got) != 4 || last.Role != "user" || last.Content != "to the left\n\nand fast" {
			t.Errorf("second request %v", got)
		}
	})
}

func TestCallsRunSideBySideUpToTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var running, most atomic.Int32
		r.host.Tools["slow"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			for n := running.Add(1); ; {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return agenttest.Result("x")
		}}
		var ask []string
		for i := range 20 {
			ask = append(ask, fmt.Sprint("c", i), "slow", "{}")
		}
		r.script.Steps = []agenttest.Step{agenttest.Ask(ask...), agenttest.Say("done")}
		began := time.Now()
		r.answer("go")
		if most.Load() != 8 || time.Since(began) != 3*time.Second {
			t.Errorf("%d at once, took %s", most.Load(), time.Since(began))
		}
	})
}

func TestCallsOnOneFileKeepTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		var order []string
		do := func(d time.Duration) func(context.Context, string) *toolv1.Result {
			return func(_ context.Context, args string) *toolv1.Result {
				time.Sleep(d)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, args)
				return agenttest.Result("ok")
			}
		}
		r.host.Tools["write_file"] = agenttest.Tool{Do: do(time.Minute)}
		r.host.Tools["read_file"] = agenttest.Tool{Do: do(0), ReadOnly: true}
		r.script.Steps = []agenttest.Step{
			agenttest.Ask("a", "write_file", `{"path":"x/y"}`, "b", "read_file", `{"path":"z"}`, "c", "read_file", `{"path":"./x/y"}`),
			agenttest.Say("done"),
		}
		r.answer("go")
		if d := cmp.Diff([]string{`{"path":"z"}`, `{"path":"x/y"}`, `{"path":"./x/y"}`}, order); d != "" {
			t.Errorf("order (-want +got):\n%s", d)
		}
	})
}

func TestWrongCallsAreResultsForTheModel(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  []string
		want []string // what the rows contain
		made int
	}{
		{"arguments that are no JSON", []string{"a", "echo", `{"x":`}, []string{"tool a: Error: the arguments of this call are not a JSON object", "not made"}, 0},
		{"arguments that are no object", []string{"a", "echo", `[1]`}, []string{"not a JSON object"}, 0},
		{"two objects", []string{"a", "echo", `{}{}`}, []string{"not a JSON object", "there is more"}, 0},
		{"no arguments", []string{"a", "echo", " "}, []string{"tool a: {}"}, 1},
		{"null", []string{"a", "echo", "null"}, []string{"tool a: null"}, 1},
		{"an unknown tool", []string{"a", "ecco", "{}"}, []string{"there is no tool ecco"}, 0},
		{"a name that no provider would take back", []string{"a", "do it!\x00", "{}"}, []string{"there is no tool do_it__"}, 0},
		{"no name", []string{"a", "", "{}"}, []string{"there is no tool unnamed_tool"}, 0},
		{"a name as another program writes it", []string{"a", "Echo_tool", "{}"}, []string{"[a echo {}]"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.script.Steps = []agenttest.Step{agenttest.Ask(c.ask...), agenttest.Say("I see")}
				r.answer("go")
				if text := r.ended(completed); text != "I see" {
					t.Errorf("answer %q", text)
				}
				contains(t, r.rows(), c.want...)
				if n := r.host.Made("t1", "a"); n != c.made {
					t.Errorf("made %d times", n)
				}
				for _, m := range r.script.Calls()[1].Messages {
					for _, call := range m.ToolCalls {
						if _, err := object(call.ArgumentsJson); err != nil {
							t.Errorf("the provider gets %q back", call.ArgumentsJson)
						}
					}
				}
			})
		})
	}
}

func TestIDsAreMadeUnique(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		long := strings.Repeat("x", 600)
		r.script.Steps = []agenttest.Step{
			agenttest.Ask("a", "echo", `{"n":1}`, "a", "echo", `{"n":2}`, "", "echo", `{"n":3}`, long, "echo", `{"n":4}`, "b\n", "echo", `{"n":5}`),
			agenttest.Ask("a", "echo", `{"n":6}`, "c00010001", "echo", `{"n":7}`),
			agenttest.Say("done"),
		}
		r.answer("go")
		want := []string{"a", "c00010001", "c00010002", "c00010003", "c00010004", "c00070000", "c00070001"}
		var got []string
		for _, m := range r.host.Steps("t1") {
			for _, c := range m.ToolCalls {
				got = append(got, c.Id)
				contains(t, r.rows(), "tool "+c.Id+": "+c.ArgumentsJson)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("ids (-want +got):\n%s", d)
		}
	})
}

func TestTooManyCallsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ask []string
		for i := range 1000 {
			ask = append(ask, fmt.Sprint("c", i), "echo", "{}")
		}
		r.script.Steps = []agenttest.Step{agenttest.Ask(ask...), agenttest.Say("done")}
		_, run := r.answer("go")
		if n := len(r.host.Steps("t1")); n != 2+maxCalls+1 {
			t.Errorf("%d steps", n)
		}
		var notices string
		for _, e := range run.Events() {
			notices += e.GetNotice().GetText()
		}
		contains(t, notices, "1000 tool calls")
	})
}

func TestTheBudget(t *testing.T) {
	again := agenttest.Ask("a", "echo", "{}")
	for _, c := range []struct {
		name   string
		stored int // rounds of an earlier run
		steps  []agenttest.Step
		want   string
		calls  int
	}{
		{"a last answer without tools", 0, []agenttest.Step{again, again, again, agenttest.Say("so far")}, "so far", 4},
		{"earlier runs count", 2, []agenttest.Step{again, agenttest.Say("so far")}, "so far", 2},
		{"no last answer", 0, []agenttest.Step{again, again, again, agenttest.Say(""), agenttest.Say(""), agenttest.Say("")}, "agent.max_turns", 6},
		{"calls instead of a last answer", 0, []agenttest.Step{again, again, again, again}, "agent.max_turns", 4},
		{"the provider fails", 0, []agenttest.Step{again, again, again, agenttest.Fail("half", &provider.Error{Class: provider.Auth})}, "half", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.MaxTurns, r.script.Steps = 3, c.steps
				r.host.Accept("t1", "go")
				for i := range uint32(c.stored) {
					id := fmt.Sprint("s", i)
					r.host.Store(
						&turnv1.Message{TurnId: "t1", Seq: 2*i + 1, Role: "assistant", ToolCalls: []*turnv1.ToolCall{{Id: id, Name: "echo"}}},
						&turnv1.Message{TurnId: "t1", Seq: 2*i + 2, Role: "tool", ToolCallId: id, Content: "x"})
				}
				if err := r.agent().Run(t, "t1").Wait(); err != nil {
					t.Fatal(err)
				}
				contains(t, r.ended(turnv1.Outcome_OUTCOME_BUDGET), c.want)
				calls := r.script.Calls()
				if len(calls) != c.calls {
					t.Errorf("%d provider calls, want %d", len(calls), c.calls)
				}
				last := calls[len(calls)-1]
				if len(last.Tools) != 0 {
					t.Errorf("the last call offers tools")
				}
				contains(t, last.Messages[len(last.Messages)-1].Content, "maximum number of tool-calling iterations")
				if strings.Contains(r.rows(), "maximum number") {
					t.Error("the request for a last answer is stored")
				}
			})
		})
	}
}

func TestAStepThatCannotBeStoredIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Say("one"), agenttest.Ask("a", "echo", "{}")}
		r.answer("first")
		r.host.Fault = func(method string) error {
			if method == "Append" {
				return fmt.Errorf("arguments: %w", ipc.ErrInvalid)
			}
			return nil
		}
		r.host.Accept("t2", "go")
		if err := r.agent().Run(t, "t2").Wait(); err != nil {
			t.Fatal(err)
		}
		contains(t, r.host.End("t2").Reply.Content, "cannot be stored")
	})
}

func TestLargeResultsAreStoredInBatches(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.Tools["big"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			return agenttest.Result(strings.Repeat("x", 1000<<10))
		}}
		var ask []string
		for i := range 12 {
			ask = append(ask, fmt.Sprint("c", i), "big", "{}")
		}
		r.script.Steps = []agenttest.Step{agenttest.Ask(ask...), agenttest.Say("done")}
		r.answer("go")
		r.ended(completed)
		if n := len(r.host.Steps("t1")); n != 15 {
			t.Errorf("%d steps", n)
		}
	})
}
