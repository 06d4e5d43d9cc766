package tools

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

//go:embed search_files.md
var searchFilesText string

const (
	// maxSearchFile is the largest file that is looked into: larger ones are data, not text.
	maxSearchFile = 8 << 20
	// maxSearchLine is how much of a line is matched. The rest of a longer one is passed over.
	maxSearchLine = 64 << 10
	// shownLine is how much of a line is returned.
	shownLine = 500
	// maxFound bounds what is counted: nobody pages through more.
	maxFound = 10_000
	// maxSearchChars bounds the result.
	maxSearchChars = 50_000
)

type searchArgs struct {
	Pattern  string `json:"pattern" jsonschema:"regular expression for target content, glob for target files"`
	Target   string `json:"target,omitempty" enum:"content,files" default:"content"`
	Path     string `json:"path,omitempty" jsonschema:"directory or file to search" default:"."`
	FileGlob string `json:"file_glob,omitempty" jsonschema:"look only into files that match, for example *.py"`
	Limit    int    `json:"limit,omitempty" jsonschema:"how many results at most" minimum:"1" maximum:"500" default:"50"`
	Offset   int    `json:"offset,omitempty" jsonschema:"how many results to pass over" minimum:"0"`
	Output   string `json:"output_mode,omitempty" jsonschema:"for target content: lines, names of files, or counts" enum:"content,files_only,count" default:"content"`
	Context  int    `json:"context,omitempty" jsonschema:"lines to show before and after each match" minimum:"0" maximum:"10"`
}

func (a searchArgs) Validate() error {
	if a.Pattern == "" {
		return errors.New(`"pattern" is empty`)
	}
	if a.Target == "content" {
		if _, err := regexp.Compile(a.Pattern); err != nil {
			return fmt.Errorf(`"pattern": %w (RE2 syntax)`, err)
		}
	} else if _, err := path.Match(a.Pattern, ""); err != nil {
		return errors.New(`"pattern" is not a glob`)
	}
	if _, err := path.Match(strings.ReplaceAll(a.FileGlob, "**", "*"), ""); err != nil {
		return errors.New(`"file_glob" is not a glob`)
	}
	return validPath(a.Path)
}

// searchFiles finds lines and files.
type searchFiles struct {
	places
}

func (t *searchFiles) tool() plugins.Tool {
	return plugins.Func("search_files", searchFilesText, t.run, plugins.ReadOnly(), plugins.Timeout(30*time.Second, 2*time.Minute))
}

func (t *searchFiles) run(ctx context.Context, _ *plugins.Call, a searchArgs) (string, error) {
	s := &search{ctx: ctx, places: &t.places, args: a, root: t.path(a.Path)}
	if a.Target == "content" {
		s.pattern = regexp.MustCompile(a.Pattern) // Validate has tried it
	}
	if err := s.walk(); err != nil {
		return "", err
	}
	return s.text(), nil
}

// A search is one search while it runs.
type search struct {
	ctx     context.Context
	places  *places
	args    searchArgs
	root    string
	pattern *regexp.Regexp

	found   int // matches, or files
	results []string
	chars   int
	files   []foundFile // for target files
	skipped int         // files that could not be read
	full    bool        // there is more than was counted
}

type foundFile struct {
	name string
	time time.Time
}

// skipDirs are directories that hold nothing that a person wrote.
var skipDirs = []string{".git", ".hg", ".svn", "node_modules", "__pycache__"}

func (s *search) walk() error {
	info, err := os.Stat(s.root)
	if err != nil {
		return plain(err)
	}
	if !info.IsDir() {
		return s.visit(s.root, filepath.Base(s.root), info)
	}
	root := guard.Resolve(s.root) // a link given by name is followed
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if err != nil {
			s.skipped++
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			if p != root && slices.Contains(skipDirs, d.Name()) || p == "/proc" || p == "/sys" || p == "/dev" {
				return fs.SkipDir
			}
			return nil
		}
		rel, _ := filepath.Rel(root, p)
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		return s.visit(p, rel, info)
	})
}

// visit looks at one file. rel is its path below the root.
func (s *search) visit(p, rel string, info fs.FileInfo) error {
	if s.full {
		return fs.SkipAll
	}
	if s.args.FileGlob != "" && !globs(s.args.FileGlob, rel) {
		return nil
	}
	if s.args.Target == "files" {
		if globs(s.args.Pattern, rel) {
			s.files = append(s.files, foundFile{p, info.ModTime()})
			s.full = len(s.files) == maxFound
		}
		return nil
	}
	if info.Size() > maxSearchFile || s.places.files.Reading(p).Verdict != guard.Allow {
		return nil
	}
	return s.content(p)
}

// globs matches a path against a pattern: by its last part if the pattern has no slash, else as a whole, where **
// stands for any number of directories.
func globs(pattern, rel string) bool {
	if !strings.Contains(pattern, "/") {
		ok, _ := path.Match(pattern, path.Base(rel))
		return ok
	}
	return globParts(strings.Split(strings.TrimPrefix(pattern, "./"), "/"), strings.Split(rel, "/"))
}

