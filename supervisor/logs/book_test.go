package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func newBook(t *testing.T, o Options) *Book {
	b := NewBook(o)
	t.Cleanup(b.Close)
	return b
}

// feed lets a source read text as a worker's stderr.
func feed(t *testing.T, s *Source, text string) {
	t.Helper()
	if err := s.Copy(StreamStderr, NewLineReader(strings.NewReader(text))); err != nil {
		t.Fatal(err)
	}
}

func messages(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Worker + ":" + l.Message + "\n")
	}
	return b.String()
}

func TestTailIsOfOneWorkerOrOfAllInOrder(t *testing.T) {
	b := newBook(t, Options{})
	one, two := b.Source("one", 1), b.Source("two", 2)
	feed(t, one, "a\n")
	feed(t, two, "b\n")
	feed(t, one, "c\n")
	if got := messages(b.Tail("one", 10)); got != "one:a\none:c\n" {
		t.Errorf("one: %q", got)
	}
	if got := messages(b.Tail("", 2)); got != "two:b\none:c\n" {
		t.Errorf("all: %q", got)
	}
	if got := b.Tail("three", 2); got != nil {
		t.Errorf("three: %v", got)
	}
	if got := messages(b.Source("one", 9).Tail(9)); got != "" {
		t.Errorf("a new process has said %q", got)
	}
}

func TestRingIsBoundedByBytes(t *testing.T) {
	b := newBook(t, Options{})
	for i := range 10_000 {
		b.Add(Line{Worker: "w", Level: hclog.Info, Message: fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))})
	}
	lines := b.Tail("w", 100_000)
	if n := len(lines); n < 400 || n > 520 || !strings.HasPrefix(lines[n-1].Message, "9999 ") {
		t.Errorf("%d lines kept", n)
	}
	b.Add(Line{Worker: "w", Level: hclog.Info, Message: strings.Repeat("y", 2*ringBytes)})
	if n := len(b.Tail("w", 100)); n != 1 {
		t.Errorf("%d lines beside one that is too big", n)
	}
}

func TestFloodIsCutCountedAndSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBook(Options{})
		s := b.Source("w", 1)
		var flood strings.Builder
		for n := range 50_000 {
			fmt.Fprintln(&flood, "line", n)
		}
		feed(t, s, flood.String())
		// The pauses while it is read are worth a line or two.
		kept, dropped := len(b.Tail("w", 100_000)), b.Dropped("w")
		if kept < linesAtOnce || kept > linesAtOnce+2 || int64(kept)+dropped != 50_000 {
			t.Errorf("%d lines kept, %d dropped", kept, dropped)
		}
		time.Sleep(announceEvery)
		synctest.Wait()
		want := fmt.Sprintf("dropped %d log lines: more than 200 a second", dropped)
		if got := b.Tail("w", 1)[0]; got.Message != want || got.Level != hclog.Warn {
			t.Errorf("said: %+v", got)
		}
		// The budget comes back.
		time.Sleep(time.Second)
		feed(t, s, strings.Repeat("later\n", 1000))
		if n := b.Dropped("w") - dropped; n < 590 || n > 600 {
			t.Errorf("%d lines dropped after two seconds", n)
		}
		// Another worker has its own.
		feed(t, b.Source("v", 2), "hello\n")
		if got := messages(b.Tail("v", 9)); got != "v:hello\n" {
			t.Errorf("the other says %q", got)
		}
		b.Close()
	})
}

func TestLastWordsHoldNoSecret(t *testing.T) {
	b := newBook(t, Options{Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }})
	s := b.Source("w", 1)
	feed(t, s, "panic: login with hunter2\n")
	if s.LastWords() != "panic: login with ***" {
		t.Errorf("last words: %q", s.LastWords())
	}
}

func TestLastWordsSurviveAFlood(t *testing.T) {
	b := newBook(t, Options{Now: func() time.Time { return noon }})
	s := b.Source("w", 1)
	flood := strings.Repeat("line\n", 5000)
	trace := "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n"
	feed(t, s, flood+trace)
	if s.LastWords() != "panic: boom" {
		t.Errorf("last words: %q", s.LastWords())
	}
	if got := messages(s.Tail(3)); got != "w:\nw:goroutine 1 [running]:\nw:main.main()\n" {
		t.Errorf("tail: %q", got)
	}
	for _, l := range s.Tail(4) {
		if l.Level != hclog.Error {
			t.Errorf("level of a trace: %v", l.Level)
		}
	}
	// They have a limit of their own.
	feed(t, s, "panic: again\n"+strings.Repeat(strings.Repeat("x", 99)+"\n", 10_000))
	if s.LastWords() != "panic: boom" {
		t.Error("the first words were forgotten")
	}
	if d := b.Dropped("w"); d < 3000+10_000-dumpBytes/99-1 {
		t.Errorf("%d lines dropped", d)
	}
}

