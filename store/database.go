package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
)

// Options are what a store takes from its surroundings. The zero value works.
type Options struct {
	Now     func() time.Time // nil: time.Now
	Log     hclog.Logger     // nil: none
	Readers int              // connections for reads; 0: 4
	Keep    time.Duration    // after which rows of turns that have ended are removed; 0: never
	// Rollback keeps the file with a rollback journal although a write-ahead log is safe where it is: a person chose that.
	Rollback bool
	// Reading opens a file that was opened before for reads alone: nothing is written, and no other program is waited for.
	// A file that must be changed first is opened as ever.
	Reading bool
	// Waiting is told while an opening waits for another process, again and again, and with "" when that is over. It must not
	// wait itself. nil: nobody is told, and the log has it.
	Waiting func(what string)
}

// defaultReaders is enough to keep two cores busy; each costs two descriptors.
const defaultReaders = 4

// A kind is what differs between the files.
type kind struct {
	migrations string // directory of migrations/
	sync       string // FULL, or NORMAL where the last seconds may be lost with the power
	foreign    bool   // other programs use the file too: a snapshot is taken before it is changed first
	indexed    bool   // has Hermes' full-text indices
}

// A database is one open file: its writer, its readers and its guard.
type database struct {
	name    string
	path    string
	keep    time.Duration // of the rows of turns that have ended; 0: for ever
	now     func() time.Time
	log     hclog.Logger
	health  health
	kind    kind
	wal     bool         // false: a rollback journal
	waiting func(string) // of Options, until the file is open; may be nil
	reading bool         // nobody wants it written
	chosen  bool         // a rollback journal, by a person
	guard   *guard       // nil while the file cannot be written
	readers *readers
	count   int             // of readers
	viewed  *scratch.Folder // with the copy that they read while the file cannot be; nil: none
	w       *writer
}

// An opened file is ready to be written.
type opened struct {
	conn  *conn
	guard *guard
	index index
}

// checkLimit is the size up to which a file is checked when its last user did not close it: about two seconds.
const checkLimit = 256 << 20

// oldestSQLite is the first release without the bug that can lose a WAL that is being reset.
const oldestSQLite = 3051003

// open opens or creates the file at path.
func open(ctx context.Context, path string, k kind, o Options) (*database, error) {
	d := &database{name: strings.TrimSuffix(filepath.Base(path), ".db"), path: resolve(path), keep: o.Keep, chosen: o.Rollback, now: o.Now, log: o.Log, waiting: o.Waiting}
	if d.now == nil {
		d.now = time.Now
	}
	if d.log == nil {
		d.log = hclog.NewNullLogger()
	}
	if o.Readers <= 0 {
		o.Readers = defaultReaders
	}
	if o.Reading && d.openReading(k, o.Readers) {
		return d, nil
	}
	if err := d.open(ctx, k, o.Readers); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, explain(err))
	}
	return d, nil
}

func (d *database) open(ctx context.Context, k kind, readers int) error {
	if _, number, _ := sqlite3.Version(); number < oldestSQLite {
		return fmt.Errorf("the linked SQLite %d is too old: %d is needed", number, oldestSQLite)
	}
	d.kind, d.count = k, readers
	o, err := d.openWriter(ctx)
	if err != nil {
		return d.openRefused(ctx, err)
	}
	if d.readers, err = openReaders(d.path, "mode=ro", readers, d.log); err != nil {
		o.close()
		return err
	}
	d.run(&o, k, seen{})
	return nil
}

