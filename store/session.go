package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// SessionKeyFor names the conversation that a message belongs to: one a chat and thread, and in a group without threads
// one a person.
func SessionKeyFor(in Inbound) string {
	kind := in.ChatType
	if kind == "" {
		kind = "dm"
	}
	key := "agent:main:" + in.Platform + ":" + kind + ":" + in.ChatID
	if in.ThreadID != "" {
		return key + ":" + in.ThreadID
	}
	if kind != "dm" && in.UserID != "" {
		key += ":" + in.UserID
	}
	return key
}

// sessionFor finds or opens the session of a message.
func sessionFor(t *tx, in Inbound, now time.Time) (string, error) {
	if in.SessionID != "" {
		return continuation(t, in.SessionID)
	}
	id, err := currentSession(t, in.SessionKey)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return "", err
	case !in.NewSession:
		return id, nil
	default:
		if err := reset(t, in, id, now); err != nil {
			return "", err
		}
	}
	return openSession(t, in, now)
}

// accidents are the ends that nobody asked for: the next message goes on with such a session, as in Hermes. Every other
// end holds, whatever restarts come.
var accidents = map[string]bool{"agent_close": true, "ws_orphan_reap": true, "superseded_by_resume": true,
	"startup_orphan_reap": true, "tui_shutdown": true, "ws_disconnect": true, "idle_timeout": true, "lru_evict": true}

// currentSession returns the session that the next message of key belongs to, and opens it if it was closed by accident.
func currentSession(t *tx, key string) (string, error) {
	id, open, err := peekSession(t, key)
	if err != nil || open {
		return id, err
	}
	return id, reopen(t, id)
}

// peekSession finds the session that the next message of key belongs to: the newest one, unless it was ended on purpose.
func peekSession(t *tx, key string) (id string, open bool, err error) {
	var end string
	err = t.get(`SELECT id, ended_at IS NULL, coalesce(end_reason, '') FROM sessions
		WHERE session_key = ? AND source <> 'subagent' ORDER BY started_at DESC, rowid DESC LIMIT 1`, []any{key}, &id, &open, &end)
	switch {
	case err != nil || open:
		return id, open, err
	case accidents[end]:
		return id, false, nil
	case end == "compression":
		id, err = successor(t, id)
		return id, false, err
	case end == "session_switch" || end == "resumed_other": // the chat has gone back to an older one, which is open
		err := t.get(`SELECT id FROM sessions WHERE session_key = ? AND source <> 'subagent' AND ended_at IS NULL
			ORDER BY started_at DESC, rowid DESC LIMIT 1`, []any{key}, &id)
		return id, true, err
	}
	return "", false, ErrNotFound
}

func reopen(t *tx, id string) error {
	_, err := t.run("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ? AND ended_at IS NOT NULL", id)
	return err
}

// continuation follows a session that was closed by compression to the one that carries it on, and opens it.
func continuation(t *tx, id string) (string, error) {
	id, err := successor(t, id)
	if err != nil {
		return "", err
	}
	return id, reopen(t, id)
}

