package config

import (
	"os"
	"path/filepath"
	"strings"
)

// parseEnv reads NAME=value lines: comments, "export", single quotes (as they are), double quotes (with \n, \t,
// \", \\ and \$), values over several lines in quotes. A line that is none of these is a warning with its number,
// never with its text, which may be half a secret.
func parseEnv(text string, r *reader) map[string]string {
	values := map[string]string{}
	p := &envParser{text: strings.ReplaceAll(text, "\r\n", "\n"), line: 1}
	for p.pos < len(p.text) {
		line := p.line
		name, value, problem := p.next()
		switch {
		case problem != "":
			r.warnings = append(r.warnings, Problem{File: EnvFileName, Line: line, Text: problem})
		case name != "":
			values[name] = value
			if strings.Contains(value, "${") {
				r.warnings = append(r.warnings, Problem{File: EnvFileName, Line: line, Key: name, Text: "holds ${…}, which is not replaced here"})
			}
		}
	}
	return values
}

type envParser struct {
	text string
	pos  int
	line int
}

// takeLine returns the rest of the current line and moves to the next one.
func (p *envParser) takeLine() string {
	rest := p.text[p.pos:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		p.pos += i + 1
		p.line++
		return rest[:i]
	}
	p.pos = len(p.text)
	return rest
}

func (p *envParser) next() (name, value, problem string) {
	start := p.pos
	line := p.takeLine()
	trimmed := strings.TrimSpace(line)
	if trimmed == "" || trimmed[0] == '#' {
		return "", "", ""
	}
	left, right, found := strings.Cut(line, "=")
	if !found {
		return "", "", "is not NAME=value"
	}
	name = strings.TrimSpace(left)
	if rest, ok := strings.CutPrefix(name, "export"); ok && rest != strings.TrimLeft(rest, " \t") {
		name = strings.TrimSpace(rest)
	}
	if !validName(name) {
		return "", "", "has no name of letters, digits and _ before the ="
	}
	value = strings.TrimLeft(right, " \t")
	if value != "" && (value[0] == '\'' || value[0] == '"') {
		p.pos = start + len(line) - len(value)
		p.line -= lineBreak(p.text, start+len(line))
		value, problem = p.quoted()
		return name, value, problem
	}
	if i := commentAt(value); i >= 0 {
		value = value[:i]
	}
	return name, strings.TrimSpace(value), ""
}

func lineBreak(text string, at int) int {
	if at < len(text) {
		return 1
	}
	return 0
}

// quoted reads a quoted value that begins at pos, and what follows it on its last line.
func (p *envParser) quoted() (value, problem string) {
	start, line := p.pos, p.line
	quote := p.text[p.pos]
	var b strings.Builder
	for i := p.pos + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == quote:
			p.line += strings.Count(p.text[start:i], "\n")
			p.pos = i + 1
			if rest := strings.TrimSpace(p.takeLine()); rest != "" && rest[0] != '#' {
				return "", "has text after the closing quote"
			}
			return b.String(), ""
		case c == '\\' && quote == '"' && i+1 < len(p.text):
			i++
			b.WriteString(unescape(p.text[i]))
		default:
			b.WriteByte(c)
		}
	}
	p.pos, p.line = start, line
	p.takeLine() // the quote may be a slip; what follows is read as usual
	return "", "has no closing quote"
}

func unescape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case '"', '\\', '$', '\'':
		return string(c)
	}
	return `\` + string(c)
}

// commentAt finds a # that begins a comment: the first character, or after a blank.
func commentAt(s string) int {
	for i := range len(s) {
		if s[i] == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t') {
			return i
		}
	}
	return -1
}

func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '.' && c != '-') {
			return false
		}
	}
	return s != ""
}

// checkEnvMode warns when others can read the secrets.
func checkEnvMode(home string, r *reader) {
	info, err := os.Stat(filepath.Join(home, EnvFileName))
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		r.warnings = append(r.warnings, Problem{File: EnvFileName, Text: "can be read by other users of this machine; run: chmod 600 " + filepath.Join(home, EnvFileName)})
	}
}
