package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

const (
	// endGrace is how long a handler may take to return once its context has ended. Then it is given up: its
	// result is not waited for, and the plugin says that it is degraded while it goes on.
	endGrace = 5 * time.Second
	// replyMargin is kept of the caller's deadline, so that "took too long" still reaches the caller.
	replyMargin = 500 * time.Millisecond
)

// An Env is what tools are served in. The zero value of each field but none is required works.
type Env struct {
	Log hclog.Logger
	// Begin counts a call as running until the returned function is called.
	Begin func() (end func())
	// Secret fetches a secret by name.
	Secret func(ctx context.Context, name string) (string, error)
	// ScratchDir holds the calls' scratch directories; empty means the system's folder for temporary files.
	ScratchDir string
	// SpillDir holds whole outputs that were cut; empty means that they are lost.
	SpillDir string
	// MaxResult is how many characters of a result are kept; 0 means 100,000.
	MaxResult int
	// Settings are the plugin's own from the configuration, as JSON.
	Settings json.RawMessage

	spills *spills
}

// A Server serves tools as hermes.tool.v1.Tool. It answers from Start on.
type Server struct {
	toolv1.UnimplementedToolServer
	name, version string

	mu       sync.Mutex
	env      *Env
	tools    map[string]Tool
	order    []string
	draining bool
	running  int
	givenUp  int
	idle     chan struct{} // closed when running falls to 0, then renewed

	ctx    context.Context // of all calls
	cancel context.CancelFunc
}

// NewServer returns a server of the plugin with this name and version.
func NewServer(name, version string) *Server {
	s := &Server{name: name, version: version, tools: map[string]Tool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins to answer with these tools. A name that is used twice is an error.
func (s *Server) Start(env Env, tools ...Tool) error {
	if env.Log == nil {
		env.Log = hclog.NewNullLogger()
	}
	if env.Begin == nil {
		env.Begin = func() func() { return func() {} }
	}
	if env.ScratchDir == "" {
		env.ScratchDir = os.TempDir()
	}
	if env.MaxResult == 0 {
		env.MaxResult = defaultMaxResult
	}
	env.spills = &spills{dir: env.SpillDir, now: time.Now}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env != nil {
		return fmt.Errorf("start tools: %w: already started", ipc.ErrRefused)
	}
	for _, t := range tools {
		if _, twice := s.tools[t.Name()]; twice {
			return fmt.Errorf("start tools: two are named %s", t.Name())
		}
		s.tools[t.Name()] = t
		s.order = append(s.order, t.Name())
	}
	s.env = &env
	return nil
}

// Describe lists the tools in the order in which they were given.
func (s *Server) Describe(context.Context, *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil {
		return nil, fmt.Errorf("describe: %w: not started", ipc.ErrRefused)
	}
	r := &toolv1.DescribeResponse{Plugin: s.name, Version: s.version, SdkVersion: SDKVersion}
	tools := make([]Tool, len(s.order))
	for i, name := range s.order {
		tools[i] = s.tools[name]
		r.Tools = append(r.Tools, tools[i].spec)
	}
	r.Wants = allWants(tools)
	return r, nil
}

// lookup returns a tool of a started server.
func (s *Server) lookup(name string) (Tool, *Env, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil {
		return Tool{}, nil, fmt.Errorf("%s: %w: not started", name, ipc.ErrRefused)
	}
	t, ok := s.tools[name]
	if !ok {
		return Tool{}, nil, fmt.Errorf("tool %q: %w in %s (there are: %v)", name, ipc.ErrNotFound, s.name, s.order)
	}
	return t, s.env, nil
}

// Check judges one call. Arguments that are wrong are allowed here, as the call itself refuses them with the reason.
func (s *Server) Check(ctx context.Context, req *toolv1.CheckRequest) (resp *toolv1.CheckResponse, err error) {
	t, env, err := s.lookup(req.Tool)
	if err != nil {
		return nil, err
	}
	if t.check == nil {
		return &toolv1.CheckResponse{Verdict: toolv1.CheckResponse_VERDICT_ALLOW}, nil
	}
	arguments, err := t.input.arguments(req.Tool, req.ArgumentsJson)
	if err != nil {
		return &toolv1.CheckResponse{Verdict: toolv1.CheckResponse_VERDICT_ALLOW, Reason: clean(err.Error(), 2000)}, nil
	}
	defer func() {
		if p := recover(); p != nil {
			env.Log.Error("panic in a check", "tool", req.Tool, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			resp, err = verdict(Ask("the check of this tool failed", "")), nil
		}
	}()
	v, err := t.check(ctx, arguments)
	if err != nil {
		return &toolv1.CheckResponse{Verdict: toolv1.CheckResponse_VERDICT_ALLOW, Reason: clean(err.Error(), 2000)}, nil
	}
	return verdict(v), nil
}

func verdict(v Verdict) *toolv1.CheckResponse {
	if v.kind == toolv1.CheckResponse_VERDICT_UNSPECIFIED {
		v.kind, v.reason = toolv1.CheckResponse_VERDICT_ASK, "the check of this tool gave no answer"
	}
	return &toolv1.CheckResponse{Verdict: v.kind, Reason: clean(v.reason, 2000), Summary: cutLine(v.summary, 2000)}
}

// Invoke makes one call and streams it: progress and chunks, then the result.
func (s *Server) Invoke(req *toolv1.InvokeRequest, stream grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
	return s.invoke(stream.Context(), req, stream.Send)
}

func (s *Server) invoke(parent context.Context, req *toolv1.InvokeRequest, send func(*toolv1.InvokeEvent) error) error {
	t, env, err := s.lookup(req.Tool)
	if err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	ctx, cancel := s.limit(parent, t)
	defer cancel()
	c := newCall(env, req)
	done := make(chan *toolv1.Result, 1)
	go func() {
		defer s.leave()
		defer env.Begin()()
		run(ctx, t, c, req.ArgumentsJson, done)
	}()
	return s.pump(ctx, parent, c, done, send)
}

// limit derives the context of a call: it ends with the caller, the server, or the tool's own time.
func (s *Server) limit(parent context.Context, t Tool) (context.Context, context.CancelFunc) {
	limit := time.Duration(t.spec.MaxTimeoutMs) * time.Millisecond
	if d, ok := parent.Deadline(); ok {
		if left := time.Until(d) - replyMargin; left > 0 {
			limit = min(limit, left)
		}
	}
	ctx, cancel := context.WithTimeout(parent, limit)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// run calls the handler and makes exactly one result of whatever comes of it, a panic or an early end of its
// goroutine (runtime.Goexit) among them.
func run(ctx context.Context, t Tool, c *Call, text string, done chan<- *toolv1.Result) {
	result := failure(toolv1.ToolError_KIND_PANIC, t.Name()+" ended without a result")
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("panic in a tool", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = failure(toolv1.ToolError_KIND_PANIC, fmt.Sprintf("%s failed by a fault of its own: %v", t.Name(), p))
		}
		result.SpillPath = c.end()
		done <- result
	}()
	arguments, err := t.input.arguments(t.Name(), text)
	if err != nil {
		result = failed(ctx, c, err)
		return
	}
	out, err := t.run(ctx, c, arguments)
	if err != nil {
		result = failed(ctx, c, err)
		return
	}
	result = success(c, out)
}

// pump sends events until the result, and gives up a handler that does not return after its context has ended.
func (s *Server) pump(ctx, parent context.Context, c *Call, done <-chan *toolv1.Result, send func(*toolv1.InvokeEvent) error) error {
	defer close(c.gone)
	ended := ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case e := <-c.events:
			if err := send(e); err != nil && parent.Err() == nil {
				return err
			}
		case r := <-done:
			for {
				select {
				case e := <-c.events:
					if err := send(e); err != nil {
						return err
					}
					continue
				default:
				}
				return send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Result{Result: r}})
			}
		case <-ended:
			ended = nil
			timer := time.NewTimer(endGrace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			return s.giveUp(ctx, c, done, send)
		}
	}
}

