package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// slowShower takes its time with each event, unless its context ends.
type slowShower struct {
	pause time.Duration
	mu    sync.Mutex
	seen  []string
	busy  map[string]int
	both  bool // two at once in one chat
}

func (s *slowShower) Show(ctx context.Context, to To, e *turnv1.TurnEvent) {
	leave := s.enter(to.ChatID)
	defer leave()
	what := fmt.Sprintf("%s %s", to.ChatID, e.TurnId)
	if t := e.GetText(); t != nil {
		what += fmt.Sprintf(" %d:%s", t.Seq, t.Text)
	}
	s.mu.Lock()
	s.seen = append(s.seen, what)
	s.mu.Unlock()
	select {
	case <-time.After(s.pause):
	case <-ctx.Done():
	}
}

// enter notes that somebody talks to a chat.
func (s *slowShower) enter(chat string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == nil {
		s.busy = map[string]int{}
	}
	s.busy[chat]++
	s.both = s.both || s.busy[chat] > 1
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[chat]--
	}
}

func (s *slowShower) events() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func text(turn string, step uint32, s string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{TurnId: turn, Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Seq: step, Text: s}}}
}

func started(turn string) *turnv1.TurnEvent {
	return &turnv1.TurnEvent{TurnId: turn, Event: &turnv1.TurnEvent_Started{Started: &turnv1.Started{Attempt: 1}}}
}

// inLanes runs a test on the bubble's clock and ends the lanes after it.
func inLanes(t *testing.T, s *slowShower, test func(t *testing.T, l *lanes)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l := newLanes(ctx, s)
		test(t, l)
		cancel()
		l.wait()
		if s.both {
			t.Error("two at once talked to one chat")
		}
	})
}

func TestTextIsShownWholeAndNotMoreOftenThanItCan(t *testing.T) {
	s := &slowShower{pause: time.Second}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		to := To{ChatID: "1"}
		l.show(to, started("a"))
		synctest.Wait()
		for _, word := range []string{"one ", "two ", "three"} {
			l.show(to, text("a", 1, word))
		}
		l.show(to, text("a", 3, "next "))
		l.show(to, text("a", 3, "step"))
		time.Sleep(time.Minute)
		want := []string{"1 a", "1 a 1:one two three", "1 a 3:next step"}
		if got := s.events(); !slices.Equal(got, want) {
			t.Errorf("shown %q, want %q", got, want)
		}
	})
}

func TestTextOfAnEarlierAttemptIsVoid(t *testing.T) {
	s := &slowShower{}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		to := To{ChatID: "1"}
		l.show(to, text("a", 1, "old"))
		synctest.Wait()
		l.show(to, started("a"))
		l.show(to, text("a", 1, "new"))
		synctest.Wait()
		snapshot := text("a", 1, "all")
		snapshot.GetText().Snapshot = true
		l.show(to, snapshot)
		synctest.Wait()
		want := []string{"1 a 1:old", "1 a", "1 a 1:new", "1 a 1:all"}
		if got := s.events(); !slices.Equal(got, want) {
			t.Errorf("shown %q, want %q", got, want)
		}
	})
}

func TestChatsDoNotWaitForEachOther(t *testing.T) {
	s := &slowShower{pause: time.Hour}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		for chat := range 20 {
			l.show(To{ChatID: fmt.Sprint(chat)}, started("a"))
		}
		synctest.Wait()
		if got := len(s.events()); got != 20 {
			t.Errorf("%d chats are being shown to, want 20", got)
		}
		release, err := l.take(context.Background(), "21", "b")
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}

func TestDeliveryEndsWhatIsShownAndNothingFollowsIt(t *testing.T) {
	s := &slowShower{pause: time.Hour}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		to := To{ChatID: "1"}
		l.show(to, text("a", 1, "x"))
		synctest.Wait()
		l.show(to, started("a")) // waits behind the first
		release, err := l.take(context.Background(), "1", "a")
		if err != nil {
			t.Fatal(err)
		}
		leave := s.enter("1")
		l.show(to, text("a", 1, "late"))
		l.show(to, started("b"))
		synctest.Wait()
		if got := s.events(); len(got) != 1 {
			t.Errorf("shown while a delivery runs: %q", got)
		}
		leave()
		release()
		l.show(to, text("a", 1, "later"))
		synctest.Wait()
		want := []string{"1 a 1:x", "1 b"}
		if got := s.events(); !slices.Equal(got, want) {
			t.Errorf("shown %q, want %q: nothing of a after its delivery", got, want)
		}
	})
}

func TestDeliveriesOfAChatTakeTurns(t *testing.T) {
	s := &slowShower{}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		first, err := l.take(context.Background(), "1", "a")
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := l.take(short, "1", "b"); err == nil {
			t.Error("a second delivery to the chat went ahead")
		}
		first()
		second, err := l.take(context.Background(), "1", "b")
		if err != nil {
			t.Fatal(err)
		}
		second()
	})
}

func TestQueueOfAChatIsBounded(t *testing.T) {
	s := &slowShower{pause: time.Second}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		for i := range 3 * laneQueue {
			l.show(To{ChatID: "1"}, started(fmt.Sprint(i)))
		}
		time.Sleep(time.Hour)
		got := s.events()
		if len(got) > laneQueue+2 {
			t.Errorf("%d events were kept for a slow chat, the limit is %d", len(got), laneQueue)
		}
		if want := fmt.Sprintf("1 %d", 3*laneQueue-1); got[len(got)-1] != want {
			t.Errorf("the last one shown is %q, want the newest, %q", got[len(got)-1], want)
		}
	})
}

func TestChatsThatAreQuietCostNothing(t *testing.T) {
	s := &slowShower{}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		for i := range 3 * keptTurns {
			chat, turn := fmt.Sprint("c", i), fmt.Sprint("t", i)
			l.show(To{ChatID: chat}, text(turn, 1, "x"))
			synctest.Wait()
			release, err := l.take(context.Background(), chat, turn)
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.byChat) != 0 || len(l.texts.values) != 0 || len(l.delivered.values) > keptTurns {
			t.Errorf("%d chats, %d texts, %d delivered turns are kept", len(l.byChat), len(l.texts.values), len(l.delivered.values))
		}
	})
}

func TestManyChatsAndDeliveriesAtOnce(t *testing.T) {
	s := &slowShower{pause: time.Millisecond}
	inLanes(t, s, func(t *testing.T, l *lanes) {
		var all sync.WaitGroup
		for turn := range 200 {
			all.Go(func() {
				chat, id := fmt.Sprint(turn%7), fmt.Sprint("t", turn)
				l.show(To{ChatID: chat}, started(id))
				for range 5 {
					l.show(To{ChatID: chat}, text(id, 1, "word "))
				}
				release, err := l.take(context.Background(), chat, id)
				if err != nil {
					t.Error(err)
					return
				}
				leave := s.enter(chat)
				time.Sleep(time.Millisecond)
				leave()
				release()
			})
		}
		all.Wait()
	})
}

func TestNothingIsKeptForAnAdapterThatShowsNothing(t *testing.T) {
	l := newLanes(context.Background(), nil)
	l.show(To{ChatID: "1"}, started("a"))
	if len(l.byChat) != 0 {
		t.Error("an event waits for nobody")
	}
}
