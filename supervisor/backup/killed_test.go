package backup_test

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// Copies and restores are killed at any moment, in a process of their own: this binary with childVar set to the work.
const childVar = "BACKUP_TEST_WORK"

// works are done with a home and a folder outside of it.
var works = map[string]func(dir, out string) error{
	"quick": func(dir, _ string) error {
		_, err := backup.Quick(context.Background(), dir, "", time.Now(), plain(dir))
		return err
	},
	"zip": func(dir, out string) error {
		_, err := backup.Zip(context.Background(), dir, filepath.Join(out, fmt.Sprintf("b%d.zip", os.Getpid())), plain(dir))
		return err
	},
	"restore": func(dir, out string) error {
		if _, err := backup.Resume(dir); err != nil {
			return err
		}
		_, err := backup.Restore(dir, filepath.Join(out, "new.zip"), time.Now(), sound)
		return err
	},
}

// work is the main function of a child.
func work(name string) int {
	fmt.Println("begun")
	if err := works[name](os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// kill does a work in another process, which is killed after a while; 0 lets it end. It returns how long it took.
func kill(t *testing.T, name, dir, out string, after time.Duration) time.Duration {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, dir, out)
	c.Env = append(os.Environ(), childVar+"="+name)
	var errs strings.Builder
	c.Stderr = &errs
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var begun string
	_, err = fmt.Fscanln(pipe, &begun)
	start := time.Now()
	if after > 0 && err == nil {
		time.Sleep(after)
		_ = c.Process.Kill()
		_ = c.Wait()
		return after
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err, errs.String())
	}
	return time.Since(start)
}

// large is a home whose files take a while to be copied. All hold the same word.
func large(t *testing.T, word string) string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"state.db", "kanban.db", "kanban/boards/a/kanban.db", "config.yaml", "auth.json", "SOUL.md", "memories/MEMORY.md"} {
		files[name] = strings.Repeat(word+" ", 100_000)
	}
	return home(t, files)
}

func wordIn(t *testing.T, path string) string {
	t.Helper()
	text := strings.TrimPrefix(read(t, path), "copied ")
	word, _, _ := strings.Cut(text, " ")
	if text != strings.Repeat(word+" ", 100_000) {
		t.Errorf("%s is cut: %d bytes", path, len(text))
	}
	return word
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

const someKills = 8

func TestASnapshotThatIsKilledIsWholeOrNone(t *testing.T) {
	dir := large(t, "word")
	took := kill(t, "quick", dir, "", 0)
	for range someKills {
		kill(t, "quick", dir, "", 1+time.Duration(rand.Int64N(int64(took))))
		half := 0
		for _, name := range names(t, filepath.Join(dir, "state-snapshots")) {
			if strings.HasPrefix(name, ".") {
				half++
				continue
			}
			if wordIn(t, filepath.Join(dir, "state-snapshots", name, "state.db")) != "word" {
				t.Errorf("%s is not whole", name)
			}
		}
		if half > 1 {
			t.Errorf("%d half made snapshots", half)
		}
	}
	if _, err := backup.Sweep(dir); err != nil || len(backup.Leftovers(dir)) > 0 {
		t.Error(err, backup.Leftovers(dir))
	}
}

func TestABackupThatIsKilledIsWholeOrNone(t *testing.T) {
	dir, out := large(t, "word"), t.TempDir()
	took := kill(t, "zip", dir, out, 0)
	for range someKills {
		kill(t, "zip", dir, out, 1+time.Duration(rand.Int64N(int64(took))))
		half := 0
		for _, name := range names(t, out) {
			if strings.HasPrefix(name, ".") {
				half++
				continue
			}
			z, err := zip.OpenReader(filepath.Join(out, name))
			if err != nil || len(z.File) != 7 {
				t.Fatalf("%s: %v", name, err)
			}
			_ = z.Close()
		}
		if half > 1 {
			t.Errorf("%d half made backups", half)
		}
	}
	kill(t, "zip", dir, out, 0)
	for _, name := range names(t, out) {
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s is left", name)
		}
	}
}

// A home in which a restore was killed is the old one or, after the next start, the new one, and what was there is kept.
func TestARestoreThatIsKilledIsDoneOrNot(t *testing.T) {
	out := t.TempDir()
	fresh := large(t, "new")
	if _, err := backup.Zip(t.Context(), fresh, filepath.Join(out, "new.zip"), plain(fresh)); err != nil {
		t.Fatal(err)
	}
	took := kill(t, "restore", large(t, "old"), out, 0)
	done := 0
	for range 2 * someKills {
		dir := large(t, "old")
		if err := os.WriteFile(filepath.Join(dir, "state.db-wal"), []byte("of the old one"), 0o600); err != nil {
			t.Fatal(err)
		}
		kill(t, "restore", dir, out, 1+time.Duration(rand.Int64N(int64(took))))
		if _, err := backup.Resume(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := backup.Sweep(dir); err != nil {
			t.Fatal(err)
		}
		word := wordIn(t, filepath.Join(dir, "state.db"))
		for _, name := range []string{"kanban.db", "kanban/boards/a/kanban.db", "config.yaml", "SOUL.md", "memories/MEMORY.md"} {
			if other := wordIn(t, filepath.Join(dir, name)); other != word {
				t.Errorf("state.db is %s, %s is %s", word, name, other)
			}
		}
		wal := read(t, filepath.Join(dir, "state.db-wal"))
		if word == "new" {
			done++
			kept := filepath.Join(dir, "state-snapshots", names(t, filepath.Join(dir, "state-snapshots"))[0])
			if wordIn(t, filepath.Join(kept, "state.db")) != "old" || read(t, filepath.Join(kept, "state.db-wal")) != "of the old one" || wal != "" {
				t.Error("what was there is not kept")
			}
			if list, err := backup.List(dir); err != nil || len(list) != 1 {
				t.Errorf("snapshots are %v, %v", list, err)
			}
		} else if word != "old" || wal != "of the old one" {
			t.Errorf("the home is %s, its log %q", word, wal)
		}
		for _, name := range names(t, dir) {
			if strings.HasPrefix(name, ".") {
				t.Errorf("%s is left", name)
			}
		}
	}
	t.Logf("%d of %d were done", done, 2*someKills)
}
