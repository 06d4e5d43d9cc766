package store

import (
	"context"
	"errors"
	"fmt"
)

// Accept stores a message of a platform and queues its turn, in one transaction. The same (platform, chat, message id)
// again is answered with the first turn. The platform may be told that the message has arrived as soon as Accept has
// returned.
func (s *State) Accept(ctx context.Context, in Inbound) (Accepted, error) {
	if in.Platform == "" || in.ChatID == "" || in.MessageID == "" {
		return Accepted{}, fmt.Errorf("%w: a message needs platform, chat and message id", ErrInvalid)
	}
	in.Text = valid(in.Text)
	if in.ChatType == "" {
		in.ChatType = "dm"
	}
	if in.SessionKey == "" {
		in.SessionKey = SessionKeyFor(in)
	}
	return write(ctx, s.database, func(t *tx) (Accepted, error) {
		var a Accepted
		var known string
		err := t.get("SELECT turn_id, session_id, fingerprint FROM hs_inbox WHERE platform = ? AND chat_id = ? AND message_id = ?",
			[]any{in.Platform, in.ChatID, in.MessageID}, &a.TurnID, &a.SessionID, &known)
		switch {
		case errors.Is(err, ErrNotFound):
			return s.accept(t, in)
		case err != nil:
			return a, err
		case known != "" && in.Fingerprint != "" && known != in.Fingerprint:
			return Accepted{}, fmt.Errorf("message %s of %s chat %s: %w with another content", in.MessageID, in.Platform, in.ChatID, ErrExists)
		}
		a.Duplicate = true
		return a, nil
	})
}

func (s *State) accept(t *tx, in Inbound) (a Accepted, err error) {
	now := s.now()
	if a.SessionID, err = sessionFor(t, in, now); err != nil {
		return a, err
	}
	a.TurnID = newID("turn_")
	if _, err = t.run(`INSERT INTO hs_inbox(platform, chat_id, message_id, text, fingerprint, session_id, turn_id, received_at)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?)`, in.Platform, in.ChatID, in.MessageID, in.Text, in.Fingerprint, a.SessionID, a.TurnID, seconds(now)); err != nil {
		return a, err
	}
	_, err = t.run(`INSERT INTO hs_turns(id, session_id, platform, chat_id, thread_id, message_id, user_id, user_name, accepted_at)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.TurnID, a.SessionID, in.Platform, in.ChatID, in.ThreadID, in.MessageID, in.UserID, in.UserName, seconds(now))
	return a, err
}
