package agenttest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

// A Worker is one life of an agent, connected to a host in both directions.
type Worker struct {
	Host  *Host
	Role  workers.Role
	Agent agentv1.AgentClient
	Work  *workers.Work

	log   syncBuffer
	close []func()
	once  sync.Once
}

// Start serves role on host as the supervisor would. The worker is ended with the test, if not before.
func Start(t testing.TB, host *Host, role workers.Role, cfg ipc.AgentConfig) *Worker {
	t.Helper()
	w := &Worker{Host: host, Role: role}
	t.Cleanup(w.Kill)

	hosts := grpc.NewServer(ipc.ServerOptions(func(context.Context) (ipc.Identity, error) {
		return ipc.Identity{Worker: "agent-1", Role: ipc.RoleAgent}, nil
	}, nil)...)
	hostv1.RegisterTurnsServer(hosts, host)
	hostv1.RegisterToolsServer(hosts, host)
	hostv1.RegisterConfigServer(hosts, host)
	own := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	role.Register(own)

	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := workers.NewHost(w.serve(t, hosts), "agent-1", 1, hclog.New(&hclog.LoggerOptions{Output: &w.log, Level: hclog.Debug}))
	w.Work = h.Work
	ctx, cancel := context.WithCancel(context.Background())
	w.close = append(w.close, cancel)
	if err := role.Start(ctx, h, config); err != nil {
		t.Fatal(err)
	}
	w.close = append(w.close, role.Close)
	w.Agent = agentv1.NewAgentClient(w.serve(t, own))
	return w
}

// serve serves s in memory and connects to it.
func (w *Worker) serve(t testing.TB, s *grpc.Server) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(256 << 10)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
	conn, err := grpc.NewClient("passthrough:///memory", append(ipc.DialOptions(), dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	w.close = append(w.close, func() {
		_ = conn.Close()
		s.Stop()
		<-served
	})
	return conn
}

// Kill ends the worker at once, like its process: its connections break, its calls at the host go on.
func (w *Worker) Kill() {
	w.once.Do(func() {
		for i := range w.close {
			w.close[len(w.close)-1-i]()
		}
	})
}

// Log returns what the worker has logged.
func (w *Worker) Log() string { return w.log.String() }

// A Run is a turn that the worker runs.
type Run struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	events []*agentv1.RunEvent
	err    error
}

// Run leases a turn to the worker and starts it.
func (w *Worker) Run(t testing.TB, turnID string) *Run {
	t.Helper()
	fence := w.Host.Lease(turnID)
	ctx, cancel := context.WithCancel(context.Background())
	r := &Run{cancel: cancel, done: make(chan struct{})}
	w.close = append(w.close, func() { cancel(); <-r.done })
	stream, err := w.Agent.Run(ctx, &agentv1.RunRequest{TurnId: turnID, SessionId: w.Host.Session.Id, Fence: fence, Attempt: uint32(fence)})
	if err != nil {
		t.Fatal(err)
	}
	go r.receive(stream)
	return r
}

func (r *Run) receive(stream grpc.ServerStreamingClient[agentv1.RunEvent]) {
	defer close(r.done)
	for {
		e, err := stream.Recv()
		r.mu.Lock()
		if err != nil {
			if err != io.EOF {
				r.err = err
			}
			r.mu.Unlock()
			return
		}
		r.events = append(r.events, e)
		r.mu.Unlock()
	}
}

// Wait waits for the end of the run; nil means that the agent said it is finished.
func (r *Run) Wait() error {
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Drop breaks the run off, as the supervisor does with a run that it gives up.
func (r *Run) Drop() { r.cancel() }

// Events returns what the run has sent so far.
func (r *Run) Events() []*agentv1.RunEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*agentv1.RunEvent(nil), r.events...)
}

// Notices returns what the person was told beside the answer.
func (r *Run) Notices() (told []string) {
	for _, e := range r.Events() {
		if n := e.GetNotice(); n != nil {
			told = append(told, n.Text)
		}
	}
	return told
}

// Shown returns the text of a step as a follower of the run sees it.
func (r *Run) Shown(seq uint32) string {
	var text strings.Builder
	for _, e := range r.Events() {
		if d := e.GetText(); d != nil && d.Seq == seq {
			if d.Snapshot {
				text.Reset()
			}
			text.WriteString(d.Text)
		}
	}
	return text.String()
}

// syncBuffer is a buffer for a logger that several goroutines use.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
