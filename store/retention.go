package store

import "time"

const (
	retainRows  = 50        // turns removed in one step, so that it delays nobody
	retainEvery = time.Hour // between two looks when there is nothing to remove
)

// retention removes the rows of this system that nobody asks for any more. It belongs to the loop. The conversations
// themselves are Hermes' rows and are not touched.
//
// The age is a promise too: within it a message, a command, an answer to a question and a text for a chat that come a
// second time are known as such. So nothing younger goes, and nothing that is still owed, asked or running, however old.
// What a person allowed for always (hs_allowances) stays until the person takes it back, and hs_meta is a few rows.
//
// By a clock that is years ahead everything is old. A machine that was just switched on has one until a time server was heard,
// so nothing goes in the first retainEvery of a process, nor in that after a jump of the clock.
type retention struct {
	keep  time.Duration // 0: for ever
	next  time.Time
	going bool // there was something to remove at the last look

	wall, steady time.Time // the last look at the clock, and when it was by one that does not jump
}

// trusts says that the clock has not jumped forward since the last look at it.
func (r *retention) trusts(wall time.Time) bool {
	first := r.wall.IsZero()
	jump := wall.Sub(r.wall) - time.Since(r.steady)
	r.wall, r.steady = wall, time.Now()
	return first || jump <= clockSlack
}

// forgettable selects turns that ended before ?1 and of which nothing is owed or asked any more.
const forgettable = `SELECT u.id FROM hs_turns AS u WHERE u.state = 'done' AND u.ended_at < ?1
	AND NOT EXISTS (SELECT 1 FROM hs_outbox AS o WHERE o.turn_id = u.id AND o.state IN ('pending', 'sending', 'unknown'))
	AND NOT EXISTS (SELECT 1 FROM hs_approvals AS a WHERE a.turn_id = u.id AND a.decided = 0)
	AND NOT EXISTS (SELECT 1 FROM hs_tool_calls AS c WHERE c.turn_id = u.id AND c.state IN ('intent', 'approval', 'running'))
	AND NOT EXISTS (SELECT 1 FROM hs_steers AS s WHERE s.turn_id = u.id AND s.state = 'waiting')
	ORDER BY u.seq LIMIT ?2`

// forget removes what belongs to one turn, and the turn last.
var forget = []string{
	"DELETE FROM hs_steps WHERE turn_id = ?1", "DELETE FROM hs_tool_calls WHERE turn_id = ?1", "DELETE FROM hs_approvals WHERE turn_id = ?1",
	"DELETE FROM hs_steers WHERE turn_id = ?1", "DELETE FROM hs_stops WHERE turn_id = ?1", "DELETE FROM hs_restarted WHERE turn_id = ?1",
	"DELETE FROM hs_inbox WHERE turn_id = ?1", "DELETE FROM hs_turns WHERE id = ?1",
}

// outdated removes what is older than ?1 and belongs to no turn, at most ?2 rows each.
var outdated = []string{
	"DELETE FROM hs_outbox WHERE id IN (SELECT id FROM hs_outbox WHERE state IN ('sent', 'rejected') AND coalesce(sent_at, created_at) < ?1 ORDER BY id LIMIT ?2)",
	`DELETE FROM hs_answers WHERE (platform, chat_id, message_id) IN (SELECT platform, chat_id, message_id FROM hs_answers WHERE at < ?1 LIMIT ?2)`,
	`DELETE FROM hs_confirmations WHERE id IN (SELECT id FROM hs_confirmations
		WHERE (done = 1 OR state = 'cancelled' OR state = 'pending' AND deadline < ?1) AND asked_at < ?1 LIMIT ?2)`,
	`DELETE FROM hs_notices WHERE (platform, chat_id, kind) IN (SELECT platform, chat_id, kind FROM hs_notices WHERE at < ?1 LIMIT ?2)`,
	`DELETE FROM hs_restarts WHERE (platform, chat_id, message_id) IN (SELECT platform, chat_id, message_id FROM hs_restarts
		WHERE told_at IS NOT NULL AND asked_at < ?1 LIMIT ?2)`,
}

// retain takes one step of the retention, once a beat while there is something to remove and nobody waits to write.
func (w *writer) retain() {
	r := &w.retention
	if r.keep > 0 && !r.trusts(w.now().Round(0)) {
		r.next = time.Now().Add(retainEvery)
	}
	if r.keep <= 0 || time.Now().Before(r.next) || len(w.queue) > 0 {
		return
	}
	removed, err := w.retainOnce(w.now().Add(-r.keep))
	if err != nil {
		w.notice(err)
	}
	r.going = err == nil && removed > 0
	if !r.going {
		r.next = time.Now().Add(retainEvery)
	}
}

func (w *writer) retainOnce(before time.Time) (removed int64, err error) {
	if w.conn.exec("BEGIN IMMEDIATE") != nil {
		return 1, nil // another program writes; the next beat tries again
	}
	defer w.conn.rollback()
	t := &tx{conn: w.conn, ctx: background}
	turns, err := all(t, scanString, forgettable, seconds(before), retainRows)
	if err != nil {
		return 0, err
	}
	for _, id := range turns {
		for _, statement := range forget {
			if _, err := t.run(statement, id); err != nil {
				return 0, err
			}
		}
	}
	removed = int64(len(turns))
	for _, statement := range outdated {
		n, err := t.run(statement, seconds(before), retainRows)
		if err != nil {
			return 0, err
		}
		removed += n
	}
	if removed == 0 {
		w.conn.wrote = false
		return 0, nil
	}
	return removed, w.commit()
}
