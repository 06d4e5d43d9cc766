package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ConfirmationState is how a question stands. Expired is not stored: it follows from the deadline, and from the time it was
// asked, since a clock that was set back would keep it open for as long.
type ConfirmationState string

const (
	ConfirmPending   ConfirmationState = "pending"
	ConfirmOnce      ConfirmationState = "once"
	ConfirmAlways    ConfirmationState = "always"
	ConfirmCancelled ConfirmationState = "cancelled"
	ConfirmExpired   ConfirmationState = "expired"
)

// ErrNotAsked says that a question is another person's to answer.
var ErrNotAsked = errors.New("another person is asked")

// A Confirmation is a question to a person whether a command may be done.
type Confirmation struct {
	ID         string
	Platform   string
	ChatID     string
	Key        string // unique within the chat: a second Ask is answered with the first question
	ThreadID   string
	UserID     string // who is asked; empty: anybody in the chat
	Command    string
	Question   string
	Payload    []byte
	State      ConfirmationState
	Remembered bool // the answer is an earlier "always"
	Done       bool // the command of a yes has been carried out
	Deadline   time.Time
	AskedAt    time.Time
}

const confirmationColumns = `SELECT id, platform, chat_id, key, thread_id, user_id, command, question, coalesce(payload, x''), state, remembered,
	done, deadline, asked_at FROM hs_confirmations`

func (s *State) scanConfirmation(row scanner) (c Confirmation, err error) {
	var deadline, asked *float64
	err = row.Scan(&c.ID, &c.Platform, &c.ChatID, &c.Key, &c.ThreadID, &c.UserID, &c.Command, &c.Question, &c.Payload, &c.State,
		&c.Remembered, &c.Done, &deadline, &asked)
	c.Deadline, c.AskedAt = instant(deadline), instant(asked)
	if now := s.now(); c.State == ConfirmPending && (!now.Before(c.Deadline) || c.AskedAt.Sub(now) > clockSlack) {
		c.State = ConfirmExpired
	}
	return c, err
}

func (s *State) confirmation(t *tx, where string, args ...any) (Confirmation, error) {
	return one(t, s.scanConfirmation, confirmationColumns+" WHERE "+where, args...)
}

// Ask stores a question, unless its chat has one of the same key, which is returned as it stands. It is answered at once
// if the person allowed the command for always.
func (s *State) Ask(ctx context.Context, c Confirmation) (Confirmation, error) {
	return write(ctx, s.database, func(t *tx) (Confirmation, error) {
		known, err := s.confirmation(t, "platform = ? AND chat_id = ? AND key = ?", c.Platform, c.ChatID, c.Key)
		if !errors.Is(err, ErrNotFound) {
			return known, err
		}
		c.ID, c.State, c.AskedAt = newID("c"), ConfirmPending, s.now()
		var one int
		err = t.get("SELECT 1 FROM hs_allowances WHERE platform = ? AND chat_id = ? AND user_id = ? AND command = ?",
			[]any{c.Platform, c.ChatID, c.UserID, c.Command}, &one)
		switch {
		case err == nil:
			c.State, c.Remembered = ConfirmAlways, true
		case !errors.Is(err, ErrNotFound):
			return c, err
		}
		_, err = t.run(`INSERT INTO hs_confirmations(id, platform, chat_id, key, thread_id, user_id, command, question, payload, state, remembered,
			deadline, asked_at) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, c.ID, c.Platform, c.ChatID, c.Key, c.ThreadID, c.UserID, c.Command,
			valid(c.Question), c.Payload, c.State, c.Remembered, seconds(c.Deadline), seconds(c.AskedAt))
		if err != nil {
			return c, err
		}
		return s.confirmation(t, "id = ?", c.ID)
	})
}

// Answer decides a question of a platform. The first answer holds and is returned with before; so is an expired question.
// "Always" is remembered for the person, the chat and the command.
func (s *State) Answer(ctx context.Context, platform, id string, choice ConfirmationState, userID string) (c Confirmation, before bool, err error) {
	type result struct {
		Confirmation
		before bool
	}
	r, err := write(ctx, s.database, func(t *tx) (r result, err error) {
		r.Confirmation, err = s.confirmation(t, "id = ? AND platform = ?", id, platform)
		if err != nil {
			return r, fmt.Errorf("question %q: %w", id, err)
		}
		if r.UserID != "" && userID != r.UserID {
			return r, fmt.Errorf("question %q: %w", id, ErrNotAsked)
		}
		if r.State != ConfirmPending {
			r.before = true
			return r, nil
		}
		if _, err := t.run("UPDATE hs_confirmations SET state = ?, decided_at = ? WHERE id = ?", choice, seconds(s.now()), id); err != nil {
			return r, err
		}
		if choice == ConfirmAlways {
			if _, err := t.run("INSERT INTO hs_allowances(platform, chat_id, user_id, command, at) VALUES(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
				r.Platform, r.ChatID, r.UserID, r.Command, seconds(s.now())); err != nil {
				return r, err
			}
		}
		r.State = choice
		return r, nil
	})
	return r.Confirmation, r.before, err
}

// Confirmation returns one question of a platform.
func (s *State) Confirmation(ctx context.Context, platform, id string) (Confirmation, error) {
	return read(ctx, s.database, func(t *tx) (Confirmation, error) {
		c, err := s.confirmation(t, "id = ? AND platform = ?", id, platform)
		if err != nil {
			err = fmt.Errorf("question %q: %w", id, err)
		}
		return c, err
	})
}

// Confirmations returns the questions of a platform, or of one chat of it, that wait for an answer or whose yes has not
// been carried out, the oldest first.
func (s *State) Confirmations(ctx context.Context, platform, chatID string) ([]Confirmation, error) {
	now := s.now()
	return read(ctx, s.database, func(t *tx) ([]Confirmation, error) {
		return all(t, s.scanConfirmation, confirmationColumns+` WHERE state IN ('pending', 'once', 'always') AND done = 0
			AND platform = ?1 AND (?2 = '' OR chat_id = ?2) AND (state <> 'pending' OR deadline > ?3 AND asked_at <= ?4) ORDER BY asked_at, id`,
			platform, chatID, seconds(now), seconds(now.Add(clockSlack)))
	})
}

// ConfirmationDone notes that the command of a yes has been carried out.
func (s *State) ConfirmationDone(ctx context.Context, platform, id string) error {
	_, err := write(ctx, s.database, func(t *tx) (any, error) {
		c, err := s.confirmation(t, "id = ? AND platform = ?", id, platform)
		if err != nil {
			return nil, fmt.Errorf("question %q: %w", id, err)
		}
		if c.State != ConfirmOnce && c.State != ConfirmAlways {
			return nil, fmt.Errorf("question %q is %s: %w: only a yes is carried out", id, c.State, ErrInvalid)
		}
		_, err = t.run("UPDATE hs_confirmations SET done = 1 WHERE id = ?", id)
		return nil, err
	})
	return err
}
