package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Selection says which sessions are meant. Zero fields select all.
type Selection struct {
	Source, EndReason, Provider, User, ChatID, ChatType, Branch string
	Title, Cwd, Model                                           string // parts of them
	Prefix                                                      string // of the id
	ActiveBefore, ActiveAfter, StartedBefore, StartedAfter      time.Time
	MinMessages, MaxMessages, MinTokens, MaxTokens              *int64
	MinToolCalls, MaxToolCalls                                  *int64
	MinCost, MaxCost                                            *float64

	Archived bool // these too
	Hidden   bool // sessions of tools, and those that a program hid, too
	Limit    int  // 0: all
}

// Empty says that the filter selects everything.
func (f Selection) Empty() bool {
	f.Archived, f.Hidden, f.Limit = false, false, 0
	return f == Selection{}
}

// SessionInfo is a session as lists show it.
type SessionInfo struct {
	Session
	Preview  string // how the first message of a person begins
	Cwd      string
	Parent   string
	Tokens   int64 // in and out
	Cost     float64
	Archived bool
	Pinned   bool
	Running  bool // a turn of it is queued or running
}

const infoColumns = `SELECT s.id, s.source, coalesce(s.session_key, ''), coalesce(s.chat_id, ''), coalesce(s.chat_type, ''),
	coalesce(s.thread_id, ''), coalesce(s.user_id, ''), coalesce(s.display_name, ''), coalesce(s.model, ''), '',
	coalesce(s.title, ''), s.started_at, s.ended_at, coalesce(s.end_reason, ''), s.last_activity_at,
	coalesce(s.message_count, 0), coalesce(s.tool_call_count, 0),
	coalesce((SELECT substr(m.content, 1, 200) FROM messages AS m WHERE m.session_id = s.id AND m.role = 'user' AND m.active = 1
		AND m._compressed_summary = 0 AND coalesce(m.display_kind, '') <> 'hidden' ORDER BY m.id LIMIT 1), ''),
	coalesce(s.cwd, ''), coalesce(s.parent_session_id, ''), coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0),
	coalesce(s.actual_cost_usd, s.estimated_cost_usd, 0), s.archived, s.pinned,
	EXISTS (SELECT 1 FROM hs_turns AS u WHERE u.session_id = s.id AND u.state <> 'done') FROM sessions AS s`

// scanInfo reads a Session and what lists add to it.
func scanInfo(row scanner) (i SessionInfo, err error) {
	s, err := scanSession(scanFunc(func(dest ...any) error {
		return row.Scan(append(dest, &i.Preview, &i.Cwd, &i.Parent, &i.Tokens, &i.Cost, &i.Archived, &i.Pinned, &i.Running)...)
	}))
	i.Session = s
	i.Preview = firstRunes(strings.Join(strings.Fields(decodeContent(i.Preview)), " "), 60)
	return i, err
}

type scanFunc func(dest ...any) error

func (f scanFunc) Scan(dest ...any) error { return f(dest...) }

