package turn

import (
	"context"
	"fmt"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

type inboxService struct {
	hostv1.UnimplementedInboxServer
	hub *Hub
}

// Accept takes a message from a gateway, in the name of that gateway's platform.
func (s *inboxService) Accept(ctx context.Context, r *hostv1.AcceptRequest) (*hostv1.AcceptResponse, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	key, err := ownKey(platform, r.SessionKey)
	if err != nil {
		return nil, err
	}
	in := store.Inbound{
		Platform: platform, ChatID: r.ChatId, ThreadID: r.ThreadId, MessageID: r.MessageId,
		SessionKey: key, SessionID: r.SessionId, NewSession: r.NewSession, ChatType: r.ChatType, UserID: r.UserId, UserName: r.UserName, Text: r.Text,
		History: messagesFromProto(r.History), System: r.SystemPrompt, Model: r.Model, Fingerprint: r.Fingerprint,
		Busy: busyFromProto(r.Busy),
	}
	if err := s.hub.ownSession(ctx, platform, r.SessionId); err != nil {
		return nil, err
	}
	a, err := s.hub.Accept(ctx, in)
	if err != nil {
		return nil, err
	}
	return &hostv1.AcceptResponse{
		TurnId: a.TurnID, SessionId: a.SessionID, Duplicate: a.Duplicate,
		Disposition: dispositions[a.Disposition], Ahead: uint32(a.Ahead), Interrupted: a.Interrupted,
	}, nil
}

// platformOf returns the platform of the gateway that calls, or the terminal's of a person at the control socket.
func platformOf(ctx context.Context) (string, error) {
	id, ok := ipc.IdentityFrom(ctx)
	if !ok || id.Role != ipc.RoleGateway && id.Role != ipc.RoleOperator || id.Platform == "" {
		return "", fmt.Errorf("%s is the gateway of no platform: %w", id.Worker, ipc.ErrDenied)
	}
	return id.Platform, nil
}

// ownKey keeps a gateway's session keys apart from those of other platforms: one in the form of all keys must name its
// own platform, any other is put below it.
func ownKey(platform, key string) (string, error) {
	prefix := "agent:main:" + platform + ":"
	switch {
	case key == "" || strings.HasPrefix(key, prefix):
		return key, nil
	case strings.HasPrefix(key, "agent:"):
		return "", fmt.Errorf("session_key %q is not of platform %s: %w", cut(key, maxID), platform, ipc.ErrDenied)
	}
	return prefix + "key:" + key, nil
}

// ownSession refuses a gateway the sessions of other platforms. Whoever has the control socket may go on with any.
func (h *Hub) ownSession(ctx context.Context, platform, session string) error {
	if session == "" {
		return nil
	}
	if err := checkID("session_id", session); err != nil {
		return err
	}
	known, err := h.store.Session(ctx, session)
	if err != nil {
		return wrap(err, "session %s", session)
	}
	if id, _ := ipc.IdentityFrom(ctx); known.Source != platform && id.Role != ipc.RoleOperator {
		return fmt.Errorf("session %s is not of platform %s: %w", session, platform, ipc.ErrDenied)
	}
	return nil
}
