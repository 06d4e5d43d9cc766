package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
	"github.com/hermes-supervisor/hermes-supervisor/workers/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a host, and agents on it that answer by a script.
type rig struct {
	*testing.T
	host   *agenttest.Host
	script *agenttest.Script
	cfg    ipc.AgentConfig
}

// bubble runs a test in a bubble of its own time, with a tool "echo" that returns its arguments.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		test(t, r)
	})
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, host: agenttest.NewHost(), script: &agenttest.Script{}, cfg: ipc.AgentConfig{Provider: "script", Model: "the-model", Home: t.TempDir()}}
	r.host.Tools["echo"] = agenttest.Tool{Do: func(_ context.Context, args string) *toolv1.Result { return agenttest.Result(args) }}
	t.Cleanup(r.host.Close)
	return r
}

// agent starts a worker.
func (r *rig) agent() *agenttest.Worker {
	r.Helper()
	return agenttest.Start(r.T, r.host, &Agent{Open: func(ipc.AgentConfig, func(context.Context) (string, error), proxy.Variables) (provider.Provider, error) {
		return r.script, nil
	}}, r.cfg)
}

// answer accepts a message and runs its turn to the end.
func (r *rig) answer(text string) (*agenttest.Worker, *agenttest.Run) {
	r.Helper()
	r.host.Accept("t1", text)
	w := r.agent()
	run := w.Run(r.T, "t1")
	if err := run.Wait(); err != nil {
		r.Fatalf("run: %v\n%s", err, w.Log())
	}
	return w, run
}

// ended checks how turn t1 was finished and returns its text.
func (r *rig) ended(outcome turnv1.Outcome) string {
	r.Helper()
	end := r.host.End("t1")
	if end == nil {
		r.Fatal("the turn is not finished")
	}
	if end.Outcome != outcome {
		r.Errorf("outcome %s, want %s (%s)", end.Outcome, outcome, end.Reply.Content)
	}
	if (end.Error == "") != (outcome == turnv1.Outcome_OUTCOME_COMPLETED) {
		r.Errorf("error %q with outcome %s", end.Error, end.Outcome)
	}
	return end.Reply.Content
}

// rows writes the steps of t1, one a line.
func (r *rig) rows() string {
	var b strings.Builder
	for _, m := range r.host.Steps("t1") {
		b.WriteString(m.Role)
		if m.ToolCallId != "" {
			b.WriteString(" " + m.ToolCallId)
		}
		if m.Content != "" {
			b.WriteString(": " + m.Content)
		}
		for _, c := range m.ToolCalls {
			b.WriteString(" [" + c.Id + " " + c.Name + " " + c.ArgumentsJson + "]")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *rig) interrupt(w *agenttest.Worker) {
	r.Helper()
	r.host.CancelCalls("t1")
	reply, err := w.Agent.Interrupt(r.Context(), &agentv1.InterruptRequest{TurnId: "t1", Reason: "the user pressed Ctrl-C"})
	if err != nil || !reply.Running {
		r.Errorf("interrupt: %v, running %v", err, reply.GetRunning())
	}
}

func contains(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}
