package store

import (
	"context"
	"time"
)

// A RestartRequest is the wish of a chat to have the system restarted.
type RestartRequest struct {
	Platform, ChatID, ThreadID, UserID string
	MessageID                          string // asks once, however often it is handed over
}

// RequestRestart notes that a chat asked for a restart; duplicate says that the same message did before.
func (s *State) RequestRestart(ctx context.Context, r RestartRequest) (duplicate bool, err error) {
	return write(ctx, s.database, func(t *tx) (bool, error) {
		n, err := t.run(`INSERT INTO hs_restarts(platform, chat_id, message_id, thread_id, user_id, asked_at) VALUES(?, ?, ?, ?, ?, ?)
			ON CONFLICT DO NOTHING`, r.Platform, r.ChatID, r.MessageID, r.ThreadID, r.UserID, seconds(s.now()))
		return n == 0, err
	})
}

// TellRestarts owes each chat that asked for a restart, and was not told yet, a text, and returns how many there are. A
// wish and its answer are one transaction: a chat is told once.
func (s *State) TellRestarts(ctx context.Context, text string) (int, error) {
	return write(ctx, s.database, func(t *tx) (int, error) {
		asked, err := all(t, func(row scanner) (r RestartRequest, err error) {
			return r, row.Scan(&r.Platform, &r.ChatID, &r.ThreadID, &r.MessageID)
		}, "SELECT platform, chat_id, thread_id, message_id FROM hs_restarts WHERE told_at IS NULL ORDER BY asked_at")
		if err != nil {
			return 0, err
		}
		for _, r := range asked {
			row := OutboxRow{Key: "restarted/" + r.Platform + "/" + r.ChatID + "/" + r.MessageID, Platform: r.Platform, ChatID: r.ChatID,
				ThreadID: r.ThreadID, ReplyTo: r.MessageID, Text: text}
			if _, _, err := putOutbox(t, row, s.now()); err != nil {
				return 0, err
			}
		}
		_, err = t.run("UPDATE hs_restarts SET told_at = ? WHERE told_at IS NULL", seconds(s.now()))
		return len(asked), err
	})
}

// PutNotice owes a chat a text of a kind, unless it got one of that kind within the pause. One that it got in the future is
// of a clock that was set back since.
func (s *State) PutNotice(ctx context.Context, r OutboxRow, kind string, pause time.Duration) (put bool, err error) {
	return write(ctx, s.database, func(t *tx) (bool, error) {
		now := s.now()
		n, err := t.run(`INSERT INTO hs_notices(platform, chat_id, kind, at) VALUES(?1, ?2, ?3, ?4) ON CONFLICT(platform, chat_id, kind)
			DO UPDATE SET at = excluded.at WHERE at <= ?5 OR at > ?4`, r.Platform, r.ChatID, kind, seconds(now), seconds(now.Add(-pause)))
		if err != nil || n == 0 {
			return false, err
		}
		_, _, err = putOutbox(t, r, now)
		return true, err
	})
}

// Restarted takes a leased turn from a supervisor that has ended, as Requeue does. A turn to which that happens twice
// within the window is looped from then on: it may be what ends the supervisor.
func (s *State) Restarted(ctx context.Context, turnID string, fence uint64, window time.Duration) (Turn, error) {
	return write(ctx, s.database, func(t *tx) (Turn, error) {
		u, err := s.requeue(t, turnID, fence, 1)
		if err != nil || u.State != TurnQueued {
			return u, err
		}
		now := s.now()
		if _, err := t.run(`INSERT INTO hs_restarted(turn_id, at) VALUES(?1, ?2) ON CONFLICT(turn_id)
			DO UPDATE SET looped = looped OR (at > ?3 AND at <= ?2), at = excluded.at`, turnID, seconds(now), seconds(now.Add(-window))); err != nil {
			return u, err
		}
		return turn(t, turnID)
	})
}
