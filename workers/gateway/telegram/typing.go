package telegram

import (
	"context"
	"sync"
	"time"
)

const (
	// typingEvery is a little less than the five seconds for which Telegram shows the sign.
	typingEvery = 4500 * time.Millisecond
	// typingAtOnce bounds the signs on their way, so that one chat that hangs holds up no other.
	typingAtOnce = 8
	// typingLife ends the sign of a turn that nothing is heard of.
	typingLife = 10 * time.Minute
)

// typing shows that the bot is typing in chats where turns run.
type typing struct {
	sender *sender

	mu    sync.Mutex
	turns map[string]typingTurn
	wake  chan struct{}
}

type typingTurn struct {
	target target
	heard  time.Time
}

func newTyping(s *sender) *typing {
	return &typing{sender: s, turns: map[string]typingTurn{}, wake: make(chan struct{}, 1)}
}

// on begins or prolongs the sign of a turn.
func (t *typing) on(turn string, to target) {
	t.mu.Lock()
	_, known := t.turns[turn]
	if known || len(t.turns) < maxTurns {
		t.turns[turn] = typingTurn{target: target{chat: to.chat, thread: to.thread}, heard: time.Now()}
	}
	t.mu.Unlock()
	if !known {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// off ends the sign of a turn. Telegram takes it away with the message.
func (t *typing) off(turn string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.turns, turn)
}

// run shows the signs until ctx ends.
func (t *typing) run(ctx context.Context) {
	last := map[target]time.Time{}
	places := make(chan struct{}, typingAtOnce)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		next := time.Now().Add(time.Hour)
		for to := range t.targets() {
			if due := last[to].Add(typingEvery); time.Now().Before(due) {
				next = earlier(next, due)
				continue
			}
			last[to] = time.Now()
			next = earlier(next, last[to].Add(typingEvery))
			select {
			case places <- struct{}{}:
				all.Go(func() {
					t.sender.action(ctx, to)
					<-places
				})
			default: // the network is slow; signs are the first to go
			}
		}
		for to, at := range last {
			if time.Since(at) >= typingEvery {
				delete(last, to)
			}
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-t.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// targets returns where a turn runs that something was heard of.
func (t *typing) targets() map[target]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[target]struct{}{}
	for id, turn := range t.turns {
		if time.Since(turn.heard) > typingLife {
			delete(t.turns, id)
			continue
		}
		out[turn.target] = struct{}{}
	}
	return out
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
