package terminal

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// asProgram makes the test binary be hermes-terminal, for tests that need it in a terminal of its own.
const asProgram = "HERMES_TEST_TERMINAL"

// asServer makes it be a chatServer at the path that it holds, for tests that stop or kill a process.
const asServer = "HERMES_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	if path := os.Getenv(asServer); path != "" {
		s := &chatServer{path: path, changed: make(chan struct{}), desk: &deskServer{}}
		s.start()
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// A chatServer is a control socket with chats whose turns follow a script. It can be killed and started again at the
// same path; what it was sent is kept, as in a database.
type chatServer struct {
	controlv1.UnimplementedChatServer
	controlv1.UnimplementedControlServer
	t    *testing.T
	path string
	term string // TERM of the people before it

	mu          sync.Mutex
	sent        []*controlv1.SendRequest
	turns       map[string]string // message id → turn id
	decided     map[string]bool
	interrupted []string
	acked       []int64
	notices     []*controlv1.OutboxNotice
	restarts    []string
	refuse      error
	script      func(turn string, out func(*turnv1.TurnEvent) error) error
	changed     chan struct{}
	desk        *deskServer

	life sync.Mutex // of the fields below
	grpc *grpc.Server
	done chan struct{}
}

func newServer(t *testing.T, script func(turn string, out func(*turnv1.TurnEvent) error) error) *chatServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	s := &chatServer{
		t: t, path: filepath.Join(dir, "control.sock"), term: "xterm", script: script,
		turns: map[string]string{}, decided: map[string]bool{}, changed: make(chan struct{}), desk: &deskServer{},
	}
	s.start()
	t.Cleanup(func() { s.kill(); _ = os.RemoveAll(dir) })
	return s
}

func (s *chatServer) start() {
	s.life.Lock()
	defer s.life.Unlock()
	_ = os.Remove(s.path)
	l, err := net.Listen("unix", s.path)
	if err != nil {
		s.t.Error(err)
		return
	}
	g, done := grpc.NewServer(ipc.ServerOptions(nil, nil)...), make(chan struct{})
	controlv1.RegisterChatServer(g, s)
	controlv1.RegisterControlServer(g, s)
	controlv1.RegisterOperationsServer(g, pastServer{})
	hostv1.RegisterSessionsServer(g, s.desk)
	hostv1.RegisterTurnsServer(g, s.desk)
	s.grpc, s.done = g, done
	go func() { defer close(done); _ = g.Serve(l) }()
}

// kill ends the server at once.
func (s *chatServer) kill() {
	s.life.Lock()
	defer s.life.Unlock()
	s.grpc.Stop()
	<-s.done
}

