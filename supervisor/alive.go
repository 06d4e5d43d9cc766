package supervisor

import (
	"context"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

const (
	// statusEvery is how often the status line is looked at; it is sent only when it has changed.
	statusEvery = 2 * time.Second
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

	every := statusEvery
	if interval := s.notify.WatchdogInterval(); interval > 0 {
		every = min(every, interval/4) // twice between two pings, which are twice in an interval
	}
	tick := time.NewTimer(untilWhole(every))
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(untilWhole(every))
		}
		if s.notify.WatchdogInterval() > 0 {
			// An idle writer makes progress by being asked.
			ping, cancel := context.WithTimeout(ctx, pingTimeout)
			_ = s.store.Ping(ping) // a failure shows as standing still and in the store's health
			cancel()
			beat, cancel := context.WithTimeout(ctx, pingTimeout)
			_ = s.heart.Beat(beat)
			cancel()
		}
		if line := s.statusLine(); line != told {
			told = line
			s.say(s.notify.Status(line))
		}
		if s.state.Load() == stateDraining || s.state.Load() == stateStopping {
			s.say(s.notify.ExtendTimeout(extendBy))
		}
	}
}

// untilWhole is the time to the next round multiple of every. Loops that wait so wake an idle processor together with the
// sampler, the queue and the store, once a second and not each at its own moment.
func untilWhole(every time.Duration) time.Duration {
	return every - time.Duration(time.Now().UnixNano())%every
}

// kindStuck is the event of a watchdog that has stopped feeding.
const kindStuck = "watchdog_stuck"
