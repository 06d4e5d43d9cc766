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

// Accept stores a message and queues its turn. Once it returned, the message is answered whatever ends. in.Busy says
// what it does to a turn that its session runs already.
func (h *Hub) Accept(ctx context.Context, in store.Inbound) (store.Accepted, error) {
	in.UserName = cleanName(in.UserName)
	if err := checkInbound(in); err != nil {
		return store.Accepted{}, err
	}
	acc, err := h.admit(ctx, func(ctx context.Context) (store.Accepted, error) { return h.store.Accept(ctx, in) })
	return acc, wrap(err, "accept message %q of %s chat %q", in.MessageID, in.Platform, in.ChatID)
}

// Retry queues a turn that answers the last message of a session anew, and returns its text.
func (h *Hub) Retry(ctx context.Context, in store.Inbound) (acc store.Accepted, text string, err error) {
	in.UserName, in.Text = cleanName(in.UserName), "/retry"
	if err := checkInbound(in); err != nil {
		return acc, "", err
	}
	acc, err = h.admit(ctx, func(ctx context.Context) (acc store.Accepted, err error) {
		acc, text, err = h.store.Retry(ctx, in)
		return acc, err
	})
	return acc, text, wrap(err, "retry in %s chat %q", in.Platform, in.ChatID)
}

// admit makes a write that may queue a turn, takes that into the queue, and does what the write did to others.
func (h *Hub) admit(ctx context.Context, write func(context.Context) (store.Accepted, error)) (store.Accepted, error) {
	leave, err := h.enter()
	if err != nil {
		return store.Accepted{}, err
	}
	defer leave()
	give := h.ticket()
	defer give()
	wctx, cancel := h.detached()
	defer cancel()
	acc, err := write(wctx)
	if err == nil {
		h.lookAtFailure(nil)
		_, _, err = h.find(wctx, acc.TurnID)
	}
	if err == nil && acc.Interrupted != "" {
		// Also for a message that is handed over again: the first time it may have come no further than into the store.
		err = h.interruptStored(wctx, acc.Interrupted)
	}
	if err != nil {
		h.lookAtFailure(err)
		if !refusedUnstored(err) {
			h.markStale()
		}
		return store.Accepted{}, err
	}
	return acc, nil
}

// ticket says that a turn may be stored that is not in the queue yet, until give is called.
func (h *Hub) ticket() (give func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.tickets.take()
	return func() {
		h.mu.Lock()
		h.tickets.give(n)
		h.mu.Unlock()
		h.wake()
	}
}

// markStale has the open turns read again before anything is leased.
func (h *Hub) markStale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = true
	h.wake()
}

// finish ends a turn in the store. Texts that were handed to it and came too late are the next turn of its session, which
// is taken into the queue.
func (h *Hub) finish(ctx context.Context, f store.Finish) (store.Turn, error) {
	give := h.ticket()
	defer give()
	t, err := h.store.FinishTurn(ctx, f)
	if err != nil || t.Followed == "" {
		return t, err
	}
	if _, _, err := h.find(ctx, t.Followed); err != nil {
		h.markStale()
	}
	return t, nil
}

// refusedUnstored says that an Accept failed in a way that stored nothing.
func refusedUnstored(err error) bool {
	return definite(err) || errors.Is(err, store.ErrQueueFull) || errors.Is(err, store.ErrBusy) ||
		errors.Is(err, store.ErrDiskFull) || errors.Is(err, store.ErrReadOnly)
}
