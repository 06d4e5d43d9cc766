package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const turnColumns = `SELECT seq, id, session_id, platform, chat_id, thread_id, message_id, user_id, user_name, state, fence, worker,
	attempt, interrupted, next_seq, outcome, final, error, accepted_at, leased_at, ended_at,
	(SELECT reason FROM hs_stops WHERE turn_id = hs_turns.id),
	coalesce((SELECT looped FROM hs_restarted WHERE turn_id = hs_turns.id), 0) FROM hs_turns`

func scanTurn(row scanner) (u Turn, err error) {
	var accepted, leased, ended *float64
	var stop *string
	err = row.Scan(&u.Seq, &u.ID, &u.SessionID, &u.Platform, &u.ChatID, &u.ThreadID, &u.MessageID, &u.UserID, &u.UserName,
		&u.State, &u.Fence, &u.Worker, &u.Attempt, &u.Interrupted, &u.NextSeq, &u.Outcome, &u.Final, &u.Error,
		&accepted, &leased, &ended, &stop, &u.Looped)
	if stop != nil {
		u.Stopped, u.StopReason = true, *stop
	}
	u.AcceptedAt, u.LeasedAt, u.EndedAt = instant(accepted), instant(leased), instant(ended)
	return u, err
}

func turn(t *tx, id string) (Turn, error) {
	u, err := one(t, scanTurn, turnColumns+" WHERE id = ?", id)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("turn %q: %w", id, err)
	}
	return u, err
}

// Turn returns one turn.
func (s *State) Turn(ctx context.Context, id string) (Turn, error) {
	return read(ctx, s.database, func(t *tx) (Turn, error) { return turn(t, id) })
}

// Open returns the turns that are not done, in order of acceptance.
func (s *State) Open(ctx context.Context) ([]Turn, error) {
	return read(ctx, s.database, func(t *tx) ([]Turn, error) {
		return all(t, scanTurn, turnColumns+" WHERE state <> 'done' ORDER BY seq")
	})
}

// Lease gives a turn to a worker under a new fence, which ends the writes of an earlier holder. The first lease makes
// the user's message a row of the conversation, so that rows stand in the order in which turns run. A done turn is
// ErrExists.
func (s *State) Lease(ctx context.Context, turnID, worker string) (Turn, error) {
	return write(ctx, s.database, func(t *tx) (Turn, error) {
		u, err := turn(t, turnID)
		if err != nil {
			return u, err
		}
		if u.State == TurnDone {
			return u, fmt.Errorf("turn %q is done: %w", turnID, ErrExists)
		}
		now := s.now()
		if err := storeQuestion(t, u, now); err != nil {
			return u, err
		}
		if _, err := t.run(`UPDATE hs_turns SET state = 'leased', fence = fence + 1, attempt = attempt + 1, worker = ?, leased_at = ?,
			next_seq = max(next_seq, 1) WHERE id = ?`, worker, seconds(now), turnID); err != nil {
			return u, err
		}
		return turn(t, turnID)
	})
}

// storeQuestion makes the user's message step 0 of the turn.
func storeQuestion(t *tx, u Turn, now time.Time) error {
	if u.NextSeq > 0 {
		return nil
	}
	var question string
	if err := t.get("SELECT text FROM hs_inbox WHERE turn_id = ?", []any{u.ID}, &question); err != nil {
		return err
	}
	_, _, err := storeStep(t, u, Message{Role: "user", Content: question}, u.MessageID, now)
	return err
}

// Requeue takes a leased turn from a worker that died, and counts the loss. A turn that is queued or done is returned
// as it is.
func (s *State) Requeue(ctx context.Context, turnID string, fence uint64) (Turn, error) {
	return write(ctx, s.database, func(t *tx) (Turn, error) { return s.requeue(t, turnID, fence, 1) })
}

// Release is Requeue for a lease that ends by plan: it counts as no interruption.
func (s *State) Release(ctx context.Context, turnID string, fence uint64) (Turn, error) {
	return write(ctx, s.database, func(t *tx) (Turn, error) { return s.requeue(t, turnID, fence, 0) })
}

func (s *State) requeue(t *tx, turnID string, fence uint64, interrupted int) (Turn, error) {
	u, err := turn(t, turnID)
	if err != nil || u.State != TurnLeased {
		return u, err
	}
	if u.Fence != fence {
		return u, lost(u, fence)
	}
	if _, err := t.run("UPDATE hs_turns SET state = 'queued', worker = '', interrupted = interrupted + ? WHERE id = ?", interrupted, turnID); err != nil {
		return u, err
	}
	return turn(t, turnID)
}

func lost(u Turn, fence uint64) error {
	return fmt.Errorf("turn %q: %w: fence %d, the turn has %d and is %s", u.ID, ErrLeaseLost, fence, u.Fence, u.State)
}

