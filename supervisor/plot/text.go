package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Smallest sizes at which a text chart says anything.
const (
	minColumns = 20
	minRows    = 4
)

// Glyphs are the characters that a text chart is drawn with.
type Glyphs int

// Sets of characters.
const (
	Braille Glyphs = iota // needs UTF-8 and a font
	ASCII                 // is readable everywhere; a line has three heights a row instead of four
)

// A set is what Glyphs stands for.
type set struct {
	edge, tick, corner, floor, mark, cut string
	cell                                 func(d rune) rune // of a cell with these dots
}

func (g Glyphs) set() set {
	if g == ASCII {
		return set{"|", "+", "+", "-", "^", "...", asciiCell}
	}
	return set{"│", "┤", "└", "─", "▲", "…", func(d rune) rune { return 0x2800 + d }}
}

// asciiCell is the character that looks most like the dots: high, in the middle, low, or upright where they reach over more
// than half of the height.
func asciiCell(d rune) rune {
	high, low := 4, -1
	for row, bits := range dots {
		if d&(bits[0]|bits[1]) != 0 {
			high, low = min(high, row), row
		}
	}
	switch {
	case low-high >= 2:
		return '|'
	case high+low <= 1:
		return '\''
	case high+low <= 4:
		return '-'
	}
	return '_'
}

// text is a text in these characters: what others have written into it may hold any.
func (g Glyphs) text(s string) string {
	if g != ASCII {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, strings.NewReplacer("…", "...", "→", "->").Replace(s))
}

// A canvas has two by four dots a character (those of braille), so that a line of 60 columns shows 120 moments.
type canvas struct {
	columns, rows int
	cells         [][]rune
}

func newCanvas(columns, rows int) *canvas {
	c := &canvas{columns: columns, rows: rows, cells: make([][]rune, rows)}
	for i := range c.cells {
		c.cells[i] = make([]rune, columns)
	}
	return c
}

// dots of a braille character by row and column.
var dots = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// dot sets a dot; y grows downwards.
func (c *canvas) dot(x, y int) {
	if x >= 0 && y >= 0 && x < 2*c.columns && y < 4*c.rows {
		c.cells[y/4][x/2] |= dots[y%4][x%2]
	}
}

func (c *canvas) line(row int, cell func(rune) rune) string {
	var b strings.Builder
	for _, d := range c.cells[row] {
		if d == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(cell(d))
	}
	return b.String()
}

// draw connects the points of a line, column by column.
func (c *canvas) draw(chart Chart, s scale, l Line) {
	wide, high := 2*c.columns-1, 4*c.rows-1
	for _, part := range chart.stretches(l) {
		lastX, lastY := -1, 0
		for _, p := range part {
			x := int(math.Round(chart.x(p.At) * float64(wide)))
			y := int(math.Round((1 - s.y(p.Value)) * float64(high)))
			if lastX < 0 {
				lastX, lastY = x, y
			}
			for ; lastX < x; lastX++ {
				c.dot(lastX, lastY)
			}
			for from, to := min(lastY, y), max(lastY, y); from <= to; from++ {
				c.dot(x, from)
			}
			lastX, lastY = x, y
		}
	}
}

// Text writes a chart of at most width columns, with height rows for the picture.
func Text(w io.Writer, c Chart, width, height int, g Glyphs) error {
	in := g.set()
	height = max(height, minRows)
	s := c.scale(height / 3)
	labels := map[int]string{} // by row
	margin := 0
	for _, v := range s.ticks() {
		row := int(math.Round((1 - s.y(v)) * float64(height-1)))
		labels[row] = c.Unit.text(v)
		margin = max(margin, utf8.RuneCountInString(labels[row]))
	}
	columns := max(width-margin-2, minColumns)
	picture := newCanvas(columns, height)
	for _, l := range c.Lines {
		picture.draw(c, s, l)
	}
	var b strings.Builder
	b.WriteString(g.text(c.Title) + "\n")
	for row := range height {
		edge := in.edge
		if labels[row] != "" {
			edge = in.tick
		}
		fmt.Fprintf(&b, "%*s %s%s\n", margin, labels[row], edge, strings.TrimRight(picture.line(row, in.cell), " "))
	}
	pad := strings.Repeat(" ", margin+1)
	b.WriteString(pad + c.axis(columns, in) + "\n" + pad + " " + c.timeLabels(columns) + "\n")
	c.textMarks(&b, columns, pad, g)
	_, err := io.WriteString(w, b.String())
	return err
}

// axis is the time axis, with the marks on it.
func (c Chart) axis(columns int, in set) string {
	line := []rune(in.corner + strings.Repeat(in.floor, columns))
	for _, m := range c.Marks {
		if c.inside(m.At) {
			line[1+c.column(m, columns)] = []rune(in.mark)[0]
		}
	}
	return string(line)
}

func (c Chart) column(m Mark, columns int) int {
	return int(math.Round(c.x(m.At) * float64(columns-1)))
}

func (c Chart) timeLabels(columns int) string {
	line := []rune(strings.Repeat(" ", columns))
	free := 0
	for _, t := range c.times(columns / 12) {
		label := []rune(c.clock(t))
		at := int(math.Round(c.x(t)*float64(columns-1))) - len(label)/2
		at = min(max(at, 0), columns-len(label))
		if at < free {
			continue
		}
		copy(line[at:], label)
		free = at + len(label) + 1
	}
	return strings.TrimRight(string(line), " ")
}

// textMarks explains the marks, the newest last.
func (c Chart) textMarks(b *strings.Builder, columns int, pad string, g Glyphs) {
	in := g.set()
	const shown = 8
	var list []Mark
	for _, m := range c.Marks {
		if c.inside(m.At) {
			list = append(list, m)
		}
	}
	if hidden := len(list) - shown; hidden > 0 {
		fmt.Fprintf(b, "%s %s %d earlier ones\n", pad, in.mark, hidden)
		list = list[hidden:]
	}
	for _, m := range list {
		text := []rune(m.At.Format("15:04:05") + " " + g.text(m.Label))
		if most := max(columns-3, minColumns); len(text) > most {
			text = append(text[:most-utf8.RuneCountInString(in.cut)], []rune(in.cut)...)
		}
		fmt.Fprintf(b, "%s %s %s\n", pad, in.mark, string(text))
	}
	if c.Limit > 0 {
		fmt.Fprintf(b, "%s limit %s\n", pad, c.Unit.text(c.Limit))
	}
	if len(c.Lines) > 1 {
		names := make([]string, len(c.Lines))
		for i, l := range c.Lines {
			names[i] = g.text(l.Name)
		}
		for _, line := range wrap("lines, as a rule from above: "+strings.Join(names, ", "), max(columns-1, minColumns)) {
			fmt.Fprintf(b, "%s %s\n", pad, line)
		}
	}
}

// wrap breaks a text between words into lines of at most width runes; a longer word has a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
