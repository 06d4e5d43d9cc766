package turn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// outboxLimit is how many chats one look at the outbox takes of the platforms that have a gateway.
	outboxLimit = 1024
	// outboxSweep is how often the outbox is looked at when nothing wakes it, for rows that were missed.
	outboxSweep = 30 * time.Second
	// sendsAtOnce bounds the deliveries that one gateway makes side by side.
	sendsAtOnce = 8
	// firstResend doubles with each try, up to longestResend: a platform that is down for a day is asked every few
	// minutes and not more.
	firstResend   = time.Second
	longestResend = 5 * time.Minute
	// longestRetryAfter bounds what a platform may ask for.
	longestRetryAfter = 24 * time.Hour
	// orderedUnknown is how many unknown outcomes of a row hold up the rows after it, so that a chat stays in order when
	// its gateway dies. That is about a minute; a row that is unknown for longer lets others pass.
	orderedUnknown = 6
	maxDetail      = 1 << 10
)

// An outbox hands stored replies to gateways: one at a time for each chat, in the order they were stored. A row is owed
// until it is sent or rejected. It is safe for concurrent use.
type outbox struct {
	hub  *Hub
	kick chan struct{}

	mu      sync.Mutex
	sending map[chat]string    // worker that delivers to the chat now
	later   map[chat]time.Time // chats that wait for their next try
	unknown map[int64]int      // unknown outcomes of rows that are owed
	asked   bool               // a look at the store is asked for
	looking bool               // and under way
	quiet   chan struct{}      // closed and replaced when a delivery or look ends

	notices chan struct{} // closed and replaced when a notice may be there
	shown   map[int64]struct{}
}

// A chat is where order is kept.
type chat struct{ platform, id string }

func newOutbox(h *Hub) *outbox {
	return &outbox{
		hub: h, kick: make(chan struct{}, 1), sending: map[chat]string{}, later: map[chat]time.Time{},
		unknown: map[int64]int{}, quiet: make(chan struct{}), notices: make(chan struct{}), shown: map[int64]struct{}{},
	}
}

// wake makes the outbox look for rows.
func (o *outbox) wake() {
	o.mu.Lock()
	o.asked = true
	close(o.notices)
	o.notices = make(chan struct{})
	o.mu.Unlock()
	select {
	case o.kick <- struct{}{}:
	default:
	}
}

func (o *outbox) loop() {
	for {
		wait := panicPause
		o.hub.guard("looking at the outbox", func() { wait = o.look() }, nil)
		again := time.NewTimer(wait)
		select {
		case <-o.kick:
		case <-again.C:
		case <-o.hub.ctx.Done():
			again.Stop()
			return
		}
		again.Stop()
	}
}

// look begins every delivery that may begin, and returns when to look again.
func (o *outbox) look() time.Duration {
	o.mu.Lock()
	o.asked, o.looking = false, true
	o.mu.Unlock()
	defer o.looked()
	ctx, cancel := o.hub.detached()
	defer cancel()
	now := o.hub.now()
	served := o.hub.served()
	if len(served) == 0 {
		return outboxSweep // the attachment of a gateway wakes the outbox
	}
	rows, err := o.hub.store.DueOutbox(ctx, now, outboxLimit, served...)
	if err != nil {
		if o.hub.ctx.Err() == nil {
			o.hub.log.Warn("cannot read the outbox", "error", err)
		}
		return storePause
	}
	for _, r := range rows {
		if o.hub.pushed(r.Platform) {
			o.begin(r)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := outboxSweep
	for to, at := range o.later {
		if !at.After(now) {
			delete(o.later, to) // it was looked at just now
			continue
		}
		wait = min(wait, at.Sub(now)+time.Millisecond) // the store keeps times less exactly
	}
	return wait
}

func (o *outbox) looked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looking = false
	o.rest()
}

// begin starts the delivery of a row unless its chat or gateway is busy or its gateway is not there.
func (o *outbox) begin(r store.OutboxRow) {
	g := o.hub.gateway(r.Platform)
	if g == nil {
		return // its attachment wakes the outbox
	}
	to := chat{r.Platform, r.ChatID}
	if !o.reserve(to, g.id.Worker) {
		return // the end of a delivery wakes the outbox, and so does that of a pause
	}
	o.hub.launch(fmt.Sprint("delivery of row ", r.ID), func() {
		o.deliver(r.ID, g)
		o.free(to)
	}, func() {
		o.spoil(to, r.ID)
		o.free(to)
	})
}

// spoil puts off a chat of which it is not known what became of a row, nor can be stored.
func (o *outbox) spoil(to chat, id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unknown[id]++
	o.later[to] = o.hub.now().Add(resendAfter(o.unknown[id], 0))
}

// free lets the next delivery to a chat begin.
func (o *outbox) free(to chat) {
	defer o.wake()
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.sending, to)
	o.rest()
}