func TestDumpEndsWithTheNextStructuredLine(t *testing.T) {
	b := newBook(t, Options{})
	s := b.Source("w", 1)
	feed(t, s, "panic: recovered\nmore\n"+`{"@level":"info","@message":"going on"}`+"\nplain\n")
	lines := s.Tail(4)
	if lines[1].Level != hclog.Error || lines[2].Level != hclog.Info || lines[3].Level != hclog.Warn {
		t.Errorf("levels: %v %v %v", lines[1].Level, lines[2].Level, lines[3].Level)
	}
}

func TestLongLineIsCutAndSaysSo(t *testing.T) {
	b := newBook(t, Options{})
	s := b.Source("w", 1)
	feed(t, s, strings.Repeat("x", 1<<20)+"\nnext\n")
	lines := s.Tail(2)
	if m := lines[0].Message; len(m) > MaxLine+40 || !strings.HasSuffix(m, fmt.Sprintf("… (%d more bytes)", 1<<20-MaxLine)) {
		t.Errorf("%d bytes, ending in %q", len(m), m[len(m)-40:])
	}
	if lines[1].Message != "next" {
		t.Errorf("next line: %q", lines[1].Message)
	}
}

func TestSecretsAreTakenOutBeforeAnythingSeesThem(t *testing.T) {
	var out bytes.Buffer
	b := NewBook(Options{Out: &out, Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }})
	f := b.Follow("")
	feed(t, b.Source("w", 1), "password hunter2\n"+`{"@level":"info","@message":"a hunter2","key":"hunter2"}`+"\n")
	b.Logger().Info("got hunter2", "token", "hunter2")
	seen := messages(b.Tail("", 9)) + fmt.Sprint(<-f.Lines(), <-f.Lines(), <-f.Lines())
	b.Close()
	if all := seen + out.String(); strings.Contains(all, "hunter2") || strings.Count(all, "***") < 10 {
		t.Errorf("seen:\n%s", all)
	}
}

func TestSlowFollowerMissesLinesAndNobodyWaits(t *testing.T) {
	b := newBook(t, Options{})
	f := b.Follow("w")
	defer f.Close()
	for range followerLines + 10 {
		b.Add(Line{Worker: "w", Level: hclog.Info})
		b.Add(Line{Worker: "other", Level: hclog.Info})
	}
	if f.Missed() != 10 || len(f.lines) != followerLines {
		t.Errorf("missed %d, %d queued", f.Missed(), len(f.lines))
	}
}

func TestReadSendsTheTailAndThenFollows(t *testing.T) {
	b := newBook(t, Options{})
	b.Add(Line{Worker: "w", Level: hclog.Info, Message: "old", Fields: []Field{{"k", "v"}}})
	b.Add(Line{Worker: "other", Level: hclog.Info, Message: "not this"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := make(chan *controlv1.LogLine)
	ended := make(chan error, 1)
	go func() {
		ended <- b.Read(ctx, "w", 10, true, func(l *controlv1.LogLine) error {
			got <- l
			return nil
		})
	}()
	if l := <-got; l.Message != "old" || l.Fields["k"] != "v" || l.Level != "info" {
		t.Errorf("tail: %v", l)
	}
	b.Add(Line{Worker: "w", Level: hclog.Error, Message: "new"})
	if l := <-got; l.Message != "new" || l.Level != "error" {
		t.Errorf("followed: %v", l)
	}
	// A reader that is too slow is told so.
	for range followerLines + 5 {
		b.Add(Line{Worker: "w", Level: hclog.Info, Message: "many"})
	}
	told := false
	for range followerLines + 1 {
		l := <-got
		told = told || strings.Contains(l.Message, "lines are missing here")
	}
	if !told {
		t.Error("the reader was not told what it missed")
	}
	cancel()
	for {
		select {
		case <-got:
			continue
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("ended: %v", err)
			}
		}
		break
	}
	if err := b.Read(context.Background(), "w", 1, false, func(*controlv1.LogLine) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Errorf("error of the reader: %v", err)
	}
}

// stuck is a writer that never returns until it is let go.
type stuck struct{ letGo chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.letGo
	return len(p), nil
}

func TestStuckWriterHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stuck{make(chan struct{})}
		b := NewBook(Options{Out: w})
		for range outputLines * 2 {
			b.Add(Line{Worker: "w", Level: hclog.Info, Message: "m"})
		}
		if b.Lost() == 0 {
			t.Error("nothing was lost")
		}
		began := time.Now()
		b.Close()
		if d := time.Since(began); d != closeBudget {
			t.Errorf("closed after %s", d)
		}
		close(w.letGo)
	})
}

