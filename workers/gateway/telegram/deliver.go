package telegram

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// How an answer gets to a chat once, whatever fails between:
//
//  1. Placeholders are sent, one for each message that the answer needs, or taken from what Show has sent. Nothing of the
//     answer is in them, so one that was sent without us learning of it is only a stray "…", which is looked for (strays.go).
//  2. Their ids go to the supervisor (Retry), which stores them and asks again.
//  3. Each is edited to its part of the answer. An edit of a known message may be repeated as often as needed: Telegram
//     answers "not modified", which is success. If an edit of the running turn had no answer, the last one is repeated
//     when that edit cannot come any more: it would stand in the place of the answer for good.
//
// Files cannot be edited in, so a file whose sending got no answer is unknown; when the supervisor asks again, it goes
// out with a mark that it may be there twice.

const (
	// soon makes the supervisor ask again at once: its own pause is for things that failed.
	soon = time.Millisecond
	// whenRefused is when to try again after Telegram refused the token, which a person must mend.
	whenRefused = time.Minute
	// oddAttempts is how often a delivery is tried that is refused for a reason that nobody foresaw.
	oddAttempts = 12
)

// Deliver sends one text with its files.
func (a *Adapter) Deliver(ctx context.Context, d gateway.Delivery) gateway.Delivered {
	t, ok := targetOf(d.To)
	if !ok {
		return gateway.Rejected(fmt.Sprintf("%q is not a chat of Telegram", d.To.ChatID))
	}
	if d.TurnID != "" {
		a.typing.off(d.TurnID)
		a.turns.add(openTurn{id: d.TurnID, chat: d.To.ChatID, thread: d.To.ThreadID})
		a.turns.answer(d.TurnID)
	}
	e := &delivery{Delivery: d, a: a, target: a.replying(t), parts: render(d.Text)}
	if strings.TrimSpace(d.Text) == "" && len(d.Files) > 0 {
		e.parts = nil
	}
	e.known = numbers(d.MessageIDs)
	out := e.run(ctx)
	if out.State == gateway.StateSent || out.State == gateway.StateRejected {
		a.forget(e)
	}
	return out
}

// forget drops what is kept for a delivery that has ended.
func (a *Adapter) forget(e *delivery) {
	a.edited.drop(e.ID)
	if e.TurnID != "" {
		a.live.end(e.TurnID)
		a.turns.end(e.TurnID)
	}
	// The note of its files stays for a while: if the report is lost, it keeps them from being sent again.
	if err := a.shelf.setShown(shown{Key: e.shownKey()}); err != nil {
		a.log.Warn("the messages of a delivery are still noted", "delivery", e.ID, "error", err)
	}
}

// A delivery is one attempt.
type delivery struct {
	gateway.Delivery
	a      *Adapter
	target target
	parts  []text.Styled
	known  []int // of the parts, then of the files that were sent
}

// shownKey is where the messages are noted that stand in for this delivery: those of Show, or its own.
func (e *delivery) shownKey() string {
	if e.TurnID != "" {
		return e.TurnID
	}
	return fmt.Sprintf("delivery/%d", e.ID)
}

// fileKey is where a file is noted while it is being sent.
func (e *delivery) fileKey() string { return fmt.Sprintf("file/%d", e.ID) }

func (e *delivery) run(ctx context.Context) gateway.Delivered {
	if wait := e.a.limits.blocked(e.a.sender.current(e.target).chat); wait > 0 {
		return e.failed(&floodError{after: wait})
	}
	if noted := e.a.shelf.shownOf(e.shownKey()); len(e.known) < len(e.parts) || len(e.known) == 0 && len(noted) > 0 {
		if len(noted) > len(e.known) {
			e.known = noted // ours of an attempt that was not reported
		}
		return e.place(ctx)
	}
	if out, done := e.edit(ctx); !done {
		return out
	}
	return e.sendFiles(ctx)
}

