package logs

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A Source is the output of one process of a worker.
type Source struct {
	book  *Book
	voice *voice
	pid   int
	dump  atomic.Int64 // bytes of last words still kept beyond the budget

	mu        sync.Mutex
	lastWords string
}

// Source returns the entry for the output of one process.
func (b *Book) Source(worker string, pid int) *Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Source{book: b, voice: b.voice(worker), pid: pid}
	s.dump.Store(dumpBytes)
	return s
}

// A flood is read in chunks of what a pipe holds, with a pause after each: 60 MB a second, so that who floods is hardly
// slowed down, and a tenth of a processor for the supervisor instead of most of one.
const (
	linesInFlood = 100
	floodPause   = time.Millisecond
)

// Copy reads lines until the stream ends and returns its error, nil at a plain end. Lines that are over the budget are
// dropped, so that a process is not held up in a write for long, whatever it prints.
func (s *Source) Copy(stream string, r *LineReader) error {
	dumping := false
	for {
		if !dumping && !s.book.allow(s.voice) {
			n, err := r.Skip(dumpMarks)
			s.book.drop(s.voice, n)
			if err != nil {
				return plainEnd(err)
			}
			if n > linesInFlood {
				time.Sleep(floodPause)
			}
			if n > 0 {
				continue
			}
			// The next line begins a dump: let it through.
		}
		line, cut, err := r.Next()
		if err != nil {
			return plainEnd(err)
		}
		dumping = s.line(stream, line, cut, dumping)
	}
}

func plainEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// line keeps one line and says whether the process is dumping its stacks.
func (s *Source) line(stream string, raw []byte, cut int, dumping bool) bool {
	l := Parse(raw, stream, s.book.o.Now())
	l.Worker, l.PID = s.voice.name, s.pid
	if cut > 0 {
		l.Message += fmt.Sprintf(" … (%d more bytes)", cut)
	}
	switch {
	case l.Stream == StreamLog:
		dumping = false
	case dumpBegins(l.Message):
		dumping = true
		s.remember(l.Message)
	}
	if dumping {
		l.Level = max(l.Level, levelOfDump)
		if s.dump.Add(-int64(len(raw))) < 0 {
			s.book.drop(s.voice, 1)
			return true
		}
	}
	if !dumping && s.book.repeated(s.voice, l) {
		return false
	}
	s.book.Add(l)
	return dumping
}

// Line keeps one line of the process that somebody else has read, whatever the budget is; cut is how many bytes of it
// were dropped.
func (s *Source) Line(stream string, raw []byte, cut int) { s.line(stream, raw, cut, false) }

func (s *Source) remember(line string) {
	if s.book.o.Redact != nil {
		line = s.book.o.Redact(line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastWords == "" {
		s.lastWords = line
	}
}

// LastWords returns the line that the process's dump of its stacks begins with, empty if there was none.
func (s *Source) LastWords() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastWords
}

// Tail returns up to n of the newest lines of this process.
func (s *Source) Tail(n int) []Line {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	var out []Line
	lines := s.voice.ring.lines[s.voice.ring.first:]
	for i := len(lines) - 1; i >= 0 && len(out) < n; i-- {
		if lines[i].PID == s.pid {
			out = append(out, lines[i])
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
