package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// background is the context of every statement on a writer connection. It has no Done channel: a context that can be
// cancelled costs the driver a goroutine a call, and its interrupt would roll back the other requests of the batch.
var background = context.Background()

// A conn is one SQLite connection with its prepared statements, used by one goroutine at a time.
type conn struct {
	db    *sql.DB
	c     *sql.Conn
	raw   *sqlite3.SQLiteConn
	stmts map[string]*sql.Stmt
	wrote bool // since the writer looked last
	use   use

	// held is told how long an opening has waited for a foreign lock, and 0 when it has it; nil: there was no such wait.
	held func(waited time.Duration)
}

// dial opens one connection to path. params are those of the driver, pragmas run after it.
func dial(path, params string, pragmas ...string) (*conn, error) {
	db, err := sql.Open("sqlite3", dsn(path, params))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	c := &conn{db: db, stmts: map[string]*sql.Stmt{}, use: recent}
	if c.c, err = db.Conn(background); err != nil {
		_ = db.Close()
		return nil, err
	}
	err = c.c.Raw(func(d any) error { c.raw = d.(*sqlite3.SQLiteConn); return nil })
	for _, p := range pragmas {
		if err == nil {
			_, err = c.c.ExecContext(background, "PRAGMA "+p)
		}
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// dsn is the URI of path, in which ? and # of a file name must not start the parameters.
func dsn(path, params string) string {
	if path == memory {
		return path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params
}

const memory = ":memory:"

func (c *conn) close() {
	for _, s := range c.stmts {
		_ = s.Close()
	}
	_ = c.c.Close()
	_ = c.db.Close()
}

// prepare returns the statement of query, which is prepared once in the life of the connection. Queries are constants,
// so the map stays small.
func (c *conn) prepare(query string) (*sql.Stmt, error) {
	c.use = recent
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s, err := c.c.PrepareContext(background, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = s
	return s, nil
}

func (c *conn) exec(query string) error {
	s, err := c.prepare(query)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(background)
	return err
}

// script runs several statements at once; they are not kept.
func (c *conn) script(text string) error {
	_, err := c.c.ExecContext(background, text)
	return err
}

// rollback ends the transaction if SQLite has not done so itself.
func (c *conn) rollback() {
	if !c.raw.AutoCommit() {
		_ = c.exec("ROLLBACK")
	}
}

// checkpoint runs PRAGMA wal_checkpoint(mode). log is the number of frames in the WAL, done how many of them are copied.
func (c *conn) checkpoint(mode string) (busy bool, log, done int64, err error) {
	err = c.c.QueryRowContext(background, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &done)
	return busy, log, done, err
}

// A tx is what a request or a read works with: one connection inside one transaction.
type tx struct {
	*conn
	ctx context.Context
}

// run executes a statement and returns the number of rows it changed.
func (t *tx) run(query string, args ...any) (int64, error) {
	s, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	t.wrote = true
	r, err := s.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// insert executes an INSERT and returns the row id.
func (t *tx) insert(query string, args ...any) (int64, error) {
	s, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	t.wrote = true
	r, err := s.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

// get scans the first row of query into dest. No row is ErrNotFound.
func (t *tx) get(query string, args []any, dest ...any) error {
	s, err := t.prepare(query)
	if err != nil {
		return err
	}
	err = readable{s.QueryRowContext(t.ctx, args...)}.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// A scanner is a row: *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// readable is a row whose texts are UTF-8 whatever another program, or a bit that has turned, made of them. What is read is
// sent on in messages that take nothing else: one such text would keep its whole conversation from being loaded.
type readable struct{ scanner }

func (r readable) Scan(dest ...any) error {
	err := r.scanner.Scan(dest...)
	for _, d := range dest {
		switch s := d.(type) {
		case *string:
			*s = valid(*s)
		case **string:
			if *s != nil {
				fixed := valid(**s)
				*s = &fixed
			}
		}
	}
	return err
}

// one returns the first row of query, ErrNotFound if there is none.
func one[T any](t *tx, scan func(scanner) (T, error), query string, args ...any) (T, error) {
	var none T
	s, err := t.prepare(query)
	if err != nil {
		return none, err
	}
	v, err := scan(readable{s.QueryRowContext(t.ctx, args...)})
	if errors.Is(err, sql.ErrNoRows) {
		return none, ErrNotFound
	}
	if err != nil {
		return none, err
	}
	return v, nil
}

// all returns the rows of query.
func all[T any](t *tx, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	s, err := t.prepare(query)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(t.ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	row := scanner(readable{rows})
	for rows.Next() {
		v, err := scan(row)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

func scanString(row scanner) (s string, err error) { err = row.Scan(&s); return s, err }

// code returns SQLite's primary and extended result codes, zeros if err is not SQLite's.
func code(err error) (sqlite3.ErrNo, sqlite3.ErrNoExtended) {
	var e sqlite3.Error
	if errors.As(err, &e) {
		return e.Code, e.ExtendedCode
	}
	return 0, 0
}

func isBusy(err error) bool {
	c, _ := code(err)
	return c == sqlite3.ErrBusy
}

func isDamage(err error) bool {
	c, _ := code(err)
	return c == sqlite3.ErrCorrupt || c == sqlite3.ErrNotADB
}

func isIO(err error) bool {
	c, _ := code(err)
	return c == sqlite3.ErrIoErr
}

// explain gives an error of SQLite the kind that callers decide on.
func explain(err error) error {
	var e sqlite3.Error
	if !errors.As(err, &e) {
		return err
	}
	errno := e.SystemErrno
	switch {
	case e.Code == sqlite3.ErrFull || errno == enospc || errno == edquot || errno == efbig:
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case e.Code == sqlite3.ErrReadonly || errno == erofs:
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case e.Code == sqlite3.ErrBusy:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case isDamage(err):
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return err
}

// valid makes text storable: SQLite's TEXT and JSON want UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }
