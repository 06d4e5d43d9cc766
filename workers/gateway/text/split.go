package text

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limit is what one message may hold.
type Limit struct {
	Size  int   // units of text, at least 2
	Units Units // nil: UTF16
	Spans int   // styled ranges, 0: any number
}

// Split cuts s into messages within the limit. It prefers to cut between paragraphs, then between lines, then
// between words; a code block is cut between its lines and goes on as a block of the same language in the next
// message. Only white space at a cut is dropped, and messages that would show nothing. Blank text gives no message.
func (s Styled) Split(l Limit) []Styled {
	if l.Units == nil {
		l.Units = UTF16
	}
	c := cutter{Styled: s, limit: l}
	for _, sp := range s.Spans {
		if sp.Style == Pre {
			c.pre = append(c.pre, sp)
		}
	}
	var parts []Styled
	for at := c.skip(0); at < len(s.Text); {
		end, next := c.cut(at)
		if part := s.slice(at, end); !Blank(part.Text) {
			parts = append(parts, part)
		}
		at = c.skip(next)
	}
	return parts
}

// slice returns a range of s with the spans cut to it and white space trimmed from its end.
func (s Styled) slice(from, to int) Styled {
	t := strings.TrimRightFunc(s.Text[from:to], unicode.IsSpace)
	to = from + len(t)
	out := Styled{Text: t}
	for _, sp := range s.Spans {
		if sp.Start >= to || sp.End <= from {
			continue
		}
		sp.Start, sp.End = max(sp.Start, from)-from, min(sp.End, to)-from
		if sp.Start < sp.End {
			out.Spans = append(out.Spans, sp)
		}
	}
	return out
}

type cutter struct {
	Styled
	limit Limit
	pre   []Span // in order, apart
}

// cut chooses where the piece from at ends and where the next one begins. A cut in the first half of what fits is
// taken only for want of another, so that a text does not fall into many short messages.
func (c *cutter) cut(at int) (end, next int) {
	fits := c.fits(at)
	if fits == len(c.Text) || c.Text[fits] == '\n' {
		return fits, fits
	}
	half, quarter := at+(fits-at)/2, at+(fits-at)/4
	b := c.breaks(at, fits)
	for _, p := range []int{b.paragraph, b.line, b.preLine, b.space} {
		if p > half {
			return p, p
		}
	}
	for _, p := range []int{b.line, b.preLine, b.space} {
		if p > quarter {
			return p, p
		}
	}
	end = c.runeCut(at, fits)
	return end, end
}

// fits returns the end of the longest piece from at that is within the limit. It is more than at, whatever the
// limit: one rune is always taken.
func (c *cutter) fits(at int) int {
	end := len(c.Text)
	if c.limit.Spans > 0 {
		end = c.spansFit(at)
	}
	size := 0
	for i, r := range c.Text[at:end] {
		if size += c.limit.Units(r); size > c.limit.Size && i > 0 {
			return at + i
		}
	}
	return end
}

// spansFit returns where the piece from at must end to hold no more spans than allowed.
func (c *cutter) spansFit(at int) int {
	n := 0
	for _, sp := range c.Spans {
		if sp.End <= at {
			continue
		}
		if n++; n > c.limit.Spans && sp.Start > at {
			return sp.Start
		}
	}
	return len(c.Text)
}

// breaks are the last good places of each kind in a window, 0 for none.
type breaks struct{ paragraph, line, preLine, space int }

func (c *cutter) breaks(at, fits int) breaks {
	var b breaks
	if ch := c.Text[fits]; ch == ' ' || ch == '\t' {
		b.space = fits
	}
	for i := fits - 1; i > at; i-- {
		switch ch := c.Text[i]; {
		case ch == '\n' && c.inPre(i):
			b.preLine = max(b.preLine, i)
		case ch == '\n':
			b.line = max(b.line, i)
			if c.Text[i-1] == '\n' {
				b.paragraph = i
				return b
			}
		case ch == ' ' || ch == '\t':
			b.space = max(b.space, i)
		}
	}
	return b
}

// runeCut returns the last place up to fits that does not part a letter from its marks, or fits where there is
// none near.
func (c *cutter) runeCut(at, fits int) int {
	const near = 64
	for end := fits; end > at && fits-end < near; {
		next, _ := utf8.DecodeRuneInString(c.Text[end:])
		last, size := utf8.DecodeLastRuneInString(c.Text[at:end])
		if !joins(last, next) && !(regional(next) && oddFlag(c.Text[at:end])) {
			return end
		}
		end -= size
	}
	return fits
}

// joins reports whether b is drawn as part of a (marks, emoji sequences).
func joins(a, b rune) bool {
	const zeroWidthJoiner = 0x200D
	skinTone := b >= 0x1F3FB && b <= 0x1F3FF
	return a == zeroWidthJoiner || b == zeroWidthJoiner || skinTone || unicode.In(b, unicode.M)
}

// regional reports whether r is one of the letters of which two make a flag.
func regional(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }

// oddFlag reports whether s ends with half a flag.
func oddFlag(s string) bool {
	n := 0
	for {
		r, size := utf8.DecodeLastRuneInString(s)
		if !regional(r) {
			return n%2 == 1
		}
		n++
		s = s[:len(s)-size]
	}
}

func (c *cutter) inPre(i int) bool {
	n := sort.Search(len(c.pre), func(n int) bool { return c.pre[n].End > i })
	return n < len(c.pre) && c.pre[n].Start <= i
}

// skip passes the white space at a cut. In a code block that is the line end alone: what follows is indentation.
func (c *cutter) skip(at int) int {
	for at < len(c.Text) {
		if c.inPre(at) {
			if at > 0 && c.Text[at] == '\n' && c.inPre(at-1) {
				return at + 1
			}
			return at
		}
		r, size := utf8.DecodeRuneInString(c.Text[at:])
		if !unicode.IsSpace(r) {
			return at
		}
		at += size
	}
	return at
}