func globParts(pattern, parts []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for k := range len(parts) + 1 {
				if globParts(pattern[1:], parts[k:]) {
					return true
				}
			}
			return false
		}
		if len(parts) == 0 {
			return false
		}
		if ok, _ := path.Match(pattern[0], parts[0]); !ok {
			return false
		}
		pattern, parts = pattern[1:], parts[1:]
	}
	return len(parts) == 0
}

// content looks for matching lines in one file.
func (s *search) content(p string) error {
	f, _, err := s.places.open(p)
	if err != nil {
		s.skipped++
		return nil
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 32<<10)
	if head, _ := r.Peek(sniffBytes); binary(head) {
		return nil
	}
	m := matcher{search: s, name: p}
	for n := 1; ; n++ {
		line, err := readLine(r, maxSearchLine)
		if err == io.EOF {
			break
		}
		if err != nil {
			s.skipped++
			break
		}
		if n%cancelEvery == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		m.line(n, line)
		if s.full || m.matches > 0 && s.args.Output == "files_only" {
			break
		}
	}
	m.end()
	return nil
}

// A matcher goes through the lines of one file.
type matcher struct {
	search  *search
	name    string
	matches int
	before  []string // lines that are context if a match follows
	after   int      // how many lines of context are still to come
	last    int      // number of the last line that was returned
}

func (m *matcher) line(n int, line []byte) {
	s := m.search
	if !s.pattern.Match(line) {
		switch {
		case m.after > 0:
			m.after--
			m.last = n
			s.add(m.show(n, '-', line))
		case s.args.Context > 0 && s.args.Output == "content":
			if m.before = append(m.before, m.show(n, '-', line)); len(m.before) > s.args.Context {
				m.before = m.before[1:]
			}
		}
		return
	}
	m.matches++
	if s.args.Output != "content" {
		return
	}
	s.found++
	s.full = s.found >= maxFound
	if s.found <= s.args.Offset || s.found > s.args.Offset+s.args.Limit {
		m.before = nil
		return
	}
	if s.args.Context > 0 && m.last > 0 && n-len(m.before) > m.last+1 {
		s.add("--")
	}
	for _, b := range m.before {
		s.add(b)
	}
	m.before, m.after, m.last = nil, s.args.Context, n
	s.add(m.show(n, ':', line))
}

func (m *matcher) show(n int, mark byte, line []byte) string {
	text := strings.ToValidUTF8(string(line[:min(len(line), shownLine*utf8.UTFMax)]), "\uFFFD")
	if utf8.RuneCountInString(text) > shownLine {
		text = string([]rune(text)[:shownLine]) + "…"
	}
	return fmt.Sprintf("%s%c%d%c%s", m.name, mark, n, mark, text)
}

// end counts the file where files are counted.
func (m *matcher) end() {
	s := m.search
	if m.matches == 0 || s.args.Output == "content" {
		return
	}
	s.found++
	s.full = s.full || s.found >= maxFound
	if s.found <= s.args.Offset || s.found > s.args.Offset+s.args.Limit {
		return
	}
	if s.args.Output == "count" {
		s.add(fmt.Sprintf("%s:%d", m.name, m.matches))
		return
	}
	s.add(m.name)
}

// add keeps a line of the result while there is room.
func (s *search) add(line string) {
	if s.chars += utf8.RuneCountInString(line) + 1; s.chars <= maxSearchChars {
		s.results = append(s.results, line)
	}
}

// text writes what was found, and what is missing, for the model.
func (s *search) text() string {
	if s.args.Target == "files" {
		slices.SortStableFunc(s.files, func(a, b foundFile) int { return b.time.Compare(a.time) })
		s.found = len(s.files)
		for _, f := range s.files[min(s.args.Offset, s.found):min(s.args.Offset+s.args.Limit, s.found)] {
			s.add(f.name)
		}
	}
	var b strings.Builder
	for _, line := range s.results {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	what := "matches"
	if s.args.Target == "files" || s.args.Output != "content" {
		what = "files"
	}
	switch end := min(s.args.Offset+s.args.Limit, s.found); {
	case s.found == 0:
		fmt.Fprintf(&b, "[no %s]", what)
	case s.chars > maxSearchChars:
		fmt.Fprintf(&b, "[cut at %d characters; ask for fewer results or a narrower pattern; %d %s in all]", maxSearchChars, s.found, what)
	case s.full:
		fmt.Fprintf(&b, "[more than %d %s; narrow the pattern]", s.found, what)
	case s.args.Offset >= s.found:
		fmt.Fprintf(&b, "[%d %s in all, none from offset %d on]", s.found, what, s.args.Offset)
	case end < s.found:
		fmt.Fprintf(&b, "[%d to %d of %d %s; continue with offset %d]", s.args.Offset+1, end, s.found, what, end)
	default:
		fmt.Fprintf(&b, "[%d %s]", s.found, what)
	}
	if s.skipped > 0 {
		fmt.Fprintf(&b, " [%d files or directories could not be read]", s.skipped)
	}
	return b.String()
}
