package terminal

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
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

// judge is a supervisor that takes answers.
type judge struct {
	controlv1.ChatClient
	answers []bool
	during  func() // what happens before an answer is confirmed
}

func (j *judge) Decide(ctx context.Context, r *controlv1.DecideRequest, _ ...grpc.CallOption) (*controlv1.DecideResponse, error) {
	j.answers = append(j.answers, r.Approve)
	if j.during != nil {
		j.during()
	}
	return &controlv1.DecideResponse{Approved: r.Approve}, ctx.Err()
}

// asking runs test with an approver on a clock of its own; types is what a person does.
func asking(t *testing.T, test func(t *testing.T, a *approver, j *judge, types func(string), out *buffer)) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		j := &judge{}
		r, w := io.Pipe()
		k := readKeys(r)
		a := newApprover(&Client{chat: j, now: time.Now, sleep: sleep}, newScreen(&out, false, false), k, nil)
		test(t, a, j, func(s string) { _, _ = io.WriteString(w, s); synctest.Wait() }, &out)
		_ = w.Close()
		a.end()
		for range k.chunks { // what nobody asked for
		}
	})
}

// within is a question that is open so long from now.
func within(d time.Duration) *turnv1.ApprovalRequest {
	return approvalEvent("a", time.Now().Add(d).UnixMilli()).GetApproval()
}

func wantAnswers(t *testing.T, j *judge, out *buffer, questions int, answers ...bool) {
	t.Helper()
	if !slices.Equal(j.answers, answers) || strings.Count(out.String(), "wants to do this") != questions {
		t.Errorf("answered %v, want %v, seen %q", j.answers, answers, out.String())
	}
}

func TestAQuestionThatIsAskedAgainHasItsNewTime(t *testing.T) {
	for name, tt := range map[string]struct {
		again     time.Duration // when it comes again, with a minute from then
		questions int
	}{
		"while it is open":       {again: 30 * time.Second, questions: 1},
		"after its time is over": {again: 90 * time.Second, questions: 2},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, a *approver, j *judge, types func(string), out *buffer) {
				a.ask(t.Context(), within(time.Minute))
				time.Sleep(tt.again)
				a.ask(t.Context(), within(time.Minute))
				a.ask(t.Context(), within(time.Minute)) // the same once more
				time.Sleep(59 * time.Second)
				types("y\n")
				wantAnswers(t, j, out, tt.questions, true)
				if n := strings.Count(out.String(), "no answer within 1m0s means no"); n != 2 {
					t.Errorf("its time was said %d times: %q", n, out.String())
				}
			})
		})
	}
}

func TestAQuestionThatIsAskedAgainWithLessTimeEndsEarlier(t *testing.T) {
	asking(t, func(t *testing.T, a *approver, j *judge, types func(string), out *buffer) {
		a.ask(t.Context(), within(time.Hour))
		a.ask(t.Context(), within(time.Second))
		time.Sleep(2 * time.Second)
		a.running.Wait()
		wantAnswers(t, j, out, 1)
	})
}

func TestAQuestionThatWaitsForAnotherIsShownWithTheTimeThatItHasThen(t *testing.T) {
	asking(t, func(t *testing.T, a *approver, j *judge, types func(string), out *buffer) {
		first := within(time.Hour)
		first.ApprovalId = "first"
		a.ask(t.Context(), first)
		synctest.Wait()
		a.ask(t.Context(), within(time.Minute))
		a.ask(t.Context(), within(10*time.Minute))
		time.Sleep(2 * time.Minute)
		types("n\n")
		types("y\n")
		wantAnswers(t, j, out, 2, false, true)
		if !strings.Contains(out.String(), "no answer within 8m0s means no") {
			t.Errorf("seen %q", out.String())
		}
	})
}

func TestAnAnsweredQuestionIsNotAskedAgain(t *testing.T) {
	asking(t, func(t *testing.T, a *approver, j *judge, types func(string), out *buffer) {
		a.ask(t.Context(), within(time.Minute))
		types("y\n")
		a.ask(t.Context(), within(2*time.Minute)) // of a supervisor that died before the answer came
		synctest.Wait()
		wantAnswers(t, j, out, 1, true)
		time.Sleep(3 * time.Minute)
		a.ask(t.Context(), within(time.Minute))
		synctest.Wait()
		wantAnswers(t, j, out, 1, true)
	})
}

func TestAQuestionThatSilenceHasDecidedIsNotAskedAgain(t *testing.T) {
	asking(t, func(t *testing.T, a *approver, j *judge, types func(string), out *buffer) {
		a.ask(t.Context(), within(time.Minute))
		time.Sleep(time.Minute + time.Second)
		a.decided("a")
		a.ask(t.Context(), within(time.Minute))
		a.running.Wait()
		wantAnswers(t, j, out, 1)
	})
}

// The decision is an event of the turn too, which may come before the answer's own confirmation; and the time may be over then.
func TestAnAnswerUnderWayIsNotGivenUp(t *testing.T) {
	for name, during := range map[string]func(a *approver){
		"its decision is seen first": func(a *approver) { a.decided("a") },
		"its time is over":           func(*approver) { time.Sleep(2 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, a *approver, j *judge, types func(string), out *buffer) {
				j.during = func() { during(a) }
				a.ask(t.Context(), within(time.Minute))
				types("y\n")
				a.running.Wait()
				wantAnswers(t, j, out, 1, true)
				if strings.Contains(out.String(), "did not arrive") {
					t.Errorf("seen %q", out.String())
				}
			})
		})
	}
}