// successor is the session that carries on one that was closed by compression, which may be itself.
func successor(t *tx, id string) (string, error) {
	for range 1000 { // as long as Hermes' own walk; a longer chain is a circle
		var reason string
		if err := t.get("SELECT coalesce(end_reason, '') FROM sessions WHERE id = ?", []any{id}, &reason); err != nil {
			return "", fmt.Errorf("session %q: %w", id, err)
		}
		if reason != "compression" {
			return id, nil
		}
		err := t.get("SELECT id FROM sessions WHERE parent_session_id = ? ORDER BY started_at DESC, rowid DESC LIMIT 1", []any{id}, &id)
		if errors.Is(err, ErrNotFound) {
			return id, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: session %q is its own successor", ErrInvalid, id)
}

// reset ends the current session of a key on the user's word.
func reset(t *tx, in Inbound, id string, now time.Time) error {
	if _, err := t.run("UPDATE sessions SET ended_at = ?, end_reason = 'session_reset' WHERE id = ?", seconds(now), id); err != nil {
		return err
	}
	_, err := t.run(`INSERT INTO conversation_generations(source, session_key, generation) VALUES(?, ?, 1)
		ON CONFLICT(source, session_key) DO UPDATE SET generation = generation + 1`, in.Platform, in.SessionKey)
	return err
}

// after is now, or where the clock was set back a moment after the newest session of a key: the newest is the one that
// counts, for Hermes too.
func after(t *tx, key string, now time.Time) (time.Time, error) {
	var newest *float64
	if err := t.get("SELECT max(started_at) FROM sessions WHERE session_key = ? AND source <> 'subagent'", []any{key}, &newest); err != nil {
		return now, err
	}
	if least := instant(newest).Add(time.Millisecond); newest != nil && now.Before(least) {
		return least, nil
	}
	return now, nil
}

func openSession(t *tx, in Inbound, now time.Time) (string, error) {
	id := now.Format("20060102_150405") + "_" + randomHex(4)
	started, err := after(t, in.SessionKey, now)
	if err != nil {
		return "", err
	}
	_, err = t.run(`INSERT INTO sessions(id, source, created_source, user_id, session_key, chat_id, chat_type, thread_id,
		display_name, model, started_at, last_activity_at) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		id, in.Platform, in.Platform, text(in.UserID), in.SessionKey, in.ChatID, in.ChatType, text(in.ThreadID),
		text(in.UserName), text(in.Model), seconds(started), seconds(now))
	if err != nil {
		return "", err
	}
	if err := setPrompt(t, id, in.System); err != nil {
		return "", err
	}
	for _, m := range in.History {
		if m.Role == "" {
			return "", fmt.Errorf("%w: a message of the history has no role", ErrInvalid)
		}
		if _, err := appendMessage(t, id, m, "", now); err != nil {
			return "", err
		}
	}
	return id, nil
}

// promptsByHash is the version of Hermes' schema from which prompts are kept once, under their hash.
const promptsByHash = 25

// setPrompt stores the system prompt of a session that has none yet, where the file's version of Hermes looks for it.
func setPrompt(t *tx, id, prompt string) error {
	if prompt == "" {
		return nil
	}
	prompt = valid(prompt)
	var version int
	if err := t.get("SELECT coalesce(max(version), 0) FROM schema_version WHERE typeof(version) = 'integer'", nil, &version); err != nil {
		return err
	}
	const unset = " WHERE id = ? AND coalesce(system_prompt, '') = '' AND system_prompt_hash IS NULL"
	if version < promptsByHash {
		_, err := t.run("UPDATE sessions SET system_prompt = ?"+unset, prompt, id)
		return err
	}
	sum := sha256.Sum256([]byte(prompt))
	hash := hex.EncodeToString(sum[:])
	if _, err := t.run("INSERT INTO system_prompts(hash, prompt) VALUES(?, ?) ON CONFLICT DO NOTHING", hash, prompt); err != nil {
		return err
	}
	_, err := t.run("UPDATE sessions SET system_prompt_hash = ?"+unset, hash, id)
	return err
}

// text is a string for a column of Hermes, in which nothing is NULL.
func text(s string) any {
	if s == "" {
		return nil
	}
	return valid(s)
}

const sessionColumns = `SELECT s.id, s.source, coalesce(s.session_key, ''), coalesce(s.chat_id, ''), coalesce(s.chat_type, ''),
	coalesce(s.thread_id, ''), coalesce(s.user_id, ''), coalesce(s.display_name, ''), coalesce(s.model, ''),
	coalesce(nullif(s.system_prompt, ''), (SELECT prompt FROM system_prompts WHERE hash = s.system_prompt_hash), ''),
	coalesce(s.title, ''), s.started_at, s.ended_at, coalesce(s.end_reason, ''), s.last_activity_at,
	coalesce(s.message_count, 0), coalesce(s.tool_call_count, 0) FROM sessions AS s`

func scanSession(row scanner) (s Session, err error) {
	var started, ended, active *float64
	err = row.Scan(&s.ID, &s.Source, &s.Key, &s.ChatID, &s.ChatType, &s.ThreadID, &s.UserID, &s.DisplayName, &s.Model,
		&s.SystemPrompt, &s.Title, &started, &ended, &s.EndReason, &active, &s.Messages, &s.ToolCalls)
	s.StartedAt, s.EndedAt, s.LastActive = instant(started), instant(ended), instant(active)
	if active == nil {
		s.LastActive = s.StartedAt
	}
	return s, err
}

// Session returns one session.
func (s *State) Session(ctx context.Context, id string) (Session, error) {
	return read(ctx, s.database, func(t *tx) (Session, error) {
		return one(t, scanSession, sessionColumns+" WHERE s.id = ?", id)
	})
}

// Sessions returns sessions of a source, of all sources if it is empty, the newest activity first. Archived and hidden
// ones are left out. No limit (0) means 100.
func (s *State) Sessions(ctx context.Context, source string, limit int) ([]Session, error) {
	return read(ctx, s.database, func(t *tx) ([]Session, error) {
		return all(t, scanSession, sessionColumns+` WHERE (?1 = '' OR s.source = ?1) AND s.archived = 0 AND s.hidden = 0
			ORDER BY coalesce(s.last_activity_at, s.started_at) DESC, s.started_at DESC LIMIT ?2`, source, orDefault(limit))
	})
}

// orDefault is the length of a list for which the caller names none.
func orDefault(limit int) int {
	if limit <= 0 {
		return 100
	}
	return limit
}