// filterSQL takes the arguments of args. Activity is the last one that is known.
const filterSQL = ` WHERE (?1 = '' OR s.source = ?1) AND (?2 = '' OR s.end_reason = ?2) AND (?3 = '' OR s.billing_provider = ?3)
	AND (?4 = '' OR s.user_id = ?4) AND (?5 = '' OR s.chat_id = ?5) AND (?6 = '' OR s.chat_type = ?6) AND (?7 = '' OR s.git_branch = ?7)
	AND (?8 = '' OR instr(lower(s.title), lower(?8)) > 0) AND (?9 = '' OR instr(s.cwd, ?9) > 0) AND (?10 = '' OR instr(lower(s.model), lower(?10)) > 0)
	AND (?11 = '' OR substr(s.id, 1, length(?11)) = ?11)
	AND (?12 IS NULL OR coalesce(s.last_activity_at, s.started_at) < ?12) AND (?13 IS NULL OR coalesce(s.last_activity_at, s.started_at) >= ?13)
	AND (?14 IS NULL OR s.started_at < ?14) AND (?15 IS NULL OR s.started_at >= ?15)
	AND (?16 IS NULL OR s.message_count >= ?16) AND (?17 IS NULL OR s.message_count <= ?17)
	AND (?18 IS NULL OR coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0) >= ?18)
	AND (?19 IS NULL OR coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0) <= ?19)
	AND (?20 IS NULL OR s.tool_call_count >= ?20) AND (?21 IS NULL OR s.tool_call_count <= ?21)
	AND (?22 IS NULL OR coalesce(s.actual_cost_usd, s.estimated_cost_usd, 0) >= ?22) AND (?23 IS NULL OR coalesce(s.actual_cost_usd, s.estimated_cost_usd, 0) <= ?23)
	AND (?24 OR s.archived = 0) AND (?25 OR s.hidden = 0 AND (s.source NOT IN ('tool', 'subagent') OR s.source = ?1))`

func (f Selection) args() []any {
	limit := f.Limit
	if limit <= 0 {
		limit = -1
	}
	return []any{f.Source, f.EndReason, f.Provider, f.User, f.ChatID, f.ChatType, f.Branch, f.Title, f.Cwd, f.Model, f.Prefix,
		seconds(f.ActiveBefore), seconds(f.ActiveAfter), seconds(f.StartedBefore), seconds(f.StartedAfter),
		number(f.MinMessages), number(f.MaxMessages), number(f.MinTokens), number(f.MaxTokens), number(f.MinToolCalls), number(f.MaxToolCalls),
		number(f.MinCost), number(f.MaxCost), f.Archived, f.Hidden, limit}
}

// number is a limit as SQL takes it, NULL if there is none.
func number[T int64 | float64](n *T) any {
	if n == nil {
		return nil
	}
	return *n
}

// ListSessions returns the sessions that a filter selects, the newest activity first, and how many its limit left out.
func (s *State) ListSessions(ctx context.Context, f Selection) (list []SessionInfo, more int, err error) {
	total := 0
	list, err = read(ctx, s.database, func(t *tx) ([]SessionInfo, error) {
		if err := t.get("SELECT count(*) FROM sessions AS s"+filterSQL+" AND ?26 IS NOT NULL", f.args(), &total); err != nil {
			return nil, err
		}
		return selectSessions(t, f)
	})
	return list, total - len(list), err
}

func selectSessions(t *tx, f Selection) ([]SessionInfo, error) {
	return all(t, scanInfo, infoColumns+filterSQL+` ORDER BY coalesce(s.last_activity_at, s.started_at) DESC, s.started_at DESC, s.id LIMIT ?26`, f.args()...)
}

func sessionInfo(t *tx, id string) (SessionInfo, error) {
	i, err := one(t, scanInfo, infoColumns+" WHERE s.id = ?", id)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("session %q: %w", id, err)
	}
	return i, err
}

// Latest names the session that was used last.
const Latest = "latest"

// FindSession returns the session that a person names: by its id, the beginning of it that no other has, its title, or
// Latest. Of continued sessions with one title the newest ("title #3") is meant.
func (s *State) FindSession(ctx context.Context, name string) (SessionInfo, error) {
	return read(ctx, s.database, func(t *tx) (SessionInfo, error) { return findSession(t, name) })
}

