package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

// ErrInUse says that a session has a turn that is queued or running, or that another program works on it.
var ErrInUse = errors.New("in use")

const (
	maxTitle   = 100  // characters
	maxLineage = 1000 // sessions of one chain that are followed; more is a circle
)

// checkTitle makes a title as Hermes keeps them: one line without characters that are not seen.
func checkTitle(title string) (string, error) {
	if strings.ContainsAny(title, "\r\n") {
		return "", fmt.Errorf("%w: a title is one line", ErrInvalid)
	}
	title = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, valid(title))), " ")
	switch n := utf8.RuneCountInString(title); {
	case n == 0:
		return "", fmt.Errorf("%w: the title is empty", ErrInvalid)
	case n > maxTitle:
		return "", fmt.Errorf("%w: the title has %d characters, at most %d are kept", ErrInvalid, n, maxTitle)
	}
	return title, nil
}

// Rename gives a session a title, which no other session may have.
func (s *State) Rename(ctx context.Context, name, title string) (SessionInfo, error) {
	title, err := checkTitle(title)
	if err != nil {
		return SessionInfo{}, err
	}
	return write(ctx, s.database, func(t *tx) (SessionInfo, error) {
		i, err := findSession(t, name)
		if err != nil {
			return i, err
		}
		var other string
		err = t.get("SELECT id FROM sessions WHERE title = ? AND id <> ?", []any{title, i.ID}, &other)
		if err == nil {
			return i, fmt.Errorf("title %q: %w, session %s has it", title, ErrExists, other)
		}
		if !errors.Is(err, ErrNotFound) {
			return i, err
		}
		if _, err := t.run("UPDATE sessions SET title = ?, title_source = 'user' WHERE id = ?", title, i.ID); err != nil {
			return i, err
		}
		return sessionInfo(t, i.ID)
	})
}

// busy says why a session cannot be changed now.
func busy(t *tx, id string, now time.Time) error {
	var turn, lease, lock bool
	err := t.get(`SELECT EXISTS (SELECT 1 FROM hs_turns WHERE session_id = ?1 AND state <> 'done'),
		EXISTS (SELECT 1 FROM session_turn_leases WHERE conversation_id IN (?1, ?2) AND expires_at > ?3),
		EXISTS (SELECT 1 FROM compression_locks WHERE session_id = ?1 AND expires_at > ?3)`,
		[]any{id, root(t, id), seconds(now)}, &turn, &lease, &lock)
	switch {
	case err != nil:
		return err
	case turn:
		return fmt.Errorf("session %s is %w: a turn of it is queued or running; wait for its end or interrupt it", id, ErrInUse)
	case lease || lock:
		return fmt.Errorf("session %s is %w: another program has a turn running in it", id, ErrInUse)
	}
	return nil
}

// root is the first session of a chain that compression made. A branch and what was delegated begin a chain of their own.
func root(t *tx, id string) string {
	for range maxLineage {
		var parent string
		err := t.get(`SELECT p.id FROM sessions AS s JOIN sessions AS p ON p.id = s.parent_session_id
			WHERE s.id = ? AND p.end_reason = 'compression' AND CASE WHEN json_valid(s.model_config)
			THEN coalesce(json_extract(s.model_config, '$._delegate_from'), json_extract(s.model_config, '$._branched_from')) END IS NULL`, []any{id}, &parent)
		if err != nil {
			return id
		}
		id = parent
	}
	return id
}

// Lineage returns the first session of the chain that a session goes on with.
func (s *State) Lineage(ctx context.Context, id string) (string, error) {
	return read(ctx, s.database, func(t *tx) (string, error) { return root(t, id), nil })
}

// Archive hides a session from lists, or shows it again.
func (s *State) Archive(ctx context.Context, id string, archived bool) (SessionInfo, error) {
	return write(ctx, s.database, func(t *tx) (SessionInfo, error) {
		if err := busy(t, id, s.now()); err != nil {
			return SessionInfo{}, err
		}
		if _, err := t.run("UPDATE sessions SET archived = ? WHERE id = ?", archived, id); err != nil {
			return SessionInfo{}, err
		}
		return sessionInfo(t, id)
	})
}

// Doomed returns what DeleteSession would delete: the session and those that it delegated to.
func (s *State) Doomed(ctx context.Context, id string) ([]SessionInfo, error) {
	return read(ctx, s.database, func(t *tx) ([]SessionInfo, error) { return doomed(t, id, s.now()) })
}