// place makes sure that there is a message for each part, and reports their ids before anything is written into them.
func (e *delivery) place(ctx context.Context) gateway.Delivered {
	for len(e.known) > len(e.parts) {
		last := len(e.known) - 1
		if err := e.a.sender.remove(ctx, e.target, e.known[last]); err != nil {
			return e.failed(err)
		}
		if err := e.note(e.known[:last]); err != nil {
			return e.failed(err)
		}
	}
	if len(e.known) < len(e.parts) {
		if err := e.overtake(ctx); err != nil {
			return e.failed(err)
		}
	}
	for len(e.known) < len(e.parts) {
		id, err := e.placeholder(ctx, len(e.known))
		if err != nil {
			return e.failed(err)
		}
		if err := e.note(append(e.known, id)); err != nil {
			return e.failed(err)
		}
	}
	if len(e.known) == 0 {
		return e.sendFiles(ctx)
	}
	return e.again()
}

// overtake takes away what stands in the chat for later answers of the same conversation: this one is to come before
// them, and a message cannot be put in between. What they show is placed anew, behind it.
func (e *delivery) overtake(ctx context.Context) error {
	for _, later := range e.a.shelf.shownIn(e.target.chat, e.target.thread) {
		if e.TurnID == "" || later.Key == e.TurnID || !e.a.turns.conversation(e.TurnID, later.Key) {
			continue
		}
		for _, id := range later.IDs {
			if err := e.a.sender.remove(ctx, e.target, id); err != nil {
				return err
			}
		}
		if err := e.a.shelf.setShown(shown{Key: later.Key}); err != nil {
			return fmt.Errorf("forget the messages of a later answer: %w", err)
		}
		e.a.live.unplace(later.Key)
	}
	return nil
}

// note keeps the messages for the case that this process dies before it can report them.
func (e *delivery) note(ids []int) error {
	e.known = ids
	if err := e.a.shelf.setShown(shown{Key: e.shownKey(), Chat: e.target.chat, Thread: e.target.thread, IDs: ids}); err != nil {
		return fmt.Errorf("note the messages of the answer: %w", err)
	}
	return nil
}

func (e *delivery) placeholder(ctx context.Context, part int) (int, error) {
	t := e.target
	if part > 0 {
		t.reply = 0
	}
	return e.a.sender.placeholder(ctx, t)
}

// again asks the supervisor to store the ids and to go on.
func (e *delivery) again() gateway.Delivered {
	return gateway.Retry(soon, "the messages are there and not written yet", e.ids()...)
}

// edit writes the parts into their messages. done is false if out is to be reported instead.
func (e *delivery) edit(ctx context.Context) (out gateway.Delivered, done bool) {
	for i := e.a.edited.get(e.ID); i < len(e.parts); i++ {
		err := e.a.sender.edit(ctx, e.target, e.known[i], e.parts[i], nil)
		if isNotEditable(err) {
			// The person removed it, or it is of a chat that moved: another one takes its place.
			if e.known[i], err = e.placeholder(ctx, i); err == nil {
				return e.again(), false
			}
			e.known = numbers(e.MessageIDs)
		}
		if err != nil {
			return e.failed(err), false
		}
		e.a.edited.put(e.ID, i+1)
	}
	if wait := e.overtaken(); wait > 0 {
		e.a.edited.drop(e.ID)
		return gateway.Retry(wait, "the answer is there; an earlier edit that had no answer may still replace it", e.ids()...), false
	}
	return out, true
}

// overtaken is how long an edit of the running turn, given up here or by a process before this one, may still reach the
// platform behind the answer. It is written once more after that.
func (e *delivery) overtaken() time.Duration {
	if e.TurnID == "" || !e.a.set.Streaming {
		return 0
	}
	wait := e.a.live.late(e.TurnID)
	if e.a.shelf.inherited(e.TurnID) {
		wait = max(wait, time.Until(e.a.started.Add(lateEdit)))
	}
	return wait
}

// inFlight is noted in place of the id of a file that is being sent.
const inFlight = -1

