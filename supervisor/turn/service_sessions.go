package turn

import (
	"context"
	"errors"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	sessionsListed = 100 // at most in one answer
	undoAtOnce     = 100
)

type sessionsService struct {
	hostv1.UnimplementedSessionsServer
	hub *Hub
}

// placeOf checks the place that a gateway names and keeps it to the gateway's platform.
func (h *Hub) placeOf(ctx context.Context, p *hostv1.Place) (store.Place, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return store.Place{}, err
	}
	place := store.Place{
		Platform: platform, ChatID: p.GetChatId(), ThreadID: p.GetThreadId(), ChatType: p.GetChatType(), UserID: p.GetUserId(), SessionID: p.GetSessionId(),
	}
	if place.SessionKey, err = ownKey(platform, p.GetSessionKey()); err != nil {
		return place, err
	}
	err = errors.Join(
		checkID("chat_id", place.ChatID), checkName("thread_id", place.ThreadID), checkChatType(place.ChatType),
		checkName("user_id", place.UserID), checkName("session_key", place.SessionKey),
	)
	if err != nil {
		return place, err
	}
	return place, h.ownSession(ctx, platform, place.SessionID)
}

// change makes a write for a gateway, which Close waits for.
func change[T any](h *Hub, write func(context.Context) (T, error)) (T, error) {
	leave, err := h.enter()
	if err != nil {
		var none T
		return none, err
	}
	defer leave()
	ctx, cancel := h.detached()
	defer cancel()
	return write(ctx)
}

func (s *sessionsService) Get(ctx context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error) {
	place, err := s.hub.placeOf(ctx, r.Place)
	if err != nil {
		return nil, err
	}
	sum, err := s.hub.store.CurrentSession(ctx, place)
	return s.info(sum, wrap(err, "session of chat %q", place.ChatID))
}

func (s *sessionsService) List(ctx context.Context, r *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkName("chat_id", r.ChatId), checkName("user_id", r.UserId)); err != nil {
		return nil, err
	}
	sums, err := s.hub.store.RecentSessions(ctx, store.SessionFilter{
		Platform: platform, ChatID: r.ChatId, UserID: r.UserId, Limit: int(min(r.Limit, sessionsListed)),
	})
	if err != nil {
		return nil, wrap(err, "list sessions")
	}
	resp := &hostv1.ListSessionsResponse{}
	for _, sum := range sums {
		resp.Sessions = append(resp.Sessions, s.hub.infoToProto(sum))
	}
	return resp, nil
}

func (s *sessionsService) SetTitle(ctx context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error) {
	place, err := s.hub.placeOf(ctx, r.Place)
	if err != nil {
		return nil, err
	}
	if err := checkText("title", r.Title, maxTitle); err != nil {
		return nil, err
	}
	sum, err := change(s.hub, func(ctx context.Context) (store.SessionSum, error) { return s.hub.store.SetTitle(ctx, place, r.Title) })
	return s.info(sum, wrap(err, "name session of chat %q", place.ChatID))
}

func (s *sessionsService) SetModel(ctx context.Context, r *hostv1.SetModelRequest) (*hostv1.SessionInfo, error) {
	place, err := s.hub.placeOf(ctx, r.Place)
	if err != nil {
		return nil, err
	}
	if err := checkName("model", r.Model); err != nil {
		return nil, err
	}
	sum, err := change(s.hub, func(ctx context.Context) (store.SessionSum, error) { return s.hub.store.SetModel(ctx, place, r.Model) })
	return s.info(sum, wrap(err, "set model of chat %q", place.ChatID))
}

func (s *sessionsService) Bind(ctx context.Context, r *hostv1.BindRequest) (*hostv1.SessionInfo, error) {
	place, err := s.hub.placeOf(ctx, r.Place)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkID("session", r.Session), checkName("message_id", r.MessageId)); err != nil {
		return nil, err
	}
	sum, err := change(s.hub, func(ctx context.Context) (store.SessionSum, error) {
		return s.hub.store.Bind(ctx, place, r.Session, r.MessageId)
	})
	return s.info(sum, wrap(err, "resume in chat %q", place.ChatID))
}

func (s *sessionsService) Undo(ctx context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error) {
	place, err := s.hub.placeOf(ctx, r.Place)
	if err != nil {
		return nil, err
	}
	if err := checkName("message_id", r.MessageId); err != nil {
		return nil, err
	}
	if r.Count > undoAtOnce {
		return nil, invalid("count", "%d exchanges, at most %d are taken out at once", r.Count, undoAtOnce)
	}
	u, err := change(s.hub, func(ctx context.Context) (store.Undone, error) {
		return s.hub.store.Undo(ctx, place, int(r.Count), r.MessageId)
	})
	if err != nil {
		return nil, wrap(err, "undo in chat %q", place.ChatID)
	}
	return &hostv1.UndoResponse{
		Exchanges: uint32(u.Exchanges), Messages: uint32(u.Messages), Text: cut(u.Text, maxText), SessionId: u.SessionID, Duplicate: u.Duplicate,
	}, nil
}

func (s *sessionsService) End(ctx context.Context, r *hostv1.EndRequest) (*hostv1.EndResponse, error) {
	place, err := s.hub.placeOf(ctx, r.Place)
	if err != nil {
		return nil, err
	}
	if err := checkName("message_id", r.MessageId); err != nil {
		return nil, err
	}
	resp := &hostv1.EndResponse{}
	_, err = change(s.hub, func(ctx context.Context) (_ any, err error) {
		resp.SessionId, resp.Duplicate, err = s.hub.store.EndSession(ctx, place, r.MessageId)
		return nil, err
	})
	return resp, wrap(err, "end session of chat %q", place.ChatID)
}

func (s *sessionsService) info(sum store.SessionSum, err error) (*hostv1.SessionInfo, error) {
	if err != nil {
		return nil, err
	}
	return s.hub.infoToProto(sum), nil
}

// infoToProto tells of a session with what it runs now.
func (h *Hub) infoToProto(s store.SessionSum) *hostv1.SessionInfo {
	p := &hostv1.SessionInfo{
		Id: s.ID, Key: s.Key, Title: s.Title, Model: s.Model, ChatId: s.ChatID, ChatType: s.ChatType, ThreadId: s.ThreadID,
		UserId: s.UserID, UserName: s.DisplayName, StartedAt: unixSeconds(s.StartedAt), EndedAt: unixSeconds(s.EndedAt),
		LastActive: unixSeconds(s.LastActive), Messages: int64(s.Messages), ToolCalls: int64(s.ToolCalls),
		InputTokens: s.Used.Input, OutputTokens: s.Used.Output, CacheReadTokens: s.Used.CacheRead, ReasoningTokens: s.Used.Reasoning,
		Preview: oneLine(s.Preview, maxPreview),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines[s.ID] {
		if l.lease != nil {
			p.RunningTurn = l.id
		} else {
			p.Queued++
		}
	}
	return p
}

const maxPreview = 80
