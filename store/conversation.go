package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ErrTurnOpen says that a session has a turn that has not ended, which must not lose the conversation below it.
var ErrTurnOpen = errors.New("a turn is open")

// A Place names a conversation as a message does: SessionID overrides SessionKey, which overrides the rest.
type Place struct {
	Platform, ChatID, ThreadID, ChatType, UserID, SessionKey, SessionID string
}

func (p Place) key() string {
	if p.SessionKey != "" {
		return p.SessionKey
	}
	return SessionKeyFor(Inbound{Platform: p.Platform, ChatID: p.ChatID, ThreadID: p.ThreadID, ChatType: p.ChatType, UserID: p.UserID})
}

// A SessionSum is a session with what it has used.
type SessionSum struct {
	Session
	Used    Usage
	Preview string // the beginning of the person's first message
}

// A SessionFilter selects sessions of one platform; empty fields select all.
type SessionFilter struct {
	Platform, ChatID, UserID string
	Limit                    int // 0: 10
}

// previewLength is in characters.
const previewLength = 80

var sumColumns = strings.Replace(sessionColumns, " FROM sessions AS s", fmt.Sprintf(`, coalesce(s.input_tokens, 0), coalesce(s.output_tokens, 0),
	coalesce(s.cache_read_tokens, 0), coalesce(s.reasoning_tokens, 0), coalesce((SELECT substr(m.content, 1, %d) FROM messages AS m
	WHERE m.session_id = s.id AND m.role = 'user' AND m.active = 1 ORDER BY m.id LIMIT 1), '') FROM sessions AS s`, previewLength), 1)

// sumRow scans what sumColumns add to a session.
type sumRow struct {
	row   scanner
	extra []any
}

func (r sumRow) Scan(dest ...any) error { return r.row.Scan(append(dest, r.extra...)...) }

func scanSum(row scanner) (s SessionSum, err error) {
	s.Session, err = scanSession(sumRow{row, []any{&s.Used.Input, &s.Used.Output, &s.Used.CacheRead, &s.Used.Reasoning, &s.Preview}})
	s.Preview = decodeContent(s.Preview)
	return s, err
}

func sum(t *tx, id string) (SessionSum, error) {
	s, err := one(t, scanSum, sumColumns+" WHERE s.id = ?", id)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("session %q: %w", id, err)
	}
	return s, err
}

// CurrentSession returns the session that the next message of a place goes on with; ErrNotFound if it would open one.
func (s *State) CurrentSession(ctx context.Context, p Place) (SessionSum, error) {
	return read(ctx, s.database, func(t *tx) (SessionSum, error) {
		id, err := sessionOf(t, p)
		if err != nil {
			return SessionSum{}, err
		}
		return sum(t, id)
	})
}

// sessionOf finds the session of a place and changes nothing.
func sessionOf(t *tx, p Place) (string, error) {
	if p.SessionID != "" {
		return p.SessionID, nil
	}
	id, _, err := peekSession(t, p.key())
	return id, err
}

// RecentSessions returns sessions, the newest activity first. Archived, hidden and subagents' ones are left out.
func (s *State) RecentSessions(ctx context.Context, f SessionFilter) ([]SessionSum, error) {
	if f.Limit <= 0 {
		f.Limit = 10
	}
	return read(ctx, s.database, func(t *tx) ([]SessionSum, error) {
		return all(t, scanSum, sumColumns+` WHERE s.source = ?1 AND (?2 = '' OR s.chat_id = ?2) AND (?3 = '' OR s.user_id = ?3)
			AND s.archived = 0 AND s.hidden = 0 ORDER BY coalesce(s.last_activity_at, s.started_at) DESC, s.started_at DESC LIMIT ?4`,
			f.Platform, f.ChatID, f.UserID, f.Limit)
	})
}

// MaxTitle is the length of a title in characters.
const MaxTitle = 100

// CleanTitle makes one line of a title, without characters that do not show.
func CleanTitle(title string) string {
	title = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(title, ""))
	return strings.Join(strings.Fields(title), " ")
}

// SetTitle names the session of a place. A title that another session has is ErrExists, one that is too long ErrInvalid;
// an empty one takes the title away.
func (s *State) SetTitle(ctx context.Context, p Place, title string) (SessionSum, error) {
	title = CleanTitle(title)
	if n := len([]rune(title)); n > MaxTitle {
		return SessionSum{}, fmt.Errorf("title: %w: it has %d characters, at most %d are kept", ErrInvalid, n, MaxTitle)
	}
	return write(ctx, s.database, func(t *tx) (SessionSum, error) {
		id, err := sessionOf(t, p)
		if err != nil {
			return SessionSum{}, err
		}
		var other string
		err = t.get("SELECT id FROM sessions WHERE title = ? AND id <> ?", []any{title, id}, &other)
		if err == nil {
			return SessionSum{}, fmt.Errorf("title %q: %w: session %s has it, choose another", title, ErrExists, other)
		}
		if !errors.Is(err, ErrNotFound) {
			return SessionSum{}, err
		}
		if _, err := t.run("UPDATE sessions SET title = ?, title_source = 'user' WHERE id = ?", text(title), id); err != nil {
			return SessionSum{}, err
		}
		return sum(t, id)
	})
}

// SetModel sets the model of the session of a place from its next turn on; empty means the configured one.
func (s *State) SetModel(ctx context.Context, p Place, model string) (SessionSum, error) {
	return write(ctx, s.database, func(t *tx) (SessionSum, error) {
		id, err := sessionOf(t, p)
		if err != nil {
			return SessionSum{}, err
		}
		if _, err := t.run("UPDATE sessions SET model = ? WHERE id = ?", text(model), id); err != nil {
			return SessionSum{}, err
		}
		return sum(t, id)
	})
}

