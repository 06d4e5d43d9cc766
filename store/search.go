package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// searchTime is how long messages are looked through that are in no index, or for what no index can answer. It is well
	// below the age limit of a read, so that a search ends with what it has.
	searchTime = 3 * time.Second
	// scanRows are looked through between two looks at the clock.
	scanRows = 5000
	// selectRows is the same for a few of them, where most cost only the look at who said them.
	selectRows = 100_000
	// tailRows is the same for messages of which an index is made in memory.
	tailRows = 1000
	maxFound = 1000
)

// A Search says what to look for in the messages of all sessions.
type Search struct {
	Text      string   // words, "phrases", prefix*, AND, OR, NOT; nothing in it is an error
	Roles     []string // of messages; none means all
	Source    string   // only sessions of this source
	Except    []string // sources whose sessions are left out
	SessionID string   // only this session
	Substring bool     // parts of words too, where the index of trigrams can tell
	Sort      string   // newest | oldest | empty: the best first
	Limit     int      // 0 means 100, at most 1000
}

// A Hit is a message that was found. Snippet is the place, with >>> and <<< around what was looked for.
type Hit struct {
	MessageID int64
	SessionID string
	Role      string
	ToolName  string
	Snippet   string
	Time      time.Time
	Source    string
	Title     string

	rank    float64
	content string
}

// Found is the answer to a Search. Partial says that there was no time to look at everything that is not in the index.
type Found struct {
	Hits    []Hit
	Partial bool
	Index   IndexState
}

// IndexState says which messages are in the full-text index. All messages are searched nevertheless.
type IndexState struct {
	Present        bool
	Indexed, Total int64
	Stale          bool // it is about to be built again
}

// Percent is how much is in the index.
func (x IndexState) Percent() int {
	if x.Total == 0 {
		return 100
	}
	return int(100 * x.Indexed / x.Total)
}

// Search looks through all messages that a conversation shows or has shown: not those that were taken back.
func (s *State) Search(ctx context.Context, q Search) (Found, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, maxFound)
	return read(ctx, s.database, func(t *tx) (Found, error) {
		r := &searching{t: t, q: q, parsed: parseQuery(q.Text), until: time.Now().Add(searchTime), seen: map[int64]bool{}}
		if r.parsed.raw == "" {
			return Found{}, nil
		}
		err := r.run()
		if r.damaged {
			s.suspect()
		}
		if err != nil {
			return Found{}, err
		}
		return r.finish(), nil
	})
}

// IndexState says how far the index is.
func (s *State) IndexState(ctx context.Context) (IndexState, error) {
	return read(ctx, s.database, func(t *tx) (IndexState, error) {
		x, err := inspectIndex(t)
		if err != nil {
			return IndexState{}, err
		}
		state, _, err := indexState(t, x)
		return state, err
	})
}

// A span is a range of message ids, both ends included.
type span struct{ from, to int64 }

// indexState returns the state and the messages that are in no index.
func indexState(t *tx, x index) (state IndexState, tail span, err error) {
	last, err := lastMessage(t)
	if err != nil {
		return state, tail, err
	}
	state = IndexState{Present: x.words != nil, Total: last, Indexed: last, Stale: x.stale}
	if x.words == nil || x.stale {
		state.Indexed = 0
		return state, span{1, last}, nil
	}
	progress, high, marked, err := marks(t)
	if err != nil || !marked {
		return state, span{1, 0}, err
	}
	tail = span{progress + 1, min(high, last)}
	state.Indexed = last - max(0, tail.to-tail.from+1)
	return state, tail, nil
}

// searching is one search.
type searching struct {
	t      *tx
	q      Search
	parsed parsedQuery
	until  time.Time
	found  Found
	hits   []Hit
	seen   map[int64]bool
	// damaged says that the index could not be read.
	damaged bool
}

func (r *searching) run() error {
	x, err := inspectIndex(r.t)
	if err != nil {
		return err
	}
	state, tail, err := indexState(r.t, x)
	if err != nil {
		return err
	}
	r.found.Index = state
	table := r.table(x)
	if table == nil || x.stale {
		return r.scan(span{1, state.Total}, "")
	}
	err = r.ask(table)
	if mayBeIndex(err) || isDamage(err) { // damaged, and nobody has noticed yet
		r.hits, r.seen, r.damaged = nil, map[int64]bool{}, true
		return r.scan(span{1, state.Total}, "")
	}
	if err != nil {
		return err
	}
	if !table.tools {
		if err := r.scan(span{1, state.Total}, r.outside()); err != nil {
			return err
		}
	}
	if table == x.trigram {
		return r.scan(tail, "")
	}
	return r.askTail(tail, table)
}

