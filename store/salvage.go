package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
)

const (
	salvageChunk = 1000   // rows that are read at once where nothing is wrong
	salvageReads = 20_000 // of one table; a range that is damaged is halved until its last row, which must have an end
)

// salvage reads every table of from and, if to is not nil, writes its rows there. Full-text indices are not read: they
// are made again from the messages.
func (r *Recovery) salvage(ctx context.Context, from, to *conn) error {
	tables, err := tablesOf(from)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNothingSaved, explain(err))
	}
	r.Complete = len(r.Errors) == 0
	for _, name := range tables {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := &salvager{ctx: ctx, from: from, to: to, left: salvageReads, out: RecoveredTable{Name: name}}
		if err := s.table(); err != nil {
			return err
		}
		r.Tables = append(r.Tables, s.out)
		if s.mended > 0 {
			r.Errors = append(r.Errors, fmt.Sprintf("%s of %s had texts with bytes that are no text; a sign stands for each", wording.Count(s.mended, "row", "rows"), name))
		}
		r.Complete = r.Complete && s.out.Status == "complete"
	}
	r.Partial = !r.Complete
	if len(r.Tables) == 0 || r.Saved() == 0 && r.Partial {
		return ErrNothingSaved
	}
	return nil
}

// tablesOf lists the tables that hold rows of their own, those that others point at first.
func tablesOf(c *conn) ([]string, error) {
	list, err := all(&tx{conn: c, ctx: background}, scanString, `SELECT name FROM sqlite_schema AS t WHERE type = 'table'
		AND sql NOT LIKE 'CREATE VIRTUAL%' AND (name NOT LIKE 'sqlite\_%' ESCAPE '\' OR name = 'sqlite_sequence')
		AND NOT EXISTS (SELECT 1 FROM sqlite_schema AS v WHERE v.sql LIKE 'CREATE VIRTUAL%' AND t.name LIKE v.name || '\_%' ESCAPE '\')`)
	if err != nil {
		return nil, err
	}
	first := []string{"schema_version", "system_prompts", "sessions", "messages"}
	slices.SortStableFunc(list, func(a, b string) int { return rank(first, a) - rank(first, b) })
	return list, nil
}

