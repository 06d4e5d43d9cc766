package logs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// maxSkew is how far a worker's own time of a line may be from ours. A worker that is further off, or lies, gets the
// time of arrival.
const maxSkew = time.Minute

// Parse makes a Line of what a worker printed. A JSON line of hclog becomes structured; everything else, JSON that is
// not quite hclog's included, stays text. It accepts any bytes.
func Parse(raw []byte, stream string, now time.Time) Line {
	raw = bytes.TrimRight(raw, "\r")
	if len(raw) > 1 && raw[0] == '{' && raw[len(raw)-1] == '}' {
		if l, ok := parseJSON(raw, now); ok {
			return l
		}
	}
	text := string(raw)
	return Line{Time: now, Level: levelOfText(text, stream), Stream: stream, Message: clean(text)}
}

// parseJSON decodes key by key, each into the type it must have: a line with a number for its message is no line of
// hclog and must not be taken for one.
func parseJSON(raw []byte, now time.Time) (Line, bool) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		return Line{}, false
	}
	l := Line{Time: now, Stream: StreamLog}
	var level string
	if !text(keys, "@message", &l.Message) || !text(keys, "@level", &level) {
		return Line{}, false
	}
	l.Message = clean(l.Message)
	if l.Level = hclog.LevelFromString(level); l.Level == hclog.NoLevel {
		l.Level = hclog.Info
	}
	var at string
	if text(keys, "@timestamp", &at) {
		if t, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", at); err == nil && now.Sub(t).Abs() < maxSkew {
			l.Time = t
		}
	}
	for key, value := range keys {
		switch key {
		case "@message", "@level", "@timestamp":
			continue
		case "@module", "@caller":
			key = key[1:]
		}
		l.Fields = append(l.Fields, Field{Key: clean(key), Value: clean(valueOf(value))})
	}
	slices.SortFunc(l.Fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	return l, true
}

func text(keys map[string]json.RawMessage, key string, into *string) bool {
	v, ok := keys[key]
	return ok && len(v) > 0 && v[0] == '"' && json.Unmarshal(v, into) == nil
}

// valueOf returns a JSON string's text, and any other value as it was written.
func valueOf(v json.RawMessage) string {
	var s string
	if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// levelOfText guesses. What a program prints on stderr without saying how bad it is, is worth seeing; on stdout it is
// chatter.
func levelOfText(s, stream string) hclog.Level {
	switch {
	case dumpBegins(s):
		return hclog.Error
	case strings.HasPrefix(s, "[TRACE]"):
		return hclog.Trace
	case strings.HasPrefix(s, "[DEBUG]"):
		return hclog.Debug
	case strings.HasPrefix(s, "[INFO]"):
		return hclog.Info
	case strings.HasPrefix(s, "[WARN]"):
		return hclog.Warn
	case strings.HasPrefix(s, "[ERROR]"), strings.HasPrefix(s, "[ERR]"):
		return hclog.Error
	case stream == StreamStderr:
		return hclog.Warn
	}
	return hclog.Info
}

// dumpMarks begin what the Go runtime prints when it ends a process. The lines after one belong to it.
// A signal names the runtime's own fault, which want of memory can be: then nothing else says so.
var dumpMarks = []string{
	"panic: ", "fatal error: ", "SIGQUIT: quit", "SIGABRT: abort", "SIGSEGV: segmentation violation", "SIGBUS: bus error",
	"SIGILL: illegal instruction", "SIGFPE: floating-point exception", "SIGTRAP: trace trap", "SIGSYS: bad system call",
	"unexpected fault address", "runtime: ", "runtime/cgo: ",
}

func dumpBegins(s string) bool {
	return slices.ContainsFunc(dumpMarks, func(m string) bool { return strings.HasPrefix(s, m) })
}