// table is the index that can answer the query, nil if none can.
func (r *searching) table(x index) *ftsTable {
	if len(r.parsed.any) == 0 {
		return nil
	}
	long := r.parsed.all(func(s string) bool { return utf8.RuneCountInString(s) >= 3 })
	switch {
	case !hasCJK(r.parsed.raw) && !r.q.Substring:
		return x.words
	case long:
		return x.trigram
	}
	return nil
}

// outside selects what the index of trigrams leaves out, empty if none of it is wanted.
func (r *searching) outside() string {
	// A list that is made once tells of a message without a look at its session.
	rest := "m.session_id IN (SELECT id FROM sessions WHERE NOT (" + searchable("") + "))"
	if r.q.Roles == nil || slices.Contains(r.q.Roles, "tool") {
		rest = "(m.role = 'tool' OR " + rest + ")"
	}
	return rest
}

// plainContent is a message's text without Hermes' mark for a list of parts, which begins with a zero: LIKE and substr
// read a text only up to there. Of a text that is empty substr makes NULL, as of one that is not there.
const plainContent = `coalesce(CASE WHEN length(m.content) = 0 THEN CAST(substr(CAST(m.content AS BLOB), 7) AS TEXT) ELSE m.content END, '')`

// hitColumns has as much of a long message as its snippet is looked for in.
const hitColumns = `m.id, m.session_id, m.role, coalesce(m.tool_name, ''), substr(` + plainContent + `, 1, 65536), substr(coalesce(m.tool_calls, ''), 1, 65536), m.timestamp,
	s.source, coalesce(s.title, '')`

// hitFilter takes the arguments of filterArgs.
const hitFilter = ` (m.active = 1 OR m.compacted = 1) AND coalesce(m.display_kind, '') <> 'hidden'
	AND (?2 = '' OR s.source = ?2) AND (?3 = '' OR m.session_id = ?3)
	AND (?4 = '[]' OR m.role IN (SELECT value FROM json_each(?4))) AND s.source NOT IN (SELECT value FROM json_each(?5))`

func (r *searching) filterArgs(first any) []any {
	return []any{first, r.q.Source, r.q.SessionID, jsonList(r.q.Roles), jsonList(r.q.Except)}
}

func jsonList(list []string) string {
	if list == nil {
		list = []string{}
	}
	b, _ := json.Marshal(list)
	return string(b)
}

func scanHit(row scanner) (h Hit, err error) {
	var at *float64
	var calls string
	err = row.Scan(&h.MessageID, &h.SessionID, &h.Role, &h.ToolName, &h.content, &calls, &at, &h.Source, &h.Title, &h.rank)
	h.Time = instant(at)
	if calls != "" {
		h.content = strings.TrimSpace(h.content + " " + calls)
	}
	return h, err
}

// order is how the rows of a source come, so that its first ones are the ones that are wanted.
func (r *searching) order() string {
	switch r.q.Sort {
	case "newest":
		return "m.id DESC"
	case "oldest":
		return "m.id"
	}
	return "f.rank"
}

// ask asks an index.
func (r *searching) ask(f *ftsTable) error {
	order := strings.ReplaceAll(r.order(), "m.id", "f.rowid") // the index itself is in this order
	list, err := all(r.t, scanHit, "SELECT "+hitColumns+", f.rank FROM "+f.name+" AS f CROSS JOIN messages AS m ON m.id = f.rowid"+
		" CROSS JOIN sessions AS s ON s.id = m.session_id WHERE "+f.name+" MATCH ?1 AND"+hitFilter+" ORDER BY "+order+" LIMIT ?6",
		append(r.filterArgs(r.parsed.match()), r.q.Limit)...)
	r.take(list)
	return err
}

// scan looks at messages themselves, the newest first (or the oldest, if those are wanted), as long as there is time.
func (r *searching) scan(s span, which string) error {
	columns := []string{plainContent, "m.tool_name", "m.tool_calls"}
	condition, args := r.parsed.like(columns...)
	rows := int64(scanRows)
	if which != "" { // first, as it is cheaper than the texts
		condition, rows = which+" AND "+condition, selectRows
	}
	return r.pieces(s, rows, func(p span) (int, error) {
		list, err := r.candidates(p, condition, args, r.q.Limit)
		r.take(list)
		return len(list), err
	})
}