func findSession(t *tx, name string) (i SessionInfo, err error) {
	if name == "" {
		return i, fmt.Errorf("%w: no session is named", ErrInvalid)
	}
	if i, err = sessionInfo(t, name); !errors.Is(err, ErrNotFound) {
		return i, err
	}
	if name == Latest {
		list, err := selectSessions(t, Selection{Limit: 1})
		if err != nil || len(list) == 0 {
			return i, errors.Join(err, fmt.Errorf("session %q: %w", name, ErrNotFound))
		}
		return list[0], nil
	}
	list, err := all(t, scanString, "SELECT id FROM sessions WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 6", name)
	if err != nil {
		return i, err
	}
	switch {
	case len(list) == 1:
		return sessionInfo(t, list[0])
	case len(list) > 1:
		return i, fmt.Errorf("%w: %q is the beginning of several sessions: %s", ErrInvalid, name, strings.Join(list, ", "))
	}
	var id string
	err = t.get(`SELECT id FROM sessions WHERE title = ?1 OR title GLOB replace(replace(replace(?1, '[', '[[]'), '*', '[*]'), '?', '[?]') || ' #[0-9]*'
		ORDER BY started_at DESC LIMIT 1`, []any{name}, &id)
	if errors.Is(err, ErrNotFound) {
		return i, fmt.Errorf("no session %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return i, err
	}
	return sessionInfo(t, id)
}

// SourceStats counts what came from one source.
type SourceStats struct {
	Source             string
	Sessions, Messages int64
}

// Stats counts what a store holds.
type Stats struct {
	Sessions, Messages, Archived, Bytes, Tokens int64
	Cost                                        float64
	Sources                                     []SourceStats
	Index                                       IndexState
}

// statsAtOnce is how many sessions one read looks at. Before the counts of a session its prompt is to be read, tens of KiB on a
// disk that may be slow: all sessions of a store of 10 GiB take longer than a read may.
const statsAtOnce = 1000

// Stats counts sessions and messages, in reads that each is short: it is no picture of one moment. Bytes is the size of the file
// without its WAL.
func (s *State) Stats(ctx context.Context) (st Stats, err error) {
	sources := map[string]SourceStats{}
	for last, more := int64(0), true; more; {
		last, more, err = s.addStats(ctx, &st, sources, last)
		if err != nil {
			return Stats{}, err
		}
	}
	st.Sources = slices.SortedFunc(maps.Values(sources), func(a, b SourceStats) int {
		return cmp.Or(cmp.Compare(b.Sessions, a.Sessions), cmp.Compare(a.Source, b.Source))
	})
	rest, err := read(ctx, s.database, func(t *tx) (rest Stats, err error) {
		if err := t.get("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()", nil, &rest.Bytes); err != nil {
			return rest, err
		}
		x, err := inspectIndex(t)
		if err != nil {
			return rest, err
		}
		rest.Index, _, err = indexState(t, x)
		return rest, err
	})
	st.Bytes, st.Index = rest.Bytes, rest.Index
	return st, err
}

// addStats adds the next sessions, those with a greater rowid than last, and says whether there may be more.
func (s *State) addStats(ctx context.Context, st *Stats, sources map[string]SourceStats, last int64) (int64, bool, error) {
	type session struct {
		row, messages, archived, tokens int64
		cost                            float64
		source                          string
	}
	list, err := read(ctx, s.database, func(t *tx) ([]session, error) {
		return all(t, func(row scanner) (o session, err error) {
			return o, row.Scan(&o.row, &o.source, &o.messages, &o.archived, &o.tokens, &o.cost)
		}, `SELECT rowid, source, coalesce(message_count, 0), coalesce(archived, 0),
			coalesce(input_tokens, 0) + coalesce(output_tokens, 0), coalesce(actual_cost_usd, estimated_cost_usd, 0.0)
			FROM sessions WHERE rowid > ? ORDER BY rowid LIMIT ?`, last, statsAtOnce)
	})
	for _, o := range list {
		last = o.row
		st.Sessions++
		st.Messages += o.messages
		st.Archived += o.archived
		st.Tokens += o.tokens
		st.Cost += o.cost
		from := sources[o.source]
		sources[o.source] = SourceStats{o.source, from.Sessions + 1, from.Messages + o.messages}
	}
	return last, len(list) == statsAtOnce, err
}