// sendFiles sends the files that are not sent yet, one an attempt, so that each is known before the next. What was sent,
// and that something is being sent, is noted beside what the supervisor knows, for the case that a report is lost.
func (e *delivery) sendFiles(ctx context.Context) gateway.Delivered {
	files := slices.Clone(e.known[len(e.parts):])
	noted := e.a.shelf.shownOf(e.fileKey())
	repeated := len(noted) > 0 && noted[len(noted)-1] == inFlight
	if repeated {
		noted = noted[:len(noted)-1]
	}
	if len(noted) > len(files) {
		files = noted
	}
	repeated = repeated && len(noted) == len(files)
	e.known = append(e.known[:len(e.parts):len(e.parts)], files...)
	if len(files) >= len(e.Files) {
		return gateway.Sent(e.ids()...)
	}
	if err := e.noteFiles(append(files, inFlight)); err != nil {
		return e.failed(fmt.Errorf("note that a file is being sent: %w", err))
	}
	next := e.Files[len(files)]
	id, err := e.a.sender.sendFile(ctx, e.target, next, repeated)
	if err != nil && mayHaveHappened(err) {
		return gateway.Unknown(fmt.Sprintf("%s: %v", next.Name, err), e.ids()...)
	}
	if err == nil {
		files = append(files, id)
		e.known = append(e.known, id)
	}
	if noting := e.noteFiles(files); noting != nil {
		e.a.log.Warn("a file is still noted as being sent", "delivery", e.ID, "error", noting)
	}
	switch {
	case err != nil:
		return e.failed(err)
	case len(files) < len(e.Files):
		return e.again()
	}
	return gateway.Sent(e.ids()...)
}

func (e *delivery) noteFiles(ids []int) error {
	return e.a.shelf.setShown(shown{Key: e.fileKey(), IDs: ids})
}

// failed says what a failure means for the delivery. Nothing of the answer was sent anew: placeholders and edits may be
// repeated, whatever became of them.
func (e *delivery) failed(err error) gateway.Delivered {
	var f *floodError
	switch wait, flooded := retryAfter(err); {
	case flooded:
		return gateway.Retry(wait, err.Error(), e.ids()...)
	case errors.As(err, &f):
		return gateway.Retry(f.after, err.Error(), e.ids()...)
	case isChatGone(err):
		return gateway.Rejected(err.Error())
	case isUnauthorised(err):
		return gateway.Retry(whenRefused, err.Error(), e.ids()...)
	case asAPI(err) != nil && !mayHaveHappened(err) && e.Attempt >= oddAttempts:
		return gateway.Rejected(err.Error())
	}
	return gateway.Retry(0, err.Error(), e.ids()...) // the supervisor's growing pause
}

func (e *delivery) ids() []string {
	out := make([]string, 0, len(e.known))
	for _, id := range e.known {
		out = append(out, strconv.Itoa(id))
	}
	return out
}

// numbers reads ids of messages. One that is none of ours counts as a message that cannot be edited.
func numbers(ids []string) []int {
	out := make([]int, 0, len(ids))
	for _, s := range ids {
		out = append(out, messageNumber(s))
	}
	return out
}

// messageNumber is the number that an id of a message begins with: those of albums and edits have more behind it.
func messageNumber(id string) int {
	end := strings.IndexFunc(id, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(id)
	}
	n, _ := strconv.Atoi(id[:end])
	return n
}

// keptDeliveries bounds the deliveries whose progress is remembered.
const keptDeliveries = 1024

// A progress remembers how many parts of a delivery were written by this process, so that an attempt for its files does
// not write them again. Forgetting it is harmless.
type progress struct {
	mu   sync.Mutex
	done map[int64]int
}

func (p *progress) get(id int64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done[id]
}

func (p *progress) put(id int64, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.done) >= keptDeliveries {
		clear(p.done)
	}
	p.done[id] = n
}

func (p *progress) drop(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.done, id)
}
