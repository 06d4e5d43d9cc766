package logs

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

const levelOfDump = hclog.Error

// write formats lines until the channel closes. It flushes when it has caught up, so that a burst is few writes.
func write(out io.Writer, asJSON bool, journal func(JournalEntry) error, lines <-chan *Line) {
	w := bufio.NewWriterSize(out, 32<<10)
	format := appendText
	if asJSON {
		format = appendJSON
	}
	var buf []byte
	for next := range lines {
		l := *next
		// Where the journal does not take it, it goes to the writer like everything elsewhere, so that no line is lost.
		if journal != nil && journal(l.Journal()) == nil {
			continue
		}
		buf = format(buf[:0], l)
		if w.Available() < len(buf) {
			// Each write ends with a line, so that who turns the file over between two of them cuts none.
			_ = w.Flush()
		}
		// An error of the writer has nowhere to be told: it is the log itself that cannot be written.
		_, _ = w.Write(buf)
		if len(lines) == 0 {
			_ = w.Flush()
		}
		if cap(buf) > 4*MaxLine {
			buf = nil
		}
	}
	_ = w.Flush()
}

// appendText writes "time level worker[pid] message key=value", one line whatever the texts hold.
func appendText(b []byte, l Line) []byte {
	b = l.Time.AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	b = append(b, ' ')
	level := strings.ToUpper(l.Level.String())
	b = append(b, level...)
	for range 6 - len(level) {
		b = append(b, ' ')
	}
	b = append(b, l.Worker...)
	if l.PID != 0 {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(l.PID), 10)
		b = append(b, ']')
	}
	b = append(b, ' ')
	return append(appendSaid(b, l), '\n')
}

// appendSaid writes "message key=value" on one line.
func appendSaid(b []byte, l Line) []byte {
	if l.Stream != StreamLog {
		b = append(b, l.Stream...)
		b = append(b, ": "...)
	}
	b = append(b, oneLine.Replace(l.Message)...)
	for _, f := range l.Fields {
		b = append(b, ' ')
		b = append(b, oneLine.Replace(f.Key)...)
		b = append(b, '=')
		if f.Value == "" || strings.ContainsAny(f.Value, " \"=\n\t") {
			b = strconv.AppendQuote(b, f.Value)
		} else {
			b = append(b, f.Value...)
		}
	}
	return b
}

var oneLine = strings.NewReplacer("\n", `\n`, "\t", "    ")

func appendJSON(b []byte, l Line) []byte {
	fields := make(map[string]string, len(l.Fields))
	for _, f := range l.Fields {
		fields[f.Key] = f.Value
	}
	// Marshalling strings and numbers cannot fail.
	line, _ := json.Marshal(struct {
		At      string            `json:"at"`
		Level   string            `json:"level"`
		Worker  string            `json:"worker"`
		PID     int               `json:"pid,omitempty"`
		Stream  string            `json:"stream"`
		Message string            `json:"message"`
		Fields  map[string]string `json:"fields,omitempty"`
	}{l.Time.Format(time.RFC3339Nano), l.Level.String(), l.Worker, l.PID, l.Stream, l.Message, fields})
	return append(append(b, line...), '\n')
}
