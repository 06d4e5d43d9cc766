package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"sync"
)

// Telemetry is supervisor.db: the journal. Nothing in it is needed to answer a message, so the file may be deleted at any
// time, also under the running supervisor, and a commit need not reach the disk at once. While it cannot be written the
// newest entries are kept in memory.
type Telemetry struct {
	path string
	o    Options

	opening sync.Mutex // held while a file is opened in place of one that has failed

	mu     sync.Mutex
	db     *database
	closed bool

	held eventHolder
}

// journalLength is how many entries are kept: some weeks of a busy supervisor, about 20 MB.
const journalLength = 100_000

// OpenTelemetry opens or creates supervisor.db. A file that is damaged is replaced by an empty one.
func OpenTelemetry(ctx context.Context, path string, o Options) (*Telemetry, error) {
	t := &Telemetry{path: path, o: o}
	d, err := t.open(ctx)
	if err != nil && (isDamage(err) || errors.Is(err, ErrFailed)) {
		if o.Log != nil {
			o.Log.Warn("the journal is damaged and is begun anew", "path", path, "error", err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
				return nil, err
			}
		}
		d, err = t.open(ctx)
	}
	if err != nil {
		return nil, err
	}
	t.db = d
	return t, nil
}

func (t *Telemetry) open(ctx context.Context) (*database, error) {
	return open(ctx, t.path, kind{migrations: "telemetry", sync: "NORMAL"}, t.o)
}

// current returns the open file, after opening a new one if the last was deleted or has failed otherwise. Who asks how the
// store does need not wait for that: a disk may take long to open a file.
func (t *Telemetry) current(ctx context.Context) (*database, error) {
	if d, ok := t.usable(); ok {
		return d, nil
	}
	t.opening.Lock()
	defer t.opening.Unlock()
	if d, ok := t.usable(); ok {
		return d, nil // somebody else opened it
	}
	d, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	old, closed := t.db, t.closed
	if !closed {
		t.db = d
	}
	t.mu.Unlock()
	if closed {
		return old, ignore(d.Close(), ErrFailed)
	}
	return d, ignore(old.Close(), ErrFailed)
}

// usable returns the file; ok is false if another one should be opened.
func (t *Telemetry) usable() (d *database, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.db, t.closed || t.db.health.failure() == nil
}

// ignore is err unless it is the one that was to be expected.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

func (t *Telemetry) last() *database {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.db
}

// Close writes what is queued and closes the file.
func (t *Telemetry) Close() error {
	t.mu.Lock()
	t.closed = true
	d := t.db
	t.mu.Unlock()
	return d.Close()
}

// Health says how the store does.
func (t *Telemetry) Health() Health { return t.last().Health() }

// Progress grows with each turn of the writer loop.
func (t *Telemetry) Progress() uint64 { return t.last().Progress() }

// Ping goes through the writer's queue.
func (t *Telemetry) Ping(ctx context.Context) error { return t.last().Ping(ctx) }

// Append adds an entry to the journal and forgets the oldest ones from time to time. An entry that the file does not take
// for now is kept in memory, up to a limit, and written later.
func (t *Telemetry) Append(ctx context.Context, e Event) (int64, error) {
	d, err := t.current(ctx)
	if err != nil {
		return 0, err
	}
	if e.Time.IsZero() {
		e.Time = d.now()
	}
	return t.held.put(ctx, d, e)
}

// insertEvent stores an entry, under its number if it has one.
func insertEvent(t *tx, e Event) (id int64, err error) {
	var number, fields any
	if e.ID > 0 {
		number = e.ID
	}
	if len(e.Fields) > 0 {
		b, err := json.Marshal(e.Fields)
		if err != nil {
			return 0, err
		}
		fields = string(b)
	}
	id, err = t.insert("INSERT INTO events(id, time, kind, worker, pid, turn_id, message, fields) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
		number, seconds(e.Time), e.Kind, e.Worker, e.PID, e.TurnID, valid(e.Message), fields)
	if err == nil && id%1000 == 0 {
		_, err = t.run("DELETE FROM events WHERE id <= ?", id-journalLength)
	}
	return id, err
}

func scanEvent(row scanner) (e Event, err error) {
	var at *float64
	var fields *string
	err = row.Scan(&e.ID, &at, &e.Kind, &e.Worker, &e.PID, &e.TurnID, &e.Message, &fields)
	e.Time = instant(at)
	if err == nil && fields != nil {
		err = json.Unmarshal([]byte(*fields), &e.Fields)
	}
	return e, err
}

// Events returns the entries that f selects, oldest first.
func (t *Telemetry) Events(ctx context.Context, f EventFilter) ([]Event, error) {
	since := 0.0
	if !f.Since.IsZero() {
		since = float64(f.Since.UnixMicro()) / 1e6
	}
	d, err := t.current(ctx)
	if err != nil {
		return nil, err
	}
	from := "DESC" // the newest
	if f.AfterID > 0 {
		from = "ASC" // those that follow
	}
	kinds, err := json.Marshal(append([]string{}, f.Kinds...))
	if err != nil {
		return nil, err
	}
	held := t.held.selected(f) // first: what is written meanwhile is found twice, not never
	list, err := read(ctx, d, func(x *tx) ([]Event, error) {
		return all(x, scanEvent, `SELECT * FROM (SELECT id, time, kind, worker, pid, turn_id, message, fields FROM events
			WHERE id > ?1 AND id < ?2 AND time >= ?3 AND (?4 = '' OR worker = ?4)
				AND (?5 = '[]' OR kind IN (SELECT value FROM json_each(?5))) ORDER BY id `+from+` LIMIT ?6) ORDER BY id`,
			f.AfterID, cmp.Or(f.BeforeID, math.MaxInt64), since, f.Worker, string(kinds), orDefault(f.Limit))
	})
	if len(held) == 0 {
		return list, err
	}
	for _, e := range held {
		if len(list) == 0 || e.ID > list[len(list)-1].ID {
			list = append(list, e)
		}
	}
	return f.within(list), nil // a file that cannot be read is why they are held
}
