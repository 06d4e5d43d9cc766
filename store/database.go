package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	sqlite3 "github.com/mattn/go-sqlite3"
)

// Options are what a store takes from its surroundings. The zero value works.
type Options struct {
	Now     func() time.Time // nil: time.Now
	Log     hclog.Logger     // nil: none
	Readers int              // connections for reads; 0: 4
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
	now     func() time.Time
	log     hclog.Logger
	health  health
	guard   *guard
	readers *readers
	w       *writer
}

// checkLimit is the size up to which a file is checked when its last user did not close it: about two seconds.
const checkLimit = 256 << 20

// oldestSQLite is the first release without the bug that can lose a WAL that is being reset.
const oldestSQLite = 3051003

// open opens or creates the file at path.
func open(ctx context.Context, path string, k kind, o Options) (*database, error) {
	d := &database{name: strings.TrimSuffix(filepath.Base(path), ".db"), path: resolve(path), now: o.Now, log: o.Log}
	if d.now == nil {
		d.now = time.Now
	}
	if d.log == nil {
		d.log = hclog.NewNullLogger()
	}
	if o.Readers <= 0 {
		o.Readers = defaultReaders
	}
	if err := d.open(ctx, k, o.Readers); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, explain(err))
	}
	return d, nil
}

func (d *database) open(ctx context.Context, k kind, readers int) (err error) {
	if _, number, _ := sqlite3.Version(); number < oldestSQLite {
		return fmt.Errorf("the linked SQLite %d is too old: %d is needed", number, oldestSQLite)
	}
	if held := retiredHolders(d.path); k.foreign && held != nil {
		return fmt.Errorf("%w: %s still writes into a deleted write-ahead log of this file; nothing is lost: end that process first",
			ErrFailed, strings.Join(held, ", "))
	}
	unclean := sizeOf(d.path+"-wal") > 0
	if err := prepareFile(d.path); err != nil {
		return err
	}
	c, err := dialWriter(d.path, k.sync, d.log)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	indexDamaged := false
	if size := sizeOf(d.path); unclean && size <= checkLimit {
		if indexDamaged, err = quickCheck(c); err != nil {
			return err
		}
	}
	if indexDamaged {
		if err := abandonIndex(c); err != nil {
			return err
		}
	}
	x, err := d.upgrade(ctx, c, k)
	if err != nil {
		return err
	}
	if err := c.script("SELECT count(*) FROM sqlite_schema; PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	if d.guard, err = newGuard(d.path); err != nil {
		return err
	}
	if d.readers, err = openReaders(d.path, readers, d.log); err != nil {
		c.close()
		d.guard.close()
		return err
	}
	d.w = &writer{database: d, conn: c, indexed: k.indexed, queue: make(chan *request, queueLength), quit: make(chan struct{}), ended: make(chan struct{})}
	if k.indexed {
		d.w.filler.init(x)
	}
	go d.w.loop()
	return nil
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
func dialWriter(path, sync string, log hclog.Logger) (*conn, error) {
	c, err := dial(path, "_busy_timeout=5000&_foreign_keys=1",
		"synchronous="+sync, "temp_store=MEMORY", "wal_autocheckpoint=0", "cell_size_check=ON", "trusted_schema=OFF",
		"journal_size_limit=67108864", "mmap_size=0")
	if err != nil {
		return nil, err
	}
	if err := useWAL(c, path, log); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func useWAL(c *conn, path string, log hclog.Logger) error {
	var was, is string
	existing := sizeOf(path) > 0
	if err := c.c.QueryRowContext(background, "PRAGMA journal_mode").Scan(&was); err != nil {
		return err
	}
	if err := c.c.QueryRowContext(background, "PRAGMA journal_mode=WAL").Scan(&is); err != nil {
		return err
	}
	if is != "wal" {
		return fmt.Errorf("%w: journal mode is %q, and WAL cannot be had on this file system", ErrInvalid, is)
	}
	if was != is && existing {
		log.Warn("the journal mode of the file is changed", "path", path, "from", was, "to", is)
	}
	return nil
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
	d.w.closeIndex()
	d.readers.close()
	d.w.idle() // a last look at the identity of the files
	err := d.health.failure()
	if err == nil {
		d.w.truncate()
		d.guard.unlock()
	}
	d.w.conn.close()
	d.guard.close()
	return err
}

// Health says how the store does.
func (d *database) Health() Health { return d.health.get(d.name) }

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
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// resolve is the path that SQLite uses: it puts the WAL beside the file that a link leads to.
func resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// prepareFile makes the directory and an empty file if they are not there, and keeps others out of both. It opens no
// file that exists: closing one would drop the locks of other stores in this process.
func prepareFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := fileSystem(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f.Close()
	}
	if !os.IsExist(err) {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%w: not a file", ErrInvalid)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Chmod(path+suffix, 0o600); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
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
			return false, fmt.Errorf("%w: the database is damaged: %s", ErrFailed, text)
		}
	}
	return index, nil
}

func sizeOf(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}
