package bottest

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// A FaultKind is what goes wrong with a request.
type FaultKind int

// What can go wrong.
const (
	Refuse     FaultKind = iota + 1 // answered with Status, Description and RetryAfter, without effect
	CutBefore                       // the connection is cut, without effect
	CutAfter                        // it has its effect, then the connection is cut instead of an answer
	Hang                            // no effect and no answer until the client gives up
	SlowBefore                      // everything happens after Delay; a client that gives up meanwhile prevents it
	SlowAfter                       // it has its effect, the answer comes after Delay
	Garbage                         // answered with a page that is not JSON, with Status or 200, without effect
	Late                            // it has its effect after Delay, also if the client has given up; the test must last as long
)

func (k FaultKind) String() string {
	return [...]string{"", "refused", "cut before", "cut after", "hung", "slow before", "slow after", "garbage", "late"}[k]
}

// A Fault is due for the next Times requests that match, or for ever if Times is 0.
type Fault struct {
	Kind        FaultKind
	Method      string // "" matches all
	Chat        int64  // 0 matches all
	Times       int
	Status      int
	Description string // with Refuse; "" is the usual text of Status
	RetryAfter  int    // seconds, with 429
	MigrateTo   int64  // with 400
	Delay       time.Duration

	left int
}

// Fail adds a fault. Faults are asked in order of their adding.
func (s *Server) Fail(f Fault) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.left = f.Times
	s.faults = append(s.faults, &f)
	return &f
}

// Mend takes faults away, all if none is named.
func (s *Server) Mend(faults ...*Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(faults) == 0 {
		s.faults = nil
	}
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return slices.Contains(faults, f) })
}

// Inject asks f for a fault for each call that no other fault matches. It runs under the server's lock and must
// not call it.
func (s *Server) Inject(f func(Call) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inject = f
}

// Rival makes somebody else poll for the same bot without pause: every getUpdates is ended by his next one.
func (s *Server) Rival(polls bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rival = polls
	if polls && s.poll != nil {
		s.poll.end()
	}
}

func (s *Server) faultFor(c Call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Method != "" && f.Method != c.Method || f.Chat != 0 && f.Chat != c.Chat() {
			continue
		}
		if f.Times > 0 {
			if f.left--; f.left == 0 {
				s.faults = slices.Delete(slices.Clone(s.faults), i, i+1)
			}
		}
		return f
	}
	if s.inject != nil {
		return s.inject(c)
	}
	return nil
}

func (f *Fault) reply() reply {
	r := refuse(f.Status, "")
	if f.Description != "" {
		r.desc = f.Description
	}
	if f.RetryAfter > 0 {
		r = flood(f.RetryAfter)
	}
	if f.MigrateTo != 0 {
		r.params = map[string]any{"migrate_to_chat_id": f.MigrateTo}
	}
	return r
}

// before does what happens before the effect. It returns false if there will be none.
func (f *Fault) before(ctx context.Context, w http.ResponseWriter) bool {
	switch f.Kind {
	case CutBefore:
		cut(w)
		return false
	case Hang:
		<-ctx.Done()
		return false
	case SlowBefore:
		return sleep(ctx, f.Delay)
	case Late:
		return sleep(context.WithoutCancel(ctx), f.Delay)
	case Garbage:
		status := f.Status
		if status == 0 {
			status = http.StatusOK
		}
		reply{status: status, raw: "<html><body>nginx</body></html>"}.write(w)
		return false
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// cut closes the connection without an answer.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // ends the connection too
	}
	_ = conn.Close()
}

// limiter refuses like the public server: so many messages a second to one chat, so many in all.
type limiter struct {
	perChat, all int
	window       time.Duration
	retryAfter   int
	sent         map[int64][]time.Time
	total        []time.Time
}

// Limit makes the server answer 429 to more than perChat messages and edits to one chat, or all in sum, within a
// window. 0 is no limit.
func (s *Server) Limit(perChat, all int, window time.Duration, retryAfter int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiter = &limiter{perChat: perChat, all: all, window: window, retryAfter: retryAfter, sent: map[int64][]time.Time{}}
}

// take counts a message, or refuses it. With mu held.
func (l *limiter) take(chat int64) *reply {
	if l == nil {
		return nil
	}
	now := time.Now()
	young := func(list []time.Time) []time.Time {
		return slices.DeleteFunc(list, func(t time.Time) bool { return now.Sub(t) >= l.window })
	}
	l.sent[chat], l.total = young(l.sent[chat]), young(l.total)
	if l.perChat > 0 && len(l.sent[chat]) >= l.perChat || l.all > 0 && len(l.total) >= l.all {
		r := flood(l.retryAfter)
		return &r
	}
	l.sent[chat], l.total = append(l.sent[chat], now), append(l.total, now)
	return nil
}
