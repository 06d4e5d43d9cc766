package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
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
	model   string
	open    bool
	broken  error // what every call fails with
	dies    int   // so many calls of Undo and Retry are done, and the supervisor dies before it can say so
	listed  []*hostv1.SessionInfo
	undone  []*hostv1.UndoRequest
	retried []string
}

// elsewhere is a session of another chat: it is had by its id and is not in the list.
var elsewhere = &hostv1.SessionInfo{Id: "20260102_2", Preview: "from Telegram", Messages: 1}

func (d *deskServer) info() *hostv1.SessionInfo {
	return &hostv1.SessionInfo{
		Id: "20260101_1", Title: d.title, Model: d.model, Preview: "hello\nyou", Messages: 4, InputTokens: 30, OutputTokens: 12,
	}
}

func (d *deskServer) Get(_ context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Place.SessionId {
	case "", d.info().Id:
		return d.info(), d.broken
	case elsewhere.Id:
		return elsewhere, nil
	}
	for _, s := range d.listed {
		if s.Id == r.Place.SessionId {
			return s, nil
		}
	}
	return nil, ipc.ErrNotFound
}

func (d *deskServer) List(_ context.Context, r *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &hostv1.ListSessionsResponse{Sessions: d.listed[:min(int(r.Limit), len(d.listed))]}, d.broken
}

func (d *deskServer) SetTitle(_ context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Title == "taken" {
		return nil, fmt.Errorf("title %q: %w: session 20260101_7 has it, choose another", r.Title, ipc.ErrExists)
	}
	d.title = r.Title
	return d.info(), nil
}

func (d *deskServer) SetModel(_ context.Context, r *hostv1.SetModelRequest) (*hostv1.SessionInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.model = r.Model
	return d.info(), nil
}

func (d *deskServer) Undo(_ context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open {
		return nil, fmt.Errorf("session 20260101_1: a turn is open: wait for its end or stop it first: %w", ipc.ErrRefused)
	}
	d.undone = append(d.undone, r)
	return &hostv1.UndoResponse{Exchanges: r.Count, Text: "hello\nyou"}, d.death()
}

func (d *deskServer) Retry(_ context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open {
		return nil, fmt.Errorf("a message to answer again: %w", ipc.ErrNotFound)
	}
	d.retried = append(d.retried, r.MessageId)
	return &hostv1.RetryResponse{TurnId: "turn-1", SessionId: d.info().Id, Duplicate: len(d.retried) > 1}, d.death()
}

func (d *deskServer) death() error {
	if d.dies--; d.dies >= 0 {
		return ipc.ErrGone
	}
	return nil
}

func TestACommandIsObeyedAndIsNoMessage(t *testing.T) {
	const none = "(there is no such session, or more than one; /sessions lists those of this terminal)\n"
	for name, tt := range map[string]struct {
		line, want string
		open       bool
		broken     error
	}{
		"status":                        {line: "/status", want: "(session 20260101_1, “hello you”: 4 messages, model as configured, 42 tokens)\n"},
		"a title":                       {line: "/title  Tea talk \n/title", want: "(this session is now “Tea talk”)\n(this session is “Tea talk”)\n"},
		"no title":                      {line: "/title", want: "(this session has no name; /title and a name gives it one)\n"},
		"a title that another one has":  {line: "/title taken", want: "! session 20260101_7 has it, choose another\n"},
		"a model, and the configured":   {line: "/model big\n/model default", want: "(from the next message on, the model of this session: big)\n(from the next message on, the model of this session: as configured)\n"},
		"the model":                     {line: "/model", want: "(the model of this session: as configured; "},
		"undo":                          {line: "/undo", want: "(taken back: “hello you”)\n"},
		"undo of several":               {line: "/undo 3", want: "(taken back: 3 messages with their answers, from “hello you” on)\n"},
		"undo of too many":              {line: "/undo 5000", want: "(/undo takes how many messages to take back, 1 to 20)\n"},
		"undo while something runs":     {line: "/undo", open: true, want: "(something is still running in this session: wait for its end)\n"},
		"retry of nothing":              {line: "/retry", open: true, want: "(there is no message here that could be answered again)\n"},
		"resume by number":              {line: "/resume 1", want: "(going on with “hello you”, 4 messages)\n"},
		"resume by the id's begin":      {line: "/resume 2026", want: "(going on with “hello you”, 4 messages)\n"},
		"resume of what is not there":   {line: "/resume soup", want: none},
		"resume of another chat's":      {line: "/resume 20260102_2\n/status", want: "(going on with “from Telegram”, 1 message)\n(session 20260102_2, “from Telegram”: 1 message, model as configured)\n"},
		"after new there is none":       {line: "/new\n/status\n/undo", want: "(the next message begins a new session)\n(no session yet: the next message begins one)\n(no session yet: the next message begins one)\n"},
		"a store that cannot be read":   {line: "/status", broken: fmt.Errorf("the disk is odd: %w", ipc.ErrRefused), want: "! the disk is odd"},
		"a list that cannot be read":    {line: "/sessions", broken: fmt.Errorf("the disk is odd: %w", ipc.ErrRefused), want: "! the disk is odd"},
		"a resume that cannot be done":  {line: "/resume 1", broken: fmt.Errorf("the disk is odd: %w", ipc.ErrRefused), want: "! the disk is odd"},
		"a slip of the finger":          {line: "/udno", want: "(there is no command /udno: /help lists them; with a space before it the line is a message)\n"},
		"a slip of the finger in caps":  {line: "/UNDO", want: "(taken back: “hello you”)\n"},
		"what other chats call it":      {line: "/session", want: "(session 20260101_1, “hello you”: 4 messages, model as configured, 42 tokens)\n"},
		"help names each":               {line: "/help", want: "/new [message]                 begin a new session, with this message or the next one\n/retry "},
		"leaving, and nothing after it": {line: "/quit\nnot sent", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.desk.open, s.desk.broken, s.desk.listed = tt.open, tt.broken, []*hostv1.SessionInfo{s.desk.info()}
			out, errOut, code := s.output(tt.line + "\n")
			if !strings.HasPrefix(out, tt.want) || tt.want == "" && out != "" || errOut != "" || code != 0 {
				t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
			}
			if len(s.requests()) != 0 {
				t.Errorf("sent as a message: %v", s.requests())
			}
		})
	}
}

