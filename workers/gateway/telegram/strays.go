package telegram

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// A placeholder whose sending had no answer may be there, and nobody knows its id: it would stand in the chat for good. But
// the ids of a chat grow. It is one of those between the last that was known before and the next placeholder, and Telegram
// says which: to write into a message what it says already is refused in words of its own.

const (
	// trailKept are the ids of a chat that are remembered: what lies between two placeholders.
	trailKept = 64
	// mostSuspects bounds the requests that one lost placeholder may cost. All private chats of a bot share their ids.
	mostSuspects = 8
)

// trails remember the newest messages of each chat.
type trails struct {
	mu    sync.Mutex
	chats map[int64]*trail
}

// A trail is what is known of the ids of one chat.
type trail struct {
	known    []int // the newest, in the order in which they became known
	highest  int
	sending  int   // requests that may still make a message
	lost     bool  // a placeholder may be there that is not known
	from     int   // the highest id before it
	unsure   bool  // so may be another message of ours, which must not be taken for one
	suspects []int // ids that are looked at
}

// of returns the trail of a chat. With mu held.
func (s *trails) of(chat int64) *trail {
	t, ok := s.chats[chat]
	if !ok {
		if len(s.chats) >= keptChats {
			maps.DeleteFunc(s.chats, func(_ int64, t *trail) bool { return t.sending == 0 && !t.lost })
		}
		t = &trail{}
		s.chats[chat] = t
	}
	return t
}

// saw notes a message that is there, whoever sent it.
func (s *trails) saw(chat int64, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(chat).saw(id)
}

func (t *trail) saw(id int) {
	if id == 0 || slices.Contains(t.known, id) {
		return
	}
	if t.known = append(t.known, id); len(t.known) > trailKept {
		t.known = slices.Delete(t.known, 0, 1)
	}
	t.highest = max(t.highest, id)
}

// begin notes that a message is being sent, as an answer to another one or to none, and returns the highest id before it;
// end must follow.
func (s *trails) begin(chat int64, reply int) (before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(chat)
	t.saw(reply)
	t.sending++
	return t.highest
}

// end notes what became of it.
func (s *trails) end(chat int64, before, id int, isPlaceholder bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(chat)
	t.sending = max(t.sending-1, 0)
	switch {
	case err == nil:
		t.saw(id)
	case !mayHaveHappened(err):
	case !isPlaceholder:
		t.unsure = true
	case before > 0 && !t.lost:
		t.lost, t.from = true, before
	}
}

// suspects returns what may be lost placeholders, now that a later one has an id: nothing while another message is under way
// or had no answer, as that may be among them.
func (s *trails) suspects(chat int64, id int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(chat)
	switch {
	case t.sending > 0:
		return nil
	case t.unsure:
		t.unsure, t.lost, t.suspects = false, false, nil
		return nil
	case t.lost:
		t.lost = false
		for i := id - 1; i > t.from && i >= id-mostSuspects; i-- {
			t.suspects = append(t.suspects, i)
		}
	}
	t.suspects = slices.DeleteFunc(t.suspects, func(i int) bool { return slices.Contains(t.known, i) })
	return slices.Clone(t.suspects)
}

// placeholder sends one, and takes those away that were lost before it.
func (s *sender) placeholder(ctx context.Context, t target) (int, error) {
	id, err := s.send(ctx, t, text.Plain(placeholder), nil)
	if err == nil {
		s.sweepStrays(ctx, t, id)
	}
	return id, err
}

// sweepStrays looks for placeholders that were lost before the one with that id. What has no answer is left to the next time.
func (s *sender) sweepStrays(ctx context.Context, t target, id int) {
	chat := s.current(t).chat
	for _, suspect := range s.trails.suspects(chat, id) {
		stray, err := s.isPlaceholder(ctx, t, suspect)
		if err == nil && stray {
			err = s.remove(ctx, t, suspect)
		}
		if err != nil {
			return
		}
		s.trails.saw(chat, suspect) // and is not asked for again
	}
}
