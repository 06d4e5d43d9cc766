package turn

import (
	"context"
	"errors"
	"fmt"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Follow sends the events of a turn, what has happened so far first, and returns after the final one. send may be slow:
// it is called by this goroutine only, and others do not wait for it.
func (h *Hub) Follow(ctx context.Context, turnID string, send func(*turnv1.TurnEvent) error) error {
	return h.follow(ctx, turnID, "", send)
}

// follow is Follow for a turn of platform, or of any if that is empty.
func (h *Hub) follow(ctx context.Context, turnID, platform string, send func(*turnv1.TurnEvent) error) error {
	if err := checkID("turn_id", turnID); err != nil {
		return err
	}
	l, t, err := h.find(ctx, turnID)
	if err != nil {
		return err
	}
	if l != nil {
		t.Platform = l.platform
	}
	if err := own(platform, t.Platform, turnID); err != nil {
		return err
	}
	if l == nil {
		ev := finalEvent(h.final(t))
		ev.Seq, ev.TurnId = 1, t.ID
		return send(ev)
	}
	return h.pump(ctx, l.feed, h.failing(), send)
}

// own refuses a gateway the turns of other platforms.
func own(caller, platform, turnID string) error {
	if caller != "" && caller != platform {
		return fmt.Errorf("turn %s is not of platform %s: %w", turnID, caller, ipc.ErrDenied)
	}
	return nil
}

// pump sends the events of a feed until the final one is sent. It ends too when failed is closed; nil is for a follower that
// has nobody to tell, and waits.
func (h *Hub) pump(ctx context.Context, f *feed, failed <-chan struct{}, send func(*turnv1.TurnEvent) error) error {
	w := f.join()
	defer f.leave(w)
	for seq := uint64(1); ; {
		ev, overrun := f.next(w)
		switch {
		case ev != nil:
			ev.Seq = seq
			seq++
			if err := send(ev); err != nil {
				return err
			}
			if ev.GetFinal() != nil {
				return nil
			}
			continue
		case overrun:
			return fmt.Errorf("follower of turn %s is too slow, follow again: %w", f.turnID, ipc.ErrBusy)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-failed:
			return wrap(h.storeFailure(), "turn %s is kept and waits until the store is well", f.turnID)
		case <-h.ctx.Done():
			return errClosing
		}
	}
}

// lookAtFailure notes that the store has failed in a way that only a person can end. Whoever follows a turn is told, because
// nothing will come for long. A write that is taken says that it is over.
func (h *Hub) lookAtFailure(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch failed := errors.Is(err, store.ErrFailed); {
	case failed && h.failure == nil:
		h.failure = err
		h.event("store_failed", "", "", err.Error(), nil)
		close(h.failed)
	case err == nil && h.failure != nil:
		h.failure, h.failed = nil, make(chan struct{})
		h.event("store_recovered", "", "", "the store takes writes again", nil)
	}
}

// failing returns the channel that is closed while the store has failed.
func (h *Hub) failing() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// storeFailure is why the store takes nothing. It may have been mended since.
func (h *Hub) storeFailure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return store.ErrSuspended
	}
	return h.failure
}
