package store

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long a transaction waits for another process that holds the write lock. A full-text optimize or
	// a VACUUM of Hermes holds it 9 to 18 s; Hermes itself waits 60 s for what a turn depends on.
	patience = 60 * time.Second
	// closingPatience is the same when the store is closed: what is queued should be written, but the end must come.
	closingPatience = 3 * time.Second
	// nameAfter is when the holder is looked for and told.
	nameAfter = time.Second
)

// begin starts a transaction. SQLite's own busy handler would block the loop in C; waiting here keeps the beat going,
// ends with the store, and gives the lock a fair chance by jitter. It gives up early when nobody waits for the batch.
func (w *writer) begin(batch []*request) error {
	start, named := time.Now(), false
	for {
		err := w.conn.exec("BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) {
			return err
		}
		waited := time.Since(start)
		if waited > nameAfter {
			w.tellHolder(waited, &named)
		}
		if waited > patience || w.closing() && waited > closingPatience || waited > nameAfter && allGone(batch) {
			return w.because(explain(err))
		}
		w.progress.Add(1)
		time.Sleep(lockPause(waited))
	}
}

func (w *writer) closing() bool {
	select {
	case <-w.quit:
		return true
	default:
		return false
	}
}

// lockPause is short while the other is likely an ordinary transaction, and longer than one of Hermes' own pauses never.
func lockPause(waited time.Duration) time.Duration {
	switch {
	case waited < 20*time.Millisecond:
		return time.Millisecond + rand.N(2*time.Millisecond)
	case waited < 2*time.Second:
		return 5*time.Millisecond + rand.N(25*time.Millisecond)
	}
	return 50*time.Millisecond + rand.N(100*time.Millisecond)
}

// tellHolder puts into health who holds the lock, and into the log once.
func (w *writer) tellHolder(waited time.Duration, named *bool) {
	detail := lockDetail(w.path, waited)
	w.health.set(CondLock, stateDegraded, detail)
	w.troubled = true
	if !*named {
		*named = true
		w.log.Warn("waiting for the write lock", "detail", detail)
	}
}

func lockDetail(path string, waited time.Duration) string {
	return fmt.Sprintf("%s holds the write lock of %s for %.0f s", lockHolder(path), path, waited.Seconds())
}

// openingWaits returns what tells of an opening that waits for the lock: the log once, and who opens it each time.
func (d *database) openingWaits() func(waited time.Duration) {
	named := false
	return func(waited time.Duration) {
		detail := ""
		if waited > 0 {
			detail = lockDetail(d.path, waited)
		}
		switch {
		case waited > 0 && !named:
			named = true
			d.log.Warn("waiting for the write lock before the file is opened", "detail", detail, "at most", patience)
		case waited == 0:
			d.log.Info("the wait for the write lock is over", "path", d.path)
		}
		if d.waiting != nil {
			d.waiting(detail)
		}
	}
}

func allGone(batch []*request) bool {
	for _, r := range batch {
		if r.state.Load() != dropped {
			return false
		}
	}
	return len(batch) > 0
}

// What a writer locks: in WAL mode a byte of the -shm file, with a rollback journal one of the file itself.
var writeLocks = []struct {
	suffix string
	at     int64
}{{"-shm", 120}, {"", 0x40000001}}

// lockHolder names the process that holds the write lock of the database at path, from /proc/locks.
func lockHolder(path string) string {
	const unknown = "another process"
	inodes := make([]uint64, len(writeLocks))
	for i, l := range writeLocks {
		var st syscall.Stat_t
		if syscall.Stat(path+l.suffix, &st) == nil {
			inodes[i] = st.Ino
		}
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return unknown
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		for i, l := range writeLocks {
			pid, ok := lockLine(lines.Text(), inodes[i], l.at)
			if !ok || pid == os.Getpid() {
				continue
			}
			if pid <= 0 {
				return unknown
			}
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return fmt.Sprintf("pid %d (%s)", pid, strings.TrimSpace(string(name)))
		}
	}
	return unknown
}

// lockLine reads a line of /proc/locks, such as "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120", and returns the pid
// if it is a held write lock on that byte of that inode. The device is not compared: btrfs shows another one.
func lockLine(line string, inode uint64, at int64) (pid int, ok bool) {
	f := strings.Fields(line)
	if len(f) != 8 || f[3] != "WRITE" { // a waiting one has "->" as a further field
		return 0, false
	}
	dev := strings.Split(f[5], ":")
	ino, err := strconv.ParseUint(dev[len(dev)-1], 10, 64)
	if err != nil || ino != inode {
		return 0, false
	}
	from, err := strconv.ParseInt(f[6], 10, 64)
	if err != nil || from > at {
		return 0, false
	}
	if to, err := strconv.ParseInt(f[7], 10, 64); f[7] != "EOF" && (err != nil || to < at) {
		return 0, false
	}
	pid, err = strconv.Atoi(f[4])
	return pid, err == nil
}
