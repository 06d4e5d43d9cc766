// Package terminal is the chat in a terminal: a client of the control socket that sends messages, shows what becomes
// of them and lets a person answer, interrupt and leave.
//
// Rules: a message has an id before it is sent, and is sent again under the same id until it is answered, so a
// supervisor that dies in between neither loses nor doubles it. A crash of this program touches nothing: the turn goes
// on without it. What comes from a model or a tool is text and never a command to the terminal.
package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// A Message is what a person wrote, to be answered once.
type Message struct {
	ID         string // the same id is the same message
	ChatID     string
	Text       string
	SessionID  string // empty: the chat's current one
	NewSession bool
	User       string
	// Retry asks for the last message of the session again: it has no text of its own.
	Retry bool
}

// A Client asks the supervisor behind a control socket.
type Client struct {
	chat     controlv1.ChatClient
	sessions hostv1.SessionsClient
	turns    hostv1.TurnsClient
	sleep    func(ctx context.Context, d time.Duration) error
	// patience is how long a supervisor may be gone; 0 means for ever.
	patience time.Duration
	now      func() time.Time
	// gone and back are told once each time the supervisor is lost and found again.
	gone func(error)
	back func()
}

const (
	firstDelay = 50 * time.Millisecond
	// maxDelay bounds the wait between two looks for the supervisor: a restart takes about a second.
	maxDelay = 2 * time.Second
)

// Dial returns a connection to a control socket. It connects when it is used, and again whenever it was lost.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, append(ipc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// gRPC's own backoff grows to two minutes, which is meant for networks.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstDelay, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	)...)
}

