package supervisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
)

// pulseEvery is how often the home notes that its supervisor lives: rarely enough for a memory card, often enough for the
// question of when it was killed.
const pulseEvery = time.Minute

// A pulse notes in the home that its supervisor lives, so that the next one can tell since when it did not. The disk may take its
// time: who beats never waits for it.
type pulse struct {
	note func(time.Time)
	last time.Time
	due  chan time.Time
}

func newPulse(note func(time.Time)) *pulse { return &pulse{note: note, due: make(chan time.Time, 1)} }

// beat is called after each round of samples.
func (p *pulse) beat(now time.Time) {
	if !p.last.IsZero() && now.Sub(p.last) < pulseEvery {
		return
	}
	p.last = now
	select {
	case p.due <- now:
	default: // the one before has not been written yet
	}
}

// run writes the notes until ctx ends.
func (p *pulse) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-p.due:
			p.note(now)
		}
	}
}

// recordStart says who starts, and when the one before was last heard of.
func (s *supervisor) recordStart() {
	e := store.Event{Kind: event.KindSupervisorStarted, PID: os.Getpid(), Message: fmt.Sprintf("version %s, home %s", s.o.Version, s.config().Home)}
	if heard := s.lock.Heard(); !heard.IsZero() {
		e.Fields = map[string]string{event.FieldLastHeard: heard.Format(time.RFC3339)}
	}
	s.journal.Record(e)
}