func TestOutput(t *testing.T) {
	line := Line{
		Time: noon, Worker: "agent-1", PID: 7, Level: hclog.Warn, Stream: StreamLog, Message: "two\nlines",
		Fields: []Field{{"a", "plain"}, {"b", "with space"}, {"c", ""}, {"d", "x\ny"}},
	}
	plain := Line{Time: noon, Worker: "tools", Level: hclog.Info, Stream: StreamStdout, Message: "hello"}
	want := `2026-12-01T12:00:00.000Z WARN  agent-1[7] two\nlines a=plain b="with space" c="" d="x\ny"` + "\n" +
		"2026-12-01T12:00:00.000Z INFO  tools stdout: hello\n"
	if got := string(appendText(appendText(nil, line), plain)); got != want {
		t.Errorf("text:\n%s\nwant:\n%s", got, want)
	}
	wantJSON := `{"at":"2026-12-01T12:00:00Z","level":"warn","worker":"agent-1","pid":7,"stream":"log","message":"two\nlines","fields":{"a":"plain","b":"with space","c":"","d":"x\ny"}}` + "\n"
	if got := string(appendJSON(nil, line)); got != wantJSON {
		t.Errorf("JSON:\n%s\nwant:\n%s", got, wantJSON)
	}
}

func TestLoggerKeepsLevelsNamesAndArguments(t *testing.T) {
	b := newBook(t, Options{Now: func() time.Time { return noon }})
	log := b.Logger().Named("worker").With("worker", "agent-1")
	log.Debug("not kept")
	log.Warn("kept", "error", io.EOF, "n", 3, "odd")
	lines := b.Tail(Supervisor, 9)
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	got := string(appendText(nil, Line{Time: noon, Level: lines[0].Level, Worker: "s", Stream: StreamLog, Message: lines[0].Message, Fields: lines[0].Fields}))
	if want := "2026-12-01T12:00:00.000Z WARN  s kept module=worker worker=agent-1 error=EOF n=3 EXTRA_VALUE_AT_END=odd\n"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestLineWriterJoinsPieces(t *testing.T) {
	b := newBook(t, Options{})
	w := b.Source("w", 1).LineWriter(StreamStdout)
	for _, p := range []string{"on", "e\ntw", "o\n", "\nrest"} {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := messages(b.Tail("w", 9)); got != "w:one\nw:two\nw:\n" {
		t.Errorf("%q", got)
	}
	_, _ = w.Write(bytes.Repeat([]byte("x"), 3*MaxLine))
	if n := len(b.Tail("w", 1)[0].Message); n > MaxLine+40 {
		t.Errorf("a line of %d bytes", n)
	}
}

func TestBookCanBeClosedWhileItIsUsed(t *testing.T) {
	b := NewBook(Options{Out: io.Discard})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s := b.Source("w", 1)
			for range 1000 {
				s.Line(StreamStderr, []byte("x"), 0)
			}
		})
		all.Go(func() {
			for range b.Follow("").Lines() {
			}
		})
	}
	b.Close()
	b.Close()
	all.Wait()
}

func BenchmarkCopy(b *testing.B) {
	line := `{"@level":"info","@message":"turn ended","@module":"agent","@timestamp":"2026-12-01T12:00:00.000000Z","turn":"20261201_120000_abcdef","tokens":1234,"took":"1.2s"}` + "\n"
	text := strings.Repeat(line, 10_000)
	b.Run("kept", func(b *testing.B) {
		now := noon
		book := NewBook(Options{Now: func() time.Time { now = now.Add(time.Second); return now }})
		defer book.Close()
		s := book.Source("w", 1)
		for b.Loop() {
			_ = s.Copy(StreamStderr, NewLineReader(strings.NewReader(text)))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/line")
	})
	b.Run("dropped", func(b *testing.B) {
		book := NewBook(Options{Now: func() time.Time { return noon }})
		defer book.Close()
		s := book.Source("w", 1)
		for b.Loop() {
			_ = s.Copy(StreamStderr, NewLineReader(strings.NewReader(text)))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/line")
	})
}

func TestVoicesAreThoseOfWhomLinesAreKept(t *testing.T) {
	b := NewBook(Options{})
	defer b.Close()
	b.Add(Line{Worker: "tools", Level: hclog.Info, Message: "here"})
	b.Add(Line{Worker: "agent-1", Level: hclog.Info, Message: "here"})
	b.Add(Line{Worker: "quiet", Level: hclog.Debug, Message: "below the level"})
	if got := b.Voices(); !slices.Equal(got, []string{"agent-1", "tools"}) {
		t.Errorf("got %q", got)
	}
}
