package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// program returns hermes-terminal as a process of its own.
func (s *chatServer) program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"--socket", s.path}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TERM="+s.term, "NO_COLOR=1", "USER=ada")
	return cmd
}

// output runs hermes-terminal with an input that is no terminal.
func (s *chatServer) output(stdin string, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	cmd := s.program(args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestOneQuestionPrintsTheReplyAlone(t *testing.T) {
	s := newServer(t, play(startedEvent(1), textEvent(1, "hel"), toolStarted("a", "ls"), completed("hello\nyou")))
	if out, errOut, code := s.output("", "-q", "hi"); out != "hello\nyou\n" || errOut != "" || code != 0 {
		t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
	}
	if r := s.requests()[0]; r.ChatId != queryChat || !r.NewSession || r.Text != "hi" || r.UserName != "ada" {
		t.Errorf("sent %v", r)
	}
	if _, errOut, code := s.output("caf\xe9 \xff", "-q", "-"); code != 0 || s.requests()[1].Text != "caf\uFFFD \uFFFD" {
		t.Errorf("text in another encoding: exit %d, stderr %q", code, errOut)
	}
	if out, _, code := s.output("from\nstdin\n", "-q", "-", "--session", "x"); out != "hello\nyou\n" || code != 0 {
		t.Errorf("stdout %q, exit %d", out, code)
	}
	if r := s.requests()[2]; r.ChatId != mainChat || r.NewSession || r.Text != "from\nstdin" || r.SessionId != "x" {
		t.Errorf("sent %v", r)
	}
}

func TestHowAQuestionEndsIsTheExitCode(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome     turnv1.Outcome
		text, fault string
		code        int
		out, errOut string
	}{
		"completed":   {turnv1.Outcome_OUTCOME_COMPLETED, "a", "", 0, "a\n", ""},
		"budget":      {turnv1.Outcome_OUTCOME_BUDGET, "a", "", 0, "a\n", ""},
		"failed":      {turnv1.Outcome_OUTCOME_FAILED, "Sorry.", "401 from the provider", 1, "Sorry.\n", "hermes-terminal: 401 from the provider\n"},
		"interrupted": {turnv1.Outcome_OUTCOME_INTERRUPTED, "", "", 1, "", ""},
		"parked":      {turnv1.Outcome_OUTCOME_PARKED, "It crashed three times.", "", 1, "It crashed three times.\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, play(finalEvent(tt.outcome, tt.text, tt.fault)))
			if out, errOut, code := s.output("", "-q", "hi"); out != tt.out || errOut != tt.errOut || code != tt.code {
				t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
			}
		})
	}
}

func TestAQuestionThatMayNotBeAskedIsAnErrorWithItsCode(t *testing.T) {
	s := newServer(t, nil)
	s.changes(func() { s.refuse = errors.Join(ipc.ErrInvalid, errors.New("too long")) })
	if _, errOut, code := s.output("", "-q", "hi"); code != ipc.ExitUsage || !strings.Contains(errOut, "too long") {
		t.Errorf("stderr %q, exit %d", errOut, code)
	}
	if _, errOut, code := s.output(" \n", "-q", "-"); code != ipc.ExitUsage || !strings.Contains(errOut, "the question is empty") {
		t.Errorf("stderr %q, exit %d", errOut, code)
	}
}

func TestLinesAreMessagesWhereInputIsNoTerminal(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(turn string, out func(*turnv1.TurnEvent) error) error { return out(completed("reply of " + turn)) }
	out, errOut, code := s.output("one\n\n/new\ntwo\nlast without end")
	want := "reply of turn-1\n(the next message begins a new session)\nreply of turn-2\nreply of turn-3\n"
	if out != want || errOut != "" || code != 0 {
		t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
	}
	var texts []string
	for _, r := range s.requests() {
		texts = append(texts, r.Text)
	}
	if strings.Join(texts, "|") != "one|two|last without end" || s.requests()[0].NewSession || !s.requests()[1].NewSession || s.requests()[2].NewSession {
		t.Errorf("sent %v", s.requests())
	}
	if len(s.messageIDs()) != 3 {
		t.Errorf("ids %v", s.messageIDs())
	}
	if out, _, _ := s.output("one\n/quit\ntwo\n"); strings.Count(out, "reply") != 1 {
		t.Errorf("after /quit: %q", out)
	}
}

