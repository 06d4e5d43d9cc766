package terminal

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// buffer is written by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestYesOrNo(t *testing.T) {
	for line, want := range map[string][2]bool{
		"y": {true, true}, " YES ": {true, true}, "ok": {true, true}, "/approve": {true, true},
		"n": {false, true}, "No": {false, true}, "/deny": {false, true},
		"": {false, false}, "maybe": {false, false}, "yes please": {false, false}, "run: ls": {false, false},
	} {
		if yes, ok := yesOrNo(line); yes != want[0] || ok != want[1] {
			t.Errorf("%q: %v, %v", line, yes, ok)
		}
	}
}

func TestAnApprovalIsAskedAndAnswered(t *testing.T) {
	deadline := time.Now().Add(time.Hour).UnixMilli()
	for name, tt := range map[string]struct {
		typed string
		want  bool
	}{
		"yes":                {"y\n", true},
		"no":                 {"n\n", false},
		"nonsense, then yes": {"what?\n\nyes\n", true},
		"end of the input":   {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			var out buffer
			a := newApprover(s.client(t), newScreen(&out, false, false), readKeys(strings.NewReader(tt.typed)), nil)
			r := approvalEvent("a", deadline).GetApproval()
			a.ask(t.Context(), r)
			a.ask(t.Context(), r) // comes again after a new connection
			if err := s.until(t.Context(), func() bool { return len(s.decided) > 0 }); err != nil {
				t.Fatal(err)
			}
			a.end()
			if got := s.decisions()["a"]; got != tt.want {
				t.Errorf("decided %v", got)
			}
			for _, want := range []string{"terminal wants to do this: rm -rf build", "why you are asked: deletes recursively", "y or n"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in %q", want, out.String())
				}
			}
		})
	}
}

func TestAQuestionThatIsDecidedElsewhereTakesNoInput(t *testing.T) {
	s := newServer(t, nil)
	r, w := io.Pipe()
	k := readKeys(r)
	var out buffer
	a := newApprover(s.client(t), newScreen(&out, false, false), k, nil)
	a.ask(t.Context(), approvalEvent("a", time.Now().Add(time.Hour).UnixMilli()).GetApproval())
	a.decided("a")
	a.end()
	go func() { _, _ = w.Write([]byte("run: ls\n")); _ = w.Close() }()
	if line, err := k.line(t.Context()); err != nil || line != "run: ls" || len(s.decisions()) != 0 {
		t.Errorf("line %q, %v, decided %v", line, err, s.decisions())
	}
}

func TestAQuestionEndsAtItsDeadline(t *testing.T) {
	s := newServer(t, nil)
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	a := newApprover(s.client(t), newScreen(io.Discard, false, false), readKeys(r), nil)
	a.ask(t.Context(), approvalEvent("a", time.Now().Add(-time.Second).UnixMilli()).GetApproval())
	a.running.Wait()
	if len(s.decisions()) != 0 {
		t.Errorf("decided %v", s.decisions())
	}
}

func TestWithoutAPersonTheAnswerIsNo(t *testing.T) {
	s := newServer(t, nil)
	var warned []string
	a := newApprover(s.client(t), newScreen(io.Discard, false, true), nil, func(text string) { warned = append(warned, text) })
	a.ask(t.Context(), approvalEvent("a", time.Now().Add(time.Hour).UnixMilli()).GetApproval())
	a.running.Wait()
	if yes, there := s.decisions()["a"]; yes || !there {
		t.Errorf("decided %v", s.decisions())
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "rm -rf build") || !strings.Contains(warned[0], "approvals.mode") {
		t.Errorf("warned %q", warned)
	}
}

func TestAnAnswerIsSentAgainWhenTheSupervisorIsGone(t *testing.T) {
	s := newServer(t, nil)
	s.kill()
	c := s.client(t)
	tries := 0
	c.sleep = func(context.Context, time.Duration) error {
		if tries++; tries == 2 {
			s.start()
		}
		time.Sleep(time.Millisecond) // lets gRPC connect
		return nil
	}
	a := newApprover(c, newScreen(io.Discard, false, false), readKeys(strings.NewReader("y\n")), nil)
	a.ask(t.Context(), &turnv1.ApprovalRequest{ApprovalId: "a", DeadlineMs: time.Now().Add(time.Hour).UnixMilli()})
	if err := s.until(t.Context(), func() bool { return s.decided["a"] }); err != nil {
		t.Fatal(err)
	}
	a.end()
}
