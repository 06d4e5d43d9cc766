package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

// ErrTooLarge is the answer to a message that does not fit into one call to the supervisor.
var ErrTooLarge = errors.New("message is too large")

// acceptMargin is kept free below ipc.MaxMessageBytes for what gRPC adds.
const acceptMargin = 4 << 10

// Services is the supervisor as an adapter sees it. All methods are safe for concurrent use; errors are of the
// kinds of package ipc.
type Services struct {
	host *workers.Host
}

// NewServices returns the services over host. The frame makes them; tests of an adapter do too.
func NewServices(host *workers.Host) *Services { return &Services{host: host} }

// Accept stores a message and queues its turn. Only after it returned nil may the message be acknowledged to the
// platform; after an error the same message is handed over again (it is then a duplicate if it had been stored).
// ErrTooLarge, ipc.ErrInvalid, ipc.ErrNotFound (SessionID) and ipc.ErrExists (Fingerprint) are the message's own
// fault: repeating it does not help.
func (s *Services) Accept(ctx context.Context, m Message) (Accepted, error) {
	defer s.host.Work.Begin()()
	req := &hostv1.AcceptRequest{
		ChatId: m.ChatID, ThreadId: m.ThreadID, MessageId: m.ID,
		SessionKey: m.SessionKey, SessionId: m.SessionID, NewSession: m.NewSession,
		ChatType: m.ChatType, UserId: m.UserID, UserName: m.UserName,
		Text: withFiles(m.Text, m.Files), Fingerprint: m.Fingerprint,
		History: m.History, SystemPrompt: m.System, Model: m.Model, Busy: m.Busy,
	}
	if n := proto.Size(req); n > ipc.MaxMessageBytes-acceptMargin {
		return Accepted{}, fmt.Errorf("accept %s: %w: %d bytes, the limit is %d", m.ID, ErrTooLarge, n, ipc.MaxMessageBytes-acceptMargin)
	}
	r, err := s.host.Inbox.Accept(ctx, req)
	if err != nil {
		return Accepted{}, fmt.Errorf("accept %s: %w", m.ID, err)
	}
	return Accepted{
		TurnID: r.TurnId, SessionID: r.SessionId, Duplicate: r.Duplicate, Disposition: r.Disposition, Ahead: int(r.Ahead),
	}, nil
}

// Follow passes the events of a turn to see, in order, and returns the final one. It begins with what has happened so
// far: a started event and the text as snapshots. A follower that is too slow for the supervisor is taken on again
// in the same way. An error of see ends it with that error.
func (s *Services) Follow(ctx context.Context, turnID string, see func(*turnv1.TurnEvent) error) (*turnv1.Final, error) {
	for {
		final, behind, err := s.followOnce(ctx, turnID, see)
		if !behind {
			return final, err
		}
	}
}

// followOnce returns behind if the supervisor let go of this follower because it was too slow.
func (s *Services) followOnce(ctx context.Context, turnID string, see func(*turnv1.TurnEvent) error) (final *turnv1.Final, behind bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream when see fails
	stream, err := s.host.Turns.Follow(ctx, &hostv1.FollowRequest{TurnId: turnID})
	if err != nil {
		return nil, false, fmt.Errorf("follow %s: %w", turnID, err)
	}
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, false, fmt.Errorf("follow %s: ended before the answer: %w", turnID, ipc.ErrGone)
		case err != nil:
			return nil, errors.Is(err, ipc.ErrBusy), fmt.Errorf("follow %s: %w", turnID, err)
		}
		if final := event.GetFinal(); final != nil {
			return final, false, nil
		}
		if err := see(event); err != nil {
			return nil, false, err
		}
	}
}

// Interrupt asks a turn to end with what it has. It returns false if the turn had ended.
func (s *Services) Interrupt(ctx context.Context, turnID, reason string) (bool, error) {
	r, err := s.host.Turns.Interrupt(ctx, &hostv1.InterruptRequest{TurnId: turnID, Reason: reason})
	if err != nil {
		return false, fmt.Errorf("interrupt %s: %w", turnID, err)
	}
	return r.Interrupted, nil
}

// Decide answers an approval request. What holds is returned, which is an earlier decision if there was one.
func (s *Services) Decide(ctx context.Context, approvalID string, approve bool) (approved, before bool, err error) {
	r, err := s.host.Turns.Decide(ctx, &hostv1.DecideRequest{ApprovalId: approvalID, Approve: approve})
	if err != nil {
		return false, false, fmt.Errorf("decide %s: %w", approvalID, err)
	}
	return r.Approved, r.DecidedBefore, nil
}

// Secret returns a secret of this worker by its name in .env. One that is not set is "", without an error.
func (s *Services) Secret(ctx context.Context, name string) (string, error) {
	r, err := s.host.Config.Secret(ctx, &hostv1.SecretRequest{Name: name})
	switch {
	case errors.Is(err, ipc.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("secret %s: %w", name, err)
	}
	return r.Value, nil
}

// Publish puts an event on the supervisor's timeline. It is told, not relied upon: a failure is only logged.
func (s *Services) Publish(ctx context.Context, kind, message string, fields map[string]string) {
	req := &hostv1.PublishRequest{Kind: kind, Message: message, Fields: maps.Clone(fields)}
	if _, err := s.host.Events.Publish(ctx, req); err != nil {
		s.host.Log.Warn("event not published", "kind", kind, "message", message, "error", err)
	}
}

// Begin counts a unit of work that the frame does not see (an answer that a client waits for) as running until end
// is called. A drain waits for it.
func (s *Services) Begin() (end func()) { return s.host.Work.Begin() }

// Received counts a completed receive (a poll that returned, with or without messages) as work done.
func (s *Services) Received() { s.host.Work.Step() }
