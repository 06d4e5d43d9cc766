package store

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Busy is what a message does to the turn that its session runs.
type Busy string

const (
	BusyQueue     Busy = "" // wait for it
	BusyInterrupt Busy = "interrupt"
	BusySteer     Busy = "steer"
)

// A Disposition says what became of a message.
type Disposition string

const (
	Started     Disposition = "started"     // nothing was before it
	Queued      Disposition = "queued"      // it waits for others
	Interrupted Disposition = "interrupted" // it waits for the end of the turn that it interrupted
	Steered     Disposition = "steered"     // it was handed to the running turn
)

// busyAnswer is what is remembered of a message that interrupted a turn.
type busyAnswer struct {
	Ahead       int
	Interrupted string
}

const kindMessage = "interrupt"

// openTurn is the turn of a session that has not ended and is before all others, none if its id is empty.
type openTurn struct {
	id      string
	begun   bool
	stopped bool
}

// runs says that it has begun and goes on.
func (o openTurn) runs() bool { return o.begun && !o.stopped }

// openTurns returns the first open turn of a session and how many there are.
func openTurns(t *tx, session string) (first openTurn, n int, err error) {
	err = t.get(`SELECT id, state = 'leased' OR attempt > 0, EXISTS (SELECT 1 FROM hs_stops WHERE turn_id = id) FROM hs_turns
		WHERE session_id = ? AND state <> 'done' ORDER BY seq LIMIT 1`, []any{session}, &first.id, &first.begun, &first.stopped)
	if errors.Is(err, ErrNotFound) {
		return first, 0, nil
	}
	if err == nil {
		err = t.get("SELECT count(*) FROM hs_turns WHERE session_id = ? AND state <> 'done'", []any{session}, &n)
	}
	return first, n, err
}

// steered answers a message that was handed to a turn before.
func steered(t *tx, in Inbound) (a Accepted, err error) {
	var next string
	err = t.get("SELECT turn_id, next_turn, session_id FROM hs_steers WHERE platform = ? AND chat_id = ? AND message_id = ?",
		[]any{in.Platform, in.ChatID, in.MessageID}, &a.TurnID, &next, &a.SessionID)
	if next != "" {
		a.TurnID = next
	}
	a.Duplicate, a.Disposition = true, Steered
	return a, err
}

