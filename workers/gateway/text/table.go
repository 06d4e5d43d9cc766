package text

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// maxTableWidth is the widest table that is drawn with columns, in letters: a phone shows about 40 in a code block
// before it wraps, a desktop about 80.
const maxTableWidth = 60

// table writes a table as a code block with columns, or, if that would wrap, one line a row.
func (w *writer) table(n *extast.Table) {
	var rows [][]string
	for r := n.FirstChild(); r != nil; r = r.NextSibling() {
		rows = append(rows, w.cells(r))
	}
	widths := columnWidths(rows)
	total := 0
	for _, n := range widths {
		total += n + 3
	}
	if total <= maxTableWidth {
		w.pre("", drawn(rows, widths))
		return
	}
	for i, row := range rows {
		if i > 0 {
			w.lineBreak(1)
		}
		line := func() { w.write(strings.Join(row, " | ")) }
		if i == 0 {
			w.styled(Bold, "", line)
		} else {
			line()
		}
	}
}

// cells returns the texts of a row. The parser drops cells past the last column; their text is kept as one more.
func (w *writer) cells(row ast.Node) []string {
	var cells []string
	end := -1
	for c := row.FirstChild(); c != nil; c = c.NextSibling() {
		inner := &writer{source: w.source}
		inner.inlines(c)
		cells = append(cells, strings.ReplaceAll(strings.TrimSpace(inner.finish().Inline()), "\n", " "))
		if lines := c.Lines(); lines.Len() > 0 {
			end = lines.At(lines.Len() - 1).Stop
		}
	}
	if end < 0 {
		return cells
	}
	rest, _, _ := bytes.Cut(w.source[end:], []byte("\n"))
	if extra := strings.Trim(string(rest), " \t|"); extra != "" {
		cells = append(cells, extra)
	}
	return cells
}

func columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	return widths
}

// drawn lays rows out in columns, with a rule below the first row.
func drawn(rows [][]string, widths []int) string {
	var b strings.Builder
	for i, row := range rows {
		for j, cell := range row {
			if j > 0 {
				b.WriteString(" │ ")
			}
			b.WriteString(cell)
			if j < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[j]-width(cell)))
			}
		}
		b.WriteByte('\n')
		if i == 0 {
			for j, n := range widths {
				if j > 0 {
					b.WriteString("─┼─")
				}
				b.WriteString(strings.Repeat("─", n))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// width is about the number of columns that s takes in a fixed-width font.
func width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.M, unicode.Cf):
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul), r >= 0x1F300 && r <= 0x1FAFF:
			n += 2
		default:
			n++
		}
	}
	return n
}
