package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Damage that a read meets says nothing of where else there is some, nor whether the data or only a full-text index is hit.
// So the file is looked through in the background, and what is found becomes a condition.

// suspectAgain is the pause between two looks through a file: one takes about 6 s a GiB.
const suspectAgain = time.Minute

// A suspicion is that of damage. All but the channels belongs to the loop.
type suspicion struct {
	raised  chan struct{}
	found   chan findings
	last    time.Time
	stop    context.CancelFunc // nil: no look is taken
	running sync.WaitGroup
}

// findings are what quick_check says of the tables with the data, and of the full-text indices; and where the disk says
// that it cannot read the file, which SQLite calls damage as well.
type findings struct {
	data, index, disk string
	whole             bool // everything was looked at
}

// suspect has the file looked through, because a read met damage.
func (d *database) suspect() {
	select {
	case d.w.suspicion.raised <- struct{}{}:
	default:
	}
}

// lookThrough begins a look, unless there is one or the store takes no writes anyway.
func (w *writer) lookThrough() {
	s := &w.suspicion
	if s.stop != nil || w.readOnly.Load() || w.health.failure() != nil || !s.last.IsZero() && time.Since(s.last) < suspectAgain {
		return
	}
	s.last = time.Now()
	file := w.guard.main
	s.begin(func(ctx context.Context) findings {
		f := lookForDamage(ctx, w.path)
		if f.data != "" || f.index != "" {
			f.disk = diskFault(ctx, file, w.path)
		}
		return f
	})
	w.log.Warn("a read met damage; the file is looked through", "path", w.path)
}

// begin takes a look in the background.
func (s *suspicion) begin(look func(context.Context) findings) {
	ctx, stop := context.WithCancel(background)
	s.stop = stop
	s.running.Go(func() { s.found <- look(ctx) })
}

// askDisk finds out whether what the writer met is damage, or a disk that cannot be read. Nothing is written any more in
// either case; a look that is taken already asks the disk, too.
func (w *writer) askDisk() {
	if w.suspicion.stop != nil || w.closing() {
		return
	}
	file := w.guard.main
	w.suspicion.begin(func(ctx context.Context) findings { return findings{disk: diskFault(ctx, file, w.path)} })
}

// judge makes what a look found a condition: with damaged data nothing more is written, an index is built again.
func (w *writer) judge(f findings) {
	w.suspicion.stop()
	w.suspicion.stop = nil
	switch {
	case w.readOnly.Load():
	case f.disk != "" && w.health.holds(CondDamage): // the writer met it
		w.health.only(CondIO, stateFailed, diskSays(w.path, f.disk), refusals)
		w.log.Error("it is the disk, and no damage", "path", w.path, "error", f.disk)
	case w.health.failure() != nil:
	case f.disk != "":
		w.readError(f.disk)
	case f == findings{whole: true}:
		w.readError("a read met damage that is not in the file when it is read again: the disk, or the memory, gives wrong data at times")
	case f.data != "":
		w.damaged(fmt.Errorf("%w: %s", errDamaged, f.data))
	case f.index != "" && w.indexed:
		w.rebuildIndex(f.index)
	}
}

// readChunk is read at once.
const readChunk = 1 << 20

// diskFault says where the disk cannot read a database or its WAL, "" for nowhere. main is the descriptor that is there: a
// new one would drop SQLite's locks when it is closed. On a WAL there are none.
func diskFault(ctx context.Context, main *os.File, path string) string {
	if why := readThrough(ctx, onDisk(main)); why != "" {
		return why
	}
	log, err := os.Open(path + "-wal")
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	if why := readThrough(ctx, log); why != "" {
		return why + " of the write-ahead log"
	}
	return ""
}

// onDisk is what reads a file from its disk. Tests have one that fails.
var onDisk = func(f *os.File) io.ReaderAt { return f }

// readThrough reads an open file and says where the disk fails.
func readThrough(ctx context.Context, file io.ReaderAt) string {
	b := make([]byte, readChunk)
	for at := int64(0); ctx.Err() == nil; at += readChunk {
		switch _, err := file.ReadAt(b, at); {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return ""
		case err != nil:
			return fmt.Sprintf("%v, in the MiB from byte %d on", err, at)
		}
	}
	return ""
}

// readError notes that the disk cannot be read.
func (d *database) readError(why string) {
	if d.health.set(CondIO, stateDegraded, diskSays(d.path, why)) {
		d.log.Error("I/O error of a read", "path", d.path, "error", why)
	}
}

func diskSays(path, why string) string {
	return fmt.Sprintf("the disk of %s reports an error: %s", path, why)
}

// endLook ends a look that is taken when the loop has ended.
func (w *writer) endLook() {
	if w.suspicion.stop != nil {
		w.suspicion.stop()
		w.suspicion.running.Wait()
	}
}

// lookForDamage checks one table after the other on a connection of its own, so that the WAL is not held for long.
func lookForDamage(ctx context.Context, path string) (f findings) {
	c, err := dial(path, "mode=ro&_busy_timeout=5000", "cell_size_check=ON", "mmap_size=0", "trusted_schema=OFF")
	if err != nil {
		return f.add("", false, err)
	}
	defer c.close()
	return lookAtTables(&tx{conn: c, ctx: ctx})
}

func lookAtTables(t *tx) (f findings) {
	tables, err := all(t, scanString, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
	if err != nil {
		return f.add("", false, err)
	}
	indices, err := ftsTables(t)
	if err != nil {
		return f.add("", false, err)
	}
	f.whole = true
	for _, table := range tables {
		if t.ctx.Err() != nil {
			return findings{}
		}
		found, err := all(t, scanString, "PRAGMA quick_check("+quote(table)+")")
		if err == nil && len(found) > 0 && found[0] != "ok" {
			err = fmt.Errorf("%w: %s", errDamaged, found[0])
		}
		f = f.add(table, ofIndex(table, indices), err)
	}
	return f
}

// ofIndex says that a table is a full-text index or a part of one.
func ofIndex(table string, indices []string) bool {
	for _, name := range indices {
		if table == name || strings.HasPrefix(table, name+"_") {
			return true
		}
	}
	return false
}

// add notes the first of what is found. An error that is none of damage says nothing.
func (f findings) add(table string, index bool, err error) findings {
	if !errors.Is(explain(err), ErrFailed) && !(index && mayBeIndex(err)) {
		f.whole = f.whole && err == nil
		return f
	}
	text := strings.TrimPrefix(table+": "+strings.TrimPrefix(err.Error(), errDamaged.Error()+": "), ": ")
	switch {
	case index && f.index == "":
		f.index = text
	case !index && f.data == "":
		f.data = text
	}
	return f
}
