package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider/offline"
)

func TestAPanicCostsItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{
			agenttest.Ask("a", "echo", "{}"),
			func(context.Context, provider.Request, func(provider.Delta)) (provider.Reply, error) { panic("a bug") },
			agenttest.Say("alive"),
		}
		w, _ := r.answer("go")
		contains(t, r.ended(failed), "a bug", "ctl logs agent-1")
		contains(t, w.Log(), "panic in a turn", "ask.go")
		allAnswered(t, r.host.Steps("t1"))
		r.host.Accept("t2", "go")
		if err := w.Run(t, "t2").Wait(); err != nil {
			t.Fatal(err)
		}
		if end := r.host.End("t2"); end.Reply.Content != "alive" {
			t.Errorf("the next turn: %v", end)
		}
	})
}

func TestTurnsRunSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.Tools["slow"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			time.Sleep(time.Second)
			return agenttest.Result("x")
		}}
		r.script.ByRound = true
		r.script.Steps = []agenttest.Step{agenttest.Ask("a", "slow", "{}"), agenttest.Say("done")}
		w := r.agent()
		var runs []*agenttest.Run
		for i := range 50 {
			id := fmt.Sprint("u", i)
			r.host.Accept(id, "go")
			runs = append(runs, w.Run(t, id))
		}
		began := time.Now()
		for _, run := range runs {
			if err := run.Wait(); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("took %s", d)
		}
		if progress, running, _ := w.Work.Counts(); running != 0 || progress < 50 {
			t.Errorf("progress %d, running %d", progress, running)
		}
	})
}

func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.script.Steps = []agenttest.Step{agenttest.Hang("text")}
		r.host.Accept("t1", "go")
		w := r.agent()
		run := w.Run(t, "t1")
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n := w.Role.Drain(ctx); n != 1 {
			t.Errorf("%d unfinished", n)
		}
		r.host.Accept("t2", "go")
		if err := w.Run(t, "t2").Wait(); !errors.Is(err, ipc.ErrRefused) {
			t.Errorf("a new turn: %v", err)
		}
		told := make(chan struct{})
		time.AfterFunc(time.Second, func() { r.interrupt(w); close(told) })
		if n := w.Role.Drain(t.Context()); n != 0 {
			t.Errorf("%d unfinished", n)
		}
		<-told
		if err := run.Wait(); err != nil {
			t.Error(err)
		}
		r.ended(turnv1.Outcome_OUTCOME_INTERRUPTED)
	})
}

func TestTheOfflineProviderInATurn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.Tools["terminal"] = agenttest.Tool{Do: func(_ context.Context, args string) *toolv1.Result {
			if args != `{"command":"echo hello-42"}` {
				return agenttest.Failed(toolv1.ToolError_KIND_BAD_ARGUMENTS, args)
			}
			return agenttest.Result(`{"output":"hello-42\n","exit_code":0,"error":null}`)
		}}
		ask := func(id, text string) string {
			r.host.Accept(id, text)
			w := agenttest.Start(t, r.host, &Agent{}, ipc.AgentConfig{Provider: "offline", Home: "/h"})
			if err := w.Run(t, id).Wait(); err != nil {
				t.Fatal(err)
			}
			return r.host.End(id).Reply.Content
		}
		if got := ask("t1", "run: echo hello-42"); got != "hello-42" {
			t.Errorf("got %q", got)
		}
		// The ids of its calls are the same in every turn, and the earlier results are in the conversation.
		if got := ask("t2", "run: other"); got != `{"command":"other"}` {
			t.Errorf("got %q", got)
		}
		if got := ask("t3", "hello"); !strings.Contains(got, "stand-in") || !strings.Contains(got, "/h/config.yaml") {
			t.Errorf("got %q", got)
		}
	})
}

func TestADeadConsumerDoesNotHoldTheTurn(t *testing.T) {
	// 3 MiB of text in small pieces, while the supervisor reads nothing: the pieces are joined, and the turn ends.
	bubble(t, func(t *testing.T, r *rig) {
		piece := strings.Repeat("x", 100)
		r.script.Steps = []agenttest.Step{func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
			for range 7000 {
				emit(provider.Delta{Text: piece})
			}
			return provider.Reply{Text: strings.Repeat(piece, 7000), FinishReason: "stop"}, nil
		}}
		_, run := r.answer("go")
		if n := len(run.Shown(1)); n != 700_000 {
			t.Errorf("shown %d bytes", n)
		}
	})
}

func TestStartRefusesNonsense(t *testing.T) {
	if err := new(Agent).Start(t.Context(), nil, []byte("{")); err == nil {
		t.Error("a broken configuration was taken")
	}
}

var _ provider.Provider = (*offline.Provider)(nil)