// steer keeps the text of a message for a running turn.
func steer(t *tx, in Inbound, turnID, session string, now time.Time) error {
	_, err := t.run(`INSERT INTO hs_steers(platform, chat_id, thread_id, message_id, user_id, user_name, text, session_id, turn_id, at)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, in.Platform, in.ChatID, in.ThreadID, in.MessageID, in.UserID, in.UserName, in.Text,
		session, turnID, seconds(now))
	return err
}

// A waitingSteer is a text that its turn has not taken yet.
type waitingSteer struct {
	id int64
	in Inbound
}

func waitingSteers(t *tx, turnID string) ([]waitingSteer, error) {
	return all(t, func(row scanner) (w waitingSteer, err error) {
		return w, row.Scan(&w.id, &w.in.Platform, &w.in.ChatID, &w.in.ThreadID, &w.in.MessageID, &w.in.UserID, &w.in.UserName, &w.in.Text, &w.in.SessionID)
	}, `SELECT id, platform, chat_id, thread_id, message_id, user_id, user_name, text, session_id FROM hs_steers
		WHERE turn_id = ? AND state = 'waiting' ORDER BY id`, turnID)
}

func setSteers(t *tx, waiting []waitingSteer, state, next string) error {
	for _, w := range waiting {
		if _, err := t.run("UPDATE hs_steers SET state = ?, next_turn = ? WHERE id = ?", state, next, w.id); err != nil {
			return err
		}
	}
	return nil
}

// AppendRound is AppendSteps for steps after which every tool call has its result. Texts that people handed to the turn
// are stored after them in the same transaction and returned.
func (s *State) AppendRound(ctx context.Context, turnID string, fence uint64, steps []Message, systemPrompt string) (ids []int64, added []Message, err error) {
	type result struct {
		ids   []int64
		added []Message
	}
	r, err := write(ctx, s.database, func(t *tx) (r result, err error) {
		if r.ids, err = s.appendTo(t, turnID, fence, steps, systemPrompt); err != nil {
			return r, err
		}
		last := uint32(0)
		for _, m := range steps {
			last = max(last, m.Seq)
		}
		if err := s.takeSteers(t, turnID); err != nil {
			return r, err
		}
		r.added, err = stepsAfter(t, turnID, last)
		return r, err
	})
	return r.ids, r.added, err
}

// takeSteers makes the texts that wait for a turn its next steps.
func (s *State) takeSteers(t *tx, turnID string) error {
	waiting, err := waitingSteers(t, turnID)
	if err != nil || len(waiting) == 0 {
		return err
	}
	u, err := turn(t, turnID)
	if err != nil || u.State != TurnLeased {
		return err
	}
	if _, err := s.storeSteers(t, u, waiting, u.NextSeq); err != nil {
		return err
	}
	return setSteers(t, waiting, "taken", "")
}

// storeSteers makes texts steps of the turn, from a number on, and returns the next one.
func (s *State) storeSteers(t *tx, u Turn, waiting []waitingSteer, next uint32) (uint32, error) {
	for _, w := range waiting {
		if _, _, err := storeStep(t, u, Message{Role: "user", Content: w.in.Text, Seq: next}, w.in.MessageID, s.now()); err != nil {
			return next, err
		}
		next++
	}
	_, err := t.run("UPDATE hs_turns SET next_seq = max(next_seq, ?) WHERE id = ?", next, u.ID)
	return next, err
}

// stepsAfter returns the steps of people that are stored after a step.
func stepsAfter(t *tx, turnID string, seq uint32) ([]Message, error) {
	return all(t, func(row scanner) (m Message, err error) {
		var at *float64
		err = row.Scan(&m.ID, &m.SessionID, &m.TurnID, &m.Seq, &m.Role, &m.Content, &at)
		m.Time = instant(at)
		return m, err
	}, `SELECT m.id, m.session_id, p.turn_id, p.seq, m.role, coalesce(m.content, ''), m.timestamp FROM hs_steps AS p
		JOIN messages AS m ON m.id = p.message_id WHERE p.turn_id = ? AND p.seq > ? AND m.role = 'user' ORDER BY p.seq`, turnID, seq)
}

// keepSteers puts texts that a stopped turn did not take into the conversation, before its reply: the person wanted an
// end and not another turn.
func (s *State) keepSteers(t *tx, u Turn, replySeq uint32) error {
	waiting, err := waitingSteers(t, u.ID)
	if err != nil || len(waiting) == 0 {
		return err
	}
	if _, err := s.storeSteers(t, u, waiting, replySeq+1); err != nil {
		return err
	}
	return setSteers(t, waiting, "kept", "")
}

// queueSteers makes texts that a turn did not take before its end the next message of its session.
func (s *State) queueSteers(t *tx, turnID string) error {
	waiting, err := waitingSteers(t, turnID)
	if err != nil || len(waiting) == 0 {
		return err
	}
	in := waiting[0].in
	texts := make([]string, len(waiting))
	for i, w := range waiting {
		texts[i] = w.in.Text
	}
	in.Text = strings.Join(texts, "\n")
	a, err := s.enqueue(t, in, in.SessionID)
	if err != nil {
		return err
	}
	return setSteers(t, waiting, "queued", a.TurnID)
}

// followed returns the turn that texts handed to an ended one became, "" if there is none.
func followed(t *tx, turnID string) (next string, err error) {
	err = t.get("SELECT next_turn FROM hs_steers WHERE turn_id = ? AND state = 'queued' LIMIT 1", []any{turnID}, &next)
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return next, err
}

// Stop notes that a person wants a turn to end, before it has. The first reason holds; a turn that is done is left alone.
func (s *State) Stop(ctx context.Context, turnID, reason string) error {
	_, err := write(ctx, s.database, func(t *tx) (any, error) { return nil, stop(t, turnID, reason, s.now()) })
	return err
}

func stop(t *tx, turnID, reason string, now time.Time) error {
	_, err := t.run(`INSERT INTO hs_stops(turn_id, reason, at) SELECT id, ?2, ?3 FROM hs_turns WHERE id = ?1 AND state <> 'done'
		ON CONFLICT DO NOTHING`, turnID, valid(reason), seconds(now))
	return err
}
