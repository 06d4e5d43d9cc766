package terminal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// recorder is a Follower that keeps what it sees.
type recorder struct {
	mu       sync.Mutex
	accepted []string
	events   []*turnv1.TurnEvent
	onShow   func(*turnv1.TurnEvent)
}

func (r *recorder) Accepted(turnID, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted = append(r.accepted, turnID)
}

func (r *recorder) Show(e *turnv1.TurnEvent) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	if r.onShow != nil {
		r.onShow(e)
	}
}

func TestAMessageIsSentAndFollowedToItsEnd(t *testing.T) {
	s := newServer(t, play(startedEvent(1), textEvent(1, "hel"), textEvent(1, "lo"), completed("hello")))
	r := &recorder{}
	final, err := s.client(t).Ask(t.Context(), Message{ID: "m", ChatID: "c", Text: "hi", SessionID: "x", NewSession: true, User: "ada"}, r)
	if err != nil || final.Text != "hello" || len(r.events) != 3 {
		t.Errorf("final %v, %v; events %v", final, err, r.events)
	}
	got := s.requests()[0]
	if got.MessageId != "m" || got.ChatId != "c" || got.Text != "hi" || got.SessionId != "x" || !got.NewSession || got.UserName != "ada" {
		t.Errorf("sent %v", got)
	}
}

