package text

import (
	"bufio"
	"bytes"
	"html"
	"strings"

	gmhtml "github.com/yuin/goldmark/renderer/html"
)

// A writer collects text and the spans over it.
type writer struct {
	source  []byte
	b       strings.Builder
	spans   []Span // in order of opening; an End before its Start marks one that is still empty
	open    []int  // indices of the spans that are open, outermost first
	indent  string // of lines within a list item
	due     int    // line ends before the next text
	written int    // counts writes, to see whether something was written
}

// write adds s after the line ends that are due.
func (w *writer) write(s string) {
	if s == "" {
		return
	}
	if w.due > 0 && w.b.Len() > 0 {
		w.b.WriteString(strings.Repeat("\n", w.due))
		w.b.WriteString(w.indent)
	}
	w.due = 0
	for _, i := range w.open {
		if w.spans[i].Start < 0 {
			w.spans[i].Start = w.b.Len()
		}
	}
	w.b.WriteString(s)
	w.written++
}

// lineBreak asks for at least n line ends before the next text.
func (w *writer) lineBreak(n int) { w.due = max(w.due, n) }

// indented runs f with its further lines indented.
func (w *writer) indented(by string, f func()) {
	before := w.indent
	w.indent += by
	f()
	w.indent = before
}

func (w *writer) inside(s Style) bool {
	for _, i := range w.open {
		if w.spans[i].Style == s {
			return true
		}
	}
	return false
}

// styled runs f with what it writes as one span. A style within itself is nothing new, and within a link code is
// shown as text, as platforms allow only one of the two.
func (w *writer) styled(s Style, arg string, f func()) {
	if w.inside(s) || s == Code && w.inside(Link) {
		f()
		return
	}
	if s == Code || s == Pre {
		defer w.suspend()()
	}
	w.push(Span{Style: s, Arg: arg, Start: -1})
	f()
	w.pop()
}

func (w *writer) push(sp Span) {
	w.spans = append(w.spans, sp)
	w.open = append(w.open, len(w.spans)-1)
}

func (w *writer) pop() {
	last := len(w.open) - 1
	w.spans[w.open[last]].End = w.b.Len()
	w.open = w.open[:last]
}

// suspend ends all open spans but quotes, as code stands in no other style, and returns what opens them again.
func (w *writer) suspend() (resume func()) {
	var again []Span
	for n := len(w.open); n > 0 && w.spans[w.open[n-1]].Style != Quote; n = len(w.open) {
		sp := w.spans[w.open[n-1]]
		w.pop()
		again = append(again, Span{Style: sp.Style, Arg: sp.Arg, Start: -1})
	}
	return func() {
		for i := len(again) - 1; i >= 0; i-- {
			w.push(again[i])
		}
	}
}

// pre writes a code block on lines of its own, without indentation so that it can be copied.
func (w *writer) pre(language, code string) {
	code = strings.TrimRight(code, "\n")
	if strings.TrimSpace(code) == "" {
		return
	}
	if w.b.Len() > 0 {
		w.lineBreak(1)
	}
	w.indentNothing(func() {
		w.styled(Pre, language, func() { w.write(code) })
	})
}

func (w *writer) indentNothing(f func()) {
	before := w.indent
	w.indent = ""
	f()
	w.indent = before
}

// finish returns what was written.
func (w *writer) finish() Styled {
	s := Styled{Text: w.b.String()}
	for _, sp := range w.spans {
		if sp.Start >= 0 && sp.Start < sp.End {
			s.Spans = append(s.Spans, sp)
		}
	}
	return s
}

// unescape resolves backslash escapes and character references, as goldmark leaves that to its renderers. Its own
// HTML writer does it in the right order; the escaping that it adds is taken off again.
func unescape(s []byte) string {
	if !bytes.ContainsAny(s, "\\&\x00") {
		return string(s)
	}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	gmhtml.DefaultWriter.Write(w, s)
	_ = w.Flush() // into memory, cannot fail
	return html.UnescapeString(b.String())
}
