// Package agenttest runs an agent worker in a test: the supervisor's host services in memory, the gRPC connections in
// between, and a provider that follows a script. It keeps to what the supervisor promises about turns (fences, keys of
// steps, calls that outlive the agent) and to nothing else, so that a test shows what the agent does with the promises.
package agenttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A Tool is something that a model may call.
type Tool struct {
	ReadOnly bool
	// Do makes a call. ctx ends when the turn is interrupted.
	Do func(ctx context.Context, arguments string) *toolv1.Result
}

// A Host is the supervisor's side of one session. Its exported fields are set before it is used.
type Host struct {
	hostv1.UnimplementedTurnsServer
	hostv1.UnimplementedToolsServer
	hostv1.UnimplementedConfigServer

	Session *hostv1.Session
	Tools   map[string]Tool
	Secrets map[string]string
	// Fault, if set, is asked before every method ("Append", "Call" …), Lost after it has done its work; what they
	// return is returned to the agent.
	Fault, Lost func(method string) error

	mu    sync.Mutex
	turns map[string]*turn
	rows  []*turnv1.Message
}

type turn struct {
	fence  uint64
	steers []string
	calls  map[string]*call
	end    *hostv1.FinishRequest
	ctx    context.Context // of its calls
	stop   context.CancelFunc
}

type call struct {
	request *hostv1.CallRequest
	made    int
	result  *toolv1.Result
	done    chan struct{}
}

// NewHost returns a host with an empty session.
func NewHost() *Host {
	return &Host{
		Session: &hostv1.Session{Id: "20261201_093000_0a1b2c3d", Source: "terminal", StartedAt: float64(time.Date(2026, 12, 1, 9, 30, 0, 0, time.UTC).Unix())},
		Tools:   map[string]Tool{}, Secrets: map[string]string{}, turns: map[string]*turn{},
	}
}

// Reset forgets the conversation.
func (h *Host) Reset() {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns, h.rows = map[string]*turn{}, nil
}

// Store adds messages to the conversation as they are, of another program or of a turn that an agent died in.
func (h *Host) Store(rows ...*turnv1.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows = append(h.rows, rows...)
}

// Accept stores the message of a new turn.
func (h *Host) Accept(turnID, text string) {
	h.Store(&turnv1.Message{Role: "user", Content: text, TurnId: turnID})
	h.open(turnID)
}

func (h *Host) open(turnID string) *turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.turns[turnID]
	if t == nil {
		t = &turn{calls: map[string]*call{}}
		t.ctx, t.stop = context.WithCancel(context.Background())
		h.turns[turnID] = t
	}
	return t
}

// Lease makes the fence of a turn newer and returns it.
func (h *Host) Lease(turnID string) uint64 {
	t := h.open(turnID)
	h.mu.Lock()
	defer h.mu.Unlock()
	t.fence++
	return t.fence
}

// CancelCalls cancels the calls of a turn, as the supervisor does with an interrupted one beside telling the agent.
func (h *Host) CancelCalls(turnID string) { h.open(turnID).stop() }

// Close cancels all calls.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.turns {
		t.stop()
	}
}

// Steps returns what is stored of a turn, in the order in which it was stored.
func (h *Host) Steps(turnID string) []*turnv1.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.rows), func(m *turnv1.Message) bool { return m.TurnId != turnID })
}

// End returns how a turn was finished, nil if it was not.
func (h *Host) End(turnID string) *hostv1.FinishRequest {
	t := h.open(turnID)
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.end
}

// Made returns how often a call was made.
func (h *Host) Made(turnID, callID string) int {
	t := h.open(turnID)
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := t.calls[callID]; c != nil {
		return c.made
	}
	return 0
}

func (h *Host) enter(method, turnID string, fence uint64) (*turn, error) {
	if h.Fault != nil {
		if err := h.Fault(method); err != nil {
			return nil, err
		}
	}
	if turnID == "" {
		return nil, nil
	}
	t := h.open(turnID)
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.fence != fence {
		return nil, fmt.Errorf("turn %s: fence %d, not %d: %w", turnID, t.fence, fence, ipc.ErrLeaseLost)
	}
	return t, nil
}

// leave is the end of every method.
func (h *Host) leave(method string) error {
	if h.Lost != nil {
		return h.Lost(method)
	}
	return nil
}

// Load implements Turns.
func (h *Host) Load(r *hostv1.LoadRequest, out grpc.ServerStreamingServer[hostv1.LoadResponse]) error {
	if _, err := h.enter("Load", r.TurnId, r.Fence); err != nil {
		return err
	}
	h.mu.Lock()
	session, rows := proto.CloneOf(h.Session), slices.Clone(h.rows)
	h.mu.Unlock()
	if err := out.Send(&hostv1.LoadResponse{Session: session}); err != nil {
		return err
	}
	for batch := range slices.Chunk(rows, 2) {
		if err := out.Send(&hostv1.LoadResponse{Messages: batch}); err != nil {
			return err
		}
	}
	return nil
}

