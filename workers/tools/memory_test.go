package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

func (f *fixture) remember(target string, arguments args) memoryResult {
	f.t.Helper()
	arguments["target"] = target
	var r memoryResult
	f.ok("memory", arguments, &r)
	return r
}

func TestMemoryKeepsEntries(t *testing.T) {
	f := started(t, nil)
	path := filepath.Join(f.home, "memories/MEMORY.md")
	r := f.remember("memory", args{"action": "add", "content": " likes tea \n"})
	if want := (memoryResult{true, true, "memory", "0% - 9/2200 chars", 1, "added"}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	f.remember("memory", args{"action": "add", "content": "two\nlines"})
	f.remember("memory", args{"action": "add", "content": "uses vim"})
	if got := read(t, path); got != "likes tea\n§\ntwo\nlines\n§\nuses vim" {
		t.Errorf("file %q", got)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if r := f.remember("memory", args{"action": "add", "content": "likes tea"}); r.Message != "the entry was there already" || r.Entries != 3 {
		t.Errorf("%+v", r)
	}
	f.remember("memory", args{"action": "replace", "old_text": "tea", "content": "likes coffee"})
	f.remember("memory", args{"action": "remove", "old_text": "two\n"})
	if got := read(t, path); got != "likes coffee\n§\nuses vim" {
		t.Errorf("file %q", got)
	}
	f.remember("user", args{"action": "add", "content": "is called Ann"})
	if got := read(t, filepath.Join(f.home, "memories/USER.md")); got != "is called Ann" {
		t.Errorf("file %q", got)
	}
}

func TestMemoryRefusesWhatItCannotDo(t *testing.T) {
	f := started(t, nil)
	f.remember("memory", args{"action": "add", "content": "one apple"})
	f.remember("memory", args{"action": "add", "content": "two apples"})
	bad := toolv1.ToolError_KIND_BAD_ARGUMENTS
	for _, row := range []struct {
		args args
		kind toolv1.ToolError_Kind
		want string
	}{
		{args{}, bad, "either"},
		{args{"action": "add"}, bad, `add needs "content"`},
		{args{"action": "replace", "content": "x"}, bad, `replace needs "old_text"`},
		{args{"action": "remove"}, bad, `remove needs "old_text"`},
		{args{"action": "forget"}, bad, "must be one of add, replace, remove"},
		{args{"action": "add", "content": "a\n§\nb"}, bad, "separates entries"},
		{args{"action": "add", "content": "a\u200bb"}, bad, "cannot be seen"},
		{args{"action": "add", "content": "a\u202eb"}, bad, "cannot be seen"},
		{args{"action": "remove", "old_text": "apple"}, failed, "more than one entry"},
		{args{"action": "remove", "old_text": "pear"}, failed, "in no entry"},
		{args{"action": "remove", "old_text": "pear"}, failed, "Current entries (1% - 22/2200 chars):\none apple\n§\ntwo apples"},
	} {
		row.args["target"] = "memory"
		f.fails("memory", row.args, row.kind, row.want)
	}
	f.fails("memory", args{"target": "diary", "action": "add", "content": "x"}, bad, `"target" must be one of memory, user`)
}

func TestMemoryIsLimited(t *testing.T) {
	f := started(t, nil)
	full := strings.Repeat("ü", 1370)
	if r := f.remember("user", args{"action": "add", "content": full}); r.Usage != "99% - 1370/1375 chars" {
		t.Errorf("usage %q", r.Usage)
	}
	f.fails("memory", args{"target": "user", "action": "add", "content": "xyz"}, failed, "user would have 1376 of at most 1375 characters; nothing was changed")
	f.fails("memory", args{"target": "user", "action": "add", "content": "xyz"}, failed, "Current entries (99% - 1370/1375 chars):\nüü")
	// Room is made and used in one call.
	r := f.remember("user", args{"operations": []args{{"action": "add", "content": "xyz"}, {"action": "replace", "old_text": full, "content": "short"}}})
	if r.Entries != 2 || r.Message != "2 operations done" {
		t.Errorf("%+v", r)
	}
	// One that fails undoes all.
	f.fails("memory", args{"target": "user", "operations": []args{{"action": "remove", "old_text": "short"}, {"action": "remove", "old_text": "none"}}}, failed, "nothing was changed")
	if got := read(t, filepath.Join(f.home, "memories/USER.md")); got != "short\n§\nxyz" {
		t.Errorf("file %q", got)
	}
	// A file that is over already can be made smaller.
	file(t, f.home, "memories/USER.md", strings.Repeat("a", 2000)+entrySeparator+"b")
	f.remember("user", args{"action": "remove", "old_text": "b"})
	f.fails("memory", args{"target": "user", "action": "add", "content": "c"}, failed, "would have 2004")
}

func TestMemoryReadsWhatPeopleWrite(t *testing.T) {
	f := started(t, nil)
	path := file(t, f.home, "memories/MEMORY.md", "\n one \r\n§  \n\ntwo\n\nparagraphs\n§\none\n§\n")
	f.remember("memory", args{"action": "add", "content": "three"})
	if got := read(t, path); got != "one\n§\ntwo\n\nparagraphs\n§\nthree" {
		t.Errorf("file %q", got)
	}
	kept, _ := filepath.Glob(path + ".bak.*")
	if len(kept) != 1 || !strings.Contains(read(t, kept[0]), "\n one \r\n") {
		t.Errorf("the file as it was: %v", kept)
	}
	f.remember("memory", args{"action": "add", "content": "four"})
	if kept, _ := filepath.Glob(path + ".bak.*"); len(kept) != 1 {
		t.Errorf("kept again: %v", kept)
	}
}

func TestMemoryIsSharedWithOtherProcesses(t *testing.T) {
	f := started(t, nil)
	lockFile := file(t, f.home, "memories/MEMORY.md.lock", "")
	held, err := os.Open(lockFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for _, entry := range []string{"a", "b", "c", "d", "e", "f"} {
		calls.Go(func() { f.remember("memory", args{"action": "add", "content": entry}) })
	}
	file(t, f.home, "memories/MEMORY.md", "from another process")
	_ = held.Close()
	calls.Wait()
	got := parseEntries(read(t, filepath.Join(f.home, "memories/MEMORY.md")))
	slices.Sort(got)
	if want := []string{"a", "b", "c", "d", "e", "f", "from another process"}; !slices.Equal(got, want) {
		t.Errorf("entries %v", got)
	}
}

func FuzzParseEntries(f *testing.F) {
	f.Add("a\n§\nb")
	f.Add("§§\n §\r\n\n§")
	f.Fuzz(func(t *testing.T, text string) {
		entries := parseEntries(text)
		if again := parseEntries(strings.Join(entries, entrySeparator)); !slices.Equal(again, entries) {
			t.Fatalf("%q: %q, then %q", text, entries, again)
		}
	})
}
