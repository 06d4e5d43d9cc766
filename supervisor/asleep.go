package supervisor

import (
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// kindAsleep is the event of a machine that was suspended, or whose clock was set forward: hours in which nothing happened are
// no stall.
const kindAsleep = "machine_asleep"

// asleepFrom is the shortest jump that is told. A clock that is disciplined moves by less than a second.
const asleepFrom = 30 * time.Second

// A sleepWatch compares the clock on the wall with the one that stands still while the machine sleeps. By the latter go all
// limits and intervals, so that nobody is late when it wakes.
type sleepWatch struct {
	record func(store.Event)
	last   time.Time // with both clocks
}

// beat is called after each round of samples.
func (w *sleepWatch) beat(now time.Time) {
	if !w.last.IsZero() {
		// Without Round the difference is that of the clock that stands still.
		w.passed(now, now.Round(0).Sub(w.last.Round(0)), now.Sub(w.last))
	}
	w.last = now
}

// passed tells of a sleep if more time has passed on the wall than for this process.
func (w *sleepWatch) passed(now time.Time, wall, own time.Duration) {
	if slept := wall - own; slept >= asleepFrom {
		w.record(store.Event{Kind: kindAsleep, Time: now, Message: fmt.Sprintf(
			"the machine slept for %s, or its clock was set forward; health checks, limits and delays do not count that time", slept.Round(time.Second))})
	}
}
