package systemd

import (
	"context"
	"fmt"
	"time"
)

// A Source is a part of the program that the watchdog must see move.
type Source struct {
	Name     string
	Progress func() uint64 // grows with work done or looked for; standing still means stuck
}

// A Watchdog pings the service manager only while every source has moved since the last ping. A process in which one
// part is stuck is alive to every other test and of no use to its users, so it is ended and started again.
type Watchdog struct {
	Notifier *Notifier
	Sources  []Source
	Stuck    func(names []string) // told once when pings stop; may be nil
	Failed   func(error)          // told when a ping cannot be sent; may be nil

	last   []uint64
	silent bool
}

// pingsPerInterval keeps one late ping from ending the service: systemd recommends half the interval.
const pingsPerInterval = 2

// Run pings until ctx ends. It returns at once if the service manager wants no pings.
func (w *Watchdog) Run(ctx context.Context) {
	interval := w.Notifier.WatchdogInterval() / pingsPerInterval
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.check()
		}
	}
}

// check pings if every source has moved since the last check.
func (w *Watchdog) check() {
	stuck := w.stuck()
	if len(stuck) > 0 {
		if !w.silent && w.Stuck != nil {
			w.Stuck(stuck)
		}
		w.silent = true
		return
	}
	w.silent = false
	if err := w.Notifier.Ping(); err != nil && w.Failed != nil {
		w.Failed(fmt.Errorf("watchdog: %w", err))
	}
}

// stuck names the sources that have not moved since the last call. The first call has nothing to compare with.
func (w *Watchdog) stuck() []string {
	first := w.last == nil
	if first {
		w.last = make([]uint64, len(w.Sources))
	}
	var names []string
	for i, s := range w.Sources {
		now := s.Progress()
		if now == w.last[i] && !first {
			names = append(names, s.Name)
		}
		w.last[i] = now
	}
	return names
}
