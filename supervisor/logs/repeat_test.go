package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestALineThatIsRepeatedIsCountedInsteadOfKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		b := NewBook(Options{Out: file})
		s := b.Source("tools", 7)
		// One traceback of three lines, printed for hours, and between them something else.
		const times = 30_000
		for n := range times {
			if n%10_000 == 0 {
				feed(t, s, fmt.Sprintf("news %d\n", n))
			}
			feed(t, s, "Traceback\n  in store.py\nOSError: disk\n")
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(repeatWindow)
		b.Close()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kept, counted := 0, 0
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, " stderr: OSError: disk\n") {
				kept++
			}
			if _, n, ok := strings.Cut(line, "times more: OSError: disk repeated="); ok {
				count, err := strconv.Atoi(strings.TrimSpace(n))
				if err != nil {
					t.Fatal(err)
				}
				counted += count
			}
		}
		if kept != repeatsShown || kept+counted+int(b.Dropped("tools"))/3 < times-1 || kept+counted > times {
			t.Errorf("kept %d, counted %d, dropped %d lines", kept, counted, b.Dropped("tools"))
		}
		if strings.Count(string(text), "news ") != 3 || len(text) > 100<<10 {
			t.Errorf("%d bytes:\n%.2000s", len(text), text)
		}
	})
}

func TestALineThatComesSeldomIsNeverCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(t, Options{})
		s := b.Source("tools", 7)
		for range 20 {
			feed(t, s, "every minute\n")
			time.Sleep(time.Minute)
		}
		if got := b.Tail("tools", 100); len(got) != 20 {
			t.Errorf("%d lines: %s", len(got), messages(got))
		}
		b.Close()
	})
}

func TestWhatAWorkerSaysBeforeEachOfItsEndsIsKept(t *testing.T) {
	b := newBook(t, Options{})
	for pid := range 3 * repeatsShown {
		feed(t, b.Source("tools", 100+pid), "no licence for this machine\n")
	}
	if got := b.Tail("tools", 100); len(got) != 3*repeatsShown {
		t.Errorf("%d lines: %s", len(got), messages(got))
	}
}

// A secret or a letter of several bytes may lie where the line is cut that comes with a count.
func TestACountTellsNoPartOfASecretAndWholeLetters(t *testing.T) {
	for name, line := range map[string]string{
		"secret": strings.Repeat("x", repeatText-5) + "hunter2-hunter2\n",
		"letter": strings.Repeat("x", repeatText-1) + "é and more\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBook(t, Options{Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2-hunter2", "***") }})
				s := b.Source("tools", 7)
				for range 2 * repeatsShown {
					feed(t, s, line)
				}
				time.Sleep(2 * repeatWindow)
				said := b.Tail("tools", 1)[0].Message
				if !strings.HasPrefix(said, "the same line 5 times more: xxx") || strings.Contains(said, "hunte") || !utf8.ValidString(said) {
					t.Errorf("%q", said)
				}
				b.Close()
			})
		})
	}
}

func TestManyDifferentLinesAreToldApartInBoundedMemory(t *testing.T) {
	b := newBook(t, Options{})
	s := b.Source("tools", 7)
	for n := range 5000 {
		s.Line(StreamStderr, fmt.Appendf(nil, "line %d", n), 0)
	}
	if got := len(b.voices["tools"].repeats); got > repeatLines {
		t.Errorf("%d lines are remembered", got)
	}
	if got := b.Tail("tools", 10_000); len(got) < 2000 {
		t.Errorf("%d lines were kept", len(got))
	}
}

// Only the supervisor writes the log, so lines of many workers are whole in it whatever the load, and whoever turns the file over
// (copies and empties it, as logrotate does) finds none cut or missing.
func TestLinesOfManyWorkersAreWholeWhileTheFileIsTurnedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	out := &turned{file: file, path: path}
	b := NewBook(Options{Out: out})
	const workers, lines = 8, 1000
	var writing sync.WaitGroup
	for w := range workers {
		s := b.Source(fmt.Sprint("worker-", w), 100+w)
		writing.Go(func() {
			for n := range lines {
				feed(t, s, fmt.Sprintf("line %d of %d %s\n", n, w, strings.Repeat("x", 200)))
				if n%50 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	writing.Wait()
	b.Close()
	out.turn(t)
	if out.turns < 20 || out.cut > 0 {
		t.Errorf("the file was turned over %d times, %d times within a line", out.turns, out.cut)
	}
	seen := map[string]int{}
	for line := range strings.Lines(out.all.String()) {
		_, text, ok := strings.Cut(line, " stderr: line ")
		var n, w int
		var rest string
		if _, err := fmt.Sscanf(text, "%d of %d %s", &n, &w, &rest); !ok || err != nil || len(rest) != 200 || !strings.Contains(line, fmt.Sprintf(" worker-%d[%d] ", w, 100+w)) {
			t.Fatalf("torn or in a wrong place: %q", line)
		}
		seen[fmt.Sprint(w, ".", n)]++
	}
	if want := workers*lines - int(b.Lost()); len(seen) != want {
		t.Errorf("%d different lines of %d", len(seen), want)
	}
}

// turned is a log file that is turned over between two writes.
type turned struct {
	file  *os.File
	path  string
	turns int
	cut   int // files that do not end with a line
	all   strings.Builder
}

func (f *turned) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	if info, e := f.file.Stat(); e == nil && info.Size() > 32<<10 {
		f.turn(nil)
	}
	return n, err
}

func (f *turned) turn(t *testing.T) {
	text, err := os.ReadFile(f.path)
	if err == nil {
		err = f.file.Truncate(0)
	}
	if err != nil && t != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(text), "\n") && len(text) > 0 {
		f.cut++
	}
	f.all.Write(text)
	f.turns++
}
