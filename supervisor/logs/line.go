// Package logs is the pipeline of what workers and the supervisor say: a Book keeps the newest lines of each worker,
// hands them to followers and writes them out.
//
// Rules: nothing that a worker prints can stop, block or crash the supervisor, and nothing that reads the Book can
// either. A line is cut at MaxLine, a worker may print so many lines a second and no more, a slow follower or a stuck
// writer loses lines; every loss is counted and said. Control characters never reach a terminal, secrets never leave the
// redaction.
package logs

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// MaxLine is the longest line that is kept, in bytes. hclog lines of ours are below 1 KiB; a stack trace in a field is
// around 10 KiB. The rest of a longer line is dropped and counted.
const MaxLine = 64 << 10

// Where a line came from.
const (
	StreamLog    = "log"    // a structured line
	StreamStdout = "stdout" // plain text
	StreamStderr = "stderr"
)

// Supervisor is the name under which the supervisor's own lines are kept.
const Supervisor = "supervisor"

// A Field is a key and value of a structured line.
type Field struct{ Key, Value string }

// A Line is one log line. Its texts are valid UTF-8 without control characters other than tab and line end.
type Line struct {
	Time    time.Time
	Worker  string
	PID     int
	Level   hclog.Level
	Stream  string
	Message string
	Fields  []Field

	seq uint64 // order of arrival over all workers
}

// Proto returns the line as the control socket sends it.
func (l Line) Proto() *controlv1.LogLine {
	out := &controlv1.LogLine{
		At: float64(l.Time.UnixNano()) / 1e9, Worker: l.Worker, Pid: int64(l.PID),
		Level: l.Level.String(), Message: l.Message, Stream: l.Stream,
	}
	if len(l.Fields) > 0 {
		out.Fields = make(map[string]string, len(l.Fields))
		for _, f := range l.Fields {
			out.Fields[f.Key] = f.Value
		}
	}
	return out
}

// lineOverhead is what a Line costs beside its texts: the struct and the headers of its strings.
const lineOverhead = 128

func (l Line) size() int {
	n := lineOverhead + len(l.Message)
	for _, f := range l.Fields {
		n += 32 + len(f.Key) + len(f.Value)
	}
	return n
}

// clean makes text safe to show: valid UTF-8, no escape sequences and no other control characters. Tab and line end stay,
// as stack traces need them; writers of single lines escape those.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0x1b:
			size = escapeLength(s[i:])
		case r == utf8.RuneError && size == 1:
			b.WriteRune(utf8.RuneError)
		case !control(r):
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

func isClean(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x80 {
			return utf8.ValidString(s) && strings.IndexFunc(s, control) < 0
		} else if c < 0x20 && c != '\t' && c != '\n' || c == 0x7f {
			return false
		}
	}
	return true
}

// control says whether r moves a cursor, hides text or turns its direction instead of showing something.
func control(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true // bidirectional overrides
	}
	return false
}

// escapeLength returns the length of the terminal escape sequence that s begins with: ESC [ … letter, ESC ] … BEL, or
// ESC and one character.
func escapeLength(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
		return len(s)
	}
	_, size := utf8.DecodeRuneInString(s[1:])
	return 1 + size
}
