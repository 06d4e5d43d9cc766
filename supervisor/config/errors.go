package config

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is in the chain of every error that a person mends by changing the configuration or the machine's
// set-up. Commands exit with 78 on it.
var ErrInvalid = errors.New("configuration")

// A Problem is one thing that is wrong, at its place.
type Problem struct {
	File string // base name, or a path outside of the home
	Line int    // 0 if it is about the file as a whole
	Key  string // supervisor.limits.memory, may be empty
	Text string
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.Text)
	return b.String()
}

// An Error is all that is wrong with a home's configuration, in the order of the file.
type Error struct {
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *Error) Unwrap() error { return ErrInvalid }

// setupError is about the machine rather than a line of a file.
type setupError struct{ text string }

func (e *setupError) Error() string { return e.text }
func (e *setupError) Unwrap() error { return ErrInvalid }

func invalid(format string, args ...any) error {
	return &setupError{fmt.Sprintf(format, args...)}
}
