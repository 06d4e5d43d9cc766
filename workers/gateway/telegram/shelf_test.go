package telegram

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openTestShelf(t *testing.T, dir string) *shelf {
	t.Helper()
	s, err := openShelf(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func TestHandledUpdatesAreKnownToTheNextProcess(t *testing.T) {
	dir := t.TempDir()
	s := openTestShelf(t, dir)
	for id := range int64(2*handledLines + 10) {
		if err := s.setHandled(id); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
	f, err := os.OpenFile(s.logPath(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "100") // the process died while it wrote
	_ = f.Close()
	next := openTestShelf(t, dir)
	for id := range int64(2*handledLines + 10) {
		if want := id >= 2*handledLines+10-handledKept+1; want && !next.wasHandled(id) {
			t.Fatalf("update %d is forgotten", id)
		}
	}
	if next.wasHandled(5) {
		t.Error("update 5 is remembered for ever")
	}
	if info, err := os.Stat(s.logPath()); err != nil || info.Size() > 10*(handledLines+10) {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

// A note that outlives its answer would have that answer taken away, to make room for an earlier one that is none.
func TestANoteThatWasCutOffIsForgottenWithItsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		cut  int // bytes of the file that were not written
		want []int
	}{
		"before it had its name": {want: []int{7, 8}},
		"in the middle":          {cut: 5},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTestShelf(t, dir)
			if err := s.setShown(shown{Key: "turn_1", Chat: 5, IDs: []int{7}}); err != nil {
				t.Fatal(err)
			}
			if err := s.setShown(shown{Key: "turn_2", Chat: 5, IDs: []int{7, 8}}); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "shown", fileName("turn_2"))
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+unnamed, raw[:len(raw)-c.cut], 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			next := openTestShelf(t, dir)
			if got := next.shownOf("turn_2"); !slices.Equal(got, c.want) {
				t.Errorf("the next process knows %v, want %v", got, c.want)
			}
			for _, key := range []string{"turn_1", "turn_2"} {
				if err := next.setShown(shown{Key: key}); err != nil {
					t.Fatal(err)
				}
			}
			if got := openTestShelf(t, dir).shownIn(5, 0); len(got) > 0 {
				t.Errorf("the one after it still knows %v", got)
			}
			if left, _ := os.ReadDir(filepath.Join(dir, "shown")); len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}

func TestWhatIsShownIsKnownToTheNextProcess(t *testing.T) {
	for _, dir := range []string{t.TempDir(), ""} {
		s := openTestShelf(t, dir)
		if err := s.setShown(shown{Key: "turn/../1", Chat: 5, IDs: []int{1, 2}}); err != nil {
			t.Fatal(err)
		}
		if err := s.setShown(shown{Key: "turn_2", Chat: 5, Thread: 7, IDs: []int{3}}); err != nil {
			t.Fatal(err)
		}
		if dir != "" {
			s = openTestShelf(t, dir)
		}
		if got := s.shownOf("turn/../1"); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("shown %v", got)
		}
		if got := s.shownIn(5, 7); len(got) != 1 || got[0].Key != "turn_2" {
			t.Errorf("in the topic %v", got)
		}
		if err := s.setShown(shown{Key: "turn/../1"}); err != nil {
			t.Fatal(err)
		}
		if got := s.shownOf("turn/../1"); got != nil {
			t.Errorf("still shown %v", got)
		}
	}
}

func TestOldFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{"old": time.Hour, "new": time.Minute} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	removeOld(dir, now.Add(-30*time.Minute))
	if left, _ := filepath.Glob(dir + "/*"); len(left) != 1 || filepath.Base(left[0]) != "new" {
		t.Errorf("left %v", left)
	}
}

func TestAFolderThatCannotBeWrittenIsAnErrorOfTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openShelf(file); err == nil {
		t.Error("no error")
	}
}

func TestWhatIsShownIsForgottenInTime(t *testing.T) {
	dir := t.TempDir()
	s := openTestShelf(t, dir)
	if err := s.setShown(shown{Key: "turn_1", IDs: []int{1}}); err != nil {
		t.Fatal(err)
	}
	s.sweep(time.Now().Add(shownKept - time.Hour))
	if s.shownOf("turn_1") == nil {
		t.Error("forgotten too early")
	}
	s.sweep(time.Now().Add(shownKept + time.Hour))
	if left, _ := filepath.Glob(dir + "/shown/*"); s.shownOf("turn_1") != nil || len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// On a file system that takes no writes the adapter works, and knows what earlier processes have noted.
func TestAReadOnlyFolderIsRead(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no file system can be mounted here (root is needed): ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	s := openTestShelf(t, filepath.Join(dir, "telegram"))
	if err := errors.Join(s.setHandled(7), s.setShown(shown{Key: "turn_1", Chat: 5, IDs: []int{1}, At: time.Now().Unix()})); err != nil {
		t.Fatal(err)
	}
	s.close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s = openTestShelf(t, filepath.Join(dir, "telegram"))
	if _, known := s.shown["turn_1"]; !known || !s.wasHandled(7) {
		t.Error("what was noted is not known")
	}
	if err := s.setHandled(8); err != nil || !s.wasHandled(8) {
		t.Errorf("an update is not known to this process: %v", err)
	}
	openTestShelf(t, filepath.Join(dir, "another"))
}
