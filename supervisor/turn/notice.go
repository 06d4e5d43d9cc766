package turn

import (
	"context"
	"errors"
	"fmt"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// noticesAtOnce is how many notices a terminal may leave unacknowledged before it gets no more.
const noticesAtOnce = 100

// Notices sends the rows addressed to a terminal chat, in order and each once, until ctx ends. A row is owed until
// Acknowledge names it, so a terminal that comes back gets it again.
func (h *Hub) Notices(ctx context.Context, chatID string, send func(store.OutboxRow) error) error {
	if err := checkID("chat_id", chatID); err != nil {
		return err
	}
	for last := int64(0); ; {
		h.outbox.mu.Lock()
		more := h.outbox.notices
		h.outbox.mu.Unlock()
		rows, err := h.store.PendingOutbox(ctx, PlatformTerminal, chatID, noticesAtOnce)
		if err != nil {
			return wrap(err, "notices of chat %s", chatID)
		}
		for _, r := range rows {
			if r.ID <= last {
				continue
			}
			h.outbox.show(r.ID)
			if err := send(r); err != nil {
				return err
			}
			last = r.ID
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		case <-h.ctx.Done():
			return errClosing
		}
	}
}

func (o *outbox) show(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shown[id] = struct{}{}
}

// Acknowledge marks a notice as delivered. Only what Notices has sent can be acknowledged: a row of another platform is
// its gateway's to deliver.
func (h *Hub) Acknowledge(ctx context.Context, outboxID int64) error {
	leave, err := h.enter()
	if err != nil {
		return err
	}
	defer leave()
	o := h.outbox
	o.mu.Lock()
	_, shown := o.shown[outboxID]
	o.mu.Unlock()
	if !shown {
		return fmt.Errorf("notice %d: %w", outboxID, ipc.ErrNotFound)
	}
	wctx, cancel := h.detached()
	defer cancel()
	err = h.store.ReportSend(wctx, outboxID, store.OutboxReport{State: store.OutboxSent})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return wrap(err, "acknowledge notice %d", outboxID)
	}
	o.mu.Lock()
	delete(o.shown, outboxID)
	o.mu.Unlock()
	o.wake()
	return nil
}
