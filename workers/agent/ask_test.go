package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

const failed = turnv1.Outcome_OUTCOME_FAILED

func TestRetry(t *testing.T) {
	for _, c := range []struct {
		name    string
		attempt int
		err     provider.Error
		luck    float64
		want    time.Duration
		again   bool
	}{
		{"first", 1, provider.Error{Class: provider.Server}, 0, 2 * time.Second, true},
		{"second", 2, provider.Error{Class: provider.Server}, 0, 4 * time.Second, true},
		{"jitter", 1, provider.Error{Class: provider.Server}, 1, 3 * time.Second, true},
		{"no more", 3, provider.Error{Class: provider.Server}, 0, 0, false},
		{"slow", 1, provider.Error{Class: provider.Malformed}, 0, 5 * time.Second, true},
		{"as asked", 1, provider.Error{Class: provider.RateLimit, RetryAfter: time.Minute}, 0, time.Minute, true},
		{"asked for less than we wait anyway", 2, provider.Error{Class: provider.RateLimit, RetryAfter: time.Second}, 0, 4 * time.Second, true},
		{"asked for too much", 1, provider.Error{Class: provider.RateLimit, RetryAfter: time.Hour}, 0, 0, false},
		{"useless", 1, provider.Error{Class: provider.Auth}, 0, 0, false},
		{"nobody thought of it", 1, provider.Error{}, 0, 2 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if wait, again := retry(c.attempt, 3, &c.err, c.luck); wait != c.want || again != c.again {
				t.Errorf("%s, %v", wait, again)
			}
		})
	}
	if wait, again := retry(1000, 2000, &provider.Error{}, 1); wait != 90*time.Second || !again {
		t.Errorf("after many: %s, %v", wait, again)
	}
}

func TestEveryClassHasAnAnswerForThePerson(t *testing.T) {
	for class := provider.Unknown; class < provider.Exhausted; class++ {
		t.Run(class.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.APIKeyName = "SOME_API_KEY"
				r.script.Steps = []agenttest.Step{}
				for range 3 {
					r.script.Steps = append(r.script.Steps, agenttest.Fail("", &provider.Error{Class: class, Status: 499, Message: "its words"}))
				}
				w, _ := r.answer("go")
				text := r.ended(failed)
				contains(t, text, "⚠️ ", "(499: its words)")
				if strings.ContainsAny(text, "{}") {
					t.Errorf("not filled in: %s", text)
				}
				want := 1
				if class.Retry() {
					want = 3
					contains(t, text, "I tried 3 times")
				}
				if n := len(r.script.Calls()); n != want {
					t.Errorf("%d calls", n)
				}
				if degraded, detail := w.Role.(*Agent).Report(); !degraded || !strings.Contains(detail, class.String()) {
					t.Errorf("reports %v, %q", degraded, detail)
				}
			})
		})
	}
}

func TestARepeatedCallWorks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{
			agenttest.Fail("The answ", &provider.Error{Class: provider.CutStream}),
			agenttest.Fail("", &provider.Error{Class: provider.RateLimit, Status: 429, RetryAfter: time.Minute}),
			agenttest.Say("The answer."),
		}
		began := time.Now()
		w, run := r.answer("go")
		if text := r.ended(completed); text != "The answer." || run.Shown(1) != "The answer." {
			t.Errorf("answered %q, shown %q", text, run.Shown(1))
		}
		if d := time.Since(began); d < 62*time.Second || d > 64*time.Second {
			t.Errorf("took %s", d)
		}
		if degraded, _ := w.Role.(*Agent).Report(); degraded {
			t.Error("reports degraded after a call that worked")
		}
		for _, e := range run.Events() {
			if e.GetNotice() != nil {
				t.Errorf("the person is bothered with %q", e.GetNotice().Text)
			}
		}
	})
}

func TestPartialTextIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		cut := &provider.Error{Class: provider.CutStream, Message: "the connection ended"}
		r.script.Steps = []agenttest.Step{agenttest.Fail("The answer is lon", cut), agenttest.Fail("The", cut), agenttest.Fail("", cut)}
		r.answer("go")
		text := r.ended(failed)
		if !strings.HasPrefix(text, "The answer is lon\n\n⚠️ ") {
			t.Errorf("answered %q", text)
		}
		if e := r.host.End("t1").Error; e != "cut_stream: the connection ended" {
			t.Errorf("error %q", e)
		}
	})
}

func TestHalfACallIsNotMade(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{func(context.Context, provider.Request, func(provider.Delta)) (provider.Reply, error) {
			return provider.Reply{ToolCalls: []*turnv1.ToolCall{{Id: "a", Name: "echo", ArgumentsJson: `{}`}}}, &provider.Error{Class: provider.TooLarge}
		}}
		r.answer("go")
		r.ended(failed)
		if n := r.host.Made("t1", "a"); n != 0 {
			t.Errorf("made %d times", n)
		}
	})
}

