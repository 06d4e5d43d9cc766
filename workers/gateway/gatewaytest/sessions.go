package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// Sessions returns the desk as the service of sessions.
func (d *Desk) Sessions() hostv1.SessionsServer { return &sessionsService{d: d} }

type sessionsService struct {
	hostv1.UnimplementedSessionsServer
	d *Desk
}

// told is the session as it is now. With Desk.mu held.
func (s *sessionsService) told(c *conversation) *hostv1.SessionInfo {
	info := proto.CloneOf(c.info)
	if open := s.d.openIn(info.Id); len(open) > 0 {
		info.RunningTurn, info.Queued = open[0].TurnId, uint32(len(open)-1)
	}
	return info
}

func (s *sessionsService) Get(_ context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	c, err := s.d.at(r.Place)
	if err != nil {
		return nil, err
	}
	return s.told(c), nil
}

func (s *sessionsService) List(_ context.Context, r *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	out := &hostv1.ListSessionsResponse{}
	for _, c := range s.d.sessions {
		if r.ChatId != "" && c.info.ChatId != r.ChatId || r.UserId != "" && c.info.UserId != r.UserId {
			continue
		}
		out.Sessions = append(out.Sessions, s.told(c))
	}
	slices.SortStableFunc(out.Sessions, func(a, b *hostv1.SessionInfo) int { return int((b.LastActive - a.LastActive) * 1000) })
	limit := 10
	if r.Limit > 0 {
		limit = int(min(r.Limit, 100))
	}
	out.Sessions = out.Sessions[:min(limit, len(out.Sessions))]
	return out, nil
}

func (s *sessionsService) SetTitle(_ context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	c, err := s.d.at(r.Place)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(r.Title, func(r rune) bool { return r < ' ' }) || len([]rune(r.Title)) > 100 {
		return nil, fmt.Errorf("title %q: %w", r.Title, ipc.ErrInvalid)
	}
	for _, o := range s.d.sessions {
		if o != c && r.Title != "" && o.info.Title == r.Title {
			return nil, fmt.Errorf("title %q is that of session %s: %w", r.Title, o.info.Id, ipc.ErrExists)
		}
	}
	c.info.Title = r.Title
	return s.told(c), nil
}

func (s *sessionsService) Bind(_ context.Context, r *hostv1.BindRequest) (*hostv1.SessionInfo, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	_, _, err := doOnce(s.d, r.Place.ChatId, r.MessageId, func() (*hostv1.BindRequest, error) {
		if _, err := s.d.resting(r.Place); err != nil && s.d.current[placeKey(r.Place)] != nil {
			return nil, err
		}
		c := s.named(r.Session)
		if c == nil {
			return nil, fmt.Errorf("session %q: %w", r.Session, ipc.ErrNotFound)
		}
		c.info.EndedAt = 0
		s.d.current[placeKey(r.Place)] = c
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	return s.told(s.d.current[placeKey(r.Place)]), nil
}

// named finds a session by its id, the beginning of it, or its title. With Desk.mu held.
func (s *sessionsService) named(name string) *conversation {
	for _, c := range s.d.sessions {
		if c.info.Id == name || c.info.Title == name || strings.HasPrefix(c.info.Id, name) {
			return c
		}
	}
	return nil
}

func (s *sessionsService) SetModel(_ context.Context, r *hostv1.SetModelRequest) (*hostv1.SessionInfo, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	c, err := s.d.at(r.Place)
	if err != nil {
		return nil, err
	}
	c.info.Model = r.Model
	return s.told(c), nil
}

func (s *sessionsService) Undo(_ context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	out, before, err := doOnce(s.d, r.Place.ChatId, r.MessageId, func() (*hostv1.UndoResponse, error) {
		c, err := s.d.resting(r.Place)
		if err != nil {
			return nil, err
		}
		n := min(int(max(r.Count, 1)), len(c.exchanges))
		out := &hostv1.UndoResponse{Exchanges: uint32(n), Messages: uint32(2 * n), SessionId: c.info.Id}
		if n > 0 {
			out.Text = c.exchanges[len(c.exchanges)-n]
			c.exchanges = c.exchanges[:len(c.exchanges)-n]
			c.info.Messages -= int64(2 * n)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	out = proto.CloneOf(out)
	out.Duplicate = before
	return out, nil
}

func (s *sessionsService) End(_ context.Context, r *hostv1.EndRequest) (*hostv1.EndResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	out, before, err := doOnce(s.d, r.Place.ChatId, r.MessageId, func() (*hostv1.EndResponse, error) {
		c, err := s.d.at(r.Place)
		if err != nil {
			return &hostv1.EndResponse{}, nil
		}
		c.info.EndedAt = float64(time.Now().Unix())
		delete(s.d.current, placeKey(r.Place))
		return &hostv1.EndResponse{SessionId: c.info.Id}, nil
	})
	if err != nil {
		return nil, err
	}
	out = proto.CloneOf(out)
	out.Duplicate = before
	return out, nil
}
