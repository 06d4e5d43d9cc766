package logs

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/go-hclog"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, raw, stream string
		want              Line
	}{
		{"hclog", `{"@level":"warn","@message":"late","@module":"agent.turn","@timestamp":"2026-12-01T11:59:59.500000Z","turn":"t1","n":3,"x":null,"o":{"a":[1]}}`, StreamStderr, Line{
			Time: noon.Add(-500 * time.Millisecond), Level: hclog.Warn, Stream: StreamLog, Message: "late",
			Fields: []Field{{"module", "agent.turn"}, {"n", "3"}, {"o", `{"a":[1]}`}, {"turn", "t1"}, {"x", "null"}},
		}},
		{"hclog of another year", `{"@level":"info","@message":"m","@timestamp":"2020-12-01T11:59:59.500000Z"}`, StreamStderr, Line{
			Time: noon, Level: hclog.Info, Stream: StreamLog, Message: "m",
		}},
		{"unknown level", `{"@level":"loud","@message":"m"}`, StreamStderr, Line{Time: noon, Level: hclog.Info, Stream: StreamLog, Message: "m"}},
		{"number for a message", `{"@message":1,"@level":"info"}`, StreamStderr, Line{Time: noon, Level: hclog.Warn, Stream: StreamStderr, Message: `{"@message":1,"@level":"info"}`}},
		{"null for a level", `{"@message":"m","@level":null}`, StreamStderr, Line{Time: noon, Level: hclog.Warn, Stream: StreamStderr, Message: `{"@message":"m","@level":null}`}},
		{"JSON of somebody else", `{"msg":"m"}`, StreamStdout, Line{Time: noon, Level: hclog.Info, Stream: StreamStdout, Message: `{"msg":"m"}`}},
		{"half of JSON", `{"@message":"m"`, StreamStderr, Line{Time: noon, Level: hclog.Warn, Stream: StreamStderr, Message: `{"@message":"m"`}},
		{"array", `[1,2]`, StreamStderr, Line{Time: noon, Level: hclog.Warn, Stream: StreamStderr, Message: `[1,2]`}},
		{"text", "hello\r", StreamStdout, Line{Time: noon, Level: hclog.Info, Stream: StreamStdout, Message: "hello"}},
		{"empty", "", StreamStderr, Line{Time: noon, Level: hclog.Warn, Stream: StreamStderr}},
		{"level in brackets", "[DEBUG] x", StreamStderr, Line{Time: noon, Level: hclog.Debug, Stream: StreamStderr, Message: "[DEBUG] x"}},
		{"panic", "panic: no", StreamStderr, Line{Time: noon, Level: hclog.Error, Stream: StreamStderr, Message: "panic: no"}},
		{"escape sequences", "a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1bMc\x08\x00d", StreamStdout, Line{Time: noon, Level: hclog.Info, Stream: StreamStdout, Message: "aredbcd"}},
		{"escape sequences in a field", `{"@level":"info","@message":"m\u001b[2J","k\u0007":"v\u001b[1m\nnext"}`, StreamStderr, Line{
			Time: noon, Level: hclog.Info, Stream: StreamLog, Message: "m", Fields: []Field{{"k", "v\nnext"}},
		}},
		{"not UTF-8", "a\xff\xfeb", StreamStdout, Line{Time: noon, Level: hclog.Info, Stream: StreamStdout, Message: "a\ufffd\ufffdb"}},
		{"bidirectional override", "a\u202egnp.exe", StreamStdout, Line{Time: noon, Level: hclog.Info, Stream: StreamStdout, Message: "agnp.exe"}},
		{"unfinished escape", "a\x1b[12;", StreamStdout, Line{Time: noon, Level: hclog.Info, Stream: StreamStdout, Message: "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Parse([]byte(c.raw), c.stream, noon)
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Line{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"@level":"info","@message":"m","@timestamp":"2026-12-01T12:00:00.000000Z","k":1}`, `{"@message":1}`, `{"@level":null}`,
		"panic: x", "\x1b[31mred\x1b[0m", "\x1b]0;t", "\xff", "{}", "{", `{"a":` + strings.Repeat("[", 100) + "}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := Parse(raw, StreamStderr, noon)
		texts := []string{l.Message}
		for _, field := range l.Fields {
			texts = append(texts, field.Key, field.Value)
		}
		for _, s := range texts {
			if !utf8.ValidString(s) || strings.IndexFunc(s, control) >= 0 {
				t.Errorf("%q becomes %q", raw, s)
			}
		}
		for _, format := range []func([]byte, Line) []byte{appendText, appendJSON} {
			out := format(nil, l)
			if n := strings.Count(string(out), "\n"); n != 1 || out[len(out)-1] != '\n' {
				t.Errorf("%q is written as %q", raw, out)
			}
		}
	})
}

// The runtime ends a process with a signal's name alone where the fault is its own.
func TestAFatalSignalBeginsADump(t *testing.T) {
	b := newBook(t, Options{})
	s := b.Source("plugin-guest", 7)
	text := "ready\nSIGSEGV: segmentation violation\nPC=0x42e59d m=3 sigcode=1 addr=0x0\n\ngoroutine 0 gp=0x2e7f328212c0 m=3 mp=0x2e7f3285b008 [idle]:\n"
	if err := s.Copy(StreamStderr, NewLineReader(strings.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	if got := s.LastWords(); got != "SIGSEGV: segmentation violation" {
		t.Errorf("its last words are %q", got)
	}
}
