package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/prompt"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// storePatience is how long a write is repeated while the store is busy. Less destroys turns on a healthy store that
// another program holds for some seconds.
const storePatience = time.Minute

// A turn is one run of a turn. It is used from one goroutine, but for the tool calls that it waits for.
type turn struct {
	agent *Agent
	req   *agentv1.RunRequest
	feed  *feed
	log   hclog.Logger
	begun time.Time

	// The contexts of a run are part of its state: ctx ends when nobody wants the turn any more, work ends besides when
	// the person interrupts it. What stores the end of an interrupted turn needs the first.
	ctx, work context.Context

	session *hostv1.Session
	history []*turnv1.Message // before this turn
	steps   []*turnv1.Message // of this turn, the user's message first
	tools   []provider.Tool
	specs   map[string]*toolv1.ToolSpec
	model   string
	system  string
	unsaved bool // the prompt is not stored yet
	asked   int  // provider calls of this run
	tries   int  // of the call that was given up

	cancelled atomic.Bool // the supervisor cancelled a call
}

func newTurn(a *Agent, req *agentv1.RunRequest, ctx, work context.Context, f *feed) *turn {
	return &turn{
		agent: a, req: req, feed: f, ctx: ctx, work: work, begun: time.Now(),
		log: a.host.Log.With("turn", req.TurnId, "session", req.SessionId, "attempt", req.Attempt),
	}
}

// run goes through the turn from where it stands to its end.
func (t *turn) run() error {
	err := t.load()
	if err == nil {
		err = t.prepare()
	}
	for done := false; err == nil && !done; {
		done, err = t.step()
	}
	if errors.Is(err, ipc.ErrInvalid) && t.session != nil && t.ctx.Err() == nil {
		// Nobody could do better with the same turn.
		return t.finishFailed("", "⚠️ I cannot go on with this message: what the model said cannot be stored ("+provider.Shorten(err.Error())+").", err)
	}
	return err
}

// step does the next thing that the stored steps ask for.
func (t *turn) step() (done bool, err error) {
	if err := context.Cause(t.ctx); err != nil {
		return false, err
	}
	last := t.steps[len(t.steps)-1]
	asking, open := t.openCalls()
	switch {
	case len(open) > 0:
		return false, t.makeCalls(asking, open)
	case last.Role == roleAssistant && len(last.ToolCalls) == 0:
		return true, t.finishStored(last)
	case t.work.Err() != nil:
		return true, t.finishInterrupted(provider.Reply{})
	case t.agent.unusable != nil:
		return true, t.finishFailed("", t.unusableText(), t.agent.unusable)
	case t.rounds() >= t.agent.cfg.MaxTurns:
		return true, t.finishBudget()
	}
	return t.round()
}

// round makes one provider call and stores what it asks for, or finishes the turn with its answer.
func (t *turn) round() (done bool, err error) {
	reply, err := t.answer(t.tools)
	switch {
	case context.Cause(t.ctx) != nil:
		return false, context.Cause(t.ctx)
	case t.work.Err() != nil:
		return true, t.finishInterrupted(reply)
	}
	var failure *provider.Error
	switch {
	case errors.As(err, &failure) && failure.Class == provider.Exhausted:
		return false, fmt.Errorf("call the provider: %w: %w", ipc.ErrBusy, err)
	case errors.As(err, &failure):
		return true, t.finishFailed(reply.Text, t.failureText(failure), failure)
	case err != nil:
		return false, err
	case len(reply.ToolCalls) == 0:
		return true, t.finishCompleted(reply)
	}
	m := t.message(reply)
	m.ToolCalls = t.tidyCalls(reply.ToolCalls, m.Seq)
	return false, t.append(m)
}

// load reads the session and its conversation.
func (t *turn) load() error {
	stream, err := t.agent.host.Turns.Load(t.ctx, &hostv1.LoadRequest{TurnId: t.req.TurnId, Fence: t.req.Fence})
	for err == nil {
		var r *hostv1.LoadResponse
		if r, err = stream.Recv(); err != nil {
			break
		}
		if r.Session != nil {
			t.session = r.Session
		}
		for _, m := range r.Messages {
			if m.TurnId == t.req.TurnId {
				t.steps = append(t.steps, m)
			} else {
				t.history = append(t.history, m)
			}
		}
	}
	if err != io.EOF {
		return fmt.Errorf("load turn %s: %w", t.req.TurnId, err)
	}
	if t.session == nil || len(t.steps) == 0 {
		return fmt.Errorf("load turn %s: no message to answer", t.req.TurnId)
	}
	slices.SortStableFunc(t.steps, func(a, b *turnv1.Message) int { return int(a.Seq) - int(b.Seq) })
	return nil
}

