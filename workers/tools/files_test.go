package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

const failed = toolv1.ToolError_KIND_FAILED

func TestReadFileNumbersLines(t *testing.T) {
	f := started(t, nil)
	file(t, f.work, "a.txt", "one\ntwo\r\n\nfour")
	file(t, f.work, "empty", "")
	file(t, f.work, "long", strings.Repeat("x", 3000)+"\nshort\n")
	file(t, f.work, "latin1", "caf\xe9 au lait, s'il vous pla\xeet\n")
	for _, row := range []struct {
		args args
		want readFileResult
	}{
		{args{"path": "a.txt"}, readFileResult{Content: "     1|one\n     2|two\n     3|\n     4|four\n", TotalLines: 4, FileSize: 14}},
		{args{"path": filepath.Join(f.work, "a.txt"), "offset": 2, "limit": 1}, readFileResult{Content: "     2|two\n", TotalLines: 4, FileSize: 14, Truncated: true, Hint: "there is more: continue with offset 3"}},
		{args{"path": "./sub/../a.txt", "offset": 9}, readFileResult{TotalLines: 4, FileSize: 14, Hint: "the file has 4 lines; there is nothing from line 9 on"}},
		{args{"path": "empty"}, readFileResult{}},
		{args{"path": "long"}, readFileResult{Content: "     1|" + strings.Repeat("x", 2000) + "…\n     2|short\n", TotalLines: 2, FileSize: 3007}},
		{args{"path": "latin1"}, readFileResult{Content: "     1|caf\uFFFD au lait, s'il vous pla\uFFFDt\n", TotalLines: 1, FileSize: 30}},
	} {
		var got readFileResult
		f.ok("read_file", row.args, &got)
		if got != row.want {
			t.Errorf("%v: %+v, want %+v", row.args, got, row.want)
		}
	}
}

