package turn

import (
	"context"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// openText is how much of a message a list of turns shows.
const openText = 200

// ListOpen returns the open turns of a chat or session of the gateway's platform.
func (s *turnsService) ListOpen(ctx context.Context, r *hostv1.ListTurnsRequest) (*hostv1.ListTurnsResponse, error) {
	chat := r.ChatId
	if chat == "" && r.SessionId != "" {
		chat = "-" // the session says which
	}
	place, err := s.hub.placeOf(ctx, &hostv1.Place{ChatId: chat, ThreadId: r.ThreadId, SessionId: r.SessionId})
	if err != nil {
		return nil, err
	}
	open, err := s.hub.store.OpenIn(ctx, place)
	if err != nil {
		return nil, wrap(err, "open turns of chat %q", r.ChatId)
	}
	resp := &hostv1.ListTurnsResponse{}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, t := range open {
		p := &hostv1.OpenTurn{
			TurnId: t.ID, SessionId: t.SessionID, ChatId: t.ChatID, ThreadId: t.ThreadID, MessageId: t.MessageID, UserId: t.UserID,
			UserName: t.UserName, Stopping: t.Stopped, AcceptedAt: unixSeconds(t.AcceptedAt), StartedAt: unixSeconds(t.LeasedAt), Text: oneLine(t.Text, openText),
		}
		if l := s.hub.turns[t.ID]; l != nil {
			p.Running, p.Stopping = l.lease != nil, l.stopped
		}
		resp.Turns = append(resp.Turns, p)
	}
	return resp, nil
}

// Retry answers the last message of a session anew.
func (s *turnsService) Retry(ctx context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error) {
	in, err := s.inbound(ctx, r.Place, r.MessageId, r.UserId, r.UserName)
	if err != nil {
		return nil, err
	}
	a, text, err := s.hub.Retry(ctx, in)
	if err != nil {
		return nil, err
	}
	return &hostv1.RetryResponse{TurnId: a.TurnID, SessionId: a.SessionID, Duplicate: a.Duplicate, Text: cut(text, maxText)}, nil
}

// Steer hands a text to the running turn of a session.
func (s *turnsService) Steer(ctx context.Context, r *hostv1.SteerRequest) (*hostv1.SteerResponse, error) {
	in, err := s.inbound(ctx, r.Place, r.MessageId, r.UserId, r.UserName)
	if err != nil {
		return nil, err
	}
	in.Text, in.Busy = r.Text, store.BusySteer
	a, err := s.hub.Accept(ctx, in)
	if err != nil {
		return nil, err
	}
	return &hostv1.SteerResponse{TurnId: a.TurnID, SessionId: a.SessionID, Duplicate: a.Duplicate, Disposition: dispositions[a.Disposition]}, nil
}

// inbound makes a message of a command.
func (s *turnsService) inbound(ctx context.Context, p *hostv1.Place, messageID, userID, userName string) (store.Inbound, error) {
	place, err := s.hub.placeOf(ctx, p)
	if userID == "" {
		userID = place.UserID
	}
	return store.Inbound{
		Platform: place.Platform, ChatID: place.ChatID, ThreadID: place.ThreadID, ChatType: place.ChatType, SessionKey: place.SessionKey,
		SessionID: place.SessionID, MessageID: messageID, UserID: userID, UserName: userName,
	}, err
}
