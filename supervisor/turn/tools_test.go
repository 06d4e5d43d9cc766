package turn

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// A scriptedTool is one tool of a scripted tools worker.
type scriptedTool struct {
	readOnly bool
	maxMS    int64
	check    *toolv1.CheckResponse // nil: not checked
	invoke   func(ctx context.Context, in *invocation) (*toolv1.Result, error)
}

// An invocation is one Invoke that reached a tool.
type invocation struct {
	*process
	req    *toolv1.InvokeRequest
	stream grpc.ServerStreamingServer[toolv1.InvokeEvent]
}

func (in *invocation) progress(line string) {
	_ = in.stream.Send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Progress{Progress: line}})
}

// effects counts what tools did, over all lives of all workers: it is the world.
type effects struct {
	mu      sync.Mutex
	made    map[string]int // by turn/call
	reached map[string]chan struct{}
}

func (e *effects) invoked(tool string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reached == nil {
		e.reached = map[string]chan struct{}{}
	}
	if e.reached[tool] == nil {
		e.reached[tool] = make(chan struct{})
	}
	return e.reached[tool]
}

func (e *effects) count(tool, turnID, callID string) {
	c := e.invoked(tool)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made == nil {
		e.made = map[string]int{}
	}
	e.made[turnID+"/"+callID]++
	select {
	case <-c:
	default:
		close(c)
	}
}

func (e *effects) of(turnID, callID string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made[turnID+"/"+callID]
}

type toolServer struct {
	toolv1.UnimplementedToolServer
	proc  *process
	tools map[string]scriptedTool
}

// tools starts a tools worker.
func (r *rig) tools(name string, tools map[string]scriptedTool) *process {
	r.t.Helper()
	return r.start(ipc.Identity{Worker: name, Role: ipc.RoleTools}, func(p *process, s *grpc.Server) {
		toolv1.RegisterToolServer(s, &toolServer{proc: p, tools: tools})
	})
}

func (s *toolServer) Describe(context.Context, *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	r := &toolv1.DescribeResponse{Plugin: s.proc.id.Worker}
	for name, t := range s.tools {
		r.Tools = append(r.Tools, &toolv1.ToolSpec{
			Name: name, Description: "of " + s.proc.id.Worker, InputSchemaJson: `{"type":"object"}`,
			ReadOnly: t.readOnly, MaxTimeoutMs: t.maxMS, Checked: t.check != nil,
		})
	}
	return r, nil
}

func (s *toolServer) Check(_ context.Context, req *toolv1.CheckRequest) (*toolv1.CheckResponse, error) {
	return s.tools[req.Tool].check, nil
}

func (s *toolServer) Invoke(req *toolv1.InvokeRequest, stream grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
	t, ok := s.tools[req.Tool]
	if !ok {
		return fmt.Errorf("tool %s: %w", req.Tool, ipc.ErrNotFound)
	}
	s.proc.rig.world.count(req.Tool, req.Origin.TurnId, req.CallId)
	res, err := t.invoke(stream.Context(), &invocation{process: s.proc, req: req, stream: stream})
	if err != nil || res == nil {
		return err
	}
	return stream.Send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Result{Result: res}})
}

// ok is the tool that answers at once.
func ok(text string) func(context.Context, *invocation) (*toolv1.Result, error) {
	return func(context.Context, *invocation) (*toolv1.Result, error) { return &toolv1.Result{Content: text}, nil }
}

// waitFor is the tool that answers when it is let.
func waitFor(end <-chan struct{}) func(context.Context, *invocation) (*toolv1.Result, error) {
	return func(ctx context.Context, in *invocation) (*toolv1.Result, error) {
		select {
		case <-end:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return ok("done")(ctx, in)
	}
}
