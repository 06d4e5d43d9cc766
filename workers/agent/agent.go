// Package agent is the agent worker: it runs turns. A turn is one user message and all that follows from it until the
// final reply: provider calls and tool calls, in a loop, each step stored by the supervisor before the next begins.
//
// Rules: a turn is a function of what is stored, so any agent can go on with it where another died; the agent keeps
// nothing between turns; every turn ends with an answer to the person, also when the provider fails; only a lost lease
// ends one in silence. Turns are independent of each other: one that fails, hangs or panics costs itself.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider/offline"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider/openai"
	"github.com/hermes-supervisor/hermes-supervisor/workers/proxy"
)

// Defaults of the configuration, as Hermes has them.
const (
	defaultMaxTurns    = 90
	defaultAPIRetries  = 3
	defaultToolsAtOnce = 8
)

// An Agent is the role of an agent worker. The zero value is ready to be served.
type Agent struct {
	agentv1.UnimplementedAgentServer

	// Open makes the provider of a configuration; nil means Open of this package. key returns the configured secret.
	Open func(cfg ipc.AgentConfig, key func(context.Context) (string, error), via proxy.Variables) (provider.Provider, error)

	ctx      context.Context
	host     *workers.Host
	cfg      ipc.AgentConfig
	provider provider.Provider
	unusable error // why there is no provider: said in answer to every turn
	verdict  verdict
	windows  windows

	mu       sync.Mutex
	runs     map[string]*run // by turn
	draining bool
}

var (
	_ workers.Role     = (*Agent)(nil)
	_ workers.Reporter = (*Agent)(nil)
)

// A run is a turn under way in this process.
type run struct {
	fence     uint64
	interrupt context.CancelCauseFunc // the person wants it to end
	drop      context.CancelCauseFunc // nobody wants it any more
}

// An interruption is the cause of a context that ended because the person wanted the turn to end.
type interruption struct{ reason string }

func (i interruption) Error() string { return "interrupted: " + i.reason }

// Register adds the Agent service.
func (a *Agent) Register(s *grpc.Server) { agentv1.RegisterAgentServer(s, a) }

// Start takes the configuration. A provider that cannot be made is no failed start: turns are run and say what is wrong,
// where a worker that does not start would answer nobody.
func (a *Agent) Start(ctx context.Context, host *workers.Host, config json.RawMessage) error {
	if err := json.Unmarshal(config, &a.cfg); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	a.cfg.MaxTurns = orDefault(a.cfg.MaxTurns, defaultMaxTurns)
	a.cfg.APIRetries = orDefault(a.cfg.APIRetries, defaultAPIRetries)
	a.cfg.ToolsAtOnce = orDefault(a.cfg.ToolsAtOnce, defaultToolsAtOnce)
	a.ctx, a.host, a.runs = ctx, host, map[string]*run{}
	via, err := proxy.Ask(ctx, host.Config, a.cfg.Proxies)
	if err != nil {
		return err
	}
	open := a.Open
	if open == nil {
		open = Open
	}
	if a.provider, a.unusable = open(a.cfg, a.secret, via); a.unusable != nil {
		host.Log.Error("no provider", "error", a.unusable)
	}
	return nil
}

// Open makes the provider that a configuration names.
func Open(cfg ipc.AgentConfig, key func(context.Context) (string, error), via proxy.Variables) (provider.Provider, error) {
	switch cfg.Provider {
	case "", "offline":
		return offline.New(cfg.Home), nil
	case "openai":
		p, err := openai.New(openai.Config{BaseURL: cfg.BaseURL, Key: key, Proxy: via.ForRequest(), Idle: cfg.StreamIdle})
		if err != nil {
			return nil, err // and no interface around a nil client
		}
		return p, nil
	}
	return nil, fmt.Errorf("model.provider %q is not known here (offline, openai)", cfg.Provider)
}

// secret asks the supervisor for the provider's key.
func (a *Agent) secret(ctx context.Context) (string, error) {
	if a.cfg.APIKeyName == "" {
		return "", nil
	}
	r, err := a.host.Config.Secret(ctx, &hostv1.SecretRequest{Name: a.cfg.APIKeyName})
	if errors.Is(err, ipc.ErrNotFound) || errors.Is(err, ipc.ErrDenied) {
		return "", &provider.Error{Class: provider.Auth, Message: a.cfg.APIKeyName + " is not set"}
	}
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", a.cfg.APIKeyName, err)
	}
	return r.Value, nil
}

