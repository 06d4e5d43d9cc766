package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
)

// A store that cannot be opened for writing is open all the same: it serves reads from what there is, refuses writes by
// the name of what is wrong, and becomes an ordinary one as soon as that has passed. So a supervisor starts and can be
// asked what is the matter, on a disk that is full, failing, mounted read-only or damaged.

// What keeps a file from being opened for writing and is found before SQLite is asked.
var (
	errDamaged = fmt.Errorf("%w: the database is damaged", ErrFailed)
	errWALHeld = fmt.Errorf("%w: its write-ahead log was deleted while another process uses it", ErrFailed)
)

// refusalOf names the condition in which a store is opened for reads alone after err; "" if it is not opened.
func (d *database) refusalOf(err error) (name, state string) {
	why := explain(err)
	switch {
	case errors.Is(err, errWALHeld):
		return CondWALRetired, stateFailed
	case errors.Is(why, ErrFailed):
		return CondDamage, stateFailed
	case errors.Is(why, ErrDiskFull) || errors.Is(err, enospc) || errors.Is(err, edquot):
		return CondFull, stateDegraded
	case failedCall(err) == syscall.EMFILE || failedCall(err) == syscall.ENFILE:
		return "", "" // nothing is wrong with the file
	case isIO(err) || errors.Is(err, syscall.EIO) || failedCall(err) == syscall.EIO:
		return CondIO, stateReadOnly
	case errors.Is(why, ErrReadOnly) || errors.Is(err, erofs) || errors.Is(err, fs.ErrPermission) || cannotOpen(err):
		if d.takesWrites() { // SQLite opens for reads alone what it cannot open otherwise, whatever the reason
			return CondIO, stateReadOnly
		}
		return CondReadOnly, stateReadOnly
	}
	return "", ""
}

// takesWrites says that as far as the system knows the file and what is beside it can be written, or made.
func (d *database) takesWrites() bool {
	dir := filepath.Dir(d.path)
	if p, err := placeOf(dir); err != nil || p.readOnly || !writable(dir) {
		return false
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if exists(d.path+suffix) && !writable(d.path+suffix) {
			return false
		}
	}
	return true
}

// failedCall is what the system said to SQLite, 0 for nothing.
func failedCall(err error) syscall.Errno {
	var e sqlite3.Error
	_ = errors.As(err, &e)
	return e.SystemErrno
}

// cannotOpen says that SQLite could not open or make one of the files.
func cannotOpen(err error) bool {
	c, _ := code(err)
	return c == sqlite3.ErrCantOpen || c == sqlite3.ErrPerm
}

// askTime is how long an opening asks a disk about what SQLite calls damage: some GiB.
const askTime = 10 * time.Second

// blameDisk tells damage from a disk that cannot be read. Nothing has the file open: a descriptor that is closed drops no
// lock of SQLite's.
func (d *database) blameDisk(ctx context.Context, err error) error {
	if errors.Is(err, errWALHeld) || !errors.Is(explain(err), ErrFailed) {
		return err
	}
	file, openErr := os.Open(d.path)
	if openErr != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if why := diskFault(ctx, file, d.path); why != "" {
		return fmt.Errorf("%s: %w", diskSays(d.path, why), syscall.EIO)
	}
	return err
}

// openRefused opens a store for reads alone, if err is one that can pass.
func (d *database) openRefused(ctx context.Context, err error) error {
	err = d.blameDisk(ctx, err)
	name, state := d.refusalOf(err)
	if name == "" || name == CondDamage && !d.kind.foreign {
		return err
	}
	d.refuse(name, state, err)
	d.readers = newReaders(d.path, d.count, d.log)
	at := look(d.path)
	d.view(ctx)
	d.run(nil, d.kind, at)
	return nil
}

// refusal is the error of every write to a store that takes none.
func (d *database) refusal() error {
	if d.reading {
		return fmt.Errorf("%w: it was opened for reads alone", ErrReadOnly)
	}
	return d.health.refusal()
}

// refuse notes why nothing is written.
func (d *database) refuse(name, state string, err error) {
	detail := err.Error()
	if name == CondDamage && !errors.Is(err, errDamaged) {
		detail = d.path + " is damaged: " + detail
	}
	for _, kind := range []error{ErrReadOnly, ErrDiskFull, ErrFailed} { // which the errors of writes begin with
		detail = strings.TrimPrefix(detail, kind.Error()+": ")
	}
	d.health.only(name, state, "writes are refused: "+detail, refusals)
	d.log.Error("the store is opened for reads only", "path", d.path, "condition", name, "reason", err)
}

// refusals are the conditions of which one keeps a file from being opened for writing.
var refusals = []string{CondWALRetired, CondDamage, CondFull, CondReadOnly, CondIO}

// A revival is what a store that takes no writes knows of its way back. It belongs to the loop.
type revival struct {
	tried    seen // by the last attempt
	settling fileMark
	last     time.Time
	wait     time.Duration
	running  sync.WaitGroup
	stop     context.CancelFunc // nil: no attempt runs
}

// seen is how a file and its WAL were found.
type seen struct {
	file fileMark
	wal  identity
}

func look(path string) (s seen) {
	s.file = markOf(path)
	s.wal, _ = at(path + "-wal")
	return s
}

