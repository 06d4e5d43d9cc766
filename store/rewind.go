package store

import (
	"context"
	"errors"
	"fmt"
)

// An Undone is what Undo took out of a conversation.
type Undone struct {
	SessionID string
	Exchanges int
	Messages  int    // rows that were active
	Text      string // the person's message that began the first of them
	Duplicate bool   `json:"-"`
}

// Undo takes the last exchanges of a person out of the conversation of a place: their rows stay in the file and are not
// active, as Hermes has it. A session with an open turn is ErrTurnOpen.
func (s *State) Undo(ctx context.Context, p Place, count int, messageID string) (Undone, error) {
	return write(ctx, s.database, func(t *tx) (Undone, error) {
		u, duplicate, err := once(t, s, p, messageID, "undo", func() (Undone, error) {
			id, err := sessionOf(t, p)
			if errors.Is(err, ErrNotFound) {
				return Undone{}, nil
			}
			if err != nil {
				return Undone{}, err
			}
			return rewind(t, id, count)
		})
		u.Duplicate = duplicate
		return u, err
	})
}

// rewind makes the last exchanges of a session inactive. An exchange begins with a message of the person; a text that
// was handed to a running turn belongs to that turn.
func rewind(t *tx, session string, count int) (Undone, error) {
	u := Undone{SessionID: session}
	if err := atRest(t, session); err != nil {
		return u, err
	}
	type question struct {
		id   int64
		text string
	}
	asked, err := all(t, func(row scanner) (q question, err error) { return q, row.Scan(&q.id, &q.text) },
		`SELECT m.id, coalesce(m.content, '') FROM messages AS m LEFT JOIN hs_steps AS p ON p.message_id = m.id
		WHERE m.session_id = ? AND m.active = 1 AND m.role = 'user' AND coalesce(p.seq, 0) = 0
		AND coalesce(m.display_kind, '') <> 'hidden' AND m._compressed_summary = 0 ORDER BY m.id DESC LIMIT ?`, session, max(count, 1))
	if err != nil || len(asked) == 0 {
		return u, err
	}
	first := asked[len(asked)-1]
	n, err := t.run("UPDATE messages SET active = 0 WHERE session_id = ? AND id >= ? AND active = 1", session, first.id)
	if err != nil {
		return u, err
	}
	u.Exchanges, u.Messages, u.Text = len(asked), int(n), decodeContent(first.text)
	_, err = t.run(`UPDATE sessions SET rewind_count = rewind_count + 1, message_count = (SELECT count(*) FROM messages
		WHERE session_id = ?1 AND active = 1) WHERE id = ?1`, session)
	return u, err
}

// Retry queues a turn that answers the last message of a session anew; in.Text is not looked at. The exchange that it
// replaces becomes inactive in the same transaction. in.MessageID makes it happen once. It returns the text.
func (s *State) Retry(ctx context.Context, in Inbound) (Accepted, string, error) {
	type result struct {
		Accepted
		text string
	}
	if in.SessionKey == "" {
		in.SessionKey = SessionKeyFor(in)
	}
	r, err := write(ctx, s.database, func(t *tx) (r result, err error) {
		err = t.get("SELECT turn_id, session_id, text FROM hs_inbox WHERE platform = ? AND chat_id = ? AND message_id = ?",
			[]any{in.Platform, in.ChatID, in.MessageID}, &r.TurnID, &r.SessionID, &r.text)
		if !errors.Is(err, ErrNotFound) {
			r.Duplicate = err == nil
			return r, err
		}
		id, err := sessionOf(t, Place{SessionID: in.SessionID, SessionKey: in.SessionKey})
		if err != nil {
			return r, err
		}
		u, err := rewind(t, id, 1)
		if err != nil {
			return r, err
		}
		if u.Exchanges == 0 {
			return r, fmt.Errorf("a message to answer again in session %s: %w", id, ErrNotFound)
		}
		in.SessionID, in.Text, r.text = id, u.Text, u.Text
		r.Accepted, err = s.accept(t, in)
		return r, err
	})
	return r.Accepted, r.text, err
}
