package store

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// readByThread returns how many bytes this thread has read from files.
func readByThread(t *testing.T) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/io")
	if err != nil {
		t.Skip("the kernel does not count what threads read:", err)
	}
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		t.Skip("no count in", string(text))
	}
	return n
}

// reads returns how many bytes fn has a connection read from its file.
func reads(t *testing.T, fn func()) int64 {
	t.Helper()
	own := -readByThread(t) // what the look itself reads
	own += readByThread(t)
	before := readByThread(t)
	fn()
	return readByThread(t) - before - own
}

func TestAConnectionKeepsThePagesThatItUsesAndGivesBackThoseOfARest(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := filepath.Join(t.TempDir(), "a.db")
	w, err := dial(path, "_foreign_keys=1", "journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	const pages = 20 // one row fills one
	rows := strings.Repeat("INSERT INTO x VALUES ('"+strings.Repeat("x", 4000)+"');", pages)
	if err := w.script("CREATE TABLE x (t TEXT); " + rows + "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	c, err := dial(path, "mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	look := func() {
		var n int
		if err := (&tx{conn: c, ctx: background}).get("SELECT sum(length(t || '')) FROM x", nil, &n); err != nil || n != pages*4000 {
			t.Fatal(n, err)
		}
	}
	look()
	for range 3 {
		if n := reads(t, look); n > 2*4096 {
			t.Errorf("a connection in use reads %d bytes again", n)
		}
		c.rest() // once between two uses is no rest
	}
	c.rest()
	if n := reads(t, look); n < pages*4096 {
		t.Errorf("after a rest it reads only %d bytes: it had kept the pages", n)
	}
}

func TestAPoolAtRestGoesOnToRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	w, err := dial(path, "_foreign_keys=1", "journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.script("CREATE TABLE x (n INT); INSERT INTO x VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	r, err := openReaders(path, "mode=ro", 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		var n int
		if err := r.do(background, func(t *tx) error { return t.get("SELECT n FROM x", nil, &n) }); err != nil || n != 7 {
			t.Error(n, err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			look()
		}
	}()
	for resting := true; resting; {
		select {
		case <-done:
			resting = false
		default:
			r.rest()
		}
	}
	r.rest()
	r.rest()
	look()
	r.close()
	r.rest() // of a pool that is closed: nothing
}
