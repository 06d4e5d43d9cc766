package terminal

import (
	"context"
	"errors"
	"io"
	"testing"
)

// feed gives chunks as a terminal would.
type feed struct{ chunks []string }

func (f *feed) Read(p []byte) (int, error) {
	if len(f.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.chunks[0])
	f.chunks = f.chunks[1:]
	return n, nil
}

func TestLinesAreTakenFromWhateverPiecesCome(t *testing.T) {
	k := readKeys(&feed{[]string{"one\ntw", "o\r\n", "\nlast"}})
	for _, want := range []string{"one", "two", "", "last"} {
		if got, err := k.line(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := k.line(t.Context()); err != io.EOF {
		t.Errorf("error %v", err)
	}
}

func TestALineThatIsGivenUpIsKept(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	k := readKeys(r)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = w.Write([]byte("he"))
		cancel()
	}()
	if _, err := k.line(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	go func() { _, _ = w.Write([]byte("llo\n")) }()
	if got, err := k.line(t.Context()); err != nil || got != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// edits reads all that an editor gives before Ctrl-C or the end.
func edits(k *keys, size int) (text string, broken bool) {
	e := &editor{keys: k, out: io.Discard}
	e.ctx = context.Background()
	buf := make([]byte, size)
	for !e.broken.Load() {
		n, err := e.Read(buf)
		if err != nil {
			break
		}
		text += string(buf[:n])
	}
	return text, e.broken.Load()
}

func TestKeysTypedAheadStayForTheNextEdit(t *testing.T) {
	k := readKeys(&feed{[]string{"one\rtwo\nthree"}})
	buf := make([]byte, 256)
	for _, want := range []string{"one\r", "two\n", "three"} {
		e := &editor{keys: k, ctx: t.Context(), out: io.Discard}
		if n, err := e.Read(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v; want %q", buf[:n], err, want)
		}
	}
}

func TestCtrlCEndsAnEditAndTheRestIsForTheNext(t *testing.T) {
	for _, size := range []int{1, 2, 256} {
		k := readKeys(&feed{[]string{"abc\x03def", "ghi\x03\x03", "end"}})
		for _, want := range []struct {
			text   string
			broken bool
		}{{"abc\x03", true}, {"defghi\x03", true}, {"\x03", true}, {"end", false}} {
			if text, broken := edits(k, size); text != want.text || broken != want.broken {
				t.Errorf("buffer %d: %q, %v; want %q, %v", size, text, broken, want.text, want.broken)
			}
		}
	}
}
