package systemd

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
	"time"
	"unicode"
)

//go:embed hermes-supervisor.service
var unitText string

//go:embed hermes-supervisor.socket
var socketText string

var socketTemplate = template.Must(template.New("socket").Funcs(template.FuncMap{"word": unitWord, "dir": filepath.Dir}).Parse(socketText))

var unitTemplate = template.Must(template.New("unit").Funcs(template.FuncMap{"word": unitWord, "program": quoted}).Parse(unitText))

// stopMargin is what the unit's TimeoutStopSec allows beyond the drain: the supervisor ends its workers within 20 s of
// it, and systemd's SIGKILL must come after that.
const stopMargin = 30 * time.Second

// A Unit is what a service file depends on.
type Unit struct {
	Executable string // absolute
	Home       string // absolute
	User       string // of a system service; empty for a service of the user's own manager
	Drain      time.Duration
	// RunDir is the folder below /run that the manager makes for a system service. It goes with the service, so it must be of no
	// other.
	RunDir string
	Socket string // absolute path of the control socket if the manager is to hold it; empty: the supervisor makes it
}

// StopSeconds is TimeoutStopSec, computed from the drain so that the two cannot disagree.
func (u Unit) StopSeconds() int {
	return int((u.Drain + stopMargin + time.Second - 1) / time.Second)
}

// Render returns the service file. A path that a unit cannot hold is an error.
func (u Unit) Render() ([]byte, error) { return u.render(unitTemplate) }

// RenderSocket returns the file of the socket unit, of the same name as the service.
func (u Unit) RenderSocket() ([]byte, error) { return u.render(socketTemplate) }

func (u Unit) render(t *template.Template) ([]byte, error) {
	for _, s := range []string{u.Executable, u.Home, u.User, u.RunDir, u.Socket} {
		if strings.ContainsAny(s, "\n\r\x00") {
			return nil, fmt.Errorf("unit file: %q has a line break", s)
		}
	}
	if strings.ContainsAny(u.Executable, `"'\`) || strings.ContainsFunc(u.Executable, unicode.IsControl) {
		return nil, fmt.Errorf("unit file: systemd starts no program whose path has quotes, backslashes or control characters: install %q elsewhere", u.Executable)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, u); err != nil {
		return nil, fmt.Errorf("unit file: %w", err)
	}
	return b.Bytes(), nil
}

// unitWord quotes a text as one word of a command line: % begins a specifier, $ a variable, blanks end a word.
func unitWord(s string) string { return quoted(strings.ReplaceAll(s, "$", "$$")) }

// unquotedWord is the text that unitWord wrote.
func unquotedWord(word string) string {
	if n := len(word); n > 1 && word[0] == '"' && word[n-1] == '"' {
		word = word[1 : n-1]
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, "%%", "%", "$$", "$").Replace(word)
}

// quoted is unitWord for the first word, the program, in which $ is nothing special.
func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s)
	if strings.ContainsAny(s, " \t'\"\\;") {
		return `"` + s + `"`
	}
	return s
}