func doomed(t *tx, id string, now time.Time) ([]SessionInfo, error) {
	i, err := sessionInfo(t, id)
	if err != nil {
		return nil, err
	}
	list := []SessionInfo{i}
	for at := 0; at < len(list) && len(list) <= maxLineage; at++ {
		children, err := all(t, scanInfo, infoColumns+` WHERE s.parent_session_id = ?1
			AND CASE WHEN json_valid(s.model_config) THEN json_extract(s.model_config, '$._delegate_from') END IS NOT NULL`, list[at].ID)
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			if !slices.ContainsFunc(list, func(o SessionInfo) bool { return o.ID == c.ID }) {
				list = append(list, c)
			}
		}
	}
	for _, i := range list {
		if err := busy(t, i.ID, now); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// removal deletes a session and what this system knows of its turns. The keys of messages that a platform may deliver
// once more stay, without their text, and so does a reply that is still owed to a chat.
var removal = []string{
	"DELETE FROM hs_steps WHERE turn_id IN (SELECT id FROM hs_turns WHERE session_id = ?1)",
	"DELETE FROM hs_steps WHERE message_id IN (SELECT id FROM messages WHERE session_id = ?1)",
	"DELETE FROM hs_tool_calls WHERE turn_id IN (SELECT id FROM hs_turns WHERE session_id = ?1)",
	"DELETE FROM hs_approvals WHERE turn_id IN (SELECT id FROM hs_turns WHERE session_id = ?1)",
	"DELETE FROM hs_outbox WHERE state IN ('sent', 'rejected') AND turn_id IN (SELECT id FROM hs_turns WHERE session_id = ?1)",
	"DELETE FROM hs_steers WHERE session_id = ?1 AND state <> 'waiting'",
	"UPDATE hs_inbox SET text = '' WHERE turn_id IN (SELECT id FROM hs_turns WHERE session_id = ?1)",
	"UPDATE hs_turns SET final = '', error = '' WHERE session_id = ?1",
	"UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?1",
	"DELETE FROM session_model_usage WHERE session_id = ?1",
	"DELETE FROM compression_locks WHERE session_id = ?1",
	"DELETE FROM session_turn_leases WHERE conversation_id = ?1",
	"DELETE FROM messages WHERE session_id = ?1",
	"DELETE FROM sessions WHERE id = ?1",
}

// DeleteSession deletes a session and those that it delegated to, and returns them. Branches and continuations of it stay.
func (s *State) DeleteSession(ctx context.Context, id string) ([]SessionInfo, error) {
	return write(ctx, s.database, func(t *tx) ([]SessionInfo, error) {
		list, err := doomed(t, id, s.now())
		if err != nil {
			return nil, err
		}
		return list, removeAll(t, list)
	})
}

// removeAll removes sessions, those that were delegated to before the one that did.
func removeAll(t *tx, list []SessionInfo) error {
	for _, i := range slices.Backward(list) {
		for _, statement := range removal {
			if _, err := t.run(statement, i.ID); err != nil {
				return fmt.Errorf("delete session %s: %w", i.ID, err)
			}
		}
	}
	return nil
}

// A Prune says which of the sessions that have ended are to go.
type Prune struct {
	Filter          Selection
	IncludeArchived bool
	IncludePinned   bool
	NeverActive     bool // sessions of chats in which nothing was ever said, ended or not
}

// Prunable returns the sessions that a prune deletes, the oldest activity first, and why others that match stay. The
// sessions of one conversation go together or not at all.
func (s *State) Prunable(ctx context.Context, p Prune) (list []SessionInfo, left []string, err error) {
	list, err = read(ctx, s.database, func(t *tx) ([]SessionInfo, error) {
		f := p.Filter
		f.Archived, f.Hidden, f.Limit = true, true, 0
		found, err := selectSessions(t, f)
		if err != nil {
			return nil, err
		}
		left = nil
		return prunable(t, found, p, s.now(), &left)
	})
	return list, left, err
}

func prunable(t *tx, found []SessionInfo, p Prune, now time.Time, left *[]string) ([]SessionInfo, error) {
	keep := func(i SessionInfo, why string) { *left = append(*left, i.ID+": "+why) }
	chosen := map[string]SessionInfo{}
	open := 0
	for _, i := range found {
		switch {
		case p.NeverActive:
			if i.Key == "" || i.Messages > 0 || i.Running {
				continue
			}
		case i.EndedAt.IsZero():
			open++
			continue
		}
		switch err := busy(t, i.ID, now); {
		case errors.Is(err, ErrInUse):
			keep(i, "a turn is running")
		case err != nil:
			return nil, err
		case i.Pinned && !p.IncludePinned:
			keep(i, "pinned")
		case i.Archived && !p.IncludeArchived:
			keep(i, "archived")
		default:
			chosen[i.ID] = i
		}
	}
	if open > 0 {
		*left = append(*left, wording.Count(open, "session is", "sessions are")+" still open")
	}
	if err := wholeLineages(t, chosen, keep); err != nil {
		return nil, err
	}
	var list []SessionInfo
	for _, i := range slices.Backward(found) {
		if _, ok := chosen[i.ID]; ok {
			list = append(list, i)
		}
	}
	return list, nil
}

// wholeLineages takes sessions out of which a continuation, or what they continue, stays.
func wholeLineages(t *tx, chosen map[string]SessionInfo, keep func(SessionInfo, string)) error {
	type link struct{ parent, child string }
	links, err := all(t, func(row scanner) (l link, err error) { return l, row.Scan(&l.parent, &l.child) },
		`SELECT p.id, c.id FROM sessions AS c JOIN sessions AS p ON p.id = c.parent_session_id WHERE p.end_reason = 'compression'
		AND CASE WHEN json_valid(c.model_config) THEN coalesce(json_extract(c.model_config, '$._delegate_from'), json_extract(c.model_config, '$._branched_from')) END IS NULL`)
	if err != nil {
		return err
	}
	for again := true; again; {
		again = false
		for _, l := range links {
			p, hasParent := chosen[l.parent]
			c, hasChild := chosen[l.child]
			if hasParent == hasChild {
				continue
			}
			again = true
			if hasParent {
				delete(chosen, l.parent)
				keep(p, "its continuation "+l.child+" stays")
			} else {
				delete(chosen, l.child)
				keep(c, "it continues "+l.parent+", which stays")
			}
		}
	}
	return nil
}
