package cli

import (
	"os"
	"testing"
)

func TestTextForPeople(t *testing.T) {
	for want, got := range map[string]string{
		"0s": span(0), "4s": span(4.9), "3m12s": span(192), "5h10m": span(18600), "3d4h": span(273600),
		"12 KiB": size(12 << 10), "1.5 MiB": size(3 << 19), "12.0 GiB": size(12 << 30), "": size(0),
		"one two …": oneLine("one\ntwo   three four", 9), "x�[2J": printable("x\x1b[2J"), "a\tb\n": printable("a\tb\n"), "a�b": printable("a\u202eb"),
		"/a/b-c": shellWord("/a/b-c"), `'it'\''s'`: shellWord("it's"), "''": shellWord(""),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestColourIsForTerminals(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	p := &program{streams: streams{out: f}}
	if got := p.colour(red, "x"); got != "x" {
		t.Errorf("a file got %q", got)
	}
}