// reserve says whether a delivery to a chat may begin, and marks it as begun.
func (o *outbox) reserve(to chat, worker string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hub.now().Before(o.later[to]) || o.sending[to] != "" || o.count(worker) >= sendsAtOnce {
		return false
	}
	o.sending[to] = worker
	return true
}

// rest tells those who wait for quiet. o.mu must be held.
func (o *outbox) rest() {
	close(o.quiet)
	o.quiet = make(chan struct{})
}

// deliver makes one delivery and stores what became of it.
func (o *outbox) deliver(id int64, g *gateway) {
	var r store.OutboxRow
	h := o.hub
	err := h.persist(h.ctx, "begin delivery", func(ctx context.Context) (err error) {
		r, err = h.store.BeginSend(ctx, id)
		return err
	})
	if err != nil {
		return // sent or gone meanwhile, or the hub closes
	}
	var resp *adapterv1.DeliverResponse
	err = errPanicked
	h.guard(fmt.Sprint("delivery of row ", id), func() {
		resp, err = g.client.Deliver(h.ctx, &adapterv1.DeliverRequest{
			OutboxId: r.ID, To: &adapterv1.Address{ChatId: r.ChatID, ThreadId: r.ThreadID, ReplyTo: r.ReplyTo},
			Text: r.Text, Attempt: uint32(r.Attempt), MessageIds: r.MessageIDs, TurnId: r.TurnID,
		})
	}, nil)
	if h.ctx.Err() != nil {
		return // left as sending: the next hub delivers it again
	}
	if err != nil {
		resp = &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_UNKNOWN, Detail: err.Error()}
	}
	report := o.report(r, resp)
	if err := h.persist(h.ctx, "report delivery", func(ctx context.Context) error { return h.store.ReportSend(ctx, id, report) }); err != nil {
		h.log.Error("cannot store what became of a delivery", "outbox", id, "error", err)
	}
}

// report turns the gateway's answer into what is stored, and puts the row off if it is to be tried again.
func (o *outbox) report(r store.OutboxRow, d *adapterv1.DeliverResponse) store.OutboxReport {
	rep := store.OutboxReport{MessageIDs: d.MessageIds, Detail: cut(d.Detail, maxDetail)}
	if len(rep.MessageIDs) == 0 {
		rep.MessageIDs = r.MessageIDs
	}
	fields := map[string]string{"outbox": fmt.Sprint(r.ID), "platform": r.Platform, "chat": r.ChatID, "attempt": fmt.Sprint(r.Attempt)}
	switch d.State {
	case adapterv1.DeliverResponse_STATE_SENT:
		rep.State = store.OutboxSent
	case adapterv1.DeliverResponse_STATE_REJECTED:
		rep.State = store.OutboxRejected
		o.hub.event("outbox_rejected", "", r.TurnID, rep.Detail, fields)
	case adapterv1.DeliverResponse_STATE_RETRY:
		rep.State = store.OutboxPending
	default:
		rep.State = store.OutboxUnknown
		o.hub.event("outbox_unknown", "", r.TurnID, rep.Detail, fields)
	}
	o.putOff(r, &rep, askedPause(d.RetryAfterMs))
	return rep
}

// putOff makes the chat of a row that is still owed wait for its next try.
func (o *outbox) putOff(r store.OutboxRow, rep *store.OutboxReport, asked time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch rep.State {
	case store.OutboxSent, store.OutboxRejected:
		delete(o.unknown, r.ID)
		return
	case store.OutboxUnknown:
		o.unknown[r.ID]++
	}
	next := o.hub.now().Add(resendAfter(r.Attempt, asked))
	if rep.State == store.OutboxPending || o.unknown[r.ID] > orderedUnknown {
		// For the store to know: a pending row keeps its chat waiting there, an unknown one lets others pass.
		rep.NextAttempt = next
	}
	if rep.State == store.OutboxPending || o.unknown[r.ID] <= orderedUnknown {
		o.later[chat{r.Platform, r.ChatID}] = next
	}
}

// askedPause is what the platform asks for.
func askedPause(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), longestRetryAfter.Milliseconds())) * time.Millisecond
}

// resendAfter is the pause before the next try: what the platform asks for and not less, else growing with each try and
// jittered, so that many chats do not come back at once.
func resendAfter(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return asked + rand.N(asked/10+1)
	}
	d := longestResend
	if attempt < 10 {
		d = min(firstResend<<max(attempt-1, 0), longestResend)
	}
	return d/2 + rand.N(d/2+1)
}

// settle waits until nothing is being delivered or about to be, or ctx ends.
func (o *outbox) settle(ctx context.Context) {
	for {
		o.mu.Lock()
		busy, quiet := len(o.sending) > 0 || o.asked || o.looking, o.quiet
		o.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return
		case <-o.hub.ctx.Done():
			return
		}
	}
}

func (o *outbox) busy(worker string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count(worker)
}

// count returns the deliveries of a worker. o.mu must be held.
func (o *outbox) count(worker string) int {
	n := 0
	for _, w := range o.sending {
		if w == worker {
			n++
		}
	}
	return n
}
