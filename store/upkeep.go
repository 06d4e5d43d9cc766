package store

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookEvery    = 8                // commits between two looks at the WAL
	truncateIdle = 30 * time.Second // without a write, after which the WAL is cut to nothing
	lowSpace     = 256 << 20        // bytes free below which a person should know
	tinySpace    = 128 << 10        // bytes free below which a write to a full disk is not even tried
)

// walFrames are lengths of the WAL, in frames of 4 KiB.
type walFrames struct {
	copy int64 // not yet copied, from which a checkpoint pays
	gate int64 // in all, from which readers are held back so that the WAL can start again
	tell int64 // in all, from which a person should know; journal_size_limit is the same
}

var wal = walFrames{copy: 1000, gate: 4000, tell: 16384}

// afterCommit copies the WAL into the main file while the requesters have their answers. PASSIVE never waits for a
// reader; a mode that waits stalled all writers for the whole busy timeout.
func (w *writer) afterCommit() {
	if w.commits++; w.commits%lookEvery != 0 {
		return
	}
	_, log, done, err := w.checkpoint("NOOP")
	if err != nil {
		w.notice(err)
		return
	}
	if log-done >= wal.copy {
		if _, log, done, err = w.checkpoint("PASSIVE"); err != nil {
			w.notice(err)
			return
		}
	}
	if log >= wal.tell && log > done {
		w.health.set(CondWAL, stateDegraded, fmt.Sprintf("the WAL of %s has %d MiB because a reader holds it", w.path, log>>8))
	} else {
		w.health.clear(CondWAL)
	}
	if log >= wal.gate {
		w.readers.hold()
	}
}

// checkpoint is conn.checkpoint, after which the main file is as we left it.
func (w *writer) checkpoint(mode string) (busy bool, log, done int64, err error) {
	if mode == "NOOP" {
		return w.conn.checkpoint(mode)
	}
	busy, log, done, err = w.conn.checkpoint(mode)
	if markErr := w.guard.mark(); markErr != nil {
		w.log.Warn("cannot look at the file", "path", w.path, "error", markErr)
	}
	return busy, log, done, err
}

// restartWAL runs when the gate is closed and the last reader has gone: with everything copied and nobody reading, the
// next commit starts the WAL from its beginning.
func (w *writer) restartWAL() {
	if w.readOnly.Load() {
		return // the gate is held by what opens the file
	}
	defer w.readers.release()
	if _, log, done, err := w.checkpoint("PASSIVE"); err != nil || log != done {
		return // a reader of another process; the next look tries again
	}
	if w.ready(nil) != nil {
		return
	}
	if err := w.conn.exec(`INSERT INTO hs_meta(key, value) VALUES('wal_restarts', 1)
		ON CONFLICT(key) DO UPDATE SET value = value + 1`); err != nil {
		w.conn.rollback()
		return
	}
	if err := w.commit(); err != nil {
		w.notice(err)
	}
}

// idle runs once a beat when nothing is to be written.
func (w *writer) idle() {
	if w.readOnly.Load() {
		w.revive()
		return
	}
	if w.health.failure() != nil {
		w.heal()
		w.standDown()
		return
	}
	if err := w.guard.check(); err != nil {
		w.lose(err)
		return
	}
	w.watch()
	w.watchClock()
	w.readers.interrupt(gatePatience)
	w.lookAtSpace()
	w.mergeIndex()
	w.retain()
	if w.dirty && time.Since(w.lastWrite) > truncateIdle {
		w.truncate()
	}
}

// truncate copies the WAL and cuts it to nothing, if no reader is in the way: the connection has no busy timeout.
func (w *writer) truncate() {
	if busy, _, _, err := w.checkpoint("TRUNCATE"); err == nil && !busy {
		w.dirty = false
		w.health.clear(CondWAL)
	}
}

// notice looks at an error of SQLite for what it says about the whole store.
func (w *writer) notice(err error) {
	why := explain(err)
	switch {
	case errors.Is(why, ErrDiskFull):
		w.full, w.troubled = true, true
		if w.health.set(CondFull, stateDegraded, "writes are refused: disk is full ("+w.path+")") {
			w.log.Error("disk full: writes are refused until there is room", "path", w.path, "error", err)
		}
	case errors.Is(why, ErrReadOnly):
		w.troubled = true
		if w.health.set(CondReadOnly, stateReadOnly, w.path+" cannot be written: "+err.Error()) {
			w.log.Error("the store cannot be written", "path", w.path, "error", err)
		}
	case isDamage(err):
		w.damaged(err)
		w.askDisk()
	case isIO(err):
		w.ioError(err)
	}
}

// ioError deals with a disk that fails. After a failed fsync the kernel may have dropped the pages while a later fsync
// succeeds, so the WAL is not trusted any more: it is copied and cut while its content is still at hand. If that does
// not work, or it happens again, the store is given up: what was answered must not rest on such a disk.
func (w *writer) ioError(err error) {
	w.ioErrors++
	detail := diskSays(w.path, err.Error())
	w.log.Error("I/O error", "path", w.path, "error", err, "count", w.ioErrors)
	w.conn.rollback()
	if w.ioErrors > 1 || !w.cutWAL() {
		w.health.set(CondIO, stateFailed, detail)
		return
	}
	w.health.set(CondIO, stateDegraded, detail)
}

// cutWAL is truncate for a case of need: it waits for the readers, whose age it limits.
func (w *writer) cutWAL() bool {
	const tries, pause = 60, 50 * time.Millisecond // as long as the slowest reader and a bit
	w.readers.hold()
	defer w.readers.release()
	for range tries {
		busy, _, _, err := w.checkpoint("TRUNCATE")
		if err != nil && !isBusy(err) {
			return false
		}
		if err == nil && !busy {
			w.dirty = false
			return true
		}
		w.readers.interrupt(gatePatience)
		w.progress.Add(1)
		time.Sleep(pause)
	}
	return false
}

// recovered clears what a successful commit disproves.
func (w *writer) recovered() {
	if !w.troubled {
		return
	}
	w.full, w.troubled = false, false
	for _, c := range []string{CondFull, CondReadOnly, CondLock} {
		if w.health.clear(c) {
			w.log.Info("the store takes writes again", "path", w.path)
		}
	}
}

// space refuses a write to a disk that was full and still is, without the cost of trying.
func (w *writer) space() error {
	if !w.full {
		return nil
	}
	if free, err := freeSpace(w.path); err == nil && free < tinySpace {
		return fmt.Errorf("%w: %s has %d KiB left", ErrDiskFull, w.path, free>>10)
	}
	return nil
}

// lookAtSpace warns before the disk is full.
func (w *writer) lookAtSpace() {
	free, err := freeSpace(w.path)
	if err == nil && free < lowSpace {
		w.health.set(CondSpace, stateDegraded, fmt.Sprintf("the disk of %s has only %d MiB left", w.path, free>>20))
	} else if err == nil {
		w.health.clear(CondSpace)
	}
}

func freeSpace(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// FreeSpace is how many bytes an ordinary user may still write below a folder.
func FreeSpace(dir string) (int64, error) { return freeSpace(dir) }
