package store

import (
	"context"
	"encoding/json"
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
			if a, err = steered(t, in); errors.Is(err, ErrNotFound) {
				return s.accept(t, in)
			}
			return a, err
		case err != nil:
			return a, err
		case known != "" && in.Fingerprint != "" && known != in.Fingerprint:
			return Accepted{}, fmt.Errorf("message %s of %s chat %s: %w with another content", in.MessageID, in.Platform, in.ChatID, ErrExists)
		}
		return repeated(t, in, a)
	})
}

// repeated answers a message that was accepted before with what became of it.
func repeated(t *tx, in Inbound, a Accepted) (Accepted, error) {
	a.Duplicate, a.Disposition = true, Started
	kind, answer, err := answered(t, Place{Platform: in.Platform, ChatID: in.ChatID}, in.MessageID)
	switch {
	case err == nil && kind == kindMessage:
		var b busyAnswer
		err = json.Unmarshal([]byte(answer), &b)
		a.Disposition, a.Ahead, a.Interrupted = Interrupted, b.Ahead, b.Interrupted
		return a, err
	case err != nil && !errors.Is(err, ErrNotFound):
		return a, err
	}
	err = t.get(`SELECT count(*) FROM hs_turns AS o, hs_turns AS u WHERE u.id = ? AND u.state = 'queued' AND u.attempt = 0
		AND o.session_id = u.session_id AND o.state <> 'done' AND o.seq < u.seq`, []any{a.TurnID}, &a.Ahead)
	if a.Ahead > 0 {
		a.Disposition = Queued
	}
	return a, err
}

func (s *State) accept(t *tx, in Inbound) (Accepted, error) {
	session, err := sessionFor(t, in, s.now())
	if err != nil {
		return Accepted{}, err
	}
	return s.enqueue(t, in, session)
}

// enqueue stores a message that is new and queues its turn in a session.
func (s *State) enqueue(t *tx, in Inbound, session string) (a Accepted, err error) {
	now := s.now()
	a.SessionID = session
	first, ahead, err := openTurns(t, session)
	if err != nil {
		return a, err
	}
	if in.Busy == BusySteer && first.runs() {
		a.TurnID, a.Disposition = first.id, Steered
		return a, steer(t, in, a.TurnID, session, now)
	}
	a.TurnID, a.Disposition, a.Ahead = newID("turn_"), Started, ahead
	if ahead > 0 {
		a.Disposition = Queued
	}
	if in.Busy == BusyInterrupt && first.runs() {
		if err := s.interrupt(t, in, first.id, &a); err != nil {
			return a, err
		}
	}
	if _, err = t.run(`INSERT INTO hs_inbox(platform, chat_id, message_id, text, fingerprint, session_id, turn_id, received_at)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?)`, in.Platform, in.ChatID, in.MessageID, in.Text, in.Fingerprint, a.SessionID, a.TurnID, seconds(now)); err != nil {
		return a, err
	}
	_, err = t.run(`INSERT INTO hs_turns(id, session_id, platform, chat_id, thread_id, message_id, user_id, user_name, accepted_at)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.TurnID, a.SessionID, in.Platform, in.ChatID, in.ThreadID, in.MessageID, in.UserID, in.UserName, seconds(now))
	return a, err
}

// interrupt stops the running turn for a message that comes next, and remembers that it did.
func (s *State) interrupt(t *tx, in Inbound, turnID string, a *Accepted) error {
	a.Disposition, a.Interrupted = Interrupted, turnID
	if err := stop(t, turnID, "a new message came", s.now()); err != nil {
		return err
	}
	return remember(t, s, Place{Platform: in.Platform, ChatID: in.ChatID}, in.MessageID, kindMessage, busyAnswer{a.Ahead, turnID})
}
