package telegram

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

const (
	// deafAfter is how long nothing may be received before the bot counts as deaf, whatever the cause. A poll that
	// hangs ends within 75 s, so this is two of them in a row.
	deafAfter = 150 * time.Second
	// stuckAfter is how long messages may wait for the supervisor before it is said.
	stuckAfter = 10 * time.Second
	// The waits grow to different ends. A rival poller that ends must be noticed soon; a token that was refused needs a
	// person; how long a network is waited for is a setting.
	firstConflictWait, maxConflictWait = 5 * time.Second, time.Minute
	firstRefusedWait, maxRefusedWait   = 30 * time.Second, 5 * time.Minute
)

// trouble is why polls do not complete.
type trouble int

const (
	noTrouble    trouble = iota
	network              // no answer, or one that is not the API's
	flooded              // asked to wait
	conflict             // somebody else polls, or a webhook is set
	unauthorised         // the token is refused
)

// A health follows the polls of one bot. What counts is the last poll that completed: a connection that stands, or
// other requests that work, say nothing about receiving.
type health struct {
	first, longest time.Duration // waits for the network
	changed        gateway.Bell

	mu       sync.Mutex
	started  time.Time
	last     time.Time // end of the last completed poll
	trouble  trouble   // of the last poll, if it failed
	since    time.Time // of the first failure of this outage
	failures int       // in a row
	cause    string
	waiting  time.Time // since when messages wait for the supervisor, zero if none does
	refusal  string    // why
}

func newHealth(now time.Time, first, longest time.Duration) *health {
	return &health{started: now, first: first, longest: longest, changed: gateway.NewBell()}
}

// completed notes a poll that completed, with or without updates. Nothing else ends an outage.
func (h *health) completed(now time.Time) {
	defer h.changed.Ring()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.trouble, h.failures, h.cause = now, noTrouble, 0, ""
}

// failed notes a poll that failed and returns how long to wait before the next one.
func (h *health) failed(now time.Time, err error) time.Duration {
	defer h.changed.Ring()
	h.mu.Lock()
	defer h.mu.Unlock()
	kind := kindOf(err)
	if h.failures == 0 {
		h.since = now
	}
	if kind != h.trouble {
		h.failures = 0 // waits grow with one cause
	}
	h.trouble, h.cause = kind, err.Error()
	h.failures++
	return h.wait(err)
}

func (h *health) wait(err error) time.Duration {
	switch h.trouble {
	case conflict:
		return grow(firstConflictWait, h.failures, maxConflictWait)
	case unauthorised:
		return grow(firstRefusedWait, h.failures, maxRefusedWait)
	case flooded:
		d, _ := retryAfter(err)
		return d + time.Duration(rand.Int64N(int64(time.Second)))
	}
	return grow(h.first, h.failures, h.longest)
}

// grow doubles a wait with each failure, up to a limit, and shortens it by up to a fifth so that many bots behind
// one failing network do not come back at the same moment.
func grow(first time.Duration, failures int, limit time.Duration) time.Duration {
	d := limit
	if n := failures - 1; n < 20 && first<<n < limit {
		d = first << n
	}
	return d - time.Duration(rand.Int64N(int64(d)/5+1))
}

func kindOf(err error) trouble {
	var a *apiError
	switch {
	case !errors.As(err, &a):
		return network
	case a.code == http.StatusConflict:
		return conflict
	case isUnauthorised(err):
		return unauthorised
	case a.code == http.StatusTooManyRequests:
		return flooded
	}
	return network
}

// waits notes that received messages could not be handed over; taken, that they could.
func (h *health) waits(now time.Time, why error) {
	defer h.changed.Ring()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting.IsZero() {
		h.waiting = now
	}
	h.refusal = why.Error()
}

func (h *health) taken() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.waiting.IsZero() {
		h.waiting = time.Time{}
		h.changed.Ring()
	}
}

// conflictFor is how long a conflict has lasted.
func (h *health) conflictFor(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trouble != conflict {
		return 0
	}
	return now.Sub(h.since)
}

// troubled reports whether the last poll failed, and how.
func (h *health) troubled() trouble {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trouble
}

// status judges how the bot is reached.
func (h *health) status(now time.Time) gateway.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := gateway.Status{LastReceive: h.last, Until: h.until(now)}
	silent := now.Sub(h.heard())
	failing := fmt.Sprintf("since %s, %d in a row: %s", clock(h.since), h.failures, h.cause)
	switch {
	case h.trouble == unauthorised:
		s.State, s.Detail = gateway.StateUnauthorised, "Telegram refuses the token (check TELEGRAM_BOT_TOKEN), "+failing
	case h.trouble == conflict:
		s.State, s.Detail = gateway.StateConflict, "somebody else receives for this bot, "+failing
	case !h.waiting.IsZero() && now.Sub(h.waiting) >= stuckAfter:
		s.State, s.Detail = gateway.StateDegraded, fmt.Sprintf("received messages wait for the supervisor since %s: %s", clock(h.waiting), h.refusal)
	case silent >= deafAfter:
		s.State, s.Detail = gateway.StateDeaf, fmt.Sprintf("nothing was received for %s", silent.Round(time.Second))
		if h.failures > 0 {
			s.Detail += ", polls fail " + failing
		}
	case h.last.IsZero():
		s.State, s.Detail = gateway.StateConnecting, "no poll has completed yet"
		if h.failures > 0 {
			s.Detail += ", polls fail " + failing
		}
	case h.failures > 1: // one alone is the ordinary end of an old connection
		s.State, s.Detail = gateway.StateDegraded, "polls fail "+failing
	default:
		s.State = gateway.StateConnected
	}
	return s
}

// heard is when something was received last, the start if nothing was.
func (h *health) heard() time.Time {
	if h.last.IsZero() {
		return h.started
	}
	return h.last
}

// until is when the status changes next by mere time, zero if it does not.
func (h *health) until(now time.Time) (next time.Time) {
	moments := []time.Time{h.heard().Add(deafAfter)}
	if !h.waiting.IsZero() {
		moments = append(moments, h.waiting.Add(stuckAfter))
	}
	for _, m := range moments {
		if m.After(now) && (next.IsZero() || m.Before(next)) {
			next = m
		}
	}
	return next
}

func clock(t time.Time) string { return t.Format("15:04:05") }

// pause waits unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// untried reports whether no poll has completed yet.
func (h *health) untried() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.IsZero()
}
