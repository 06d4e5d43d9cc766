package logs

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLineReaderCutsLongLinesAndGoesOn(t *testing.T) {
	long := strings.Repeat("x", 3*MaxLine)
	for _, c := range []struct {
		name, in string
		want     []string
		dropped  int
	}{
		{"empty", "", nil, 0},
		{"lines", "a\nb\n\nc\n", []string{"a", "b", "", "c"}, 0},
		{"no end", "a\nb", []string{"a", "b"}, 0},
		{"long", "a\n" + long + "\nb\n", []string{"a", long[:MaxLine], "b"}, 2 * MaxLine},
		{"long without end", long, []string{long[:MaxLine]}, 2 * MaxLine},
		{"exactly as long as allowed", long[:MaxLine-1] + "\nb", []string{long[:MaxLine-1], "b"}, 0},
		{"one too long", long[:MaxLine+1] + "\nb", []string{long[:MaxLine], "b"}, 1},
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytewise": iotest.OneByteReader, "with the error": iotest.DataErrReader,
		} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				l := NewLineReader(wrap(strings.NewReader(c.in)))
				var got []string
				dropped := 0
				for {
					line, n, err := l.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(line))
					dropped += n
				}
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) || dropped != c.dropped {
					t.Errorf("%d lines, %d dropped; want %d, %d", len(got), dropped, len(c.want), c.dropped)
				}
			})
		}
	}
}

func TestSkipStopsBeforeAMark(t *testing.T) {
	in := "a\nb\npanic: c\nd\ne\n"
	l := NewLineReader(strings.NewReader(in))
	n, err := l.Skip([]string{"panic: "})
	if n != 2 || err != nil {
		t.Fatalf("skipped %d, %v", n, err)
	}
	if n, err := l.Skip([]string{"panic: "}); n != 0 || err != nil {
		t.Fatalf("skipped the mark: %d, %v", n, err)
	}
	if line, _, _ := l.Next(); string(line) != "panic: c" {
		t.Errorf("next is %q", line)
	}
	if n, _ := l.Skip([]string{"panic: "}); n != 2 {
		t.Errorf("skipped %d", n)
	}
	if _, err := l.Skip(nil); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Skipping and reading see the same lines.
func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\nb\npanic: x\ny\n\nz"), uint8(3))
	f.Add(bytes.Repeat([]byte("long"), MaxLine/2), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, mix uint8) {
		want := bytes.Count(in, []byte{'\n'})
		if len(in) > 0 && in[len(in)-1] != '\n' {
			want++
		}
		l := NewLineReader(iotest.HalfReader(bytes.NewReader(in)))
		got := 0
		for i := 0; ; i++ {
			if mix>>(i%8)&1 == 0 {
				n, err := l.Skip(dumpMarks)
				if errors.Is(err, io.EOF) {
					break
				}
				if got += n; n > 0 {
					continue
				}
			}
			if _, _, err := l.Next(); err != nil {
				break
			}
			got++
		}
		if got != want {
			t.Errorf("%d lines, want %d", got, want)
		}
	})
}
