package plot

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Size of the file and of the plane in it, in pixels at 100 %.
const (
	svgWidth, svgHeight = 960, 420
	left, right         = 84, 24
	top, bottom         = 56, 64
	planeWidth          = svgWidth - left - right
	planeHeight         = svgHeight - top - bottom
)

// lineColours can be told apart by people who see no red or green, and on white paper.
var lineColours = []string{"#0b62a4", "#e07b00", "#5b7f00", "#7a3e9d"}

// style needs no file beside the picture.
const style = `text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}.grid{stroke:#ddd}` +
	`.axis{stroke:#666}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}.limit{stroke:#b00020;stroke-dasharray:6 4}` +
	`.mark{stroke:#b00020;stroke-dasharray:2 3}.marktext{fill:#b00020;font-size:11px}`

// SVG writes a chart as a file that needs nothing else.
func SVG(w io.Writer, c Chart) error {
	s := c.scale(5)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", svgWidth, svgHeight, svgWidth, svgHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", escape(c.Title), style)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="26">%s</text>`+"\n", left, escape(c.Title))
	c.svgAxes(&b, s)
	c.svgMarks(&b)
	for i, l := range c.Lines {
		c.svgLine(&b, s, l, lineColours[i%len(lineColours)])
	}
	c.svgLegend(&b)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Chart) svgX(x float64) float64 { return round(left + x*planeWidth) }

func (c Chart) svgY(s scale, v float64) float64 { return round(top + (1-s.y(v))*planeHeight) }

func round(v float64) float64 { return math.Round(v*10) / 10 }

func (c Chart) svgAxes(b *strings.Builder, s scale) {
	for _, v := range s.ticks() {
		y := c.svgY(s, v)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%g" y2="%g"/><text x="%d" y="%g" text-anchor="end">%s</text>`+"\n",
			left, svgWidth-right, y, y, left-8, y+4, c.Unit.text(v))
	}
	base := svgHeight - bottom
	for _, t := range c.times(8) {
		x := c.svgX(c.x(t))
		fmt.Fprintf(b, `<line class="axis" x1="%g" x2="%g" y1="%d" y2="%d"/><text x="%g" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, x, base, base+5, x, base+20, c.clock(t))
	}
	fmt.Fprintf(b, `<path class="axis" fill="none" d="M%d %dV%dH%d"/>`+"\n", left, top, base, svgWidth-right)
	what := "descriptors"
	if c.Unit == Bytes {
		what = "memory"
	}
	fmt.Fprintf(b, `<text x="16" y="%d" transform="rotate(-90 16 %d)" text-anchor="middle">%s</text>`+"\n", top+planeHeight/2, top+planeHeight/2, what)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">time (%s), %s</text>`+"\n", svgWidth-right, base+38, c.To.Format("MST"), c.To.Format("2006-01-02"))
	if c.Limit > 0 && c.Limit <= s.high {
		y := c.svgY(s, c.Limit)
		fmt.Fprintf(b, `<line class="limit" x1="%d" x2="%d" y1="%g" y2="%g"/><text class="marktext" x="%d" y="%g">limit %s</text>`+"\n",
			left, svgWidth-right, y, y, left+4, y-4, c.Unit.text(c.Limit))
	}
}

// svgMarks draws a line at each mark, with the whole text where the pointer rests on it and a number above.
func (c Chart) svgMarks(b *strings.Builder) {
	n := 0
	for _, m := range c.Marks {
		if !c.inside(m.At) {
			continue
		}
		n++
		x := c.svgX(c.x(m.At))
		fmt.Fprintf(b, `<g><title>%s %s</title><line class="mark" x1="%g" x2="%g" y1="%d" y2="%d"/><text class="marktext" x="%g" y="%d" text-anchor="middle">restart %d</text></g>`+"\n",
			m.At.Format("15:04:05"), escape(m.Label), x, x, top, svgHeight-bottom, x, top-6, n)
	}
}

func (c Chart) svgLine(b *strings.Builder, s scale, l Line, colour string) {
	for _, part := range c.stretches(l) {
		var path strings.Builder
		for i, p := range thin(c, part) {
			verb := "L"
			if i == 0 {
				verb = "M"
			}
			fmt.Fprintf(&path, "%s%g %g", verb, c.svgX(c.x(p.At)), c.svgY(s, p.Value))
		}
		fmt.Fprintf(b, `<path class="line" stroke="%s" d="%s"/>`+"\n", colour, path.String())
	}
}

// thin keeps the first, lowest, highest and last point of each pixel column, in their order.
func thin(c Chart, points []Point) []Point {
	var out []Point
	for i := 0; i < len(points); {
		column := int(c.x(points[i].At) * planeWidth)
		end, low, high := i, i, i
		for end < len(points) && int(c.x(points[end].At)*planeWidth) == column {
			if points[end].Value < points[low].Value {
				low = end
			}
			if points[end].Value > points[high].Value {
				high = end
			}
			end++
		}
		last := -1
		for _, k := range []int{i, min(low, high), max(low, high), end - 1} {
			if k > last {
				out = append(out, points[k])
				last = k
			}
		}
		i = end
	}
	return out
}

func (c Chart) svgLegend(b *strings.Builder) {
	x := left
	for i, l := range c.Lines {
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="14" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			x, svgHeight-22, lineColours[i%len(lineColours)], x+20, svgHeight-16, escape(l.Name))
		x += 40 + 8*len(l.Name)
	}
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
