package text

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// inlines writes the inline children of n.
func (w *writer) inlines(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		w.inline(c)
	}
}

func (w *writer) inline(n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		w.write(w.indentation(n) + unescape(n.Segment.Value(w.source)))
		// A line end in a chat is meant: CommonMark's space would run verses and logs together.
		if n.SoftLineBreak() || n.HardLineBreak() {
			w.lineBreak(1)
		}
	case *ast.String:
		w.write(string(n.Value))
	case *ast.CodeSpan:
		w.styled(Code, "", func() { w.write(w.codeSpan(n)) })
	case *ast.Emphasis:
		style := Italic
		if n.Level == 2 {
			style = Bold
		}
		w.styled(style, "", func() { w.inlines(n) })
	case *extast.Strikethrough:
		w.styled(Strike, "", func() { w.inlines(n) })
	case *ast.Link:
		w.link(n, unescape(n.Destination), unescape(n.Title))
	case *ast.Image:
		w.link(n, unescape(n.Destination), unescape(n.Title))
	case *ast.AutoLink:
		w.write(string(n.Label(w.source)))
	case *extast.TaskCheckBox:
		if n.IsChecked {
			w.write("☑ ")
		} else {
			w.write("☐ ")
		}
	default:
		w.inlines(n)
	}
}

// indentation is the white space before a text that begins a line of a paragraph. CommonMark drops it, but models write
// settings and drawings without a fence. Within lists and quotes it belongs to these.
func (w *writer) indentation(n *ast.Text) string {
	if w.indent != "" || w.inside(Quote) {
		return ""
	}
	marks := n.Segment.Start
	for marks > 0 && bytes.IndexByte([]byte("*_~`["), w.source[marks-1]) >= 0 {
		marks--
	}
	start := marks
	for start > 0 && (w.source[start-1] == ' ' || w.source[start-1] == '\t') {
		start--
	}
	if start == marks || start > 0 && w.source[start-1] != '\n' || marks-start > maxIndentation {
		return ""
	}
	return string(w.source[start:marks])
}

// maxIndentation is more than anybody means.
const maxIndentation = 40

// codeSpan is the text of a code span, whose line ends are spaces.
func (w *writer) codeSpan(n *ast.CodeSpan) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(w.source))
		}
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// link writes a link or an image. An address that a chat would not make a link of is shown after the text, and so
// is a title.
func (w *writer) link(n ast.Node, dest, title string) {
	before := w.written
	if linkable(dest) && !w.inside(Link) {
		w.styled(Link, dest, func() {
			w.inlines(n)
			if w.written == before {
				w.write(dest)
			}
		})
	} else {
		w.inlines(n)
		w.aside(before, dest)
	}
	w.aside(before, title)
}

// aside writes s in brackets after what was written since before, or alone if that is nothing.
func (w *writer) aside(before int, s string) {
	switch {
	case s == "":
	case w.written == before:
		w.write(s)
	default:
		w.write(" (" + s + ")")
	}
}

// linkable reports whether a chat shows dest as a link: anything else it drops without a word, address and all.
func linkable(dest string) bool {
	u, err := url.Parse(dest)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "http", "https":
		return strings.Contains(strings.Trim(u.Hostname(), "."), ".")
	case "tg":
		return u.Host != ""
	}
	return false
}
