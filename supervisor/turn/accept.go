package turn

import (
	"context"
	"errors"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// tickets number the Accepts in flight, so that no turn overtakes one of its session that is stored but not yet queued.
type tickets struct {
	last uint64
	open map[uint64]struct{}
	hold int // refreshes in flight: nothing may be leased
}

func (t *tickets) take() uint64 {
	if t.open == nil {
		t.open = map[uint64]struct{}{}
	}
	t.last++
	t.open[t.last] = struct{}{}
	return t.last
}

func (t *tickets) give(n uint64) { delete(t.open, n) }

// oldest returns the oldest Accept in flight, or a number above all.
func (t *tickets) oldest() uint64 {
	if t.hold > 0 {
		return 0
	}
	oldest := t.last + 1
	for n := range t.open {
		oldest = min(oldest, n)
	}
	return oldest
}

// Accept stores a message and queues its turn. Once it returned, the message is answered whatever ends.
func (h *Hub) Accept(ctx context.Context, in store.Inbound) (store.Accepted, error) {
	in.UserName = cleanName(in.UserName)
	if err := checkInbound(in); err != nil {
		return store.Accepted{}, err
	}
	leave, err := h.enter()
	if err != nil {
		return store.Accepted{}, err
	}
	defer leave()
	h.mu.Lock()
	ticket := h.tickets.take()
	h.mu.Unlock()
	acc, err := h.accept(in)
	h.mu.Lock()
	h.tickets.give(ticket)
	h.mu.Unlock()
	h.wake()
	return acc, err
}

func (h *Hub) accept(in store.Inbound) (store.Accepted, error) {
	ctx, cancel := h.detached()
	defer cancel()
	acc, err := h.store.Accept(ctx, in)
	if err == nil {
		if _, _, err = h.find(ctx, acc.TurnID); err == nil {
			return acc, nil
		}
	}
	if !refusedUnstored(err) {
		h.mu.Lock()
		h.stale = true
		h.mu.Unlock()
	}
	return store.Accepted{}, wrap(err, "accept message %q of %s chat %q", in.MessageID, in.Platform, in.ChatID)
}

// refusedUnstored says that an Accept failed in a way that stored nothing.
func refusedUnstored(err error) bool {
	return definite(err) || errors.Is(err, store.ErrQueueFull) || errors.Is(err, store.ErrBusy) ||
		errors.Is(err, store.ErrDiskFull) || errors.Is(err, store.ErrReadOnly)
}
