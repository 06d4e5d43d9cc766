package telegram

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Telegram's published limits: about one message a second in a chat with short bursts, 20 a minute in a group, 30 a
// second over all chats.
const (
	chatBurst  = 4
	groupEvery = 3 * time.Second
	groupBurst = 8
	// patience is the longest wait for a turn to send. More is told to the supervisor, which asks again: it makes only
	// so many deliveries at once, and a chat that must wait is not to take a place of them.
	patience = time.Second
	// manyFlooded chats within floodWindow mean that the bot as a whole is over its limit.
	manyFlooded = 3
	floodWindow = 5 * time.Second
	// keptChats bounds what is remembered of quiet chats.
	keptChats = 4096
)

// limits keep to what the platform allows and obey it where it says more. A chat that must wait holds up no other.
type limits struct {
	mu     sync.Mutex
	all    *rate.Limiter
	until  time.Time // nothing at all before
	chats  map[int64]*chatLimit
	floods []floodMark // recent ones
}

type chatLimit struct {
	rate  *rate.Limiter
	until time.Time // nothing before
	used  time.Time
}

type floodMark struct {
	chat int64
	at   time.Time
}

// A floodError is a wait that the caller must not sit through.
type floodError struct{ after time.Duration }

func (e *floodError) Error() string {
	return fmt.Sprintf("over the limit of messages for %s", e.after.Round(time.Millisecond))
}

func newLimits(perSecond float64) *limits {
	return &limits{all: rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond), 1)), chats: map[int64]*chatLimit{}}
}

// of returns the limit of a chat. With mu held.
func (l *limits) of(chat int64) *chatLimit {
	c, ok := l.chats[chat]
	if !ok {
		if len(l.chats) >= keptChats {
			l.forget()
		}
		c = &chatLimit{rate: rate.NewLimiter(1, chatBurst)}
		if chat < 0 {
			c.rate = rate.NewLimiter(rate.Every(groupEvery), groupBurst)
		}
		l.chats[chat] = c
	}
	c.used = time.Now()
	return c
}

// forget drops chats whose limits are full again.
func (l *limits) forget() {
	now := time.Now()
	for id, c := range l.chats {
		if now.Sub(c.used) > groupBurst*groupEvery && now.After(c.until) {
			delete(l.chats, id)
		}
	}
}

// blocked returns how long the platform forbids to write to a chat.
func (l *limits) blocked(chat int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blockedFor(l.of(chat))
}

func (l *limits) blockedFor(c *chatLimit) time.Duration {
	return max(time.Until(c.until), time.Until(l.until), 0)
}

// A kind of request says which limits it counts for.
type kind int

const (
	fresh  kind = iota // a new message: for its chat and for the bot
	change             // of a message that is there: for the bot
)

// wait takes a place in the queue for one request and waits for it, or returns a *floodError.
func (l *limits) wait(ctx context.Context, chat int64, k kind) error {
	delay, cancel := l.reserve(chat, k)
	if delay <= 0 {
		return ctx.Err()
	}
	if deadline, ok := ctx.Deadline(); delay > patience || ok && delay > time.Until(deadline) {
		cancel()
		return &floodError{after: delay}
	}
	if err := pause(ctx, delay); err != nil {
		cancel()
		return err
	}
	return nil
}

func (l *limits) reserve(chat int64, k kind) (delay time.Duration, cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(chat)
	if d := l.blockedFor(c); d > 0 {
		return max(d, patience+1), func() {} // forbidden, not queued: never waited for here
	}
	all := l.all.Reserve()
	if k == change {
		return all.Delay(), all.Cancel
	}
	own := c.rate.Reserve()
	return max(all.Delay(), own.Delay()), func() { all.Cancel(); own.Cancel() }
}

// spare takes a place for something that may be left out (a typing sign, an edit on the way). It leaves half of the
// bot's places to what must be sent; edits have a pace of their own in their chat.
func (l *limits) spare(chat int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(chat)
	if l.blockedFor(c) > 0 || l.all.Tokens() < float64(l.all.Burst())/2 {
		return false
	}
	return l.all.Allow()
}

// flooded notes that the platform refused a message to a chat for a time.
func (l *limits) flooded(chat int64, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.of(chat)
	if t := now.Add(after); t.After(c.until) {
		c.until = t
	}
	recent := l.floods[:0]
	for _, f := range l.floods {
		if now.Sub(f.at) < floodWindow && f.chat != chat {
			recent = append(recent, f)
		}
	}
	l.floods = append(recent, floodMark{chat, now})
	if len(l.floods) >= manyFlooded {
		// The shortest of what they were told is when the bot may try again; each chat keeps its own.
		shortest := after
		for _, f := range l.floods {
			shortest = min(shortest, time.Until(l.of(f.chat).until))
		}
		if t := now.Add(shortest); t.After(l.until) {
			l.until = t
		}
	}
}