func TestASupervisorThatDiesIsWaitedForAndAskedOnce(t *testing.T) {
	followed := make(chan struct{})
	s := newServer(t, nil)
	lives := 0
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error {
		if lives++; lives == 1 {
			if err := out(textEvent(1, "half an ans")); err != nil {
				return err
			}
			<-followed // stays until the server is killed
			return nil
		}
		return play(snapshotEvent(1, "half an answer"), completed("half an answer"))("", out)
	}
	c := s.client(t)
	var told []string
	c.gone = func(error) { told = append(told, "gone"); s.start() }
	c.back = func() { told = append(told, "back") }
	r := &recorder{onShow: func(e *turnv1.TurnEvent) {
		if !e.GetText().GetSnapshot() {
			go func() { close(followed); s.kill() }()
		}
	}}
	final, err := c.Ask(t.Context(), Message{ID: "m", Text: "hi"}, r)
	if err != nil || final.Text != "half an answer" {
		t.Fatalf("final %v, %v", final, err)
	}
	if !slices.Equal(told, []string{"gone", "back"}) {
		t.Errorf("told %v", told)
	}
	if ids := s.messageIDs(); !slices.Equal(ids, []string{"m"}) || len(s.requests()) < 2 {
		t.Errorf("messages %v in %d sends", ids, len(s.requests()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) != 1 || !slices.Equal(slices.Compact(slices.Clone(r.accepted)), []string{"turn-1"}) {
		t.Errorf("turns %v, accepted %v", s.turns, r.accepted)
	}
}

func TestAStreamThatEndsWithoutAFinalEventIsFollowedAgain(t *testing.T) {
	n := 0
	s := newServer(t, nil)
	s.script = func(_ string, out func(*turnv1.TurnEvent) error) error {
		switch n++; n {
		case 1:
			return nil
		case 2:
			return fmt.Errorf("follower is too slow: %w", ipc.ErrBusy)
		case 3:
			return context.Canceled
		}
		return out(completed("done"))
	}
	c := s.client(t)
	c.sleep = func(context.Context, time.Duration) error { return nil }
	final, err := c.Ask(t.Context(), Message{ID: "m", Text: "hi"}, &recorder{})
	if err != nil || final.Text != "done" || n != 4 {
		t.Errorf("final %v, %v after %d", final, err, n)
	}
}

func TestARefusedMessageIsNotRepeated(t *testing.T) {
	s := newServer(t, nil)
	s.changes(func() { s.refuse = fmt.Errorf("text: %w: too long", ipc.ErrInvalid) })
	_, err := s.client(t).Ask(t.Context(), Message{ID: "m", Text: "hi"}, &recorder{})
	if !errors.Is(err, ipc.ErrInvalid) || len(s.requests()) != 1 {
		t.Errorf("error %v after %d sends", err, len(s.requests()))
	}
}

func TestPatienceEnds(t *testing.T) {
	for name, accepted := range map[string]bool{"before it was taken": false, "after it was taken": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			c := s.client(t)
			now := time.Unix(0, 0)
			c.now = func() time.Time { return now }
			c.sleep = func(_ context.Context, d time.Duration) error { now = now.Add(d); return nil }
			c.patience = time.Minute
			s.script = func(string, func(*turnv1.TurnEvent) error) error {
				go s.kill()
				return fmt.Errorf("going: %w", ipc.ErrGone)
			}
			if !accepted {
				s.kill()
			}
			_, err := c.Ask(t.Context(), Message{ID: "m", Text: "hi"}, &recorder{})
			if !errors.Is(err, ipc.ErrGone) {
				t.Fatalf("error %v", err)
			}
			if said := strings.Contains(err.Error(), "taken as turn turn-1") && strings.Contains(err.Error(), "will be answered after the next start"); said != accepted {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAFullDiskIsNotCalledAGoneSupervisor(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("disk is full: %w", ipc.ErrBusy): "(not taken yet, trying again: disk is full: too busy)",
		fmt.Errorf("dial: %w", ipc.ErrGone):         "(the supervisor is gone; waiting for it)",
	} {
		if got := waiting(err, errors.Is(err, ipc.ErrGone)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// A single question is answered at once when the disk is full: only a person can make room. A chat keeps its message.
func TestAFullDiskIsSaidAtOnceToAQuestion(t *testing.T) {
	for name, patience := range map[string]time.Duration{"question": time.Minute, "chat": 0} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.changes(func() { s.refuse = fmt.Errorf("accept message: %w", ipc.ErrFull) })
			c := s.client(t)
			c.patience = patience
			slept := 0
			c.sleep = func(context.Context, time.Duration) error {
				slept++
				s.changes(func() { s.refuse = nil })
				return nil
			}
			_, err := c.Ask(t.Context(), Message{ID: "m", Text: "hi"}, &recorder{})
			if wants := patience > 0; errors.Is(err, ipc.ErrFull) != wants || (slept == 0) != wants || ipc.ExitCode(ipc.ErrFull) != ipc.ExitTryAgain {
				t.Errorf("error %v after %d waits", err, slept)
			}
		})
	}
}

func TestLeavingEndsTheWaiting(t *testing.T) {
	s := newServer(t, nil)
	s.kill()
	ctx, leave := context.WithCancel(t.Context())
	c := s.client(t)
	c.gone = func(error) { leave() }
	if _, err := c.Ask(ctx, Message{ID: "m", Text: "hi"}, &recorder{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestDelaysGrowToALimit(t *testing.T) {
	for try := range 100 {
		d := delay(try)
		if most := min(firstDelay<<min(try, 10), maxDelay); d < most/2 || d > most {
			t.Errorf("try %d: %v", try, d)
		}
	}
}

func TestANoticeIsShownOnceAndAcknowledgedEachTime(t *testing.T) {
	s := newServer(t, nil)
	s.notices = []*controlv1.OutboxNotice{{OutboxId: 1, Text: "first"}, {OutboxId: 2, Text: "second"}}
	ctx, cancel := context.WithCancel(t.Context())
	var shown []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.client(t).Notices(ctx, mainChat, func(text string) { shown = append(shown, text) })
	}()
	acknowledged := func(n int) {
		t.Helper()
		if err := s.until(t.Context(), func() bool { return len(s.acked) >= n }); err != nil {
			t.Fatal(err)
		}
	}
	acknowledged(2)
	s.kill()
	s.start() // it has them still: the acknowledgements were lost
	acknowledged(4)
	cancel()
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(shown, []string{"first", "second"}) || !slices.Equal(s.acked[:4], []int64{1, 2, 1, 2}) {
		t.Errorf("shown %v, acknowledged %v", shown, s.acked)
	}
}