// NewClient returns a client over conn that waits for a lost supervisor as long as patience allows, 0 for ever.
func NewClient(conn grpc.ClientConnInterface, patience time.Duration) *Client {
	return &Client{
		chat: controlv1.NewChatClient(conn), sessions: hostv1.NewSessionsClient(conn), turns: hostv1.NewTurnsClient(conn),
		patience: patience, now: time.Now, sleep: sleep,
		gone: func(error) {}, back: func() {},
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// A Follower sees a turn.
type Follower interface {
	// Accepted tells which turn the message became, at each connect.
	Accepted(turnID, sessionID string)
	// Show tells of an event. After each Accepted events begin anew: what is known already comes again.
	Show(*turnv1.TurnEvent)
}

// Ask sends m and follows its turn to the end. It returns an error when ctx ends, when the supervisor refuses the
// message, or when it is gone longer than patience.
func (c *Client) Ask(ctx context.Context, m Message, f Follower) (*turnv1.Final, error) {
	var lostAt time.Time
	accepted := ""
	for try := 0; ; try++ {
		final, err := c.once(ctx, m, f, func(turnID string) {
			if accepted = turnID; !lostAt.IsZero() {
				c.back()
			}
			lostAt, try = time.Time{}, 0
		})
		if err == nil || ctx.Err() != nil || !again(err) {
			return final, err
		}
		if c.patience > 0 && accepted == "" && errors.Is(err, ipc.ErrFull) {
			return nil, err // room comes by a person, who should hear of it now, not after a minute of silence
		}
		if lostAt.IsZero() {
			lostAt = c.now()
			c.gone(err)
		}
		if c.patience > 0 && c.now().Sub(lostAt) > c.patience {
			return nil, gaveUp(err, accepted, c.patience)
		}
		if err := c.sleep(ctx, delay(try)); err != nil {
			return nil, err
		}
	}
}

// insist makes a call again until a supervisor answers it.
func (c *Client) insist(ctx context.Context, call func() error) error {
	lost := false
	for try := 0; ; try++ {
		err := call()
		if err == nil || ctx.Err() != nil || !again(err) {
			if lost && ctx.Err() == nil {
				c.back()
			}
			return err
		}
		if !lost {
			lost = true
			c.gone(err)
		}
		if err := c.sleep(ctx, delay(try)); err != nil {
			return err
		}
	}
}

// gaveUp says what is known about a message whose supervisor did not come back.
func gaveUp(err error, turnID string, after time.Duration) error {
	if turnID == "" {
		return fmt.Errorf("no supervisor took the message within %v: %w", after, err)
	}
	return fmt.Errorf("the message was taken as turn %s, but the supervisor has been gone for %v; it will be answered after the next start: %w", turnID, after, err)
}

// once sends the message, again or not, and follows until the end or a failure.
func (c *Client) once(ctx context.Context, m Message, f Follower, connected func(turnID string)) (*turnv1.Final, error) {
	turn, session, err := c.send(ctx, m)
	if err != nil {
		return nil, err
	}
	connected(turn)
	f.Accepted(turn, session)
	stream, err := c.chat.Follow(ctx, &controlv1.FollowRequest{TurnId: turn})
	if err != nil {
		return nil, err
	}
	for {
		ev, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			// The end of a stream without a final event is a supervisor that goes.
			return nil, fmt.Errorf("turn %s: %w before its end", turn, ipc.ErrGone)
		case err != nil:
			return nil, err
		}
		if final := ev.GetFinal(); final != nil {
			return final, nil
		}
		f.Show(ev)
	}
}

// send hands a message over and returns what it became. The same message again is answered as the first time.
func (c *Client) send(ctx context.Context, m Message) (turn, session string, err error) {
	if m.Retry {
		r, err := c.turns.Retry(ctx, &hostv1.RetryRequest{
			Place: &hostv1.Place{ChatId: m.ChatID, ChatType: "dm", SessionId: m.SessionID}, MessageId: m.ID, UserName: m.User,
		})
		return r.GetTurnId(), r.GetSessionId(), err
	}
	r, err := c.chat.Send(ctx, &controlv1.SendRequest{
		ChatId: m.ChatID, MessageId: m.ID, Text: m.Text, SessionId: m.SessionID, NewSession: m.NewSession, UserName: m.User,
	})
	return r.GetTurnId(), r.GetSessionId(), err
}

// again says whether the same call may do better later.
func again(err error) bool {
	for _, kind := range []error{ipc.ErrGone, ipc.ErrTimeout, ipc.ErrBusy, ipc.ErrCancelled} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// delay grows with the tries; the jitter keeps many clients from coming back in one moment.
func delay(try int) time.Duration {
	d := min(firstDelay<<min(try, 10), maxDelay)
	return d/2 + rand.N(d/2+1)
}

// Interrupt asks a turn to end with what it has.
func (c *Client) Interrupt(ctx context.Context, turnID string) error {
	_, err := c.chat.Interrupt(ctx, &controlv1.InterruptRequest{TurnId: turnID})
	return err
}

// Decide answers an approval; it returns what holds.
func (c *Client) Decide(ctx context.Context, approvalID string, approve bool) (bool, error) {
	r, err := c.chat.Decide(ctx, &controlv1.DecideRequest{ApprovalId: approvalID, Approve: approve})
	return r.GetApproved(), err
}

// Notices shows what is addressed to a chat and acknowledges it, until ctx ends.
func (c *Client) Notices(ctx context.Context, chatID string, show func(text string)) {
	shown := map[int64]bool{}
	for try := 0; ; try++ {
		_ = c.notices(ctx, chatID, func(n *controlv1.OutboxNotice) error {
			try = 0
			if !shown[n.OutboxId] {
				shown[n.OutboxId] = true
				show(n.Text)
			}
			_, err := c.chat.Acknowledge(ctx, &controlv1.AcknowledgeRequest{OutboxId: n.OutboxId})
			return err
		})
		if c.sleep(ctx, delay(try)) != nil {
			return
		}
	}
}

func (c *Client) notices(ctx context.Context, chatID string, each func(*controlv1.OutboxNotice) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream when an acknowledgement failed
	stream, err := c.chat.Notices(ctx, &controlv1.NoticesRequest{ChatId: chatID})
	if err != nil {
		return err
	}
	for {
		n, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := each(n); err != nil {
			return err
		}
	}
}