// pieces calls f with parts of a span until all are done, there is enough, or the time is up.
func (r *searching) pieces(s span, rows int64, f func(span) (int, error)) error {
	oldest := r.q.Sort == "oldest"
	for n := 0; s.from <= s.to && n < r.q.Limit; {
		if time.Now().After(r.until) {
			r.found.Partial = true
			return nil
		}
		p := span{max(s.from, s.to-rows+1), s.to}
		if oldest {
			p = span{s.from, min(s.to, s.from+rows-1)}
			s.from = p.to + 1
		} else {
			s.to = p.from - 1
		}
		found, err := f(p)
		if err != nil {
			return err
		}
		n += found
	}
	return nil
}

// candidates returns the messages of a span for which a condition holds. Its text depends on the query, so the statement
// is not kept.
func (r *searching) candidates(p span, condition string, args []any, limit int) ([]Hit, error) {
	filter := strings.NewReplacer("?2", "?", "?3", "?", "?4", "?", "?5", "?").Replace(hitFilter)
	order := "m.id DESC"
	if r.q.Sort == "oldest" {
		order = "m.id"
	}
	query := "SELECT " + hitColumns + ", 0.0 FROM messages AS m CROSS JOIN sessions AS s ON s.id = m.session_id WHERE m.id BETWEEN ? AND ? AND " +
		condition + " AND" + filter + " ORDER BY " + order + " LIMIT ?"
	values := append([]any{p.from, p.to}, args...)
	roles, except := jsonList(r.q.Roles), jsonList(r.q.Except)
	values = append(values, r.q.Source, r.q.Source, r.q.SessionID, r.q.SessionID, roles, roles, except, limit)
	rows, err := r.t.c.QueryContext(r.t.ctx, query, values...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Hit
	for rows.Next() {
		h, err := scanHit(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, rows.Err()
}

// askTail asks an index in memory of the messages that are not yet in the file's, so that both answer alike.
func (r *searching) askTail(tail span, f *ftsTable) error {
	if tail.from > tail.to {
		return nil
	}
	scratch, err := dial(memory, "")
	if err != nil {
		return err
	}
	defer scratch.close()
	if err := scratch.script("CREATE VIRTUAL TABLE tail USING fts5(text)"); err != nil {
		return fmt.Errorf("index of the newest messages: %w", err)
	}
	return r.pieces(tail, tailRows, func(p span) (int, error) {
		list, err := r.candidates(p, "1", nil, tailRows)
		if err != nil {
			return 0, err
		}
		list, err = matching(scratch, list, r.parsed.match())
		r.take(list)
		return len(list), err
	})
}

// matching returns the hits whose text an index matches.
func matching(c *conn, list []Hit, match string) (out []Hit, err error) {
	t := &tx{conn: c, ctx: background}
	if err := c.script("BEGIN; DELETE FROM tail"); err != nil {
		return nil, err
	}
	defer c.rollback()
	for i, h := range list {
		if _, err := t.run("INSERT INTO tail(rowid, text) VALUES(?, ?)", i+1, h.content+" "+h.ToolName); err != nil {
			return nil, err
		}
	}
	type line struct {
		row  int
		rank float64
	}
	rows, err := all(t, func(row scanner) (m line, err error) { return m, row.Scan(&m.row, &m.rank) },
		"SELECT rowid, rank FROM tail WHERE tail MATCH ? ORDER BY rank", match)
	for _, m := range rows {
		h := list[m.row-1]
		h.rank = m.rank
		out = append(out, h)
	}
	return out, err
}

func (r *searching) take(list []Hit) {
	for _, h := range list {
		if !r.seen[h.MessageID] {
			r.seen[h.MessageID] = true
			r.hits = append(r.hits, h)
		}
	}
}

// finish sorts what was found and shows the places.
func (r *searching) finish() Found {
	slices.SortStableFunc(r.hits, func(a, b Hit) int {
		switch {
		case r.q.Sort == "newest":
			return int(b.MessageID - a.MessageID)
		case r.q.Sort == "oldest":
			return int(a.MessageID - b.MessageID)
		case a.rank < b.rank:
			return -1
		case a.rank > b.rank:
			return 1
		}
		return int(b.MessageID - a.MessageID)
	})
	r.found.Hits = r.hits[:min(len(r.hits), r.q.Limit)]
	terms := r.parsed.terms()
	for i := range r.found.Hits {
		h := &r.found.Hits[i]
		h.Snippet, h.content = snippet(valid(h.content), terms), ""
	}
	return r.found
}
