package terminal

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

func TestASocketWithoutAProcessIsToldFromAProcessThatSaysNothing(t *testing.T) {
	dir, err := os.MkdirTemp("", "hs-") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "a.sock")
	if !absent(t.Context(), path) {
		t.Error("there is no socket")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if absent(t.Context(), path) {
		t.Error("it listens, though it takes no connection")
	}
	dying := make(chan bool)
	go func() { dying <- absent(t.Context(), path) }()
	for range 2 { // the first one is the look above
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if !<-dying {
		t.Error("a process that dies with the connection is gone")
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if !absent(t.Context(), path) {
		t.Error("nobody listens")
	}
}

func TestAFrozenSupervisorIsNotCalledGone(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	m := topOf(80, 24)
	m.clock = func() time.Time { return now }
	m.Update(looked{status: topStatus()})
	frozen := looked{err: fmt.Errorf("status: %w", ipc.ErrTimeout)}
	for _, step := range []struct {
		after time.Duration
		msg   tea.Msg
		want  string
	}{
		{3 * time.Second, frozen, "the supervisor does not answer (since 3s); what is shown is old"},
		{9 * time.Second, lookAgain{}, "the supervisor does not answer (since 12s); what is shown is old"},
		{time.Second, looked{err: fmt.Errorf("status: %w", ipc.ErrGone), absent: true}, "the supervisor is gone (since 13s), waiting for it; what is shown is old"},
		{time.Minute, frozen, "the supervisor does not answer (since 1m13s); what is shown is old"},
	} {
		now = now.Add(step.after)
		m.Update(step.msg)
		if screen := m.draw(); !strings.Contains(screen, step.want) || !strings.Contains(screen, "agent-1") {
			t.Errorf("no %q in\n%s", step.want, screen)
		}
	}
	m.Update(looked{status: topStatus()})
	if screen := m.draw(); strings.Contains(screen, "what is shown is old") || !strings.Contains(screen, "it answers again, after 1m13s") {
		t.Errorf("after it has come back:\n%s", screen)
	}
}

func TestNoSecondQuestionIsAskedBeforeTheFirstHasEnded(t *testing.T) {
	m := newTopModel(t.Context(), nil, nil)
	asks := func(msg tea.Msg) bool {
		was := m.asked
		m.Update(msg)
		return m.asked != was
	}
	m.Init()
	if asks(lookAgain{}) {
		t.Error("asked again while the first question is open")
	}
	m.Update(looked{err: ipc.ErrTimeout})
	if !asks(lookAgain{}) {
		t.Error("not asked again")
	}
}

// serverProcess is a supervisor's place in a process of its own, which can be stopped and killed.
func (s *chatServer) serverProcess() *os.Process {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"="+s.path)
	if _, err := cmd.StdinPipe(); err != nil { // open until the test ends
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process
}

// A supervisor that is stopped, goes on, is killed and started again, seen from a terminal. Of a line that changes only words are
// sure to be written whole.
func TestTopFollowsWhatBecomesOfASupervisor(t *testing.T) {
	t.Parallel() // it waits for time to pass
	s := newServer(t, nil)
	s.kill()
	server := s.serverProcess()
	p := s.person("--top")
	p.sees("hermes-supervisor v1 is ready")
	signal := func(sig os.Signal) {
		t.Helper()
		if err := server.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	p.sees("answer")
	signal(syscall.SIGCONT)
	p.sees("again")
	signal(syscall.SIGKILL)
	p.sees("gone")
	_, _ = server.Wait()
	s.serverProcess()
	p.sees("again")
	p.types("q")
	if code := p.ends(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestAChatSaysThatAFrozenSupervisorDoesNotAnswer(t *testing.T) {
	for want, c := range map[string]struct {
		err    error
		absent bool
	}{
		"(the supervisor does not answer; waiting for it)": {fmt.Errorf("send: %w", ipc.ErrTimeout), false},
		"(the supervisor is gone; waiting for it)":         {fmt.Errorf("send: %w", ipc.ErrGone), true},
	} {
		if got := waiting(c.err, c.absent); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
