package event

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newJournal returns a journal over a real telemetry database.
func newJournal(t *testing.T) *Journal {
	t.Helper()
	s, err := store.OpenTelemetry(t.Context(), filepath.Join(t.TempDir(), "supervisor.db"), store.Options{Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	j := NewJournal(s, hclog.NewNullLogger(), time.Now)
	t.Cleanup(func() {
		j.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func TestAFollowerSeesEveryEventInOrder(t *testing.T) {
	const events = 2*followBatch + 17 // more than a follower takes at once
	j := newJournal(t)
	j.Record(store.Event{Kind: "first", Worker: "agent-1", PID: 7, Fields: map[string]string{"code": "1"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for n := range events {
			j.Record(store.Event{Kind: "tick", Message: fmt.Sprint(n)})
		}
	}()
	seen, last := 0, int64(0)
	done := errors.New("enough")
	err := j.Read(ctx, store.EventFilter{}, true, func(e store.Event) error {
		if e.ID <= last {
			t.Errorf("id %d after %d", e.ID, last)
		}
		last = e.ID
		if e.Kind == "tick" {
			if e.Message != fmt.Sprint(seen) {
				t.Fatalf("event %q, want %d", e.Message, seen)
			}
			seen++
		}
		if seen == events {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Fatalf("after %d events: %v", seen, err)
	}
}

func TestAFollowerThatIsSlowMissesNothing(t *testing.T) {
	const events = 2*followBatch + 17
	j := newJournal(t)
	record := func(n int) { j.Record(store.Event{Kind: "tick", Message: fmt.Sprint(n)}) }
	stored := func(want int) {
		for grown := j.growth(); ; grown = j.growth() {
			rows, err := j.store.Events(t.Context(), store.EventFilter{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) == 1 && rows[0].Message == fmt.Sprint(want) {
				return
			}
			<-grown
		}
	}
	record(0)
	stored(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := errors.New("enough")
	seen := 0
	err := j.Read(ctx, store.EventFilter{}, true, func(e store.Event) error {
		if e.Message != fmt.Sprint(seen) {
			t.Fatalf("event %q, want %d", e.Message, seen)
		}
		if seen++; seen == events {
			return done
		}
		if seen == 1 { // all others come while this one is being sent
			for n := 1; n < events; n++ {
				record(n)
			}
			stored(events - 1)
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Fatalf("after %d events: %v", seen, err)
	}
}

func TestReadingWithoutFollowingEnds(t *testing.T) {
	j := newJournal(t)
	j.Record(store.Event{Kind: "one", Worker: "a"})
	j.Record(store.Event{Kind: "two", Worker: "b"})
	j.Close()
	var kinds []string
	err := j.Read(t.Context(), store.EventFilter{Worker: "b"}, false, func(e store.Event) error {
		kinds = append(kinds, e.Kind)
		if e.Time.IsZero() {
			t.Error("an event without a time")
		}
		return nil
	})
	if err != nil || len(kinds) != 1 || kinds[0] != "two" {
		t.Errorf("%v %v", kinds, err)
	}
}

func TestFollowingEndsWithTheReaderAndWithTheJournal(t *testing.T) {
	j := newJournal(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Read(ctx, store.EventFilter{}, true, func(store.Event) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("reader left: %v", err)
	}
	j.Close()
	j.Record(store.Event{Kind: "too late"})
	if err := j.Read(t.Context(), store.EventFilter{}, true, func(store.Event) error { return nil }); err != nil {
		t.Errorf("journal closed: %v", err)
	}
}

// stuckStore never finishes an append before it is let go.
type stuckStore struct {
	Store
	entered chan struct{}
	release chan struct{}
	kinds   []string
}

func (s *stuckStore) Append(_ context.Context, e store.Event) (int64, error) {
	if len(s.kinds) == 0 {
		close(s.entered)
	}
	<-s.release
	s.kinds = append(s.kinds, e.Kind)
	return int64(len(s.kinds)), nil
}

func TestRecordingNeverBlocksAndSaysWhatWasLost(t *testing.T) {
	s := &stuckStore{entered: make(chan struct{}), release: make(chan struct{})}
	j := NewJournal(s, hclog.NewNullLogger(), time.Now)
	j.Record(store.Event{Kind: "held"})
	<-s.entered
	const lost = 5
	for range queueLength + lost {
		j.Record(store.Event{Kind: "more"})
	}
	close(s.release)
	j.Close()
	told := 0
	for _, k := range s.kinds {
		if k == KindEventsDropped {
			told++
		}
	}
	if len(s.kinds) != 1+queueLength+1 || told != 1 {
		t.Errorf("%d rows, %d of them tell of a loss", len(s.kinds), told)
	}
}

// refusingStore keeps nothing until it is told to; what it is asked while it is deaf ends with the asker's patience.
type refusingStore struct {
	Store
	refuse int
	deaf   bool
	kept   []store.Event
	asked  chan struct{}
}

func (s *refusingStore) Append(ctx context.Context, e store.Event) (int64, error) {
	if s.deaf {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if s.refuse > 0 {
		s.refuse--
		return 0, errors.New("no room")
	}
	s.kept = append(s.kept, e)
	return int64(len(s.kept)), nil
}

func TestTheCountOfLossesOutlivesAStoreThatRefusesIt(t *testing.T) {
	s := &refusingStore{refuse: 4} // two events, and two tries to say what was lost
	j := NewJournal(s, hclog.NewNullLogger(), time.Now)
	for _, kind := range []string{"lost", "lost", "kept"} {
		j.Record(store.Event{Kind: kind})
	}
	j.Close()
	if len(s.kept) != 2 || s.kept[1].Fields["count"] != "2" {
		t.Errorf("kept %v, want the third event and a loss of two", s.kept)
	}
}

func TestClosingDoesNotWaitForEachEventOfAStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusingStore{deaf: true, asked: make(chan struct{}, 1)}
		j := NewJournal(s, hclog.NewNullLogger(), time.Now)
		for range 100 {
			j.Record(store.Event{Kind: "more"})
		}
		<-s.asked
		began := time.Now()
		j.Close()
		if took := time.Since(began); took > closeBudget {
			t.Errorf("closing took %v of the bubble's time, the budget is %v", took, closeBudget)
		}
	})
}
