package supervisor

import (
	"context"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

const (
	// pingTimeout bounds one empty request to the writer. A writer that waits for a foreign process's lock is not stuck
	// before the watchdog says so.
	pingTimeout = time.Second
	// extendBy is how much more time is asked for, again and again, while the stop goes on within its budget.
	extendBy = 10 * time.Second
)

// tellServiceManager keeps the status line current and the watchdog fed until ctx ends.
func (s *supervisor) tellServiceManager(ctx context.Context) {
	dog := &systemd.Watchdog{
		Notifier: s.notify,
		Sources: []systemd.Source{
			{Name: "store writer", Progress: s.store.Progress},
			{Name: "turn queue", Progress: s.hub.Progress},
			{Name: "sampler", Progress: s.sampler.Progress},
			{Name: "control socket", Progress: s.heart.Progress},
		},
		Stuck: func(names []string) {
			s.log.Error("no progress; the service manager will end this process", "parts", names)
			s.journal.Record(store.Event{Kind: kindStuck, Message: "no progress in " + joined(names)})
		},
		Failed: func(err error) { s.log.Warn("service manager was not told", "error", err) },
	}
	done := make(chan struct{})
	go func() { defer close(done); dog.Run(ctx) }()
	defer func() { <-done }()

	// Twice between two pings, which are twice in an interval. Without a watchdog nothing is asked.
	every := max(s.notify.WatchdogInterval()/4, 0)
	tick := time.NewTimer(untilWhole(max(every, time.Second)))
	defer tick.Stop()
	if every == 0 {
		tick.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.prove(ctx)
			tick.Reset(untilWhole(every))
		case line := <-s.lines:
			s.say(s.notify.Status(line))
			if s.ending() {
				s.say(s.notify.ExtendTimeout(extendBy))
			}
		}
	}
}

// prove has the parts that are idle show that they would work.
func (s *supervisor) prove(ctx context.Context) {
	s.hub.Ping()
	ping, cancel := context.WithTimeout(ctx, pingTimeout)
	_ = s.store.Ping(ping) // a failure shows as standing still and in the store's health
	cancel()
	beat, cancel := context.WithTimeout(ctx, pingTimeout)
	_ = s.heart.Beat(beat)
	cancel()
}

func (s *supervisor) ending() bool {
	state := s.state.Load()
	return state == stateDraining || state == stateStopping
}

// lookAtStatus hands the status line on when it has changed, and each time while the stop goes on. It is called after each
// round of samples.
func (s *supervisor) lookAtStatus(time.Time) {
	if !s.notify.Heard() {
		return
	}
	line := s.statusLine()
	if line == s.said && !s.ending() {
		return
	}
	select {
	case s.lines <- line:
		s.said = line
	default: // the last one is still being sent; the next round tries again
	}
}

// untilWhole is the time to the next round multiple of every. Loops that wait so wake an idle processor together with the
// sampler, the queue and the store, once a second and not each at its own moment.
func untilWhole(every time.Duration) time.Duration {
	return every - time.Duration(time.Now().UnixNano())%every
}

// kindStuck is the event of a watchdog that has stopped feeding.
const kindStuck = "watchdog_stuck"
