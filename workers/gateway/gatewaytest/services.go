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
	id := r.ChatId + "/" + r.MessageId
	if t, ok := h.inbox[id]; ok {
		if known := t.Message.Fingerprint; known != "" && r.Fingerprint != "" && known != r.Fingerprint {
			return nil, fmt.Errorf("message %s: %w", r.MessageId, ipc.ErrExists)
		}
		h.repeats++
		return &hostv1.AcceptResponse{TurnId: t.ID, SessionId: t.SessionID, Duplicate: true}, nil
	}
	session, err := h.session(r)
	if err != nil {
		return nil, err
	}
	t := &Turn{
		ID: fmt.Sprintf("turn_%d", len(h.turns)+1), SessionID: session, Message: r, h: h, step: 1,
		interrupt: make(chan struct{}), approvals: map[string]*approval{}, texts: map[uint32]string{},
	}
	h.inbox[id], h.byID[t.ID] = t, t
	h.turns = append(h.turns, t)
	h.enqueue("session/"+session, func() { h.run(t) })
	if h.adapter != nil && h.adapter.push {
		h.showTurn(h.adapter, t)
	}
	h.change()
	return &hostv1.AcceptResponse{TurnId: t.ID, SessionId: session}, nil
}

// session finds or opens the session of a message. With mu held.
func (h *Host) session(r *hostv1.AcceptRequest) (string, error) {
	if r.SessionId != "" {
		for _, known := range h.sessions {
			if known == r.SessionId {
				return known, nil
			}
		}
		return "", fmt.Errorf("session %s: %w", r.SessionId, ipc.ErrNotFound)
	}
	key := r.SessionKey
	if key == "" {
		key = keyOf(r)
	}
	if id, ok := h.sessions[key]; ok && !r.NewSession {
		return id, nil
	}
	id := fmt.Sprintf("20260101_000000_%08x", len(h.turns)+1)
	h.sessions[key] = id
	return id, nil
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
	if !t.stopped {
		t.stopped = true
		close(t.interrupt)
		s.h.change()
	}
	return &hostv1.InterruptResponse{Interrupted: true}, nil
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