func TestSessionsAreListedAndTheCurrentOneIsMarked(t *testing.T) {
	s := newServer(t, nil)
	if out, _, _ := s.output("/sessions\n/resume\n"); strings.Count(out, "(there is no session of a terminal yet)\n") != 2 {
		t.Errorf("of none: %q", out)
	}
	s.desk.listed = []*hostv1.SessionInfo{{Id: "20260101_9", Title: "Soup", Messages: 1}, s.desk.info()}
	for lines, want := range map[string]string{"/sessions\n": "  “hello you”, 4 messages (this one)\n", "/resume soup\n/resume\n": "  “Soup”, 1 message (this one)\n"} {
		out, _, _ := s.output(lines)
		if !strings.Contains(out, want) || strings.Count(out, "(this one)") > 1 || !strings.Contains(out, " 2. ") {
			t.Errorf("after %q: %q", lines, out)
		}
	}
}

func TestASessionThatIsNotThereIsNotCalledNew(t *testing.T) {
	s := newServer(t, nil)
	out, _, _ := s.output("/status\n", "--session", "nosuch")
	if want := "(there is no session nosuch: /resume goes on with another, /new begins one)\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

func TestQuotesAreASCIIWhereNothingElseCanBeShown(t *testing.T) {
	s := newServer(t, nil)
	if out, _, _ := s.output("/undo\n", "--ascii"); out != "(taken back: \"hello you\")\n" {
		t.Errorf("%q", out)
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
	s.desk.dies = 1
	out, errOut, code := s.output("/retry\n")
	if !strings.HasSuffix(out, "a better answer\n") || errOut != "" || code != 0 {
		t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
	}
	if r := s.desk.retried; len(r) != 2 || r[0] == "" || r[0] != r[1] {
		t.Errorf("asked under the ids %q, want the same one twice", r)
	}
}

func TestAnUndoIsAskedAgainUnderItsIDWhenTheSupervisorDies(t *testing.T) {
	s := newServer(t, nil)
	s.desk.dies = 2
	out, errOut, code := s.output("/undo\n")
	if !strings.HasSuffix(out, "(it is back)\n(taken back: “hello you”)\n") || errOut != "" || code != 0 {
		t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
	}
	if u := s.desk.undone; len(u) != 3 || u[0].MessageId == "" || u[0].MessageId != u[2].MessageId {
		t.Errorf("asked %v, want the same one three times", u)
	}
}

func TestCtrlCEndsTheWaitingOfACommand(t *testing.T) {
	s := newServer(t, nil)
	p := s.person()
	p.sees(promptText)
	s.kill()
	p.types("/undo\r")
	p.sees("(the supervisor is gone; waiting for it)")
	p.types("\x03")
	p.sees("(given up: nobody answered)")
	p.sees(promptText)
	p.types("/undo\r")
	p.sees("(the supervisor is gone; waiting for it)")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.ends(); code != 0 || len(s.desk.undone) != 0 {
		t.Errorf("exit %d, asked %v", code, s.desk.undone)
	}
}

func TestASignalEndsAChatThatWaitsForALine(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := newServer(t, play(completed("ready")))
		cmd := s.program()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != ipc.ExitFailed {
			t.Errorf("%v: exit %d", sig, code)
		}
	}
}
