package terminal

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// deskServer is what the supervisor says of conversations: of one session, which a turn can be open in.
type deskServer struct {
	hostv1.UnimplementedSessionsServer
	hostv1.UnimplementedTurnsServer

	mu      sync.Mutex
	title   string
	open    bool
	undone  []*hostv1.UndoRequest
	retried []string
}

func (d *deskServer) info() *hostv1.SessionInfo {
	return &hostv1.SessionInfo{Id: "20260101_1", Title: d.title, Preview: "hello\nyou", Messages: 4, InputTokens: 30, OutputTokens: 12}
}

func (d *deskServer) Get(_ context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id := r.Place.SessionId; id != "" && id != d.info().Id {
		return nil, ipc.ErrNotFound
	}
	return d.info(), nil
}

func (d *deskServer) List(context.Context, *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &hostv1.ListSessionsResponse{Sessions: []*hostv1.SessionInfo{d.info()}}, nil
}

func (d *deskServer) SetTitle(_ context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.title = r.Title
	return d.info(), nil
}

func (d *deskServer) Undo(_ context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open {
		return nil, ipc.ErrRefused
	}
	d.undone = append(d.undone, r)
	return &hostv1.UndoResponse{Exchanges: r.Count, Text: "hello\nyou"}, nil
}

func (d *deskServer) Retry(_ context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error) {
	d.mu.Lock()
	d.retried = append(d.retried, r.MessageId)
	defer d.mu.Unlock()
	if len(d.retried) == 1 { // it is done, and the supervisor dies before it can say so
		return nil, ipc.ErrGone
	}
	return &hostv1.RetryResponse{TurnId: "turn-1", SessionId: d.info().Id, Duplicate: true}, nil
}

func TestACommandIsObeyedAndIsNoMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		line, want string
		open       bool
	}{
		"status":                      {line: "/status", want: "(session 20260101_1, “hello you”: 4 messages, model as configured, 42 tokens)\n"},
		"a title":                     {line: "/title  Tea talk ", want: "(this session is now “Tea talk”)\n"},
		"no title":                    {line: "/title", want: "(this session has no name; /title and a name gives it one)\n"},
		"undo":                        {line: "/undo", want: "(taken back: “hello you”)\n"},
		"undo of several":             {line: "/undo 3", want: "(taken back: 3 messages with their answers, from “hello you” on)\n"},
		"undo of too many":            {line: "/undo 5000", want: "(/undo takes how many messages to take back, 1 to 20)\n"},
		"undo while something runs":   {line: "/undo", open: true, want: "(something is still running in this session: wait for its end)\n"},
		"resume by number":            {line: "/resume 1", want: "(going on with “hello you”, 4 messages)\n"},
		"resume by the id's begin":    {line: "/resume 2026", want: "(going on with “hello you”, 4 messages)\n"},
		"resume of what is not there": {line: "/resume soup", want: "(there is no such session; /sessions lists those of this terminal)\n"},
		"after new there is none":     {line: "/new\n/status", want: "(the next message begins a new session)\n(no session yet: the next message begins one)\n"},
		"what the supervisor cannot":  {line: "/model x", want: "! "},
		"a slip of the finger":        {line: "/udno", want: "(there is no command /udno: /help lists them; with a space before it the line is a message)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.desk.open = tt.open
			out, errOut, code := s.output(tt.line + "\n")
			if !strings.HasPrefix(out, tt.want) || errOut != "" || code != 0 {
				t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
			}
			if len(s.requests()) != 0 {
				t.Errorf("sent as a message: %v", s.requests())
			}
		})
	}
}

func TestAPathOrALineWithASpaceBeforeItIsAMessage(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error { return out(completed("ok")) }
	s.output("/etc/hosts is what?\n /new is sent\n/new and this is asked in a new session\n")
	var sent []string
	for _, r := range s.requests() {
		sent = append(sent, r.Text)
	}
	if got := strings.Join(sent, "|"); got != "/etc/hosts is what?| /new is sent|and this is asked in a new session" || !s.requests()[2].NewSession {
		t.Errorf("sent %v", s.requests())
	}
}

func TestARetryIsAskedAgainUnderItsIDWhenTheSupervisorDies(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error { return out(completed("a better answer")) }
	out, errOut, code := s.output("/retry\n")
	if !strings.HasSuffix(out, "a better answer\n") || errOut != "" || code != 0 {
		t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
	}
	if r := s.desk.retried; len(r) != 2 || r[0] == "" || r[0] != r[1] {
		t.Errorf("asked under the ids %q, want the same one twice", r)
	}
}
