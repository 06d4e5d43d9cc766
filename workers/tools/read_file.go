package tools

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
)

//go:embed read_file.md
var readFileText string

const (
	// maxLineChars cuts one line: a minified file is one line, and nobody reads it whole.
	maxLineChars = 2000
	// hintSize is the size from which the model is told to read in pieces.
	hintSize = 512 << 10
	// countSize is how much of a file is read on only to say how many lines it has.
	countSize = 64 << 20
	// sniffBytes is how much of a file is looked at to tell text from binary.
	sniffBytes = 8 << 10
	// cancelEvery is how many lines are read between two looks at the context.
	cancelEvery = 1000
)

type readFileArgs struct {
	Path   string `json:"path" jsonschema:"file to read"`
	Offset int    `json:"offset,omitempty" jsonschema:"number of the first line to return" minimum:"1" default:"1"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines at most" minimum:"1" maximum:"2000" default:"500"`
}

func (a readFileArgs) Validate() error { return validPath(a.Path) }

func validPath(name string) error {
	switch {
	case name == "":
		return errors.New(`"path" is empty`)
	case strings.ContainsRune(name, 0):
		return errors.New(`"path" holds a NUL character`)
	}
	return nil
}

type readFileResult struct {
	Content    string `json:"content"`
	TotalLines int    `json:"total_lines,omitempty"` // absent for a file too large to be counted
	FileSize   int64  `json:"file_size"`
	Truncated  bool   `json:"truncated"`
	Hint       string `json:"hint,omitempty"`
}

// readFile reads text files.
type readFile struct {
	places
	maxChars int
}

func (t *readFile) tool() plugins.Tool {
	return plugins.Func("read_file", readFileText, t.run, plugins.ReadOnly(), plugins.Timeout(10*time.Second, time.Minute), plugins.Check(t.check))
}

func (t *readFile) check(_ context.Context, a readFileArgs) plugins.Verdict {
	name := t.path(a.Path)
	return verdict(t.files.Reading(name), "read "+name)
}

func (t *readFile) run(ctx context.Context, _ *plugins.Call, a readFileArgs) (readFileResult, error) {
	name := t.path(a.Path)
	f, info, err := t.open(name)
	if err != nil {
		return readFileResult{}, err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 64<<10)
	if head, _ := lines.Peek(sniffBytes); binary(head) {
		return readFileResult{}, fmt.Errorf("%s is a binary file (%d bytes)", name, info.Size())
	}
	result := readFileResult{FileSize: info.Size()}
	p := &page{ctx: ctx, lines: lines, first: a.Offset, last: a.Offset + a.Limit - 1, maxChars: t.maxChars, count: info.Size() <= countSize}
	if err := p.read(); err != nil {
		return readFileResult{}, fmt.Errorf("%s: %w", name, err)
	}
	result.Content, result.Truncated = p.content.String(), p.more
	if p.counted {
		result.TotalLines = p.total
	}
	switch {
	case p.content.Len() == 0 && p.total > 0:
		result.Hint = fmt.Sprintf("the file has %d lines; there is nothing from line %d on", p.total, a.Offset)
	case p.more:
		result.Hint = fmt.Sprintf("there is more: continue with offset %d", p.last+1)
		if info.Size() > hintSize {
			result.Hint += ", or use search_files: the file is large"
		}
	}
	return result, nil
}

// open opens a regular file for reading that is not one of those that nobody may read. It never blocks.
func (p *places) open(name string) (*os.File, fs.FileInfo, error) {
	if r := p.files.Reading(name); r.Verdict == guard.Refuse {
		return nil, nil, errors.New(r.Explain(name))
	}
	info, err := os.Stat(name)
	if err == nil {
		err = regular(name, info)
	}
	if err != nil {
		return nil, nil, plain(err)
	}
	// What was a file may be something else by now: opened so that a pipe without a writer does not hold it up.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, plain(err)
	}
	if info, err = f.Stat(); err == nil {
		err = regular(name, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, plain(err)
	}
	return f, info, nil
}

// plain takes the name of the system call out of an error about a file.
func plain(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	return err
}

func regular(name string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return fmt.Errorf("%s is a directory; list it with search_files (target files)", name)
	case mode&(fs.ModeDevice|fs.ModeCharDevice) != 0:
		return fmt.Errorf("%s is a device", name)
	case mode&fs.ModeNamedPipe != 0:
		return fmt.Errorf("%s is a pipe", name)
	case !mode.IsRegular():
		return fmt.Errorf("%s is not a file", name)
	}
	return nil
}

// binary says whether the beginning of a file is not text: a NUL, or much that is no UTF-8.
func binary(head []byte) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	bad, all := 0, 0
	for b := head; len(b) > 0; {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && len(b) >= utf8.UTFMax { // the end may be cut
			bad++
		}
		all++
		b = b[n:]
	}
	return bad*10 > all*3 // text in an old encoding has fewer
}

// A page is a piece of a file being read.
type page struct {
	ctx         context.Context
	lines       *bufio.Reader
	first, last int
	maxChars    int
	count       bool // read on to count the lines

	content strings.Builder
	chars   int
	total   int
	more    bool
	counted bool
}

func (p *page) read() error {
	for {
		line, err := readLine(p.lines, maxLineChars*utf8.UTFMax)
		if err == io.EOF {
			p.counted = true
			return nil
		}
		if err != nil {
			return err
		}
		p.total++
		if p.total%cancelEvery == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		switch {
		case p.total > p.last:
			p.more = true
			if !p.count {
				return nil
			}
		case p.total >= p.first:
			if err := p.add(line); err != nil {
				return err
			}
		}
	}
}

func (p *page) add(line []byte) error {
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	n := utf8.RuneCountInString(text)
	if n > maxLineChars {
		text, n = string([]rune(text)[:maxLineChars])+"…", maxLineChars+1
	}
	if p.chars += n + 7; p.chars > p.maxChars {
		return fmt.Errorf("lines %d to %d are more than %d characters; ask for at most %d lines", p.first, p.last, p.maxChars, max(1, p.total-p.first))
	}
	fmt.Fprintf(&p.content, "%6d|%s\n", p.total, text)
	return nil
}

// readLine returns the next line without its end, cut to at most limit bytes. The result holds until the next call.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == nil || err == io.EOF && len(line) > 0 {
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		return line[:min(len(line), limit)], nil
	}
	if err != bufio.ErrBufferFull {
		return nil, err
	}
	kept := append([]byte(nil), line[:min(len(line), limit)]...)
	for err == bufio.ErrBufferFull {
		line, err = r.ReadSlice('\n')
		kept = append(kept, line[:min(len(line), limit-len(kept))]...)
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return bytes.TrimSuffix(kept, []byte("\n")), nil
}
