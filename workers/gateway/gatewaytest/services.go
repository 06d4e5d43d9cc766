package gatewaytest

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

type inboxService struct {
	hostv1.UnimplementedInboxServer
	h *Host
}

func (s *inboxService) Accept(_ context.Context, r *hostv1.AcceptRequest) (*hostv1.AcceptResponse, error) {
	if s.h.pass(BeforeAccept) {
		return nil, fmt.Errorf("accept: %w", ipc.ErrGone)
	}
	a, err := s.h.accept(r)
	if err == nil && s.h.pass(AfterAccept) {
		return nil, fmt.Errorf("accept: %w", ipc.ErrGone)
	}
	return a, err
}

func (h *Host) accept(r *hostv1.AcceptRequest) (*hostv1.AcceptResponse, error) {
	if r.MessageId == "" || r.ChatId == "" || r.Text == "" {
		return nil, fmt.Errorf("a message needs a chat, an id and a text: %w", ipc.ErrInvalid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	a, err := h.Desk.Accept(r, fmt.Sprintf("turn_%d", len(h.turns)+1))
	switch {
	case err != nil:
		return nil, err
	case a.Duplicate:
		h.repeats++
		return a, nil
	case a.Interrupted != "":
		h.byID[a.Interrupted].stop()
	}
	if a.Disposition != hostv1.Disposition_DISPOSITION_STEERED {
		h.launch(a.TurnId, a.SessionId, r)
	}
	h.change()
	return a, nil
}

// launch begins the life of a turn. With mu held.
func (h *Host) launch(id, session string, r *hostv1.AcceptRequest) {
	t := &Turn{
		ID: id, SessionID: session, Message: r, h: h, step: 1,
		interrupt: make(chan struct{}), approvals: map[string]*approval{}, texts: map[uint32]string{},
	}
	h.byID[t.ID] = t
	h.turns = append(h.turns, t)
	h.enqueue("session/"+session, func() { h.run(t) })
	if h.adapter != nil && h.adapter.push {
		h.showTurn(h.adapter, t)
	}
}

type turnsService struct {
	hostv1.UnimplementedTurnsServer
	h *Host
}

func (s *turnsService) turn(id string) (*Turn, error) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	t, ok := s.h.byID[id]
	if !ok {
		return nil, fmt.Errorf("turn %s: %w", id, ipc.ErrNotFound)
	}
	return t, nil
}

func (s *turnsService) Follow(r *hostv1.FollowRequest, out grpc.ServerStreamingServer[turnv1.TurnEvent]) error {
	t, err := s.turn(r.TurnId)
	if err != nil {
		return err
	}
	return s.h.follow(out.Context(), t, out.Send)
}

func (s *turnsService) Interrupt(_ context.Context, r *hostv1.InterruptRequest) (*hostv1.InterruptResponse, error) {
	t, err := s.turn(r.TurnId)
	if err != nil {
		return nil, err
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if t.final != nil {
		return &hostv1.InterruptResponse{}, nil
	}
	t.stop()
	return &hostv1.InterruptResponse{Interrupted: true}, nil
}

func (s *turnsService) ListOpen(_ context.Context, r *hostv1.ListTurnsRequest) (*hostv1.ListTurnsResponse, error) {
	return s.h.Desk.ListOpen(r), nil
}

func (s *turnsService) Retry(_ context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	out, err := s.h.Desk.Retry(r, fmt.Sprintf("turn_%d", len(s.h.turns)+1))
	if err == nil && !out.Duplicate {
		s.h.launch(out.TurnId, out.SessionId, &hostv1.AcceptRequest{
			ChatId: r.Place.ChatId, ThreadId: r.Place.ThreadId, MessageId: r.MessageId, UserId: r.UserId, UserName: r.UserName, Text: out.Text,
		})
		s.h.change()
	}
	return out, err
}

func (s *turnsService) Steer(_ context.Context, r *hostv1.SteerRequest) (*hostv1.SteerResponse, error) {
	a, err := s.h.accept(&hostv1.AcceptRequest{
		ChatId: r.Place.ChatId, ThreadId: r.Place.ThreadId, ChatType: r.Place.ChatType, SessionKey: r.Place.SessionKey, SessionId: r.Place.SessionId,
		MessageId: r.MessageId, UserId: r.UserId, UserName: r.UserName, Text: r.Text, Busy: hostv1.Busy_BUSY_STEER,
	})
	if err != nil {
		return nil, err
	}
	return &hostv1.SteerResponse{TurnId: a.TurnId, SessionId: a.SessionId, Duplicate: a.Duplicate, Disposition: a.Disposition}, nil
}

// hookedConfirmations lets a test kill the adapter around a person's answer.
type hookedConfirmations struct {
	hostv1.ConfirmationsServer
	h *Host
}

func (s *hookedConfirmations) Answer(ctx context.Context, r *hostv1.AnswerRequest) (*hostv1.Confirmation, error) {
	c, err := s.ConfirmationsServer.Answer(ctx, r)
	if err == nil && s.h.pass(AfterAnswer) {
		return nil, fmt.Errorf("answer: %w", ipc.ErrGone)
	}
	return c, err
}

func (s *hookedConfirmations) Done(ctx context.Context, r *hostv1.DoneRequest) (*hostv1.DoneResponse, error) {
	if s.h.pass(BeforeDone) {
		return nil, fmt.Errorf("done: %w", ipc.ErrGone)
	}
	return s.ConfirmationsServer.Done(ctx, r)
}

func (s *turnsService) Decide(_ context.Context, r *hostv1.DecideRequest) (*hostv1.DecideResponse, error) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	for _, t := range s.h.turns {
		a, ok := t.approvals[r.ApprovalId]
		if !ok {
			continue
		}
		before := a.decided
		if !before {
			a.decided, a.approved = true, r.Approve
			t.emit(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_Decision{Decision: &turnv1.ApprovalDecision{
				ApprovalId: r.ApprovalId, Approved: r.Approve, By: "user",
			}}})
		}
		return &hostv1.DecideResponse{Approved: a.approved, DecidedBefore: before}, nil
	}
	return nil, fmt.Errorf("approval %s: %w", r.ApprovalId, ipc.ErrNotFound)
}

type configService struct {
	hostv1.UnimplementedConfigServer
	h *Host
}

func (s *configService) Secret(_ context.Context, r *hostv1.SecretRequest) (*hostv1.SecretResponse, error) {
	v, ok := s.h.Secrets[r.Name]
	if !ok {
		return nil, fmt.Errorf("secret %s: %w", r.Name, ipc.ErrNotFound)
	}
	return &hostv1.SecretResponse{Value: v}, nil
}

type eventsService struct {
	hostv1.UnimplementedEventsServer
	h *Host
}

func (s *eventsService) Publish(_ context.Context, r *hostv1.PublishRequest) (*hostv1.PublishResponse, error) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.events = append(s.h.events, r)
	s.h.change()
	return &hostv1.PublishResponse{}, nil
}
