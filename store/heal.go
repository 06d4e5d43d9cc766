package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// healEvery is the pause between two looks at whether a store whose WAL was retired can go on. Each look reads /proc.
const healEvery = 2 * time.Second

// lose stops all writing because the files at the paths are no longer those that are open, and captures what would be
// lost with the descriptors. It runs once for a loss.
func (w *writer) lose(err error) {
	name := CondWALRetired
	if errors.Is(err, errReplaced) {
		name = CondReplaced
	}
	if !w.health.set(name, stateFailed, err.Error()) {
		return
	}
	w.health.suspend(name == CondWALRetired && w.kept)
	w.log.Error("nothing more is written", "path", w.path, "reason", err)
	w.capture("halt")
}

// capture keeps the generation that is open, once.
func (w *writer) capture(trigger string) {
	if w.captured != "" || w.guard.wal < 0 || !w.kept {
		return
	}
	dir, err := w.guard.capture(w.now(), trigger, func() { w.progress.Add(1) })
	if err != nil {
		w.log.Error("the open files could not be copied; they are there as long as this process lives", "path", w.path, "error", err)
		return
	}
	w.captured = dir
	w.log.Warn("what the open files hold was copied", "to", dir)
}

// heal lets a store go on whose WAL was deleted or replaced, if nobody else can have written since: the main file is the
// one that is open and is as the last checkpoint left it, there is no other WAL with content at the path, and no other
// process has any of the files open. Then the WAL that is still open is copied into the main file, which loses nothing
// and overwrites nothing, and everything is opened anew.
func (w *writer) heal() {
	if !w.health.mayHeal() || time.Since(w.lastHeal) < healEvery {
		return
	}
	w.lastHeal = time.Now()
	if w.captured == "" {
		w.capture("halt")
	}
	if err := w.safeToHeal(); err != nil {
		detail := fmt.Sprintf("%v; %v", w.lostBecause(), err)
		w.health.set(CondWALRetired, stateFailed, detail)
		if errors.Is(err, errNeverSafe) {
			w.health.suspend(false)
		}
		return
	}
	if !w.cutWAL() {
		return // the next look tries again
	}
	if err := w.reopen(); err != nil {
		w.health.suspend(false)
		w.health.set(CondWALRetired, stateFailed, fmt.Sprintf("everything is in the main file, but it could not be opened anew: %v", err))
		w.log.Error("restart the supervisor", "path", w.path, "error", err)
		return
	}
	w.captured = ""
	w.health.suspend(false)
	w.health.clear(CondWALRetired)
	w.log.Warn("the store takes writes again; nothing was lost", "path", w.path)
}

// lastLook is for the end: a loss that was not seen yet is captured, and what can be put into the file is.
func (w *writer) lastLook() {
	if w.health.failure() == nil {
		if err := w.guard.check(); err != nil {
			w.lose(err)
		}
	}
	if w.health.mayHeal() && w.safeToHeal() == nil && w.cutWAL() {
		w.health.suspend(false)
		w.health.clear(CondWALRetired)
		w.log.Warn("what the retired WAL held is in the file; nothing was lost", "path", w.path)
	}
}

func (w *writer) lostBecause() error {
	if err := w.guard.check(); err != nil {
		return err
	}
	return fmt.Errorf("%s-wal was deleted or replaced", w.path)
}

// errNeverSafe marks reasons that waiting does not end.
var errNeverSafe = errors.New("what is in the retired WAL cannot be put into the file any more")

func (w *writer) safeToHeal() error {
	if id, err := at(w.path); err != nil || id != w.guard.mainID {
		return fmt.Errorf("%w: the file itself was replaced as well", errNeverSafe)
	}
	if now, err := w.guard.stamp(); err != nil || now != w.guard.left || w.guard.touched {
		return fmt.Errorf("%w: another process has changed the file since; the copy is in %s", errNeverSafe, w.captured)
	}
	if sizeOf(w.path+"-wal") > 0 {
		if id, err := at(w.path + "-wal"); err == nil && id != w.guard.walID {
			return fmt.Errorf("%w: another process has begun a WAL of its own; the copy is in %s", errNeverSafe, w.captured)
		}
	}
	holders, err := Holders(w.path)
	if err != nil {
		return fmt.Errorf("it cannot be seen who else has it open: %w", err)
	}
	if len(holders) > 0 {
		return fmt.Errorf("%s must end first", strings.Join(names(holders), ", "))
	}
	return nil
}