// prepare finds out what the provider is told besides the conversation: tools, model and prompt.
func (t *turn) prepare() error {
	list, err := t.agent.host.Tools.List(t.ctx, &hostv1.ListRequest{})
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	t.specs = map[string]*toolv1.ToolSpec{}
	var names []string
	for _, s := range list.Tools {
		t.specs[s.Name] = s
		names = append(names, s.Name)
		t.tools = append(t.tools, provider.Tool{Name: s.Name, Description: s.Description, Schema: []byte(s.InputSchemaJson)})
	}
	if t.model = t.session.Model; t.model == "" {
		t.model = t.agent.cfg.Model
	}
	t.system = t.session.SystemPrompt
	if prompt.Built(t.system) {
		return nil
	}
	return t.buildPrompt(names)
}

// buildPrompt writes the prompt of a session that has none yet, or only what its opener added. The latter stays as it is
// in the store, so it is put together anew at each turn, from the same parts.
func (t *turn) buildPrompt(tools []string) error {
	cfg := t.agent.cfg
	in := prompt.Input{
		Home: cfg.Home, FileChars: cfg.ContextFileMaxChars, MemoryChars: cfg.MemoryCharLimit, UserChars: cfg.UserCharLimit,
		Tools: tools, Caller: t.session.SystemPrompt, SessionID: t.session.Id, Started: fromUnix(t.session.StartedAt),
		Platform: t.session.Source, Model: t.model,
	}
	if t.agent.provider != nil {
		in.Provider = t.agent.provider.Name()
	}
	text, err := prompt.Build(in)
	if err != nil {
		t.log.Warn("a part of the prompt is missing", "error", err)
	}
	t.system, t.unsaved = text, t.session.SystemPrompt == ""
	return nil
}

// rounds counts the provider calls of the turn, those of earlier runs included.
func (t *turn) rounds() (n int) {
	for _, m := range t.steps {
		if m.Role == roleAssistant {
			n++
		}
	}
	return n
}

// next is the number of the next step.
func (t *turn) next() uint32 {
	if len(t.steps) == 0 {
		return 1
	}
	return t.steps[len(t.steps)-1].Seq + 1
}

// append stores steps, in as many calls as their size asks for.
func (t *turn) append(steps ...*turnv1.Message) error { return t.store(false, steps) }

// appendRound stores the last results of a round. What people said meanwhile to the running turn follows them.
func (t *turn) appendRound(results ...*turnv1.Message) error { return t.store(true, results) }

func (t *turn) store(round bool, steps []*turnv1.Message) error {
	stored := 0
	for batch := range batches(steps) {
		stored += len(batch)
		req := &hostv1.AppendRequest{TurnId: t.req.TurnId, Fence: t.req.Fence, Steps: batch, Steer: round && stored == len(steps)}
		if t.unsaved {
			req.SystemPrompt = t.system
		}
		var added []*turnv1.Message
		err := t.persist(func() error {
			r, err := t.agent.host.Turns.Append(t.ctx, req)
			added = r.GetAdded()
			return err
		})
		if err != nil {
			return fmt.Errorf("store steps: %w", err)
		}
		t.unsaved = false
		t.steps = append(append(t.steps, batch...), added...)
		t.agent.host.Work.Step()
	}
	return nil
}

// persist makes a write, and makes it again while the store is busy or its answer was lost. Every write of a turn carries
// a key, so a repeat changes nothing.
func (t *turn) persist(write func() error) error {
	began := time.Now()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := write()
		busy := errors.Is(err, ipc.ErrBusy) || errors.Is(err, ipc.ErrTimeout)
		if !busy || t.ctx.Err() != nil || time.Since(began) > storePatience {
			return err
		}
		t.feed.at("waiting for the store")
		pause(t.ctx, wait)
	}
}

// pause waits for d, and says whether it did so to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func fromUnix(s float64) time.Time { return time.UnixMicro(int64(s * 1e6)) }

func toUnix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
