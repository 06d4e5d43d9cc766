package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const outboxColumns = `SELECT id, key, platform, chat_id, thread_id, reply_to, turn_id, text, state, attempt, message_ids, next_attempt,
	detail, created_at, sent_at FROM hs_outbox`

// waits says of a row that its next try is later than ?1, by a clock that was not set back by more than a minute since that
// was decided.
const waits = " coalesce(next_attempt, 0) > ?1 AND coalesce(put_off_at, 0) <= ?1 + 60"

// owed are the states in which a row still waits for its end. It repeats the condition of the index hs_outbox_owed.
const owed = " state IN ('pending', 'sending', 'unknown')"

func scanOutbox(row scanner) (r OutboxRow, err error) {
	var ids string
	var next, created, sent *float64
	err = row.Scan(&r.ID, &r.Key, &r.Platform, &r.ChatID, &r.ThreadID, &r.ReplyTo, &r.TurnID, &r.Text, &r.State, &r.Attempt,
		&ids, &next, &r.Detail, &created, &sent)
	if err == nil && ids != "" {
		err = json.Unmarshal([]byte(ids), &r.MessageIDs)
	}
	r.NextAttempt, r.CreatedAt, r.SentAt = instant(next), instant(created), instant(sent)
	return r, err
}

// PutOutbox queues a text for a chat. A second row of the same key is a duplicate and answered with the first one's id.
func (s *State) PutOutbox(ctx context.Context, r OutboxRow) (id int64, duplicate bool, err error) {
	if r.Key == "" || r.Platform == "" || r.ChatID == "" {
		return 0, false, fmt.Errorf("%w: an outbox row needs key, platform and chat", ErrInvalid)
	}
	type put struct {
		id        int64
		duplicate bool
	}
	p, err := write(ctx, s.database, func(t *tx) (p put, err error) {
		p.id, p.duplicate, err = putOutbox(t, r, s.now())
		return p, err
	})
	return p.id, p.duplicate, err
}

func putOutbox(t *tx, r OutboxRow, now time.Time) (id int64, duplicate bool, err error) {
	err = t.get("SELECT id FROM hs_outbox WHERE key = ?", []any{r.Key}, &id)
	if !errors.Is(err, ErrNotFound) {
		return id, err == nil, err
	}
	id, err = t.insert(`INSERT INTO hs_outbox(key, platform, chat_id, thread_id, reply_to, turn_id, text, next_attempt, created_at, put_off_at)
		VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)`,
		r.Key, r.Platform, r.ChatID, r.ThreadID, r.ReplyTo, r.TurnID, valid(r.Text), seconds(r.NextAttempt), seconds(now))
	return id, false, err
}

// DueOutbox returns the rows to be sent now: of each chat the oldest one owed, so that a chat is served in order. These
// are pending rows whose time has come, and rows left in sending or unknown by a death. A row whose sending is unknown
// and that waits for a later look lets the rows after it pass. If platforms are named, only their rows are returned.
func (s *State) DueOutbox(ctx context.Context, now time.Time, limit int, platforms ...string) ([]OutboxRow, error) {
	names := []byte("[]")
	if len(platforms) > 0 {
		var err error
		if names, err = json.Marshal(platforms); err != nil {
			return nil, err
		}
	}
	return read(ctx, s.database, func(t *tx) ([]OutboxRow, error) {
		return all(t, scanOutbox, outboxColumns+` WHERE id IN (SELECT min(id) FROM hs_outbox
				WHERE`+owed+` AND NOT (state = 'unknown' AND`+waits+`)
				AND (?3 = '[]' OR platform IN (SELECT value FROM json_each(?3))) GROUP BY platform, chat_id)
			AND NOT (state = 'pending' AND`+waits+`) ORDER BY id LIMIT ?2`, seconds(now), orDefault(limit), string(names))
	})
}

// PendingOutbox returns the rows of one chat that are not sent yet, in order.
func (s *State) PendingOutbox(ctx context.Context, platform, chatID string, limit int) ([]OutboxRow, error) {
	return read(ctx, s.database, func(t *tx) ([]OutboxRow, error) {
		return all(t, scanOutbox, outboxColumns+" WHERE platform = ? AND chat_id = ? AND"+owed+" ORDER BY id LIMIT ?",
			platform, chatID, orDefault(limit))
	})
}

// Answers returns the outbox rows of the final replies of turns, by turn. A turn that was asked for over a connection, or that
// has not ended, has none.
func (s *State) Answers(ctx context.Context, turns []string) (map[string]OutboxRow, error) {
	names, err := json.Marshal(turns)
	if err != nil {
		return nil, err
	}
	rows, err := read(ctx, s.database, func(t *tx) ([]OutboxRow, error) {
		return all(t, scanOutbox, outboxColumns+" WHERE key IN (SELECT '"+answerKey+"' || value FROM json_each(?))", string(names))
	})
	found := map[string]OutboxRow{}
	for _, r := range rows {
		found[r.TurnID] = r
	}
	return found, err
}

// answerKey begins the key of a turn's final reply.
const answerKey = "turn/"

// BeginSend marks a row as being sent, before it is sent. A row that has its end already is ErrExists.
func (s *State) BeginSend(ctx context.Context, id int64) (OutboxRow, error) {
	return write(ctx, s.database, func(t *tx) (OutboxRow, error) {
		n, err := t.run("UPDATE hs_outbox SET state = 'sending', attempt = attempt + 1 WHERE id = ? AND"+owed, id)
		if err != nil {
			return OutboxRow{}, err
		}
		r, err := one(t, scanOutbox, outboxColumns+" WHERE id = ?", id)
		if err == nil && n == 0 {
			err = ErrExists
		}
		if err != nil {
			return r, fmt.Errorf("outbox row %d: %w", id, err)
		}
		return r, nil
	})
}

// ReportSend notes what became of a row. Sent and rejected are final. Message ids are kept unless the report has others.
func (s *State) ReportSend(ctx context.Context, id int64, r OutboxReport) error {
	var ids any
	if len(r.MessageIDs) > 0 {
		b, err := json.Marshal(r.MessageIDs)
		if err != nil {
			return err
		}
		ids = string(b)
	}
	_, err := write(ctx, s.database, func(t *tx) (any, error) {
		var sent any
		if r.State == OutboxSent {
			sent = seconds(s.now())
		}
		n, err := t.run(`UPDATE hs_outbox SET state = ?, message_ids = coalesce(?, message_ids), next_attempt = ?, put_off_at = ?, detail = ?, sent_at = ?
			WHERE id = ? AND`+owed, r.State, ids, seconds(r.NextAttempt), seconds(s.now()), valid(r.Detail), sent, id)
		if err != nil || n > 0 {
			return nil, err
		}
		var state string
		if err := t.get("SELECT state FROM hs_outbox WHERE id = ?", []any{id}, &state); err != nil {
			return nil, fmt.Errorf("outbox row %d: %w", id, err)
		}
		return nil, nil // it had its end; a late report changes nothing
	})
	return err
}
