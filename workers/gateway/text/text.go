// Package text turns what a model writes (Markdown) into plain text with styled ranges, and cuts that into messages
// that a chat platform takes.
//
// Rules: no text is lost, whatever the input; a range never begins or ends outside its text and two ranges are
// either apart or one within the other; cutting happens after styling, on the text as the platform counts it, so
// that no escaping can make a part too long. A platform without such ranges writes its own marks around them.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Style is how a range of text is shown.
type Style string

// The styles that the model's Markdown can ask for.
const (
	Bold   Style = "bold"
	Italic Style = "italic"
	Strike Style = "strike"
	Code   Style = "code"  // within a line
	Pre    Style = "pre"   // a block; Arg is its language
	Quote  Style = "quote" // a block
	Link   Style = "link"  // Arg is the address
)

// A Span is a styled range of bytes of a text.
type Span struct {
	Start, End int
	Style      Style
	Arg        string
}

// Styled is text with its spans, ordered by start and, at the same start, from the outermost in.
type Styled struct {
	Text  string
	Spans []Span
}

// Plain returns text without any style.
func Plain(s string) Styled { return Styled{Text: strings.ToValidUTF8(s, "\uFFFD")} }

// Inline returns the text for a platform that refused the spans: the address of a link follows its text, and the
// rest of the styling is gone.
func (s Styled) Inline() string {
	var b strings.Builder
	at := 0
	for _, end := range linkEnds(s.Spans) {
		b.WriteString(s.Text[at:end.End])
		b.WriteString(" (" + end.Arg + ")")
		at = end.End
	}
	b.WriteString(s.Text[at:])
	return b.String()
}

// linkEnds returns the links in order of their ends. Links do not nest.
func linkEnds(spans []Span) []Span {
	var links []Span
	for _, sp := range spans {
		if sp.Style == Link {
			links = append(links, sp)
		}
	}
	return links
}

// Units says how many of a platform's units a rune takes.
type Units func(rune) int

// UTF16 counts as Telegram does: two for a rune outside the basic plane.
func UTF16(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}

// Runes counts each rune as one.
func Runes(rune) int { return 1 }

// Bytes counts the bytes of UTF-8.
func Bytes(r rune) int { return utf8.RuneLen(r) }

// Len is the length of s in units.
func (u Units) Len(s string) int {
	n := 0
	for _, r := range s {
		n += u(r)
	}
	return n
}

// Blank reports whether s shows nothing. Platforms refuse such a message as empty.
func Blank(s string) bool {
	for _, r := range s {
		if !blank(r) {
			return false
		}
	}
	return true
}

func blank(r rune) bool {
	switch r {
	case 0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0: // fillers that are drawn as nothing
		return true
	}
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zs, unicode.Variation_Selector)
}

// UTF16Len is the length of s as Telegram counts it.
func UTF16Len(s string) int { return Units(UTF16).Len(s) }
