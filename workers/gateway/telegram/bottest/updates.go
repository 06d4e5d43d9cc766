package bottest

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// An update waits until a poll with a higher offset confirms it.
type update struct {
	ID   int64
	kind string // message, edited_message, callback_query
	body any
}

func (u update) json() map[string]any { return map[string]any{"update_id": u.ID, u.kind: u.body} }

// queue adds an update and wakes the poll that waits. With mu held.
func (s *Server) queue(kind string, body any) int64 {
	id := s.nextID
	s.nextID++
	s.updates = append(s.updates, update{ID: id, kind: kind, body: body})
	close(s.arrived)
	s.arrived = make(chan struct{})
	return id
}

// Push queues an update as given: kind is the name of its field, body what is encoded as JSON.
func (s *Server) Push(kind string, body any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue(kind, body)
}

// JumpIDs makes the ids of further updates begin at id, as the real server does after a week without updates.
func (s *Server) JumpIDs(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID = id
}

// Waiting is the number of updates that no poll has confirmed.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates)
}

// A poller is a getUpdates that waits. A newer one ends it.
type poller struct {
	ended chan struct{}
}

func (p *poller) end() {
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
}

const (
	rivalText   = "terminated by other getUpdates request; make sure that only one bot instance is running"
	webhookText = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)

// enter makes this poll the only one.
func (s *Server) enter(c Call) (*poller, *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls++
	s.maxPolls = max(s.maxPolls, s.polls)
	if s.webhook != "" {
		r := refuse(409, webhookText)
		return nil, &r
	}
	if s.poll != nil {
		s.poll.end()
	}
	if s.rival {
		r := refuse(409, rivalText)
		return nil, &r
	}
	if raw, given := c.Params["allowed_updates"]; given {
		s.allowed = nil
		if err := json.Unmarshal([]byte(raw), &s.allowed); err != nil {
			r := refuse(400, "can't parse allowed_updates: %v", err)
			return nil, &r
		}
	}
	s.poll = &poller{ended: make(chan struct{})}
	return s.poll, nil
}

func (s *Server) leave(p *poller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll == p {
		s.poll = nil
	}
}

// Polls is how many getUpdates were under way at the same time at most.
func (s *Server) Polls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxPolls
}

func (s *Server) getUpdates(ctx context.Context, c Call) reply {
	defer func() {
		s.mu.Lock()
		s.polls--
		s.mu.Unlock()
	}()
	p, refused := s.enter(c)
	if refused != nil {
		return *refused
	}
	defer s.leave(p)
	wait := time.NewTimer(time.Duration(c.Int("timeout")) * time.Second)
	defer wait.Stop()
	for {
		found, arrived := s.take(c)
		if len(found) > 0 {
			return ok(found)
		}
		select {
		case <-arrived:
		case <-p.ended:
			return refuse(409, rivalText)
		case <-ctx.Done():
			return ok([]any{}) // nobody reads it
		case <-wait.C:
			return ok([]any{})
		}
	}
}

// take confirms everything below the offset and returns what is from it on.
func (s *Server) take(c Call) (found []any, arrived <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := c.Int("limit")
	if limit < 1 || limit > 100 {
		limit = 100
	}
	offset := int64(c.Int("offset"))
	if n := int64(len(s.updates)); offset < 0 && n > 0 {
		offset = s.updates[max(0, n+offset)].ID
	}
	s.updates = slices.DeleteFunc(s.updates, func(u update) bool { return u.ID < offset })
	for _, u := range s.updates {
		if len(s.allowed) > 0 && !contains(s.allowed, u.kind) {
			continue
		}
		if found = append(found, u.json()); len(found) == limit {
			break
		}
	}
	return found, s.arrived
}
