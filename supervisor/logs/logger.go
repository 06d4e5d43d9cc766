package logs

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-hclog"
)

// Logger returns a logger whose lines are kept in the Book as the supervisor's own.
func (b *Book) Logger() hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Trace, Output: io.Discard})
	l.RegisterSink(sink{b})
	return l
}

type sink struct{ book *Book }

// Accept takes a line of hclog. It is called for every level; the Book drops what is too low.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	if level < s.book.Level() {
		return
	}
	l := Line{
		Time: s.book.o.Now(), Worker: Supervisor, PID: os.Getpid(), Level: level, Stream: StreamLog, Message: clean(msg),
	}
	if name != "" {
		l.Fields = append(l.Fields, Field{"module", clean(name)})
	}
	for i := 0; i+1 < len(args); i += 2 {
		l.Fields = append(l.Fields, Field{clean(fmt.Sprint(args[i])), clean(show(args[i+1]))})
	}
	if len(args)%2 == 1 {
		l.Fields = append(l.Fields, Field{hclog.MissingKey, clean(show(args[len(args)-1]))})
	}
	s.book.Add(l)
}

// show writes a value as hclog would.
func show(v any) string {
	switch v := v.(type) {
	case hclog.Format:
		if len(v) == 0 {
			return ""
		}
		return fmt.Sprintf(fmt.Sprint(v[0]), v[1:]...)
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

// LineWriter returns a writer whose lines are kept as output of the process. It is for text that comes in pieces and not
// from a pipe; an unfinished line is kept back until it ends or grows too long. It is not safe for concurrent use.
func (s *Source) LineWriter(stream string) io.Writer { return &lineWriter{source: s, stream: stream} }

type lineWriter struct {
	source *Source
	stream string
	part   []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		w.keep(append(w.part, p[:i]...))
		w.part, p = w.part[:0], p[i+1:]
	}
	if w.part = append(w.part, p...); len(w.part) > MaxLine {
		w.keep(w.part)
		w.part = w.part[:0]
	}
	return n, nil
}

func (w *lineWriter) keep(line []byte) {
	if !w.source.book.allow(w.source.voice) {
		w.source.book.drop(w.source.voice, 1)
		return
	}
	w.source.line(w.stream, line[:min(len(line), MaxLine)], max(0, len(line)-MaxLine), false)
}
