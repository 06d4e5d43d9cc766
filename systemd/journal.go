package systemd

import (
	"github.com/coreos/go-systemd/v22/journal"
)

// Priority is syslog's.
type Priority int

// Priorities that the program uses.
const (
	PriorityError   Priority = 3
	PriorityWarning Priority = 4
	PriorityInfo    Priority = 6
	PriorityDebug   Priority = 7
)

// StderrIsJournal says whether stderr leads to the journal, so that what is sent to the journal's own socket instead is found
// at the same place.
func StderrIsJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// SendToJournal writes one entry with fields of its own. Names are upper case letters, digits and underscores.
func SendToJournal(message string, p Priority, fields map[string]string) error {
	return journal.Send(message, journal.Priority(p), fields)
}
