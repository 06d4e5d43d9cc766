package prompt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readFile reads a text file, cut to limit characters. A file that is not there is empty; one that is not regular is
// not opened, as a pipe would hold the turn.
func readFile(path string, limit int) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("read %s: it is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	text, err := readCut(f, info.Size(), limit, filepath.Base(path))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return text, nil
}

// readCut reads as much of f as can make limit characters: all of it, or of a large file only its two ends.
func readCut(f io.ReaderAt, size int64, limit int, name string) (string, error) {
	enough := int64(limit) * utf8.UTFMax
	head, err := section(f, 0, min(size, enough))
	if err != nil {
		return "", err
	}
	if size <= enough {
		return cut(head, head, utf8.RuneCountInString(head) <= limit, limit, name), nil
	}
	tail, err := section(f, size-enough, enough)
	if err != nil {
		return "", err
	}
	return cut(head, tail, false, limit, name), nil
}

func section(f io.ReaderAt, off, n int64) (string, error) {
	b := make([]byte, n)
	read, err := f.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.ToValidUTF8(strings.ReplaceAll(string(b[:read]), "\r\n", "\n"), "�"), nil
}

// cut joins 70 % of the limit from the start of head and 20 % from the end of tail, with a line that says so.
func cut(head, tail string, whole bool, limit int, name string) string {
	if whole {
		return head
	}
	first, last := []rune(head), []rune(tail)
	first = first[:min(len(first), limit*7/10)]
	last = last[max(0, len(last)-limit*2/10):]
	return string(first) + fmt.Sprintf("\n\n[… the middle of %s is left out: it is longer than %s characters …]\n\n", name, thousands(limit)) + string(last)
}

// entrySeparator stands between the entries of a memory file.
const entrySeparator = "\n§\n"

var rule = strings.Repeat("═", 46)

// memoryBlock shows the entries of a memory file and how full it is, empty if there are none.
func memoryBlock(title, text string, limit int) string {
	var entries []string
	for _, e := range strings.Split(text, entrySeparator) {
		if e = strings.TrimSpace(e); e != "" && !slices.Contains(entries, e) {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return ""
	}
	joined := strings.Join(entries, entrySeparator)
	n := utf8.RuneCountInString(joined)
	return fmt.Sprintf("%s\n%s [%d%% — %s/%s chars]\n%s\n%s", rule, title, n*100/limit, thousands(n), thousands(limit), rule, joined)
}

// thousands writes n with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