// changes runs f under the lock and wakes those who wait.
func (s *chatServer) changes(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits for a condition on what the server was told.
func (s *chatServer) until(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *chatServer) Send(_ context.Context, r *controlv1.SendRequest) (*controlv1.SendResponse, error) {
	var reply controlv1.SendResponse
	var err error
	s.changes(func() {
		s.sent = append(s.sent, r)
		if err = s.refuse; err != nil {
			return
		}
		id, again := s.turns[r.MessageId]
		if !again {
			id = fmt.Sprintf("turn-%d", len(s.turns)+1)
			s.turns[r.MessageId] = id
		}
		reply = controlv1.SendResponse{TurnId: id, SessionId: "session", Duplicate: again}
	})
	return &reply, err
}

func (s *chatServer) Follow(r *controlv1.FollowRequest, out grpc.ServerStreamingServer[turnv1.TurnEvent]) error {
	return s.script(r.TurnId, out.Send)
}

func (s *chatServer) Interrupt(_ context.Context, r *controlv1.InterruptRequest) (*controlv1.InterruptResponse, error) {
	s.changes(func() { s.interrupted = append(s.interrupted, r.TurnId) })
	return &controlv1.InterruptResponse{Interrupted: true}, nil
}

func (s *chatServer) Decide(_ context.Context, r *controlv1.DecideRequest) (*controlv1.DecideResponse, error) {
	s.changes(func() { s.decided[r.ApprovalId] = r.Approve })
	return &controlv1.DecideResponse{Approved: r.Approve}, nil
}

func (s *chatServer) Notices(r *controlv1.NoticesRequest, out grpc.ServerStreamingServer[controlv1.OutboxNotice]) error {
	if r.ChatId != mainChat {
		<-out.Context().Done()
		return nil
	}
	sent := 0
	for {
		var next *controlv1.OutboxNotice
		if err := s.until(out.Context(), func() bool {
			if sent < len(s.notices) {
				next = s.notices[sent]
			}
			return next != nil
		}); err != nil {
			return err
		}
		sent++
		if err := out.Send(next); err != nil {
			return err
		}
	}
}

func (s *chatServer) Acknowledge(_ context.Context, r *controlv1.AcknowledgeRequest) (*controlv1.AcknowledgeResponse, error) {
	s.changes(func() { s.acked = append(s.acked, r.OutboxId) })
	return &controlv1.AcknowledgeResponse{}, nil
}

func (s *chatServer) Status(context.Context, *controlv1.StatusRequest) (*controlv1.StatusResponse, error) {
	return &controlv1.StatusResponse{
		Supervisor: &controlv1.Supervisor{Version: "v1", State: "ready"},
		Workers:    []*controlv1.WorkerStatus{{Name: "agent-1", State: "ready"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}},
		Model:      &controlv1.Model{Provider: "offline", Name: "offline", Reason: "no key is set"},
	}, nil
}

// requests are the messages that came, repeated ones too.
func (s *chatServer) requests() []*controlv1.SendRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

func (s *chatServer) decisions() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.decided)
}

func (s *chatServer) messageIDs() []string {
	var ids []string
	for _, r := range s.requests() {
		if !slices.Contains(ids, r.MessageId) {
			ids = append(ids, r.MessageId)
		}
	}
	return ids
}

// client dials the server. gone and back are counted.
func (s *chatServer) client(t *testing.T) *Client {
	t.Helper()
	conn, err := Dial(s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return NewClient(conn, 0)
}

// Events as scripts send them.

func textEvent(seq uint32, text string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Seq: seq, Text: text}}}
}

func snapshotEvent(seq uint32, text string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Seq: seq, Text: text, Snapshot: true}}}
}

func startedEvent(attempt uint32) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Started{Started: &turnv1.Started{Attempt: attempt, Worker: "agent-1"}}}
}

func toolStarted(id, summary string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolStarted{ToolStarted: &turnv1.ToolStarted{CallId: id, Tool: "terminal", Summary: summary}}}
}

func toolFinished(id string, ok bool, ms int64) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolFinished{ToolFinished: &turnv1.ToolFinished{CallId: id, Tool: "terminal", Ok: ok, DurationMs: ms}}}
}

func noticeEvent(text string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Notice{Notice: &turnv1.Notice{Text: text}}}
}

func approvalEvent(id string, deadlineMS int64) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Approval{Approval: &turnv1.ApprovalRequest{
		ApprovalId: id, Tool: "terminal", Summary: "rm -rf build", Reason: "deletes recursively", DeadlineMs: deadlineMS,
	}}}
}

func decisionEvent(id, by string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Decision{Decision: &turnv1.ApprovalDecision{ApprovalId: id, By: by}}}
}

func finalEvent(outcome turnv1.Outcome, text, failure string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Final{Final: &turnv1.Final{Outcome: outcome, Text: text, Error: failure}}}
}

func completed(text string) *turnv1.TurnEvent {
	return finalEvent(turnv1.Outcome_OUTCOME_COMPLETED, text, "")
}

// play is a script that sends events in order.
func play(events ...*turnv1.TurnEvent) func(string, func(*turnv1.TurnEvent) error) error {
	return func(_ string, out func(*turnv1.TurnEvent) error) error {
		for _, e := range events {
			if err := out(e); err != nil {
				return err
			}
		}
		return nil
	}
}