func TestTheNextLineAnswersAQuestion(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error {
		if err := out(approvalEvent("a", time.Now().Add(time.Minute).UnixMilli())); err != nil {
			return err
		}
		if err := s.until(t.Context(), func() bool { return s.decided["a"] }); err != nil {
			return err
		}
		return out(completed("deleted"))
	}
	out, _, code := s.output("run: rm -rf build\ny\n")
	if code != 0 || !strings.HasSuffix(out, "deleted\n") || len(s.requests()) != 1 {
		t.Errorf("stdout %q, exit %d, sent %v", out, code, s.requests())
	}
}

func TestCalledByAPersonItSaysWhatItIs(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != ipc.ExitUsage || !strings.Contains(string(out), "run: hermes-supervisor chat") {
		t.Errorf("%q, %v", out, err)
	}
	cmd = exec.Command(os.Args[0], "--version")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "hermes-terminal ") {
		t.Errorf("%q, %v", out, err)
	}
}

// A person is hermes-terminal in a pseudo-terminal, with what it has shown.
type person struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	seen buffer
	at   int // of what was waited for last
	new  chan struct{}
	done chan struct{}
}

func (s *chatServer) person(args ...string) *person {
	s.t.Helper()
	p := &person{t: s.t, cmd: s.program(args...), new: make(chan struct{}, 1), done: make(chan struct{})}
	tty, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		s.t.Fatal(err)
	}
	p.tty = tty
	go func() {
		defer close(p.done)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			_, _ = p.seen.Write(buf[:n])
			select {
			case p.new <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		_ = tty.Close()
		<-p.done
	})
	return p
}

func (p *person) types(keys string) {
	p.t.Helper()
	if _, err := p.tty.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until the text is shown, after what was seen before it.
func (p *person) sees(text string) {
	p.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		seen, ended := p.seen.String(), false
		if i := strings.Index(seen[p.at:], text); i >= 0 {
			p.at += i + len(text)
			return
		}
		select {
		case <-p.new:
			continue
		case <-p.done:
			ended = !strings.Contains(p.seen.String()[p.at:], text)
		case <-limit:
			ended = true
		}
		if ended {
			p.t.Fatalf("no %q after byte %d of\n%s", text, p.at, seen)
		}
	}
}