// Run runs one turn. It returns nil only when the turn is finished.
func (a *Agent) Run(req *agentv1.RunRequest, stream grpc.ServerStreamingServer[agentv1.RunEvent]) error {
	ctx, drop := context.WithCancelCause(stream.Context())
	defer drop(nil)
	work, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	r := &run{fence: req.Fence, interrupt: interrupt, drop: drop}
	if err := a.enter(req.TurnId, r); err != nil {
		return err
	}
	defer a.leave(req.TurnId, r)
	defer a.host.Work.Begin()()

	f := newFeed(stream.Send)
	var sender sync.WaitGroup
	sender.Go(func() { f.run(ctx) })
	defer sender.Wait()
	defer f.close()

	t := newTurn(a, req, ctx, work, f)
	err := a.guard(t, t.run)
	var p *panicked
	if errors.As(err, &p) {
		err = a.guard(t, func() error { return t.finishPanicked(p) })
	}
	if err != nil {
		// The supervisor says what follows from it; here it is at most half the story.
		t.log.Debug("turn given back", "error", err)
	}
	return err
}

// enter registers a run. A newer lease of a turn takes it from an older one.
func (a *Agent) enter(turnID string, r *run) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return fmt.Errorf("turn %s: %w: draining", turnID, ipc.ErrRefused)
	}
	if old := a.runs[turnID]; old != nil {
		if old.fence >= r.fence {
			return fmt.Errorf("turn %s runs here under fence %d: %w", turnID, old.fence, ipc.ErrLeaseLost)
		}
		old.drop(fmt.Errorf("turn %s is leased again: %w", turnID, ipc.ErrLeaseLost))
	}
	a.runs[turnID] = r
	return nil
}

func (a *Agent) leave(turnID string, r *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs[turnID] == r {
		delete(a.runs, turnID)
	}
}

// Interrupt asks a running turn to finish with what it has.
func (a *Agent) Interrupt(_ context.Context, req *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.runs[req.TurnId]
	if r != nil {
		r.interrupt(interruption{reason: req.Reason})
	}
	return &agentv1.InterruptResponse{Running: r != nil}, nil
}

// Drain takes no new turns and waits for the running ones.
func (a *Agent) Drain(ctx context.Context) int {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	select {
	case <-a.host.Work.Idle():
	case <-ctx.Done():
	}
	_, running, _ := a.host.Work.Counts()
	return running
}

// Close lets go of connections. Running turns end with the process: their leases are taken up by another.
func (a *Agent) Close() {
	a.mu.Lock()
	for id, r := range a.runs {
		r.drop(fmt.Errorf("turn %s: the agent ends: %w", id, ipc.ErrGone))
	}
	a.mu.Unlock()
	if a.provider != nil {
		a.provider.Close()
	}
}

// panicked is a panic that was caught.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("internal error: %v", p.value) }

// guard turns a panic of do into an error and leaves its stack in the log.
func (a *Agent) guard(t *turn, do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			t.log.Error("panic in a turn", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = &panicked{value: v}
		}
	}()
	return do()
}

func orDefault(n, d int) int {
	if n > 0 {
		return n
	}
	return d
}

// A verdict is what the last provider calls say about the provider.
type verdict struct {
	mu    sync.Mutex
	err   *provider.Error // nil after a call that worked
	since time.Time
}

func (v *verdict) note(err *provider.Error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if (err == nil) != (v.err == nil) {
		v.since = time.Now()
	}
	v.err = err
}

// Report says which provider answers, and degraded while it does not.
func (a *Agent) Report() (degraded bool, detail string) {
	if a.unusable != nil {
		return true, a.unusable.Error()
	}
	detail = a.provider.Name()
	if e := a.provider.Endpoint(); e != "" {
		detail = a.cfg.Model + " at " + e
	}
	a.verdict.mu.Lock()
	defer a.verdict.mu.Unlock()
	if err := a.verdict.err; err != nil {
		return true, fmt.Sprintf("%s: %v (since %s)", detail, err, a.verdict.since.Format(time.TimeOnly))
	}
	return false, detail
}
