package logs

import (
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// A JournalEntry is a line as a journal with fields takes it.
type JournalEntry struct {
	Message string
	Level   hclog.Level
	Fields  map[string]string
}

// Fields of every entry. Those of the line itself have the prefix and their own name in upper case.
const (
	journalPrefix = "HERMES_"
	journalWorker = journalPrefix + "WORKER"
	journalPID    = journalPrefix + "PID"
	journalTurn   = journalPrefix + "TURN"
	journalStream = journalPrefix + "STREAM"
)

// maxJournalFields bounds what one line may add; more would be a flood in the journal's index.
const maxJournalFields = 32

// Journal returns the line as an entry: the text that a person reads without time and level, which the journal has, and what
// programs look for as fields.
func (l Line) Journal() JournalEntry {
	e := JournalEntry{Message: string(appendSaid(nil, l)), Level: l.Level, Fields: map[string]string{
		"SYSLOG_IDENTIFIER": "hermes-supervisor", journalWorker: l.Worker, journalStream: l.Stream,
	}}
	if l.PID != 0 {
		e.Fields[journalPID] = strconv.Itoa(l.PID)
	}
	for _, f := range l.Fields {
		if len(e.Fields) >= maxJournalFields {
			break
		}
		name := journalName(f.Key)
		if l.Worker == Supervisor && (name == journalWorker || name == journalPID) {
			e.Fields[name] = f.Value // what the supervisor says of a worker is found with what that says itself
			continue
		}
		if f.Key == "turn" || f.Key == "turn_id" {
			name = journalTurn
		}
		if _, taken := e.Fields[name]; name != "" && !taken {
			e.Fields[name] = f.Value
		}
	}
	return e
}

// journalName makes a field's name of a key, empty if it cannot.
func journalName(key string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '_'
	}, key)
	if strings.Trim(name, "_") == "" || len(name) > 48 {
		return ""
	}
	return journalPrefix + name
}