// A fileMark tells whether a file was changed or replaced. It is zero for none.
type fileMark struct {
	identity
	size    int64
	changed unix.Timespec
}

func markOf(path string) (m fileMark) {
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		m = fileMark{identity{uint64(st.Dev), st.Ino}, st.Size, st.Mtim}
	}
	return m
}

const (
	reviveFirst   = 2 * time.Second // after a first attempt that did not succeed
	reviveLongest = time.Minute     // after many
	reviveRoom    = 1 << 20         // bytes that must be free before a full disk is tried again
)

// revive looks once a beat whether what keeps the file from being written has passed, and tries to open it then. Reads
// are held back meanwhile.
func (w *writer) revive() {
	r := &w.revival
	if w.reading || r.stop != nil || time.Since(r.last) < r.wait || !w.mayRevive() {
		return
	}
	r.last = time.Now()
	r.wait = min(max(2*r.wait, reviveFirst), reviveLongest)
	was := r.tried
	r.tried = look(w.path)
	ctx, stop := context.WithCancel(background)
	r.stop = stop
	r.running.Go(func() { w.revived <- w.attemptRevival(ctx, was) })
}

// mayRevive looks at what has to pass, without opening anything.
func (w *writer) mayRevive() bool {
	switch {
	case w.health.holds(CondDamage):
		return w.otherFile()
	case w.health.holds(CondWALRetired):
		if time.Since(w.lastHeal) < healEvery {
			return false // each look reads /proc
		}
		w.lastHeal = time.Now()
		return len(RetiredHolders(w.path)) == 0
	case w.health.holds(CondFull):
		free, err := freeSpace(filepath.Dir(w.path))
		return err == nil && free >= reviveRoom
	case w.health.holds(CondReadOnly):
		return w.takesWrites()
	}
	return true
}

// otherFile says that a person has put another file in the place of a damaged one, or mended it, and is done with that.
func (w *writer) otherFile() bool {
	r := &w.revival
	now := markOf(w.path)
	if now == r.tried.file || now.size == 0 {
		return false
	}
	settled := now == r.settling
	r.settling = now
	return settled
}

// damaged stops all writing because pages of tables are malformed.
func (w *writer) damaged(err error) {
	text := strings.TrimPrefix(err.Error(), errDamaged.Error()+": ")
	if w.health.set(CondDamage, stateFailed, w.path+" is damaged: "+text) {
		w.revival.tried = look(w.path)
		w.log.Error("the database is damaged; nothing more is written", "path", w.path, "error", err)
	}
}

// standDown closes a file that was found damaged while it was written, when a person has put another one in its place.
func (w *writer) standDown() {
	if !w.health.holds(CondDamage) || !w.kept || !w.otherFile() {
		return
	}
	w.readOnly.Store(true)
	w.conn.close() // the guard's locks keep SQLite from touching the WAL
	w.guard.close()
	w.conn, w.guard = nil, nil
}

func writable(path string) bool { return unix.Access(path, unix.W_OK) == nil }

// attemptRevival opens the file for writing. It returns nothing if that does not work, and reads go on as before.
func (w *writer) attemptRevival(ctx context.Context, was seen) (o opened) {
	if !w.drainReaders() {
		return o
	}
	defer w.readers.release()
	for _, c := range w.readers.takeAll() {
		c.close()
	}
	w.endView()
	w.leaveLogBehind(was)
	o, err := w.openWriter(ctx)
	if err == nil {
		if err = w.readers.use(w.path, "mode=ro", w.count); err == nil {
			return o
		}
		o.close()
	}
	err = w.blameDisk(ctx, err)
	name, state := w.refusalOf(err)
	if name == "" {
		name, state = CondIO, stateReadOnly
	}
	w.refuse(name, state, err)
	w.view(ctx)
	return opened{}
}

// leaveLogBehind moves the WAL of a damaged file that a person has replaced aside: it would be read as the WAL of the file
// that is there now.
func (w *writer) leaveLogBehind(was seen) {
	now := look(w.path)
	if !w.health.holds(CondDamage) || now.file.identity == was.file.identity || now.wal != was.wal || now.wal == (identity{}) {
		return
	}
	to := freeName(w.path+".damaged-"+w.now().UTC().Format(stampFormat), "")
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Rename(w.path+suffix, to+suffix); err != nil && !os.IsNotExist(err) {
			w.log.Error("the WAL of a file that was replaced could not be moved away", "path", w.path+suffix, "error", err)
		}
	}
	w.log.Warn("the WAL of the file that was replaced was moved aside", "to", to+"-wal")
}

// resume takes up the file after an attempt.
func (w *writer) resume(o opened) {
	w.revival.stop()
	w.revival.stop = nil
	if o.conn == nil {
		return
	}
	w.take(o)
	w.readOnly.Store(false)
	for _, name := range refusals {
		w.health.clear(name)
	}
	w.log.Warn("the store takes writes", "path", w.path)
}

// endRevival ends an attempt that runs when the loop has ended.
func (w *writer) endRevival() {
	if w.revival.stop == nil {
		return
	}
	w.revival.stop()
	w.revival.running.Wait()
	if o := <-w.revived; o.conn != nil {
		w.resume(o) // Close does the rest
	}
}
