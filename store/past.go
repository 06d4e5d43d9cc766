package store

import (
	"context"
	"fmt"
)

// shown selects the messages of a session that a person has seen: not those that were taken back, nor scaffolding.
const shown = ` WHERE m.session_id = ?1 AND (m.active = 1 OR m.compacted = 1) AND coalesce(m.display_kind, '') <> 'hidden'
	AND (?2 = '[]' OR m.role IN (SELECT value FROM json_each(?2)))`

const messageColumns = `SELECT m.id, m.session_id, '', 0, m.role, coalesce(m.content, ''),
	coalesce(m.tool_calls, ''), coalesce(m.tool_call_id, ''), coalesce(m.tool_name, ''), '', '', 0, m.timestamp FROM messages AS m`

// maxShown bounds what is read at once; a message may have a MiB.
const maxShown = 200

// A Past is a part of a session's messages in their order, and how many are before and after it.
type Past struct {
	Messages      []Message
	Before, After int
}

// Around returns messages of a session on both sides of one, which is among them whatever its role.
func (s *State) Around(ctx context.Context, sessionID string, message int64, window int, roles []string) (Past, error) {
	window = min(window, maxShown)
	return read(ctx, s.database, func(t *tx) (p Past, err error) {
		var there bool
		if err := t.get("SELECT EXISTS (SELECT 1 FROM messages WHERE id = ? AND session_id = ?)", []any{message, sessionID}, &there); err != nil {
			return p, err
		}
		if !there {
			return p, fmt.Errorf("message %d of session %s: %w", message, sessionID, ErrNotFound)
		}
		list := jsonList(roles)
		before, err := all(t, scanMessage, "SELECT * FROM ("+messageColumns+shown+" AND m.id < ?3 ORDER BY m.id DESC LIMIT ?4) ORDER BY 1", sessionID, list, message, window)
		if err != nil {
			return p, err
		}
		from, err := all(t, scanMessage, messageColumns+shown+" AND m.id > ?3 ORDER BY m.id LIMIT ?4", sessionID, list, message, window)
		if err != nil {
			return p, err
		}
		it, err := one(t, scanMessage, messageColumns+" WHERE m.id = ?", message)
		if err != nil {
			return p, err
		}
		p.Messages = append(append(before, it), from...)
		first, last := p.Messages[0].ID, p.Messages[len(p.Messages)-1].ID
		err = t.get("SELECT coalesce(sum(m.id < ?3), 0), coalesce(sum(m.id > ?4), 0) FROM messages AS m"+shown, []any{sessionID, list, first, last}, &p.Before, &p.After)
		return p, err
	})
}

// Ends returns the first and the last messages of a session, no message twice, and how many are between them.
func (s *State) Ends(ctx context.Context, sessionID string, first, last int, roles []string) (begin, end []Message, between int, err error) {
	_, err = read(ctx, s.database, func(t *tx) (struct{}, error) {
		list := jsonList(roles)
		if begin, err = all(t, scanMessage, messageColumns+shown+" ORDER BY m.id LIMIT ?3", sessionID, list, min(first, maxShown)); err != nil {
			return struct{}{}, err
		}
		after := int64(0)
		if len(begin) > 0 {
			after = begin[len(begin)-1].ID
		}
		if end, err = all(t, scanMessage, "SELECT * FROM ("+messageColumns+shown+" AND m.id > ?3 ORDER BY m.id DESC LIMIT ?4) ORDER BY 1", sessionID, list, after, min(last, maxShown)); err != nil {
			return struct{}{}, err
		}
		var total int
		err := t.get("SELECT count(*) FROM messages AS m"+shown, []any{sessionID, list}, &total)
		between = total - len(begin) - len(end)
		return struct{}{}, err
	})
	return begin, end, between, err
}