func (p *person) ends() int {
	p.t.Helper()
	<-p.done
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestAPersonChats(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(turn string, out func(*turnv1.TurnEvent) error) error {
		return play(startedEvent(1), toolStarted("a", "ls -l"), toolFinished("a", true, 20), textEvent(2, "reply "), completed("reply of "+turn))(turn, out)
	}
	p := s.person()
	p.sees("hermes-supervisor v1, 5 workers")
	p.sees("model: offline (no key is set)")
	p.sees(promptText)
	p.types("hello\r")
	p.sees("→ terminal  ls -l")
	p.sees("reply of turn-1")
	p.sees(promptText)
	p.types("two lines\\\rof one message\r")
	p.sees("reply of turn-2")
	p.sees(promptText)
	p.types("\x1b[200~pasted\rtext\x1b[201~\r")
	p.sees("reply of turn-3")
	p.sees(promptText)
	if a, b := s.requests()[1].Text, s.requests()[2].Text; a != "two lines\nof one message" || b != "pasted\ntext" {
		t.Errorf("sent %q and %q", a, b)
	}
	s.changes(func() { s.notices = append(s.notices, &controlv1.OutboxNotice{OutboxId: 7, Text: "task t_1 is done"}) })
	p.sees("✉ task t_1 is done")
	if err := s.until(t.Context(), func() bool { return len(s.acked) == 1 && s.acked[0] == 7 }); err != nil {
		t.Fatal(err)
	}
	p.sees(promptText)
	p.types("/help\r")
	p.sees("begin a new session, with this message")
	p.sees(promptText)
	p.types("\x04")
	if code := p.ends(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestCtrlCInterruptsTheTurnAndTwiceLeaves(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(turn string, out func(*turnv1.TurnEvent) error) error {
		if err := out(textEvent(1, "thinking about "+turn)); err != nil {
			return err
		}
		if turn == "turn-1" {
			if err := s.until(t.Context(), func() bool { return len(s.interrupted) == 1 }); err != nil {
				return err
			}
			return out(finalEvent(turnv1.Outcome_OUTCOME_INTERRUPTED, "thinking about "+turn, ""))
		}
		return s.until(t.Context(), func() bool { return false }) // never ends
	}
	p := s.person()
	p.sees(promptText)
	p.types("hello\r")
	p.sees("thinking about turn-1")
	p.types("\x03")
	p.sees("(interrupted)")
	p.sees(promptText)
	p.types("again\r")
	p.sees("thinking about turn-2")
	p.types("\x03")
	if err := s.until(t.Context(), func() bool { return len(s.interrupted) == 2 }); err != nil {
		t.Fatal(err)
	}
	p.types("\x03")
	if code := p.ends(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted[1] != "turn-2" {
		t.Errorf("interrupted %v", s.interrupted)
	}
}

func TestASecondCtrlCLeavesAlsoWhenTheFirstHasEndedTheAnswer(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(turn string, out func(*turnv1.TurnEvent) error) error {
		if err := out(textEvent(1, "thinking")); err != nil {
			return err
		}
		if err := s.until(t.Context(), func() bool { return len(s.interrupted) == 1 }); err != nil {
			return err
		}
		return out(finalEvent(turnv1.Outcome_OUTCOME_INTERRUPTED, "thinking", ""))
	}
	p := s.person()
	p.sees(promptText)
	p.types("hello\r")
	p.sees("thinking")
	p.types("\x03")
	p.sees("(interrupted)")
	p.sees(promptText)
	p.types("\x03")
	if code := p.ends(); code != 0 || len(s.requests()) != 1 {
		t.Errorf("exit %d, sent %v", code, s.requests())
	}
}

func TestCtrlCAtThePromptTakesTwo(t *testing.T) {
	s := newServer(t, play(completed("hi")))
	p := s.person()
	p.sees(promptText)
	p.types("not sent\x03")
	p.sees("Ctrl-C again leaves")
	p.types("\x03")
	if code := p.ends(); code != 0 || len(s.requests()) != 0 {
		t.Errorf("%v, sent %v, seen %q", p.cmd.ProcessState, s.requests(), p.seen.String())
	}
}

func TestAPersonSaysYesToATool(t *testing.T) {
	s := newServer(t, nil)
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error {
		if err := out(approvalEvent("a", time.Now().Add(time.Minute).UnixMilli())); err != nil {
			return err
		}
		if err := s.until(t.Context(), func() bool { return s.decided["a"] }); err != nil {
			return err
		}
		return out(completed("deleted"))
	}
	p := s.person()
	p.sees(promptText)
	p.types("run: rm -rf build\r")
	p.sees("allow it? y or n")
	p.types("y\r")
	p.sees("deleted")
	p.sees(promptText)
	p.types("/quit\r")
	if code := p.ends(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestATerminalOutlivesTheSupervisor(t *testing.T) {
	lives := 0
	s := newServer(t, nil)
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error {
		if lives++; lives == 1 {
			if err := out(textEvent(1, "the first half")); err != nil {
				return err
			}
			return s.until(t.Context(), func() bool { return false })
		}
		return play(snapshotEvent(1, "the first half and the second"), completed("the first half and the second"))("", out)
	}
	p := s.person()
	p.sees(promptText)
	p.types("hello\r")
	p.sees("the first half")
	go s.kill()
	p.sees("(the supervisor is gone; waiting for it)")
	s.start()
	p.sees("(it is back)")
	p.sees(" and the second")
	if ids := s.messageIDs(); len(ids) != 1 {
		t.Errorf("messages %v", ids)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.ends(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestLeavingBeforeTheMessageIsTakenPromisesNothing(t *testing.T) {
	s := newServer(t, nil)
	s.changes(func() { s.refuse = fmt.Errorf("disk is full: %w", ipc.ErrBusy) })
	p := s.person("-q", "hi")
	p.sees("(not taken yet, trying again: disk is full")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.sees("it has to be asked again")
	if code := p.ends(); code != ipc.ExitFailed {
		t.Errorf("exit %d", code)
	}
}