// Bind makes a session the current one of a place: it is named by its id, the beginning of that, or its title. Only what
// belongs to the chat or the person of the place is found.
func (s *State) Bind(ctx context.Context, p Place, name, messageID string) (SessionSum, error) {
	return write(ctx, s.database, func(t *tx) (SessionSum, error) {
		id, _, err := once(t, s, p, messageID, "resume", func() (string, error) { return bind(t, s, p, name) })
		if err != nil {
			return SessionSum{}, err
		}
		return sum(t, id)
	})
}

func bind(t *tx, s *State, p Place, name string) (string, error) {
	id, err := named(t, p, name)
	if err != nil {
		return "", err
	}
	if id, err = continuation(t, id); err != nil {
		return "", err
	}
	key := p.key()
	current, _, err := peekSession(t, key)
	switch {
	case err == nil && current == id:
		return id, nil
	case err == nil:
		if err := atRest(t, current); err != nil {
			return "", err
		}
	case !errors.Is(err, ErrNotFound):
		return "", err
	}
	// The newest session of a key counts unless it was left for another one; that one is open, and no other is.
	if _, err := t.run(`UPDATE sessions SET ended_at = coalesce(ended_at, ?1), end_reason = 'session_switch' WHERE session_key = ?2 AND id <> ?3
		AND source <> 'subagent' AND (ended_at IS NULL OR id = (SELECT id FROM sessions WHERE session_key = ?2 AND source <> 'subagent'
		ORDER BY started_at DESC, rowid DESC LIMIT 1))`, seconds(s.now()), key, id); err != nil {
		return "", err
	}
	_, err = t.run(`UPDATE sessions SET ended_at = NULL, end_reason = NULL, session_key = ?, chat_id = ?, chat_type = ?, thread_id = ? WHERE id = ?`,
		key, p.ChatID, text(orDM(p.ChatType)), text(p.ThreadID), id)
	return id, err
}

func orDM(kind string) string {
	if kind == "" {
		return "dm"
	}
	return kind
}

// named finds the session that a person means.
func named(t *tx, p Place, name string) (string, error) {
	const own = ` AND source = ? AND (chat_id = ? OR (user_id <> '' AND user_id = ?))`
	scan := func(row scanner) (id string, err error) { return id, row.Scan(&id) }
	for _, q := range []struct{ where, arg string }{
		{"id = ?", name}, {"title = ? COLLATE NOCASE", CleanTitle(name)}, {`id LIKE ? ESCAPE '\'`, likeEscape.Replace(name) + "%"},
	} {
		ids, err := all(t, scan, "SELECT id FROM sessions WHERE "+q.where+own+" ORDER BY started_at DESC LIMIT 6", q.arg, p.Platform, p.ChatID, p.UserID)
		switch {
		case err != nil:
			return "", err
		case len(ids) == 1:
			return ids[0], nil
		case len(ids) > 1:
			return "", fmt.Errorf("session %q: %w: it can be any of %s; write more of the id", name, ErrInvalid, strings.Join(slices.Compact(ids), ", "))
		}
	}
	return "", fmt.Errorf("session %q of this chat: %w", name, ErrNotFound)
}

// atRest refuses a session that has an open turn.
func atRest(t *tx, session string) error {
	var id string
	err := t.get("SELECT id FROM hs_turns WHERE session_id = ? AND state <> 'done' LIMIT 1", []any{session}, &id)
	switch {
	case err == nil:
		return fmt.Errorf("session %s: %w: wait for its end or stop it first", session, ErrTurnOpen)
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return err
}

// EndSession ends the current session of a place, so that the next message opens a new one. It returns "" if there was
// none.
func (s *State) EndSession(ctx context.Context, p Place, messageID string) (ended string, duplicate bool, err error) {
	type result struct {
		id        string
		duplicate bool
	}
	r, err := write(ctx, s.database, func(t *tx) (r result, err error) {
		r.id, r.duplicate, err = once(t, s, p, messageID, "new", func() (string, error) {
			id, err := sessionOf(t, p)
			if errors.Is(err, ErrNotFound) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			return id, reset(t, Inbound{Platform: p.Platform, SessionKey: p.key()}, id, s.now())
		})
		return r, err
	})
	return r.id, r.duplicate, err
}

// An OpenTurn is a turn that has not ended, with its message.
type OpenTurn struct {
	Turn
	Text string
}

// OpenIn returns the turns of a session, or of a chat and, if it is named, a thread of it, that have not ended, in the
// order of acceptance.
func (s *State) OpenIn(ctx context.Context, p Place) ([]OpenTurn, error) {
	return read(ctx, s.database, func(t *tx) ([]OpenTurn, error) {
		turns, err := all(t, scanTurn, turnColumns+` WHERE state <> 'done' AND platform = ?1 AND (CASE WHEN ?4 <> '' THEN session_id = ?4
			ELSE chat_id = ?2 AND (?3 = '' OR thread_id = ?3) END) ORDER BY seq`, p.Platform, p.ChatID, p.ThreadID, p.SessionID)
		if err != nil {
			return nil, err
		}
		open := make([]OpenTurn, len(turns))
		for i, u := range turns {
			open[i].Turn = u
			if err := t.get("SELECT text FROM hs_inbox WHERE turn_id = ?", []any{u.ID}, &open[i].Text); err != nil {
				return nil, err
			}
		}
		return open, nil
	})
}
