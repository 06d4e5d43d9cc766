package gatewaytest

import (
	"time"

	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// resend is how soon a delivery that failed is tried again; the supervisor takes longer, and a test has no time.
const resend = 20 * time.Millisecond

// Notify owes a chat a text that answers nothing, as the kanban notifier does.
func (h *Host) Notify(chat, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.putOutbox(chat, "", "", "", text)
}

// putOutbox owes a text to a chat, if the platform is pushed to. With mu held.
func (h *Host) putOutbox(chat, thread, replyTo, turnID, text string) {
	if h.adapter != nil && !h.adapter.push {
		return
	}
	h.owed++
	req := &adapterv1.DeliverRequest{
		OutboxId: h.owed, Text: text, TurnId: turnID,
		To: &adapterv1.Address{ChatId: chat, ThreadId: thread, ReplyTo: replyTo},
	}
	h.enqueue("chat/"+chat, func() { h.deliver(req) })
}

// deliver repeats a delivery until it is sent or rejected.
func (h *Host) deliver(req *adapterv1.DeliverRequest) {
	for {
		var a *attached
		if !h.wait(h.ctx, func() bool { a = h.adapter; return a != nil }) || !a.push {
			return
		}
		h.pass(BeforeDeliver)
		req.Attempt++
		r, err := a.client.Deliver(a.ctx, req)
		if h.pass(AfterDeliver) {
			continue // the report is lost
		}
		wait := resend
		if err == nil {
			if len(r.MessageIds) > 0 {
				req.MessageIds = r.MessageIds
			}
			switch r.State {
			case adapterv1.DeliverResponse_STATE_SENT, adapterv1.DeliverResponse_STATE_REJECTED:
				return
			}
			if r.RetryAfterMs > 0 {
				wait = time.Duration(r.RetryAfterMs) * time.Millisecond
			}
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-h.ctx.Done():
			again.Stop()
			return
		}
	}
}

// showTurn passes the events of a turn to the adapter, while it is attached. With mu held.
func (h *Host) showTurn(a *attached, t *Turn) {
	to := &adapterv1.Address{ChatId: t.Message.ChatId, ThreadId: t.Message.ThreadId, ReplyTo: t.Message.MessageId}
	h.running.Go(func() {
		_ = h.follow(a.ctx, t, func(e *turnv1.TurnEvent) error { // ends with the turn or the adapter
			if e.GetFinal() == nil {
				a.send(&adapterv1.ShowRequest{To: to, Event: e})
			}
			return a.ctx.Err()
		})
	})
}

// send is best effort, as the supervisor's is.
func (a *attached) send(r *adapterv1.ShowRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.show == nil {
		s, err := a.client.Show(a.ctx)
		if err != nil {
			return
		}
		a.show = s
	}
	if err := a.show.Send(r); err != nil {
		a.show = nil
	}
}