func TestALongAnswerIsContinued(t *testing.T) {
	length := func(text string) agenttest.Step {
		return agenttest.Reply(provider.Reply{Text: text, FinishReason: provider.FinishLength, Usage: provider.Usage{Output: 1}})
	}
	for _, c := range []struct {
		name  string
		steps []agenttest.Step
		want  string
		calls int
		usage int64
	}{
		{"to its end", []agenttest.Step{length("one "), length("two "), agenttest.Say("three")}, "one two three", 3, 2},
		{"but not for ever", []agenttest.Step{length("1"), length("2"), length("3"), length("4"), length("5")}, "1234\n\n[The answer is longer", 4, 4},
		{"with a repeat in between", []agenttest.Step{length("one "), agenttest.Fail("tw", &provider.Error{Class: provider.Server}), agenttest.Say("two")}, "one two", 3, 1},
		{"to nothing more", []agenttest.Step{length("one"), agenttest.Say(""), agenttest.Say(""), agenttest.Say("")}, "one", 4, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.script.Steps = c.steps
				_, run := r.answer("go")
				text := r.ended(completed)
				if !strings.HasPrefix(text, c.want) || !strings.HasPrefix(text, run.Shown(1)) {
					t.Errorf("answered %q, shown %q", text, run.Shown(1))
				}
				if n := len(r.script.Calls()); n != c.calls {
					t.Errorf("%d calls", n)
				}
				if u := r.host.End("t1").Reply.Usage.OutputTokens; u != c.usage {
					t.Errorf("usage %d", u)
				}
				if rows := r.host.Steps("t1"); len(rows) != 2 {
					t.Errorf("what was added is stored: %s", r.rows())
				}
				contains(t, r.script.Calls()[1].Messages[2].Content, "Go on exactly where it ends")
			})
		})
	}
}

func TestAnEmptyAnswerIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Ask("a", "echo", "{}"), agenttest.Say(" \n"), agenttest.Say("now")}
		r.answer("go")
		if text := r.ended(completed); text != "now" {
			t.Errorf("answered %q", text)
		}
		last := r.script.Calls()[2].Messages
		contains(t, last[len(last)-1].Content, "your answer was empty")
		if strings.Contains(r.rows(), "was empty") {
			t.Error("the nudge is stored")
		}
	})
	bubble(t, func(t *testing.T, r *rig) {
		thought := agenttest.Reply(provider.Reply{Reasoning: "hm", FinishReason: "stop"})
		r.script.Steps = []agenttest.Step{thought, thought, thought}
		r.answer("go")
		contains(t, r.ended(failed), "the model thought, but gave no answer")
	})
}

func TestTheContentFilter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Reply(provider.Reply{Text: "Well, ", FinishReason: provider.FinishContentFilter})}
		r.answer("go")
		contains(t, r.ended(failed), "Well, \n\n", "content filter")
		if n := len(r.script.Calls()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestASessionsModelThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.Session.Model = "old-model"
		r.script.Steps = []agenttest.Step{agenttest.Fail("", &provider.Error{Class: provider.ModelNotFound}), agenttest.Say("hello")}
		_, run := r.answer("go")
		r.ended(completed)
		calls := r.script.Calls()
		if calls[0].Model != "old-model" || calls[1].Model != "the-model" {
			t.Errorf("asked %s, then %s", calls[0].Model, calls[1].Model)
		}
		contains(t, run.Events()[0].GetNotice().GetText(), "old-model", "the-model answers instead")
	})
}

func TestThisMachinesWantIsNotThePersonsAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Fail("", &provider.Error{Class: provider.Exhausted, Message: "too many open files"})}
		r.host.Accept("t1", "go")
		err := r.agent().Run(t, "t1").Wait()
		if err == nil || !strings.Contains(err.Error(), "too many open files") || r.host.End("t1") != nil {
			t.Errorf("run ended with %v", err)
		}
	})
}

func TestAConfigurationThatCannotWorkIsToldInEveryTurn(t *testing.T) {
	for _, c := range []struct {
		cfg  ipc.AgentConfig
		want []string
	}{
		{ipc.AgentConfig{Provider: "openai", BaseURL: "127.0.0.1:1", Home: "/h"}, []string{"model.base_url", "is not an http address", "/h/config.yaml", "restart hermes-supervisor"}},
		{ipc.AgentConfig{Provider: "magic"}, []string{`model.provider "magic" is not known`, "~/.hermes/config.yaml"}},
	} {
		t.Run(c.cfg.Provider, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.host.Accept("t1", "go")
				w := agenttest.Start(t, r.host, &Agent{}, c.cfg)
				if err := w.Run(t, "t1").Wait(); err != nil {
					t.Fatal(err)
				}
				contains(t, r.ended(failed), c.want...)
				if degraded, _ := w.Role.(*Agent).Report(); !degraded {
					t.Error("reports that all is well")
				}
			})
		})
	}
}
