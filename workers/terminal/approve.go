package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// An approver puts questions of tools to the person, one at a time, while the turn goes on.
type approver struct {
	client *Client
	screen *screen
	keys   *keys // nil: nobody can be asked, and the answer is no at once
	warn   func(string)

	mu      sync.Mutex
	asked   map[string]*question // by approval id
	running sync.WaitGroup
	turn    chan struct{} // holds one while a question is on the screen
}

// A question is what a person is asked about one call. The approver's mu guards what changes.
type question struct {
	*turnv1.ApprovalRequest
	open     context.Context // ends with the question: by a decision, by its deadline or with the turn
	close    context.CancelFunc
	silence  *time.Timer // closes it
	deadline int64       // the one that holds, Unix milliseconds
	shown    bool
	settled  bool // answered here or decided; what is merely over can be asked again
}

func (q *question) left() time.Duration { return time.Until(time.UnixMilli(q.deadline)) }

func newApprover(client *Client, s *screen, k *keys, warn func(string)) *approver {
	return &approver{client: client, screen: s, keys: k, warn: warn, asked: map[string]*question{}, turn: make(chan struct{}, 1)}
}

// ask puts a question in the background. It comes again with each connection, and with a new deadline when a new supervisor
// asks it: then it has that one, and is put anew if its time was over.
func (a *approver) ask(ctx context.Context, r *turnv1.ApprovalRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.asked[r.ApprovalId]
	switch {
	case q != nil && (q.settled || q.deadline == r.DeadlineMs):
		return
	case q != nil && q.silence.Stop():
		q.deadline = r.DeadlineMs
		q.silence.Reset(q.left())
		if q.shown {
			a.screen.tell(prompting(q.left()))
		}
		return
	}
	q = &question{ApprovalRequest: r, deadline: r.DeadlineMs}
	q.open, q.close = context.WithCancel(ctx)
	q.silence = time.AfterFunc(q.left(), q.close)
	a.asked[r.ApprovalId] = q
	a.running.Go(func() {
		select {
		case a.turn <- struct{}{}:
			a.put(ctx, q)
			<-a.turn
		case <-q.open.Done():
		}
	})
}

func prompting(left time.Duration) string {
	return fmt.Sprintf("  allow it? y or n, no answer within %s means no", left.Round(time.Second))
}

// decided ends a question that was answered elsewhere or by time. An answer that is on its way arrives all the same.
func (a *approver) decided(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.asked[id]; q != nil {
		q.settled = true
		q.silence.Stop()
		q.close()
	}
}

// end takes all questions away.
func (a *approver) end() {
	a.mu.Lock()
	for _, q := range a.asked {
		q.silence.Stop()
		q.close()
	}
	a.mu.Unlock()
	a.running.Wait()
}

// put asks until there is an answer, and sends it: while ctx lasts, which may be longer than the question.
func (a *approver) put(ctx context.Context, q *question) {
	if q.open.Err() != nil {
		return
	}
	text := fmt.Sprintf("? %s wants to do this: %s\n  why you are asked: %s", q.Tool, flat(q.Summary, 500), flat(q.Reason, 200))
	if a.keys == nil {
		a.warn(text + "\n  there is no terminal to ask you at, so it is not done (see approvals.mode)")
		a.answer(ctx, q, false)
		return
	}
	a.screen.tell(text)
	for {
		a.mu.Lock()
		q.shown = true
		a.screen.tell(prompting(q.left()))
		a.mu.Unlock()
		line, err := a.keys.line(q.open)
		switch {
		case errors.Is(err, io.EOF):
			a.answer(ctx, q, false)
			return
		case err != nil:
			return // decided elsewhere, or the time is over
		}
		if yes, ok := yesOrNo(line); ok {
			a.answer(ctx, q, yes)
			return
		}
	}
}

// answer sends what a person said, if it still matters.
func (a *approver) answer(ctx context.Context, q *question, yes bool) {
	a.mu.Lock()
	late := q.settled || !q.silence.Stop()
	q.settled = q.settled || !late // one that is over may be asked again
	a.mu.Unlock()
	if late {
		a.screen.tell("  too late: the question is over")
		return
	}
	a.send(ctx, q.ApprovalId, yes)
}

// yesOrNo understands what people type.
func yesOrNo(line string) (yes, ok bool) {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes", "ok", "allow", "approve", "/approve":
		return true, true
	case "n", "no", "deny", "/deny":
		return false, true
	}
	return false, false
}

// send tells the supervisor, also over its restart: an answer must not be given twice.
func (a *approver) send(ctx context.Context, id string, yes bool) {
	for try := 0; ; try++ {
		holds, err := a.client.Decide(ctx, id, yes)
		switch {
		case err == nil && holds != yes:
			a.screen.tell("  it was decided otherwise before")
			return
		case err == nil || errors.Is(err, ipc.ErrNotFound):
			return
		case !again(err) || ctx.Err() != nil:
			a.screen.tell(fmt.Sprintf("  the answer did not arrive: %v", err))
			return
		}
		if a.client.sleep(ctx, delay(try)) != nil {
			return
		}
	}
}