// reopen closes every connection and opens the file anew. The guard stays until SQLite has closed, so that it deletes
// nothing.
func (w *writer) reopen() error {
	if !w.drainReaders() {
		return errors.New("a reader does not end")
	}
	defer w.readers.release()
	closed := w.readers.takeAll()
	for _, c := range closed {
		c.close()
	}
	w.conn.close()
	w.guard.close()
	c, g, err := w.database.connect()
	if err != nil {
		return err
	}
	w.conn, w.guard, w.dirty = c, g, false
	w.dataVersion, _ = foreignCommits(c)
	return w.readers.fill(len(closed))
}

// drainReaders closes the gate and waits until the running reads have ended, which their age limit sees to.
func (w *writer) drainReaders() bool {
	const pause = 20 * time.Millisecond
	w.readers.hold()
	for end := time.Now().Add(readLimit + gatePatience); time.Now().Before(end); time.Sleep(pause) {
		w.progress.Add(1)
		w.readers.interrupt(gatePatience)
		if w.readers.idle() {
			return true
		}
	}
	w.readers.release()
	return false
}

// watch looks once a beat for what another program does to the file.
func (w *writer) watch() {
	w.watchForeign()
	now, err := w.guard.stamp()
	if err != nil || now == w.guard.left {
		return
	}
	h, err := w.guard.header()
	if was := w.guard.head; err != nil || !h.Valid || h.PageSize != was.PageSize || h.ApplicationID != was.ApplicationID || h.ChangeCounter < was.ChangeCounter {
		w.lose(fmt.Errorf("%w: another file was copied over %s while it was open", errReplaced, w.path))
		return
	}
	w.guard.left, w.guard.head, w.guard.touched = now, h, true // a checkpoint of another process
}

// foreignCommits is a number that changes when another connection commits. Our readers never do.
func foreignCommits(c *conn) (version int64, err error) {
	err = c.c.QueryRowContext(background, "PRAGMA data_version").Scan(&version)
	return version, err
}

// foreignFor is how long a foreign write stays in health: long enough for a person to see it.
const foreignFor = time.Minute

// watchForeign finds commits of other processes by SQLite's own counter, which our commits do not move.
func (w *writer) watchForeign() {
	version, err := foreignCommits(w.conn)
	if err != nil {
		return
	}
	was := w.dataVersion
	w.dataVersion = version
	if was == version {
		if time.Since(w.lastForeign) > foreignFor {
			w.health.clear(CondForeign)
		}
		return
	}
	w.lastForeign = time.Now()
	who := "another process"
	if holders, err := Holders(w.path); err == nil && len(holders) > 0 {
		who = strings.Join(names(holders), ", ")
	}
	if w.health.set(CondForeign, stateDegraded, fmt.Sprintf("%s writes to %s", who, filepath.Base(w.path))) {
		w.log.Warn("another process writes to the file", "path", w.path, "process", who)
	}
}

// leaveAlone moves the WAL of a file that is no longer at the path into the captured folder: whoever opens the path next
// would read it as the WAL of the file that is there now, which damages it.
func (w *writer) leaveAlone() {
	if w.captured == "" {
		return
	}
	for suffix, id := range map[string]identity{"-wal": w.guard.walID, "-shm": w.guard.shmID} {
		if there, err := at(w.path + suffix); err != nil || there != id {
			continue
		}
		if err := os.Rename(w.path+suffix, filepath.Join(w.captured, filepath.Base(w.path)+suffix)); err != nil {
			w.log.Error("the WAL of a file that was replaced could not be moved away", "path", w.path+suffix, "error", err)
		}
	}
}

// clockSlack is how far a clock may be set back without a word: a time server does that.
const clockSlack = time.Minute

// watchClock tells when the clock is behind the newest message, or behind itself. Nothing waits or goes because of it, order
// is by number; but people wonder about the times that they see.
func (w *writer) watchClock() {
	if !w.indexed {
		return // one store tells it
	}
	now := w.now().Round(0) // by the clock on the wall
	if now.After(w.newest) {
		w.newest = now
		w.health.clear(CondClock)
		return
	}
	if w.newest.Sub(now) > clockSlack && w.health.set(CondClock, stateDegraded, fmt.Sprintf("the clock says %s, and it was %s before",
		now.Format(time.DateTime), w.newest.In(now.Location()).Format(time.DateTime))) {
		w.log.Warn("the clock was set back", "path", w.path, "now", now, "was", w.newest)
	}
}