// AppendSteps stores steps of a leased turn in one transaction and returns their row ids. A (turn, seq) that is stored
// already keeps its row, whose id is returned. systemPrompt is kept with the session if that has none yet.
func (s *State) AppendSteps(ctx context.Context, turnID string, fence uint64, steps []Message, systemPrompt string) ([]int64, error) {
	return write(ctx, s.database, func(t *tx) ([]int64, error) { return s.appendTo(t, turnID, fence, steps, systemPrompt) })
}

func (s *State) appendTo(t *tx, turnID string, fence uint64, steps []Message, systemPrompt string) ([]int64, error) {
	u, err := turn(t, turnID)
	if err != nil {
		return nil, err
	}
	if u.Fence != fence || u.State == TurnQueued {
		return nil, lost(u, fence)
	}
	if u.State == TurnLeased {
		if err := setPrompt(t, u.SessionID, systemPrompt); err != nil {
			return nil, err
		}
	}
	return s.appendSteps(t, u, steps)
}

func (s *State) appendSteps(t *tx, u Turn, steps []Message) ([]int64, error) {
	now, next, fresh := s.now(), u.NextSeq, false
	ids := make([]int64, 0, len(steps))
	for _, m := range steps {
		id, created, err := storeStep(t, u, m, "", now)
		if err != nil {
			return nil, err
		}
		if created && u.State != TurnLeased {
			return nil, lost(u, u.Fence) // the turn has ended; what it had stored before stays answered
		}
		ids = append(ids, id)
		fresh = fresh || created
		next = max(next, m.Seq+1)
	}
	if !fresh {
		return ids, nil
	}
	_, err := t.run("UPDATE hs_turns SET next_seq = ?, interrupted = 0 WHERE id = ?", next, u.ID)
	return ids, err
}

// storeStep stores a step under its key (turn, seq), or finds the row that has it.
func storeStep(t *tx, u Turn, m Message, platformID string, now time.Time) (id int64, created bool, err error) {
	err = t.get("SELECT message_id FROM hs_steps WHERE turn_id = ? AND seq = ?", []any{u.ID, m.Seq}, &id)
	if !errors.Is(err, ErrNotFound) {
		return id, false, err
	}
	if m.Role == "" {
		return 0, false, fmt.Errorf("turn %q: %w: step %d has no role", u.ID, ErrInvalid, m.Seq)
	}
	if id, err = appendMessage(t, u.SessionID, m, platformID, now); err != nil {
		return 0, false, err
	}
	_, err = t.run("INSERT INTO hs_steps(turn_id, seq, message_id) VALUES(?, ?, ?)", u.ID, m.Seq, id)
	return id, true, err
}

// FinishTurn stores the reply, its outbox row and the end of the turn in one transaction. A turn that is done under the
// same fence is returned unchanged. A queued turn is finished under its current fence; its question is stored with the
// reply, so that the conversation is whole.
func (s *State) FinishTurn(ctx context.Context, f Finish) (Turn, error) {
	if f.Outcome == "" {
		return Turn{}, fmt.Errorf("turn %q: %w: no outcome", f.TurnID, ErrInvalid)
	}
	return write(ctx, s.database, func(t *tx) (Turn, error) {
		u, err := turn(t, f.TurnID)
		if err != nil {
			return u, err
		}
		if u.Fence != f.Fence {
			return u, lost(u, f.Fence)
		}
		if u.State != TurnDone {
			if err := s.finish(t, u, f); err != nil {
				return u, err
			}
		}
		if u, err = turn(t, f.TurnID); err != nil {
			return u, err
		}
		u.Followed, err = followed(t, u.ID)
		return u, err
	})
}

func (s *State) finish(t *tx, u Turn, f Finish) error {
	now := s.now()
	if err := storeQuestion(t, u, now); err != nil {
		return err
	}
	next, reply := max(u.NextSeq, 1), f.Reply
	if reply.Content != "" {
		if reply.Role == "" {
			reply.Role = "assistant"
		}
		if reply.Seq == 0 { // step 0 is the question
			reply.Seq = next
		}
	}
	if f.Outcome == OutcomeInterrupted {
		if err := s.keepSteers(t, u, max(next, reply.Seq)); err != nil {
			return err
		}
	}
	if reply.Content != "" {
		if _, _, err := storeStep(t, u, reply, "", now); err != nil {
			return err
		}
		next = max(next, reply.Seq+1)
	}
	if _, err := t.run(`UPDATE hs_turns SET state = 'done', worker = '', next_seq = max(next_seq, ?), outcome = ?, final = ?, error = ?, ended_at = ?
		WHERE id = ?`, next, f.Outcome, valid(reply.Content), valid(f.Error), seconds(now), u.ID); err != nil {
		return err
	}
	if err := errors.Join(closeApprovals(t, u.ID, now), s.queueSteers(t, u.ID)); err != nil {
		return err
	}
	if !f.Outbox || reply.Content == "" {
		return nil
	}
	_, _, err := putOutbox(t, OutboxRow{Key: answerKey + u.ID, Platform: u.Platform, ChatID: u.ChatID, ThreadID: u.ThreadID,
		ReplyTo: u.MessageID, TurnID: u.ID, Text: reply.Content}, now)
	return err
}