// Append implements Turns.
func (h *Host) Append(_ context.Context, r *hostv1.AppendRequest) (*hostv1.AppendResponse, error) {
	if _, err := h.enter("Append", r.TurnId, r.Fence); err != nil {
		return nil, err
	}
	if len(r.Steps) == 0 || len(r.Steps) > 64 {
		return nil, fmt.Errorf("%d steps: %w", len(r.Steps), ipc.ErrInvalid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Session.SystemPrompt == "" {
		h.Session.SystemPrompt = r.SystemPrompt
	}
	for _, m := range r.Steps {
		h.store(r.TurnId, m)
	}
	resp := &hostv1.AppendResponse{MessageIds: make([]int64, len(r.Steps))}
	if last := r.Steps[len(r.Steps)-1].Seq; r.Steer {
		t := h.turns[r.TurnId]
		for i, text := range t.steers {
			h.store(r.TurnId, &turnv1.Message{Role: "user", Content: text, Seq: last + 1 + uint32(i)})
		}
		t.steers = nil
		for _, m := range h.rows { // also to a repeat whose first answer was lost
			if m.TurnId == r.TurnId && m.Seq > last {
				resp.Added = append(resp.Added, m)
			}
		}
	}
	return resp, h.leave("Append")
}

// Say hands a text to a running turn; it is stored after the next results.
func (h *Host) Say(turnID, text string) {
	t := h.open(turnID)
	h.mu.Lock()
	defer h.mu.Unlock()
	t.steers = append(t.steers, text)
}

func (h *Host) store(turnID string, m *turnv1.Message) {
	for _, old := range h.rows {
		if old.TurnId == turnID && old.Seq == m.Seq {
			return
		}
	}
	m.TurnId = turnID
	h.rows = append(h.rows, m)
}

// Finish implements Turns.
func (h *Host) Finish(_ context.Context, r *hostv1.FinishRequest) (*hostv1.FinishResponse, error) {
	t, err := h.enter("Finish", r.TurnId, r.Fence)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.end == nil {
		h.store(r.TurnId, r.Reply)
		t.end = r
	}
	return &hostv1.FinishResponse{}, h.leave("Finish")
}

// List implements Tools.
func (h *Host) List(context.Context, *hostv1.ListRequest) (*hostv1.ListResponse, error) {
	if _, err := h.enter("List", "", 0); err != nil {
		return nil, err
	}
	r := &hostv1.ListResponse{}
	for name, tool := range h.Tools {
		r.Tools = append(r.Tools, &toolv1.ToolSpec{Name: name, Description: name, InputSchemaJson: `{"type":"object"}`, ReadOnly: tool.ReadOnly})
	}
	slices.SortFunc(r.Tools, func(a, b *toolv1.ToolSpec) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	return r, nil
}

// Call implements Tools. A call belongs to the host: it goes on when the agent that asked for it is gone.
func (h *Host) Call(r *hostv1.CallRequest, out grpc.ServerStreamingServer[hostv1.CallEvent]) error {
	t, err := h.enter("Call", r.TurnId, r.Fence)
	if err != nil {
		return err
	}
	c, err := h.begin(t, r)
	if err != nil {
		return err
	}
	if err := out.Send(&hostv1.CallEvent{Event: &hostv1.CallEvent_Progress{Progress: "working"}}); err != nil {
		return err
	}
	select {
	case <-c.done:
		if err := h.leave("Call"); err != nil {
			return err
		}
		return out.Send(&hostv1.CallEvent{Event: &hostv1.CallEvent_Result{Result: c.result}})
	case <-out.Context().Done():
		return out.Context().Err()
	}
}

func (h *Host) begin(t *turn, r *hostv1.CallRequest) (*call, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := t.calls[r.CallId]; c != nil {
		if c.request.Tool != r.Tool || c.request.ArgumentsJson != r.ArgumentsJson || c.request.Seq != r.Seq {
			return nil, fmt.Errorf("call id %s names another call: %w", r.CallId, ipc.ErrInvalid)
		}
		return c, nil
	}
	c := &call{request: r, done: make(chan struct{})}
	t.calls[r.CallId] = c
	tool, ok := h.Tools[r.Tool]
	switch {
	case t.ctx.Err() != nil:
		c.result = Failed(toolv1.ToolError_KIND_CANCELLED, "cancelled")
	case !ok:
		c.result = Failed(toolv1.ToolError_KIND_BAD_ARGUMENTS, "there is no tool "+r.Tool)
	default:
		c.made++
		go func() {
			defer close(c.done)
			c.result = tool.Do(t.ctx, r.ArgumentsJson)
		}()
		return c, nil
	}
	close(c.done)
	return c, nil
}

// Secret implements Config.
func (h *Host) Secret(_ context.Context, r *hostv1.SecretRequest) (*hostv1.SecretResponse, error) {
	if _, err := h.enter("Secret", "", 0); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.Secrets[r.Name]
	if !ok {
		return nil, fmt.Errorf("secret %s: %w", r.Name, ipc.ErrNotFound)
	}
	return &hostv1.SecretResponse{Value: v}, nil
}

// Result is a result that worked.
func Result(content string) *toolv1.Result { return &toolv1.Result{Content: content} }

// Failed is a result that is an error.
func Failed(kind toolv1.ToolError_Kind, message string) *toolv1.Result {
	return &toolv1.Result{Content: message, Error: &toolv1.ToolError{Kind: kind, Message: message}}
}
