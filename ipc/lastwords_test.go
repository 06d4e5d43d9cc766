package ipc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// written returns what is in the one file of a folder.
func written(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("files %v, %v", list, err)
	}
	info, err := list[0].Info()
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	b, err := os.ReadFile(filepath.Join(dir, list[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheLastLinesAreOnDiskWhenTheReaderOfTheLogIsGone(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	dir := t.TempDir()
	words := NewLastWords(pipe, filepath.Join(dir, "tools"))
	log := hclog.New(&hclog.LoggerOptions{JSONFormat: true, Output: words})
	log.Info("this was read")
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("files while the reader lives: %v", list)
	}
	_ = r.Close()
	log.Info("this found nobody")
	log.Info("and this came after it")
	got := written(t, dir)
	if strings.Count(got, "\n") != 3 || !strings.Contains(got, "this was read") || !strings.Contains(got, "found nobody") || !strings.Contains(got, "came after") {
		t.Errorf("on disk:\n%s", got)
	}
}

func TestLastWordsAreFewHoweverMuchIsSaid(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	words := NewLastWords(&out, filepath.Join(dir, "tools"))
	for n := range 10_000 {
		_, _ = fmt.Fprintf(words, "line %d of many\n", n)
	}
	_, _ = words.Write(bytes.Repeat([]byte("x"), 10*lastBytes))
	if words.held > lastBytes || len(words.kept) > lastLines {
		t.Errorf("%d lines with %d bytes are kept", len(words.kept), words.held)
	}
	_, _ = fmt.Fprintln(words, "the last of all")
	words.SupervisorGone()
	words.SupervisorGone()
	for n := range 10_000 {
		_, _ = fmt.Fprintf(words, "line %d after it\n", n)
	}
	got := written(t, dir)
	if len(got) > wordsBytes || !strings.Contains(got, "the last of all\nline 0 after it\n") || !strings.HasSuffix(got, "after it\n") {
		t.Errorf("%d bytes on disk, beginning %.100q", len(got), got)
	}
	if strings.Contains(out.String(), "after it") {
		t.Error("it still writes to who is gone")
	}
}

func TestWithoutAPlaceForLastWordsNothingFails(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "is", "not", "there")} {
		words := NewLastWords(&bytes.Buffer{}, path)
		words.SupervisorGone()
		if n, err := words.Write([]byte("line\n")); n != 5 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}