// openWriter opens the file for writing, after it was made one that this version can work with.
func (d *database) openWriter(ctx context.Context) (o opened, err error) {
	place, err := placeOf(filepath.Dir(d.path))
	if err != nil {
		return o, err
	}
	if place.readOnly {
		return o, fmt.Errorf("%w: the file system of %s is read-only", ErrReadOnly, d.path)
	}
	made, err := d.prepare(d.kind)
	if err != nil {
		return o, err
	}
	defer func() {
		if err != nil && o.conn != nil {
			d.giveUp(o.conn, err)
		}
		if err != nil && made && sizeOf(d.path) == 0 {
			_ = os.Remove(d.path) // what is empty would be taken for a file that was lost
		}
	}()
	unclean := sizeOf(d.path+"-wal") > 0
	if o.conn, err = d.dial(place); err != nil {
		return o, err
	}
	o.conn.held = d.openingWaits()
	if size := sizeOf(d.path); unclean && size <= checkLimit || d.health.holds(CondDamage) {
		indexDamaged, err := quickCheck(o.conn)
		if err == nil && indexDamaged {
			err = abandonIndex(o.conn)
		}
		if err != nil {
			return o, err
		}
	}
	if o.index, err = d.upgrade(ctx, o.conn, d.kind); mayBeIndex(err) {
		o.index, err = d.upgradeDamaged(ctx, o.conn, err)
	}
	if err != nil {
		return o, err
	}
	o.guard, err = d.arm(o.conn)
	return o, err
}

// upgradeDamaged looks whether it is damage that an upgrade failed by: SQLite has other words for that of an index. Without a
// damaged index the upgrade is tried again.
func (d *database) upgradeDamaged(ctx context.Context, c *conn, why error) (x index, err error) {
	switch f := lookAtTables(&tx{conn: c, ctx: ctx}); {
	case f.data != "":
		return x, fmt.Errorf("%w: %s", errDamaged, f.data)
	case f.index == "" || !d.kind.indexed:
		return x, why
	}
	if err := abandonIndex(c); err != nil {
		return x, err
	}
	return d.upgrade(ctx, c, d.kind)
}

// giveUp closes a connection that was not opened to an end. What is damaged stays as it was found: SQLite would copy the
// WAL into it and delete that, if it did not believe in another user.
func (d *database) giveUp(c *conn, err error) {
	var g *guard
	if errors.Is(explain(err), ErrFailed) {
		g, _ = newGuard(d.path, d.wal)
	}
	c.close()
	if g != nil {
		g.close()
	}
}

func (o opened) close() {
	o.conn.close()
	o.guard.close()
}

// prepare looks at what is at the path before SQLite does, and says whether it made the file.
func (d *database) prepare(k kind) (made bool, err error) {
	if held := RetiredHolders(d.path); k.foreign && held != nil {
		return false, fmt.Errorf("%w: %s still writes into a deleted write-ahead log of this file; nothing is lost: end that process first",
			errWALHeld, strings.Join(held, ", "))
	}
	sweep(d.path, d.log)
	if k.foreign {
		moved, err := quarantine(d.path, d.now(), d.log)
		if err != nil {
			return false, err
		}
		if moved != "" {
			d.health.set(CondQuarantined, stateDegraded, fmt.Sprintf("%s was no database and was moved to %s; a new one was begun", d.path, moved))
		}
	}
	return prepareFile(d.path)
}

// dial opens the connection that writes, with a WAL where one can be had.
func (d *database) dial(p place) (*conn, error) {
	c, wal, err := d.dialWriter(p)
	if err != nil {
		return nil, err
	}
	if d.wal = wal; !wal && !(d.chosen && p.remote == "") {
		where := p.remote
		if where == "" {
			where = "a file system"
		}
		d.health.set(CondNoWAL, stateDegraded, fmt.Sprintf("%s is on %s, where a write-ahead log is not safe; a rollback journal is used instead", d.path, where))
	}
	return c, nil
}

// arm ends the preparations of the writer's connection and guards the files.
func (d *database) arm(c *conn) (*guard, error) {
	// With a WAL nobody but a foreign writer is in the way, which the loop waits for itself. With a rollback journal
	// COMMIT waits for readers.
	timeout := "0"
	if !d.wal {
		timeout = "6000" // longer than a read may take
	}
	if err := c.script("SELECT count(*) FROM sqlite_schema; PRAGMA busy_timeout = " + timeout); err != nil {
		return nil, err
	}
	return newGuard(d.path, d.wal)
}

