package telegram

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// A supervisor is a host that keeps all in memory. It outlives the adapters that are run against it.
type supervisor struct {
	mu        sync.Mutex
	taken     []gateway.Message
	refuse    func(gateway.Message) error
	stopped   []string
	decisions map[string]bool
	asked     map[string]bool // approvals that exist
	events    []string
	received  int
	busy      bool // turns do not end by themselves
	turns     int  // so far
	*desk
}

func newSupervisor() *supervisor {
	return &supervisor{decisions: map[string]bool{}, asked: map[string]bool{}, desk: newDesk()}
}

func (s *supervisor) Accept(ctx context.Context, m gateway.Message) (gateway.Accepted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return gateway.Accepted{}, ctx.Err()
	}
	if s.refuse != nil {
		if err := s.refuse(m); err != nil {
			return gateway.Accepted{}, err
		}
	}
	got, err := s.Desk.Accept(&hostv1.AcceptRequest{
		ChatId: m.ChatID, ThreadId: m.ThreadID, MessageId: m.ID, SessionKey: m.SessionKey, ChatType: m.ChatType,
		UserId: m.UserID, UserName: m.UserName, Text: m.Text, NewSession: m.NewSession, Busy: m.Busy,
	}, fmt.Sprintf("turn_%d", s.turns+1))
	if err != nil {
		return gateway.Accepted{}, err
	}
	if !got.Duplicate {
		s.turns++
		s.taken = append(s.taken, m)
	}
	if got.Interrupted != "" && !got.Duplicate {
		s.stopped = append(s.stopped, got.Interrupted)
	}
	if !s.busy {
		s.End(got.TurnId)
	}
	return gateway.Accepted{TurnID: got.TurnId, Duplicate: got.Duplicate, Disposition: got.Disposition, Ahead: int(got.Ahead)}, nil
}

func (s *supervisor) Interrupt(_ context.Context, turn, _ string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, turn)
	return true, nil
}

func (s *supervisor) Decide(_ context.Context, id string, approve bool) (approved, before bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked[id] {
		return false, false, fmt.Errorf("approval %s: %w", id, ipc.ErrNotFound)
	}
	if was, known := s.decisions[id]; known {
		return was, true, nil
	}
	s.decisions[id] = approve
	return approve, false, nil
}

func (s *supervisor) Publish(_ context.Context, kind, message string, _ map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, kind+": "+message)
}

func (s *supervisor) Received() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received++
}

// messages are what was handed over, without repeats.
func (s *supervisor) messages() []gateway.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]gateway.Message(nil), s.taken...)
}

func (s *supervisor) texts() []string {
	var out []string
	for _, m := range s.messages() {
		out = append(out, m.Text)
	}
	return out
}

func (s *supervisor) timeline() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, "\n")
}

// A rig is an adapter in a synctest bubble, between a Bot API server in memory and a supervisor.
type rig struct {
	t      *testing.T
	bot    *bottest.Server
	host   *supervisor
	set    gateway.Settings
	dir    string
	files  string
	locks  string
	users  list
	logs   *logBuffer
	dial   dialFunc
	a      *Adapter
	cancel context.CancelFunc
	done   chan struct{}
}

const ann, bob = 1001, 1002

// bubble runs a test with time of its own. The rig is not started.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	dir, files, locks := t.TempDir(), t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, bot: bottest.New(), host: newSupervisor(), set: gateway.Settings{}, logs: &logBuffer{},
			dir: dir, files: files, locks: locks, users: list{"*"},
		}
		r.bot.Private(ann, "Ann")
		r.bot.Private(bob, "Bob")
		r.dial = r.bot.Pipe()
		defer func() {
			r.stop()
			r.bot.Close()
		}()
		f(t, r)
	})
}

// start runs an adapter.
func (r *rig) start() {
	r.t.Helper()
	set := gateway.Settings{"base_url": bottest.PipeURL, "lock_dir": r.locks}
	for k, v := range r.set {
		set[k] = v
	}
	setup := gateway.Setup{
		Platform: Platform, Settings: set, Dir: r.dir, FilesDir: r.files,
		Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: r.logs}),
	}
	a, err := open(r.t.Context(), setup, parts{host: r.host, token: bottest.Token, users: r.users, dial: r.dial})
	if err != nil {
		r.t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.a, r.cancel, r.done = a, cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		if err := a.Run(ctx); err != nil {
			r.t.Errorf("run: %v", err)
		}
	}()
	synctest.Wait()
}

// stop ends the adapter as the worker's end does.
func (r *rig) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	<-r.done
	r.a.Close()
	r.cancel = nil
}

// pass lets time pass until nothing can happen before it goes on.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) wantState(want gateway.ConnState) {
	r.t.Helper()
	if s := r.a.Status(); s.State != want {
		r.t.Fatalf("state is %s (%s), want %s", s.State, s.Detail, want)
	}
}

// show passes an event as the frame does.
func (r *rig) show(to gateway.To, turn string, event *turnv1.TurnEvent) {
	event.TurnId = turn
	r.a.Show(r.t.Context(), to, event)
}

// deliver repeats a delivery as the supervisor does, until it is sent or rejected, and returns all outcomes.
func (r *rig) deliver(d gateway.Delivery) []gateway.Delivered {
	r.t.Helper()
	var all []gateway.Delivered
	for d.Attempt = 1; d.Attempt < 50; d.Attempt++ {
		ctx, cancel := context.WithTimeout(r.t.Context(), 29*time.Second)
		out := r.a.Deliver(ctx, d)
		cancel()
		all = append(all, out)
		if len(out.MessageIDs) > 0 {
			d.MessageIDs = out.MessageIDs
		}
		if out.State == gateway.StateSent || out.State == gateway.StateRejected {
			return all
		}
		wait := out.RetryAfter
		if wait == 0 {
			wait = time.Second
		}
		time.Sleep(wait)
	}
	r.t.Fatalf("not delivered: %+v", all[len(all)-1])
	return nil
}

func to(chat int64) gateway.To { return gateway.To{ChatID: id64(chat)} }

func (r *rig) wantTexts(chat int64, want ...string) {
	r.t.Helper()
	got := r.bot.Texts(chat)
	if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		r.t.Errorf("chat %d shows %q, want %q", chat, got, want)
	}
}

func (r *rig) wantTaken(want ...string) {
	r.t.Helper()
	got := r.host.texts()
	if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		r.t.Errorf("handed over %q, want %q", got, want)
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Events of turns.
func started(n uint32) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Started{Started: &turnv1.Started{Attempt: n}}}
}

func said(s string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Seq: 1, Text: s, Snapshot: true}}}
}

func asking(id, summary string, deadline time.Duration) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Approval{Approval: &turnv1.ApprovalRequest{
		ApprovalId: id, Tool: "terminal", Summary: summary, Reason: "it deletes files", DeadlineMs: time.Now().Add(deadline).UnixMilli(),
	}}}
}

var gone = fmt.Errorf("accept: %w", ipc.ErrGone)

// fail makes the supervisor refuse every message with err.
func (s *supervisor) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = nil
	if err != nil {
		s.refuse = func(gateway.Message) error { return err }
	}
}
