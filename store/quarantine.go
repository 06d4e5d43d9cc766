package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// quarantine moves what is at path aside if it is no database: a file of no bytes or of zeros, or another kind of file.
// SQLite would take an empty file for a new database and delete the WAL that belongs to what it was. The new names are
// those of Hermes. It returns where the file is now, "" if nothing had to be moved.
//
// It reads the file by itself, which is safe only because no connection of this process is open on it.
func quarantine(path string, now time.Time, log hclog.Logger) (to string, err error) {
	if kind := wrongKind(path); kind == "" {
		return "", nil
	}
	unlock := lockFor(path+".quarantine.lock", quarantineWait)
	defer unlock()
	kind := wrongKind(path) // another process may have done it
	if kind == "" {
		return "", nil
	}
	if err := NotHeld(path); err != nil {
		return "", fmt.Errorf("%w: it is no database and cannot be moved aside: %w", ErrFailed, err)
	}
	base := fmt.Sprintf("%s.%s-%s-%d", path, kind, now.UTC().Format(stampFormat), os.Getpid())
	to = freeName(base, ".bak")
	size := sizeOf(path)
	// The WAL first: without its file it is of no use to anybody who opens the path, and must not meet the next one.
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("move a file that is no database aside: %w", err)
		}
	}
	if err := syncFile(filepath.Dir(path)); err != nil {
		return "", err
	}
	log.Error("the file was empty or damaged and has been moved aside; a new one is begun", "path", path, "bytes", size, "moved", to)
	return to, nil
}

// quarantineWait is how long another process may take that does the same.
const quarantineWait = 5 * time.Second

// wrongKind is "zeroed" or "notadb" for a file that SQLite could not have written, "" for any other and for none.
func wrongKind(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b := make([]byte, headerSize)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	switch {
	case strings.Trim(string(b[:n]), "\x00") == "":
		return "zeroed"
	case n < len(headerMagic) || string(b[:len(headerMagic)]) != headerMagic:
		return "notadb"
	}
	return ""
}

// lockFor takes a lock that processes which do the same take, waiting at most that long; without it things go on.
func lockFor(path string, wait time.Duration) (unlock func()) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}
	}
	for end := time.Now().Add(wait); unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	return func() { _ = os.Remove(path); _ = f.Close() }
}

// sweep removes what a process that was killed left half made beside a database. Names that carry the pid of a process
// that lives are left alone.
func sweep(path string, log hclog.Logger) {
	for _, name := range Leftovers(path) {
		err := os.RemoveAll(name)
		log.Info("removed what a killed process left half made", "path", name, "error", err)
	}
}

// leftoverPatterns follow the path of a database.
var leftoverPatterns = []string{".*.part", retiredMark + "*.partial"}

// alive says whether the last number of a name like x-20261201-120000-4711.partial is the pid of another process.
func alive(name string) bool {
	name = strings.TrimSuffix(name, ".partial")
	pid, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return err == nil && pid > 1 && pid != os.Getpid() && unix.Kill(pid, 0) != unix.ESRCH
}