// connect opens the file once more, as it was opened first.
func (d *database) connect() (*conn, *guard, error) {
	p, err := placeOf(filepath.Dir(d.path))
	if err != nil {
		return nil, nil, err
	}
	c, err := d.dial(p)
	if err != nil {
		return nil, nil, err
	}
	g, err := d.arm(c)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return c, g, nil
}

// run starts the loop, of a store that takes no writes yet if o is nil; then at is how its file was found.
func (d *database) run(o *opened, k kind, at seen) {
	d.w = &writer{
		database: d, indexed: k.indexed, kept: k.foreign, revived: make(chan opened, 1),
		suspicion: suspicion{raised: make(chan struct{}, 1), found: make(chan findings, 1)},
		queue:     make(chan *request, queueLength), jobs: make(chan job), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	if o == nil {
		d.w.revival.tried = at
		d.w.readOnly.Store(true)
	} else {
		d.w.take(*o)
	}
	d.waiting = nil // what the loop waits for is in the health
	go d.w.loop()
}

// take makes an opened file the one that is written.
func (w *writer) take(o opened) {
	w.conn, w.guard = o.conn, o.guard
	if !w.wal {
		w.spares.take()
	}
	w.dataVersion, _ = foreignCommits(o.conn)
	if !w.indexed {
		return
	}
	var newest float64
	if (&tx{conn: o.conn, ctx: background}).get("SELECT received_at FROM hs_inbox ORDER BY id DESC LIMIT 1", nil, &newest) == nil {
		w.newest = instant(&newest)
	}
	w.watchClock()
	w.retention = retention{keep: w.keep, next: time.Now().Add(retainEvery), wall: w.now().Round(0), steady: time.Now()}
	w.filler.init(o.index)
}

// upgrade makes the file one that this version can work with, after it was copied if another program made it.
func (d *database) upgrade(ctx context.Context, c *conn, k kind) (x index, err error) {
	number, err := migrationNumber(c)
	if err != nil {
		return x, err
	}
	if k.indexed {
		if err := checkSchema(c); err != nil {
			return x, err
		}
	}
	if number == 0 && k.foreign {
		if err := snapshotForeign(c, d.path, d.log); err != nil {
			return x, fmt.Errorf("snapshot before the first migration: %w", err)
		}
	}
	if k.indexed {
		if err := checkIndex(ctx, c, d.log); err != nil {
			return x, err
		}
	}
	if err := migrate(ctx, c, d.path, k.migrations, d.log); err != nil || !k.indexed {
		return x, err
	}
	x, err = prepareIndex(ctx, c, d.log)
	if isDamage(err) { // of the data: the first write finds it and says so
		d.log.Error("the full-text index cannot be taken up", "path", d.path, "error", err)
		return index{}, nil
	}
	return x, err
}

// dialWriter opens the connection that writes. journal_size_limit and the sync level are those of Hermes; checkpoints
// are made by the writer (wal_autocheckpoint=0), never inside a COMMIT.
func (d *database) dialWriter(p place) (c *conn, wal bool, err error) {
	c, err = dial(d.path, "_busy_timeout=5000&_foreign_keys=1",
		"synchronous="+d.kind.sync, "temp_store=MEMORY", "wal_autocheckpoint=0", "cell_size_check=ON", "trusted_schema=OFF",
		"journal_size_limit=67108864", "mmap_size=0")
	if err != nil {
		return nil, false, err
	}
	if wal, err = d.useJournal(c, p); err != nil {
		c.close()
		return nil, false, err
	}
	return c, wal, nil
}

// useJournal switches to a WAL, or to a rollback journal where one was chosen or the file system cannot have a WAL, and says
// which it is. A choice that cannot be followed, because another program has the file open, is told and no reason not to open.
func (d *database) useJournal(c *conn, p place) (wal bool, err error) {
	var was, is string
	existing := sizeOf(d.path) > 0
	if err := c.c.QueryRowContext(background, "PRAGMA journal_mode").Scan(&was); err != nil {
		return false, err
	}
	want := "wal"
	if p.remote != "" || d.chosen {
		want = "delete"
	}
	err = c.c.QueryRowContext(background, "PRAGMA journal_mode="+want).Scan(&is)
	switch {
	case isBusy(err) && p.remote == "":
		is = was
	case err != nil:
		return false, fmt.Errorf("switch the journal mode from %s to %s: %w", was, want, err)
	case p.remote != "" && is == "wal":
		return false, fmt.Errorf("%w: the file is on %s in WAL mode and another program keeps it so; end that program", ErrInvalid, p.remote)
	}
	if is != want {
		d.log.Warn("the journal mode of the file is not the one that is wanted, because another program has it open", "path", d.path, "is", is, "wanted", want)
	} else if was != is && existing {
		d.log.Warn("the journal mode of the file is changed", "path", d.path, "from", was, "to", is)
	}
	return is == "wal", nil
}

// Close writes what is queued, empties the WAL and closes the file. A second Close does nothing.
//
// With the guard's locks held SQLite believes in other users of the file and leaves the WAL alone. That is right for a
// store that has failed: what is in its WAL may not belong to the file any more.
func (d *database) Close() error {
	if !d.w.stop() {
		return nil
	}
	<-d.w.ended
	d.w.endRevival()
	d.w.endLook()
	d.w.spares.let()
	if d.w.readOnly.Load() {
		d.readers.close()
		d.endView()
		return nil
	}
	d.w.closeIndex()
	d.readers.close()
	d.w.lastLook()
	err := d.health.failure()
	if err == nil {
		d.w.truncate()
		d.guard.unlock()
	} else if errors.Is(d.guard.check(), errReplaced) {
		d.w.leaveAlone()
	}
	d.w.conn.close()
	d.guard.close()
	return err
}

// Health says how the store does.
func (d *database) Health() Health {
	h := d.health.get(d.name)
	h.Refused = d.w.refused.Load()
	return h
}

// Progress grows with each turn of the writer loop. A value that stays for several seconds means that the loop hangs.
func (d *database) Progress() uint64 { return d.w.progress.Load() }

// Ping goes through the writer's queue and a transaction that writes nothing.
func (d *database) Ping(ctx context.Context) error {
	return d.w.do(ctx, func(*tx) error { return nil })
}

// write runs fn in a transaction of the writer and returns its value after COMMIT.
func write[T any](ctx context.Context, d *database, fn func(*tx) (T, error)) (T, error) {
	var out T
	err := d.w.do(ctx, func(t *tx) (err error) {
		out, err = fn(t)
		return err
	})
	if err != nil { // out may still be written by a request whose caller has gone
		var none T
		return none, err
	}
	return out, nil
}

// read runs fn on one snapshot of the database.
func read[T any](ctx context.Context, d *database, fn func(*tx) (T, error)) (T, error) {
	var out T
	err := d.readers.do(ctx, func(t *tx) (err error) {
		defer func() {
			if p := recover(); p != nil {
				d.log.Error("a store read panicked", "panic", p, "stack", string(debug.Stack()))
				err = fmt.Errorf("store read panicked: %v", p)
			}
		}()
		out, err = fn(t)
		return err
	})
	switch {
	case isDamage(err):
		d.suspect()
	case isIO(err) && !errors.Is(explain(err), ErrDiskFull):
		d.readError(err.Error())
	}
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// quickCheck looks for damage. It reads the whole file. A damaged full-text index is no damage of the data.
func quickCheck(c *conn) (index bool, err error) {
	found, err := all(&tx{conn: c, ctx: background}, scanString, "PRAGMA quick_check(20)")
	if err != nil {
		return false, err
	}
	for _, text := range found {
		switch {
		case text == "ok":
		case strings.Contains(strings.ToLower(text), "fts5"):
			index = true
		default:
			return false, fmt.Errorf("%w: the database is damaged: %s", errDamaged, text)
		}
	}
	return index, nil
}
