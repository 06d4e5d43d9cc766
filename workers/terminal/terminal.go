package terminal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// leaveWithin is the time within which a second Ctrl-C leaves.
const leaveWithin = 2 * time.Second

// errLeft says that the person left, errUnsent that it was before the supervisor had taken the message.
var (
	errLeft   = errors.New("left")
	errUnsent = fmt.Errorf("%w before the message was taken", errLeft)
)

// A conversation is what all ways of asking share.
type conversation struct {
	client  *Client
	screen  *screen
	keys    *keys        // nil if nobody can answer a question
	warn    func(string) // says what must not be missed where nobody looks at the screen
	signals <-chan os.Signal
	now     func() time.Time

	pressed breaks

	chatID    string
	user      string
	sessionID string
	fresh     bool // the next message begins a session
}

// breaks remembers Ctrl-C over the end of an answer: a person who presses it twice wants to leave, also when the first one
// has ended the answer before the second one comes.
type breaks struct {
	mu   sync.Mutex
	last time.Time
}

// again notes a Ctrl-C and says whether it is the second one within leaveWithin.
func (b *breaks) again(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	second := !b.last.IsZero() && now.Sub(b.last) < leaveWithin
	b.last = now
	return second
}

// forget begins anew: what is pressed next is about something else.
func (b *breaks) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = time.Time{}
}

// ask sends one message and shows its turn.
func (c *conversation) ask(ctx context.Context, text string) (*turnv1.Final, error) {
	return c.follow(ctx, Message{
		ID: rand.Text(), ChatID: c.chatID, Text: strings.ToValidUTF8(text, "\uFFFD"), SessionID: c.sessionID, NewSession: c.fresh, User: c.user,
	})
}

// follow shows the turn of a message. Ctrl-C interrupts it; a second one within leaveWithin returns errLeft.
func (c *conversation) follow(ctx context.Context, m Message) (*turnv1.Final, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.screen.begin()
	c.pressed.forget()
	t := &turn{conversation: c, ctx: ctx, approver: newApprover(c.client, c.screen, c.keys, c.warn)}
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	left := false
	watching.Go(func() {
		if left = t.watchSignals(ctx); left {
			cancel()
		}
	})
	final, err := c.client.Ask(ctx, m, t)
	cancel()
	watching.Wait()
	t.approver.end()
	if left && t.turnID() == "" {
		return nil, errUnsent
	}
	if left {
		return nil, errLeft
	}
	if err != nil {
		return nil, err
	}
	c.fresh = false
	c.screen.final(final)
	return final, nil
}

// A turn is one message on its way.
type turn struct {
	*conversation
	ctx      context.Context
	approver *approver

	mu sync.Mutex
	id string
}

// Accepted is called at each connect.
func (t *turn) Accepted(turnID, _ string) {
	t.mu.Lock()
	t.id = turnID
	t.mu.Unlock()
	t.screen.rejoin()
}

// Show is called with each event.
func (t *turn) Show(ev *turnv1.TurnEvent) {
	if r := ev.GetApproval(); r != nil {
		t.approver.ask(t.ctx, r)
		return
	}
	if d := ev.GetDecision(); d != nil {
		t.approver.decided(d.ApprovalId)
	}
	t.screen.show(ev)
}

// watchSignals interrupts the turn at the first Ctrl-C and returns true at a second one, or at once when the process is
// to end.
func (t *turn) watchSignals(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case s := <-t.signals:
			if s != os.Interrupt || t.pressed.again(t.now()) {
				return true
			}
			t.interrupt(ctx)
		}
	}
}

// turnID is empty until the message is taken.
func (t *turn) turnID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
}

func (t *turn) interrupt(ctx context.Context) {
	id := t.turnID()
	if id == "" {
		t.screen.tell("(not sent yet; Ctrl-C again leaves)")
		return
	}
	t.screen.tell("(interrupting; Ctrl-C again leaves and lets it go on)")
	if err := t.client.Interrupt(ctx, id); err != nil && ctx.Err() == nil {
		t.screen.tell(fmt.Sprintf("(could not interrupt: %v)", err))
	}
}

// catchSignals makes Ctrl-C and the signals that end a process arrive on a channel. The returned function ends that.
func catchSignals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// attend does what Ctrl-C ends, and returns errBroken then; errLeft when the process is to end.
func (c *conversation) attend(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var caught error
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case s := <-c.signals:
			if caught = errLeft; s == os.Interrupt {
				caught = errBroken
			}
			cancel()
		}
	})
	err := do(ctx)
	cancel()
	watching.Wait()
	if caught != nil && (err != nil || errors.Is(caught, errLeft)) {
		return caught
	}
	return err
}

// lines is the chat where input is no terminal: each line is a message, answered before the next one is read. While a
// tool waits for a yes, the next line is the answer.
func (c *conversation) lines(ctx context.Context) error {
	for {
		var text string
		err := c.attend(ctx, func(ctx context.Context) (err error) {
			text, err = c.keys.line(ctx)
			return err
		})
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBroken):
			return errLeft
		case err != nil:
			return err
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		handled, err := c.command(ctx, text)
		if errors.Is(err, errQuit) {
			return nil
		}
		if !handled {
			_, err = c.ask(ctx, text)
		}
		if err != nil {
			return err
		}
	}
}
