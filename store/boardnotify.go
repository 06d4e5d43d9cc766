package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Subscribe asks for a task's events to be told to a chat, from now on: the cursor starts at the newest event. A second
// subscription of the same chat changes nothing.
func (b *Board) Subscribe(ctx context.Context, s Subscription) error {
	_, err := write(ctx, b.database, func(t *tx) (any, error) { return nil, b.subscribe(t, s) })
	return err
}

func (b *Board) subscribe(t *tx, s Subscription) error {
	if s.Platform == "" || s.ChatID == "" {
		return fmt.Errorf("%w: a subscription needs platform and chat", ErrInvalid)
	}
	if _, err := b.task(t, s.TaskID); err != nil {
		return err
	}
	_, err := t.run(`INSERT INTO kanban_notify_subs(task_id, platform, chat_id, thread_id, user_id, created_at, last_event_id)
		VALUES(?1, ?2, ?3, ?4, ?5, ?6, (SELECT coalesce(max(id), 0) FROM task_events WHERE task_id = ?1))
		ON CONFLICT DO NOTHING`, s.TaskID, s.Platform, s.ChatID, s.ThreadID, text(s.UserID), b.now().Unix())
	return err
}

// unseenEach is how many events of one subscription are looked at together: one chat that cannot be told must not keep
// the others waiting.
const unseenEach = 10

// Unseen returns events past the cursors of subscriptions, oldest first. These are the kinds that Hermes tells of, and
// archived and unblocked, of which nothing is told but past which the cursor moves.
func (b *Board) Unseen(ctx context.Context, limit int) ([]Unseen, error) {
	return read(ctx, b.database, func(t *tx) ([]Unseen, error) {
		list, err := all(t, scanUnseen, `SELECT task_id, platform, chat_id, thread_id, user_id, id, kind, payload, created_at FROM (
				SELECT s.task_id, s.platform, s.chat_id, s.thread_id, coalesce(s.user_id, '') AS user_id, e.id, e.kind,
					coalesce(e.payload, '') AS payload, e.created_at,
					row_number() OVER (PARTITION BY s.task_id, s.platform, s.chat_id, s.thread_id ORDER BY e.id) AS place
				FROM kanban_notify_subs AS s JOIN task_events AS e ON e.task_id = s.task_id AND e.id > s.last_event_id
				WHERE e.kind IN ('completed', 'blocked', 'gave_up', 'crashed', 'timed_out', 'status', 'archived', 'unblocked',
					'block_loop_detected', 'review_requested', 'changes_requested') -- as in the index hs_events_told
				AND EXISTS (SELECT 1 FROM tasks WHERE id = s.task_id))
			WHERE place <= ? ORDER BY place > 1, id LIMIT ?`, unseenEach, orDefault(limit))
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].Task, err = b.task(t, list[i].Subscription.TaskID); err != nil {
				return nil, err
			}
		}
		slices.SortStableFunc(list, func(a, b Unseen) int { return cmp.Compare(a.EventID, b.EventID) })
		return list, nil
	})
}

func scanUnseen(row scanner) (u Unseen, err error) {
	s := &u.Subscription
	err = row.Scan(&s.TaskID, &s.Platform, &s.ChatID, &s.ThreadID, &s.UserID, &u.EventID, &u.Kind, &u.Payload, &u.CreatedAt)
	return u, err
}

// Advance moves the cursor of a subscription to an event, never back.
func (b *Board) Advance(ctx context.Context, s Subscription, eventID int64) error {
	_, err := write(ctx, b.database, func(t *tx) (any, error) {
		n, err := t.run(`UPDATE kanban_notify_subs SET last_event_id = max(last_event_id, ?)
			WHERE task_id = ? AND platform = ? AND chat_id = ? AND thread_id = ?`, eventID, s.TaskID, s.Platform, s.ChatID, s.ThreadID)
		if err == nil && n == 0 {
			err = fmt.Errorf("subscription of %s %s to task %q: %w", s.Platform, s.ChatID, s.TaskID, ErrNotFound)
		}
		return nil, err
	})
	return err
}
