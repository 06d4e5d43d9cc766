package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// Removed stands where a secret was.
const Removed = "[redacted]"

// shortest is the length of a value that is searched for: a shorter one is no secret, and "1" or "true" are in every text.
const shortest = 8

// patterns are what secrets of usual services look like. What is in a group stays: it says what was there.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
	regexp.MustCompile(`\b(sk-(?:ant-|proj-|or-v1-)?)[A-Za-z0-9_-]{16,}`),
	regexp.MustCompile(`\b(gh[pousr]_|github_pat_|glpat-|hf_|xox[abeprs]-|xapp-|npm_|pypi-|AIza|ya29\.)[A-Za-z0-9_.-]{16,}`),
	regexp.MustCompile(`\b((?:AKIA|ASIA)[A-Z0-9]{4})[A-Z0-9]{12}\b`),
	regexp.MustCompile(`\b(\d{6,12}:)[A-Za-z0-9_-]{30,}`), // a bot of Telegram
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9+/_.=-]{16,}`),
	regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@"']*:)[^\s/@"']+@`),
	regexp.MustCompile(`(?i)(\b[a-z0-9_]*(?:api[_-]?key|secret|token|password|passwd)["']?\s*[:=]\s*["']?)[^\s"',;]{8,}`),
}

// A Redactor takes secrets out of texts: the values that it knows, and what looks like one.
type Redactor struct {
	known *strings.Replacer
}

// NewRedactor knows these values, also as they are written inside a document or an address. One that is part of another does
// not leave the rest of it behind.
func NewRedactor(values []string) *Redactor {
	var all []string
	for _, v := range values {
		if len(v) >= shortest {
			all = append(all, config.Spellings(v)...)
		}
	}
	slices.Sort(all)
	values = slices.Compact(all)
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, Removed)
	}
	return &Redactor{strings.NewReplacer(pairs...)}
}

// Text returns a text without the secrets in it.
func (r *Redactor) Text(text string) string {
	text = r.known.Replace(text)
	for _, p := range patterns {
		text = p.ReplaceAllStringFunc(text, func(found string) string {
			groups := p.FindStringSubmatch(found)
			switch {
			case strings.Contains(found, Removed):
				return found
			case len(groups) == 1:
				return Removed
			case len(groups) == 3:
				return groups[1] + Removed + groups[2]
			case strings.HasSuffix(found, "@"):
				return groups[1] + Removed + "@"
			}
			return groups[1] + Removed
		})
	}
	return text
}

// JSON returns a document without the secrets in its strings; all else of it, order and numbers, stays as it is. A string
// that is a document itself, as the arguments of tool calls are, is read as text: what looks like a secret is in it all the same.
func (r *Redactor) JSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out bytes.Buffer
	w := &rewriter{out: &out}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(w.stack) == 0 && out.Len() > 0 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("redact: %w", err)
		}
		if s, ok := token.(string); ok {
			token = r.Text(s)
		}
		if err := w.put(token); err != nil {
			return nil, fmt.Errorf("redact: %w", err)
		}
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// A rewriter writes the tokens of a document with what belongs between them.
type rewriter struct {
	out   *bytes.Buffer
	stack []place
}

// place is an object or list that is being written.
type place struct {
	object bool
	n      int // strings and values so far
}

func (w *rewriter) put(token json.Token) error {
	if d, ok := token.(json.Delim); ok && (d == '}' || d == ']') {
		w.stack = w.stack[:len(w.stack)-1]
		w.out.WriteByte(byte(d))
		return nil
	}
	if n := len(w.stack); n > 0 {
		p := &w.stack[n-1]
		switch {
		case p.object && p.n%2 == 1:
			w.out.WriteByte(':')
		case p.n > 0:
			w.out.WriteByte(',')
		}
		p.n++
	}
	if d, ok := token.(json.Delim); ok {
		w.stack = append(w.stack, place{object: d == '{'})
		w.out.WriteByte(byte(d))
		return nil
	}
	e := json.NewEncoder(w.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(token); err != nil {
		return err
	}
	w.out.Truncate(w.out.Len() - 1) // Encode ends with a new line
	return nil
}