func TestReadFileRefusesWhatIsNoTextFile(t *testing.T) {
	f := started(t, nil)
	file(t, f.work, "binary", "ELF\x00\x01")
	file(t, f.work, "packed", strings.Repeat("\x9c\xff\xfe\x81", 100))
	if err := unix.Mkfifo(filepath.Join(f.work, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	file(t, f.work, "big", strings.Repeat(strings.Repeat("y", 999)+"\n", 200))
	for name, want := range map[string]string{
		"none": "no such file", "binary": "is a binary file", "packed": "is a binary file", "pipe": "is a pipe", ".": "is a directory",
		"/dev/zero": "is a device", "/dev/null": "is a device", "big": "more than 100000 characters; ask for at most 99 lines",
	} {
		f.fails("read_file", args{"path": name}, failed, want)
	}
	f.fails("read_file", args{"path": ""}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "is empty")
	f.fails("read_file", args{"path": "big", "limit": 2001}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "at most 2000")
	f.ok("read_file", args{"path": "big", "limit": 99}, nil)
}

func TestALargeFileIsReadInPieces(t *testing.T) {
	f := started(t, nil)
	path := filepath.Join(f.work, "huge")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for k := range 1_500_000 {
		if k%1000 == 0 {
			if _, err := w.WriteString(strings.Repeat(fmt.Sprintf("%059d\n", k), 1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = w.Close()
	var r readFileResult
	f.ok("read_file", args{"path": "huge", "offset": 1000, "limit": 2}, &r)
	if r.TotalLines != 0 || r.FileSize != 90_000_000 || !r.Truncated || !strings.HasPrefix(r.Content, "  1000|000") || !strings.Contains(r.Hint, "the file is large") {
		t.Errorf("%+v", r)
	}
}

// TestTheDatabasesAreNeverOpened is P1, by every way that a file tool has.
func TestTheDatabasesAreNeverOpened(t *testing.T) {
	f := started(t, nil)
	db := file(t, f.home, "state.db", "SQLite text that could be read")
	file(t, f.home, "kanban/boards/ops/kanban.db-wal", "SQLite text")
	if err := os.Symlink(db, filepath.Join(f.work, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(db, filepath.Join(f.work, "hard")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{db, filepath.Join(f.home, "kanban/boards/ops/kanban.db-wal"), "link", "hard"} {
		if r := f.verdict("read_file", args{"path": name}); r.Verdict != toolv1.CheckResponse_VERDICT_REFUSE {
			t.Errorf("reading %s: %v", name, r)
		}
		if r := f.verdict("write_file", args{"path": name, "content": ""}); r.Verdict != toolv1.CheckResponse_VERDICT_REFUSE {
			t.Errorf("writing %s: %v", name, r)
		}
		f.fails("read_file", args{"path": name}, failed, "of the supervisor, which alone may open it")
		f.fails("write_file", args{"path": name, "content": "x"}, failed, "of the supervisor, which alone may open it")
	}
	for _, path := range []string{f.home, f.work, db} {
		if r := f.ok("search_files", args{"pattern": "SQLite", "path": path}, nil); !strings.Contains(r.Content, "[no matches]") {
			t.Errorf("search in %s: %s", path, r.Content)
		}
	}
	if read(t, db) != "SQLite text that could be read" {
		t.Error("the database was changed")
	}
}

func TestFilesAreJudged(t *testing.T) {
	f := started(t, nil)
	file(t, f.home, ".env", "KEY=x")
	for _, row := range []struct {
		tool, path string
		want       toolv1.CheckResponse_Verdict
	}{
		{"read_file", "a.txt", toolv1.CheckResponse_VERDICT_ALLOW},
		{"read_file", filepath.Join(f.home, ".env"), toolv1.CheckResponse_VERDICT_ASK},
		{"read_file", "~/.ssh/id_rsa", toolv1.CheckResponse_VERDICT_ASK},
		{"write_file", "a.txt", toolv1.CheckResponse_VERDICT_ALLOW},
		{"write_file", filepath.Join(f.home, ".env"), toolv1.CheckResponse_VERDICT_REFUSE},
		{"write_file", "~/.ssh/authorized_keys", toolv1.CheckResponse_VERDICT_REFUSE},
		{"write_file", "~/.bashrc", toolv1.CheckResponse_VERDICT_ASK},
		{"write_file", "/etc/hosts", toolv1.CheckResponse_VERDICT_ASK},
		{"write_file", "/dev/sda", toolv1.CheckResponse_VERDICT_REFUSE},
	} {
		if r := f.verdict(row.tool, args{"path": row.path, "content": "x"}); row.tool == "write_file" && r.Verdict != row.want {
			t.Errorf("%s %s: %v", row.tool, row.path, r)
		}
		if r := f.verdict(row.tool, args{"path": row.path}); row.tool == "read_file" && r.Verdict != row.want {
			t.Errorf("%s %s: %v", row.tool, row.path, r)
		}
	}
	f.fails("write_file", args{"path": filepath.Join(f.home, ".env"), "content": "x"}, failed, "holds credentials")
}

func TestWriteFileReplacesAsAWhole(t *testing.T) {
	f := started(t, nil)
	var r writeFileResult
	f.ok("write_file", args{"path": "new/deep/a.txt", "content": "hello\n"}, &r)
	path := filepath.Join(f.work, "new/deep/a.txt")
	if !r.Created || r.Bytes != 6 || r.Path != path || read(t, path) != "hello\n" {
		t.Errorf("%+v", r)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := os.Chmod(path, 0o750); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	f.ok("write_file", args{"path": path, "content": ""}, &r)
	if r.Created || read(t, path) != "" {
		t.Errorf("%+v", r)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o750 {
		t.Errorf("mode %v", info.Mode())
	}
	old := make([]byte, 10)
	if n, _ := held.Read(old); string(old[:n]) != "hello\n" {
		t.Errorf("a reader of the old file sees %q", old[:n])
	}
	if err := os.Symlink("a.txt", filepath.Join(f.work, "new/deep/link")); err != nil {
		t.Fatal(err)
	}
	f.ok("write_file", args{"path": "new/deep/link", "content": "through"}, nil)
	if target, err := os.Readlink(filepath.Join(f.work, "new/deep/link")); err != nil || target != "a.txt" || read(t, path) != "through" {
		t.Errorf("the link is %q, %v", target, err)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestWriteFileThatFailsChangesNothing(t *testing.T) {
	f := started(t, nil)
	file(t, f.work, "plain", "x")
	if err := unix.Mkfifo(filepath.Join(f.work, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.fails("write_file", args{"path": "plain/below", "content": "y"}, failed, "not a directory")
	f.fails("write_file", args{"path": "pipe", "content": "y"}, failed, "is a pipe")
	f.fails("write_file", args{"path": ".", "content": "y"}, failed, "is a directory")
	f.fails("write_file", args{"path": "/dev/null", "content": "y"}, failed, "is a device")
	f.fails("write_file", args{"path": strings.Repeat("n", 300), "content": "y"}, failed, "is as it was")
	f.fails("write_file", args{"path": "a\x00b", "content": "y"}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "NUL")
	if read(t, filepath.Join(f.work, "plain")) != "x" {
		t.Error("a file was changed")
	}
}

// tree makes a small project to search in.
func tree(t *testing.T, dir string) {
	t.Helper()
	file(t, dir, "main.go", "package main\n\nfunc main() {\n\tprintln(\"needle\")\n}\n")
	file(t, dir, "sub/a.go", "package sub\n// needle one\n// other\n// needle two\n")
	file(t, dir, "sub/deep/b.txt", "a needle in the hay\n")
	file(t, dir, "notes.md", "no such thing\n")
	file(t, dir, ".git/config", "needle\n")
	file(t, dir, "node_modules/x/index.js", "needle\n")
	file(t, dir, "image.png", "\x89PNG\x00needle\n")
	file(t, dir, ".env", "needle=1\n")
	file(t, dir, "large.txt", "needle\n"+strings.Repeat("x", maxSearchFile))
	if err := os.Symlink(filepath.Join(dir, "sub"), filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSearchFilesFindsLines(t *testing.T) {
	f := started(t, nil)
	tree(t, f.work)
	p := func(name string) string { return filepath.Join(f.work, name) }
	for _, row := range []struct {
		name string
		args args
		want []string
	}{
		{"all", args{"pattern": "needle"}, []string{
			p("main.go") + ":4:\tprintln(\"needle\")", p("sub/a.go") + ":2:// needle one", p("sub/a.go") + ":4:// needle two", p("sub/deep/b.txt") + ":1:a needle in the hay", "[4 matches]"}},
		{"expression", args{"pattern": `(?i)NEEDLE (one|in)`}, []string{p("sub/a.go") + ":2:// needle one", p("sub/deep/b.txt") + ":1:a needle in the hay", "[2 matches]"}},
		{"in a directory", args{"pattern": "needle", "path": "sub/deep"}, []string{p("sub/deep/b.txt") + ":1:a needle in the hay", "[1 matches]"}},
		{"in a file", args{"pattern": "needle", "path": p("main.go")}, []string{p("main.go") + ":4:\tprintln(\"needle\")", "[1 matches]"}},
		{"by name", args{"pattern": "needle", "file_glob": "*.txt"}, []string{p("sub/deep/b.txt") + ":1:a needle in the hay", "[1 matches]"}},
		{"by path", args{"pattern": "needle", "file_glob": "sub/**/*.go"}, []string{p("sub/a.go") + ":2:// needle one", p("sub/a.go") + ":4:// needle two", "[2 matches]"}},
		{"a page", args{"pattern": "needle", "limit": 2, "offset": 1}, []string{p("sub/a.go") + ":2:// needle one", p("sub/a.go") + ":4:// needle two", "[2 to 3 of 4 matches; continue with offset 3]"}},
		{"past the end", args{"pattern": "needle", "offset": 9}, []string{"[4 matches in all, none from offset 9 on]"}},
		{"names", args{"pattern": "needle", "output_mode": "files_only"}, []string{p("main.go"), p("sub/a.go"), p("sub/deep/b.txt"), "[3 files]"}},
		{"counts", args{"pattern": "needle", "output_mode": "count"}, []string{p("main.go") + ":1", p("sub/a.go") + ":2", p("sub/deep/b.txt") + ":1", "[3 files]"}},
		{"context", args{"pattern": "one", "context": 1}, []string{p("sub/a.go") + "-1-package sub", p("sub/a.go") + ":2:// needle one", p("sub/a.go") + "-3-// other", "[1 matches]"}},
		{"context that overlaps", args{"pattern": "needle", "path": "sub/a.go", "context": 1}, []string{
			p("sub/a.go") + "-1-package sub", p("sub/a.go") + ":2:// needle one", p("sub/a.go") + "-3-// other", p("sub/a.go") + ":4:// needle two", "[2 matches]"}},
		{"through a link by name", args{"pattern": "needle", "path": "again/deep"}, []string{p("sub/deep/b.txt") + ":1:a needle in the hay", "[1 matches]"}},
		{"nothing", args{"pattern": "haystack"}, []string{"[no matches]"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f.t = t
			if got := strings.Split(f.ok("search_files", row.args, nil).Content, "\n"); !slices.Equal(got, row.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(row.want, "\n"))
			}
		})
	}
}

func TestSearchFilesFindsFilesTheNewestFirst(t *testing.T) {
	f := started(t, nil)
	tree(t, f.work)
	p := func(name string) string { return filepath.Join(f.work, name) }
	for k, name := range []string{"main.go", "sub/a.go"} {
		at := time.Date(2026, 1, 1+k, 0, 0, 0, 0, time.UTC)
		if err := os.Chtimes(p(name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"*.go":      {p("sub/a.go"), p("main.go"), "[2 files]"},
		"sub/*.go":  {p("sub/a.go"), "[1 files]"},
		"**/b.txt":  {p("sub/deep/b.txt"), "[1 files]"},
		"**/*.none": {"[no files]"},
		"?otes.*":   {p("notes.md"), "[1 files]"},
	} {
		if got := strings.Split(f.ok("search_files", args{"pattern": pattern, "target": "files"}, nil).Content, "\n"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

func TestSearchFilesBoundsItsResult(t *testing.T) {
	f := started(t, nil)
	file(t, f.work, "wide.txt", strings.Repeat("needle "+strings.Repeat("x", 5000)+"\n", 300))
	r := f.ok("search_files", args{"pattern": "needle", "limit": 500}, nil)
	if n := len(r.Content); n > maxSearchChars+1000 || !strings.Contains(r.Content, "[cut at 50000 characters") {
		t.Errorf("%d bytes, ends with %q", n, r.Content[n-200:])
	}
	file(t, f.work, "many.txt", strings.Repeat("z\n", maxFound+10))
	if r := f.ok("search_files", args{"pattern": "^z$", "limit": 1}, nil); !strings.Contains(r.Content, "[more than 10000 matches; narrow the pattern]") {
		t.Errorf("%q", r.Content)
	}
	f.fails("search_files", args{"pattern": "(?<=a)b"}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "RE2")
	f.fails("search_files", args{"pattern": "[", "target": "files"}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "not a glob")
	f.fails("search_files", args{"pattern": "x", "path": "none"}, failed, "no such file")
}

func TestSearchFilesEndsWithItsContext(t *testing.T) {
	f := started(t, nil)
	for k := range 50 {
		file(t, f.work, fmt.Sprintf("f%d", k), "x\n")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &search{ctx: ctx, places: &places{workDir: f.work}, root: f.work, args: searchArgs{Target: "files", Pattern: "*"}}
	if err := s.walk(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func FuzzGlobs(f *testing.F) {
	f.Add("src/**/*.go", "src/a/b.go")
	f.Add("**/**/**/x", "a/b/c/d/e/f")
	f.Fuzz(func(_ *testing.T, pattern, rel string) {
		if len(pattern) > 100 || len(rel) > 100 {
			return
		}
		globs(pattern, rel)
	})
}

func TestLimitsOfReadFileComeFromTheConfiguration(t *testing.T) {
	f := started(t, func(c *ipc.ToolsConfig) { c.FileReadMaxChars = 50 })
	file(t, f.work, "a", strings.Repeat("0123456789\n", 10))
	f.fails("read_file", args{"path": "a"}, failed, "more than 50 characters; ask for at most 2 lines")
}