func rank(first []string, name string) int {
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// A salvager reads one table.
type salvager struct {
	ctx      context.Context
	from, to *conn
	left     int // reads
	out      RecoveredTable
	columns  string // of the source, quoted
	count    int
	insert   *sql.Stmt
	mended   int // rows with a text that was none
}

func (s *salvager) table() error {
	s.out.Status = "complete"
	if err := s.prepare(); err != nil {
		s.fail(err)
		s.out.Status = "failed"
		return nil
	}
	if s.to != nil {
		if err := s.to.exec("BEGIN"); err != nil {
			return err
		}
		defer s.to.rollback()
		if s.insert != nil {
			defer func() { _ = s.insert.Close() }()
		}
	}
	if err := s.rows(); err != nil {
		return err
	}
	if s.out.Error != "" {
		s.out.Status = "partial"
		if s.out.Rows == 0 {
			s.out.Status = "failed"
		}
	}
	if s.to == nil {
		return nil
	}
	return s.to.exec("COMMIT")
}

func (s *salvager) fail(err error) {
	if s.out.Error == "" {
		s.out.Error = err.Error()
	}
}

// prepare makes the table and the columns that the new file lacks, so that what this version does not know is kept too.
func (s *salvager) prepare() error {
	have, err := namesOfColumns(s.from, s.out.Name)
	if err != nil {
		return err
	}
	s.count = len(have)
	// A plus in front keeps the driver from taking a value for a time or a truth value because of its column's type.
	quoted, plain := make([]string, len(have)), make([]string, len(have))
	for i, name := range have {
		quoted[i], plain[i] = quote(name), "+"+quote(name)
	}
	s.columns = strings.Join(plain, ", ")
	if s.to == nil {
		return nil
	}
	known, err := namesOfColumns(s.to, s.out.Name)
	if err != nil {
		return err
	}
	if len(known) == 0 {
		var ddl string
		if err := (&tx{conn: s.from, ctx: background}).get("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", []any{s.out.Name}, &ddl); err != nil {
			return err
		}
		if err := s.to.script(ddl); err != nil {
			return err
		}
		known = have
	}
	for _, name := range have {
		if slices.Contains(known, name) {
			continue
		}
		if err := s.to.script("ALTER TABLE " + quote(s.out.Name) + " ADD COLUMN " + quote(name)); err != nil {
			return err
		}
	}
	if s.out.Name == "schema_version" || s.out.Name == "sqlite_sequence" { // what the new file has of them is void
		if err := s.to.script("DELETE FROM " + quote(s.out.Name)); err != nil {
			return err
		}
	}
	s.insert, err = s.to.c.PrepareContext(background, "INSERT OR IGNORE INTO "+quote(s.out.Name)+"("+strings.Join(quoted, ", ")+") VALUES(?"+strings.Repeat(", ?", s.count-1)+")")
	return err
}

// mend makes text of the texts in a row of a conversation: a damaged page often has rows that can be read and are not what
// they were, and neither an index nor a message to a worker takes such a text.
func (s *salvager) mend(values []any) {
	if s.out.Name != "messages" && s.out.Name != "sessions" {
		return
	}
	bad := false
	for i, v := range values {
		if text, is := v.(string); is && !utf8.ValidString(text) {
			values[i], bad = valid(text), true
		}
	}
	if bad {
		s.mended++
	}
}

func namesOfColumns(c *conn, table string) ([]string, error) {
	return all(&tx{conn: c, ctx: background}, scanString, "SELECT name FROM pragma_table_info(?)", table)
}

// rows reads the table by ranges of row ids; one without them in one go.
func (s *salvager) rows() error {
	t := &tx{conn: s.from, ctx: background}
	var low, high sql.NullInt64
	err := t.get("SELECT min(rowid), max(rowid) FROM "+quote(s.out.Name), nil, &low, &high)
	switch {
	case err != nil && strings.Contains(err.Error(), "no such column"):
		_, err := s.read("", 0, 0)
		if err != nil {
			s.fail(explain(err))
		}
		return s.ctx.Err()
	case err != nil: // the way to the first or last row is damaged
		s.fail(explain(err))
		low.Int64, high.Int64 = s.bounds()
	case !low.Valid:
		return nil
	}
	return s.span(low.Int64, high.Int64)
}

// bounds guesses the range of ids of a damaged table.
func (s *salvager) bounds() (low, high int64) {
	t := &tx{conn: s.from, ctx: background}
	if err := t.get("SELECT seq FROM sqlite_sequence WHERE name = ?", []any{s.out.Name}, &high); err == nil && high > 0 {
		return 1, high
	}
	return 1, math.MaxInt32
}

// span reads the rows of a range, chunk by chunk, and halves a chunk that cannot be read.
func (s *salvager) span(low, high int64) error {
	for low <= high {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		last, err := s.read(fmt.Sprintf("WHERE rowid BETWEEN %d AND %d ORDER BY rowid LIMIT %d", low, high, salvageChunk), low, high)
		if err == nil && last == nil {
			return nil
		}
		if last != nil {
			low = *last + 1
		}
		if err == nil {
			continue
		}
		if s.fail(explain(err)); s.left <= 0 {
			s.out.Lost += high - low + 1
			return nil
		}
		if low > high {
			return nil
		}
		next, found := s.skip(low, high)
		if s.out.Lost += next - low; !found {
			return nil
		}
		low = next
	}
	return nil
}

// skip finds the next row after low that can be read, by ranges that grow. Without one it returns high+1.
func (s *salvager) skip(low, high int64) (next int64, found bool) {
	var step int64 = 1
	for at := low + 1; at <= high && s.left > 0; {
		end := min(at+step-1, high)
		id, err := s.firstOf(at, end)
		if err == nil {
			return s.firstReadable(low, id), true
		}
		at = end + 1
		if step < 1<<20 {
			step *= 2
		}
	}
	return high + 1, false
}

// firstOf reads the first id of a range.
func (s *salvager) firstOf(low, high int64) (id int64, err error) {
	s.left--
	err = (&tx{conn: s.from, ctx: background}).get("SELECT rowid FROM "+quote(s.out.Name)+
		" WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid LIMIT 1", []any{low, high}, &id)
	if err == nil && (id < low || id > high) {
		err = fmt.Errorf("row %d is out of order", id)
	}
	return id, err
}

// firstReadable looks back from a row that can be read for those before it that can be, too.
func (s *salvager) firstReadable(bad, good int64) int64 {
	for good-bad > 1 && s.left > 0 {
		middle := bad + (good-bad)/2
		if id, err := s.firstOf(middle, good); err != nil {
			bad = middle
		} else if good = middle; id > middle {
			continue // there are no rows between
		}
	}
	return good
}

// read copies the rows of one query and returns the id of the last one that was read, nil for none.
//
// A damaged page may hold ids that are out of order. Following them would have no end, so the first one ends the read.
func (s *salvager) read(where string, low, high int64) (last *int64, err error) {
	s.left--
	id := "rowid"
	if where == "" {
		id = "0"
	}
	rows, err := s.from.c.QueryContext(s.ctx, "SELECT "+id+", "+s.columns+" FROM "+quote(s.out.Name)+" "+where)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values, dest := make([]any, s.count), make([]any, s.count+1)
	var row int64
	dest[0] = &row
	for i := range values {
		dest[i+1] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return last, err
		}
		if row < low || row > high {
			return last, fmt.Errorf("row %d is out of order", row)
		}
		if where != "" {
			at := row
			last, low = &at, row+1
		}
		s.mend(values)
		if s.insert != nil {
			done, err := s.insert.ExecContext(background, values...)
			if err != nil {
				s.out.Lost++
				s.fail(fmt.Errorf("row %d: %w", row, err))
				continue
			}
			if n, _ := done.RowsAffected(); n == 0 { // a row that the new file has already, or one that is there twice
				continue
			}
		}
		s.out.Rows++
	}
	return last, rows.Err()
}