// giveUp answers for a handler that goes on after its end, and counts it until it returns.
func (s *Server) giveUp(ctx context.Context, c *Call, done <-chan *toolv1.Result, send func(*toolv1.InvokeEvent) error) error {
	c.log.Error("a tool does not end when told to; it is given up", "cause", context.Cause(ctx))
	s.mu.Lock()
	s.givenUp++
	s.mu.Unlock()
	go func() {
		<-done
		s.mu.Lock()
		s.givenUp--
		s.mu.Unlock()
	}()
	kind, how := toolv1.ToolError_KIND_CANCELLED, "was cancelled"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind, how = toolv1.ToolError_KIND_TIMEOUT, "took too long"
	}
	result := failure(kind, fmt.Sprintf("%s %s and does not end when told to; what it still does is unknown", c.Tool, how))
	return send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Result{Result: result}})
}

func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return fmt.Errorf("%s: %w: draining", s.name, ipc.ErrRefused)
	}
	s.running++
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// Drain refuses new calls and waits for the running ones until ctx ends. It returns how many still run.
func (s *Server) Drain(ctx context.Context) int {
	s.mu.Lock()
	s.draining = true
	if s.running == 0 {
		s.mu.Unlock()
		return 0
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Close ends the context of every call and refuses new ones. It does not wait.
func (s *Server) Close() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.cancel()
}

// Report says whether calls go on that were given up, for health.
func (s *Server) Report() (degraded bool, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.givenUp > 0 {
		return true, fmt.Sprintf("%d calls go on after their end", s.givenUp)
	}
	return false, ""
}

// Tools returns the names of the tools, sorted.
func (s *Server) Tools() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.order))
}
