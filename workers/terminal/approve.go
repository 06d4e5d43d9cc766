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
	now    func() time.Time

	mu      sync.Mutex
	asked   map[string]context.CancelFunc // by approval id
	running sync.WaitGroup
	turn    sync.Mutex // held by the question that is on the screen
}

func newApprover(client *Client, s *screen, k *keys, warn func(string)) *approver {
	return &approver{client: client, screen: s, keys: k, warn: warn, now: time.Now, asked: map[string]context.CancelFunc{}}
}

// ask puts a question once, in the background.
func (a *approver) ask(ctx context.Context, r *turnv1.ApprovalRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[r.ApprovalId] != nil {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, time.UnixMilli(r.DeadlineMs))
	a.asked[r.ApprovalId] = cancel
	a.running.Go(func() {
		a.turn.Lock()
		defer a.turn.Unlock()
		if ctx.Err() == nil {
			a.question(ctx, r)
		}
	})
}

// decided ends a question that was answered elsewhere or by time.
func (a *approver) decided(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.asked[id]; cancel != nil {
		cancel()
	}
}

// end takes all questions away.
func (a *approver) end() {
	a.mu.Lock()
	for _, cancel := range a.asked {
		cancel()
	}
	a.mu.Unlock()
	a.running.Wait()
}

func (a *approver) question(ctx context.Context, r *turnv1.ApprovalRequest) {
	text := fmt.Sprintf("? %s wants to do this: %s\n  why you are asked: %s", r.Tool, flat(r.Summary, 500), flat(r.Reason, 200))
	if a.keys == nil {
		a.warn(text + "\n  there is no terminal to ask you at, so it is not done (see approvals.mode)")
		a.send(ctx, r.ApprovalId, false)
		return
	}
	left := time.UnixMilli(r.DeadlineMs).Sub(a.now()).Round(time.Second)
	a.screen.tell(text)
	for {
		a.screen.tell(fmt.Sprintf("  allow it? y or n, no answer within %s means no", left))
		line, err := a.keys.line(ctx)
		switch {
		case errors.Is(err, io.EOF):
			a.send(ctx, r.ApprovalId, false)
			return
		case err != nil:
			return // decided elsewhere, or the time is over
		}
		if yes, ok := yesOrNo(line); ok {
			a.send(ctx, r.ApprovalId, yes)
			return
		}
	}
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
