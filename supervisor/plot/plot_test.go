package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// sawtooth is a collector's: it grows for a minute and gives back, over a slow rise, with a restart and a pause.
func sawtooth() Chart {
	var resident, own Line
	resident.Name, own.Name = "resident", "its own <anonymous>"
	for s := 0; s <= 3600; s += 10 {
		if s > 2400 && s < 2700 {
			continue // nothing was read
		}
		at, v := noon.Add(time.Duration(s)*time.Second), 18+float64(s%60)/20+float64(s)/600
		if s > 2700 {
			v -= 4
		}
		resident.Points = append(resident.Points, Point{at, v * (1 << 20)})
		own.Points = append(own.Points, Point{at, (v - 12) * (1 << 20)})
	}
	return Chart{
		Title: "Memory of tools & friends", Unit: Bytes, Lines: []Line{resident, own}, Limit: 32 << 20,
		Marks: []Mark{{noon.Add(2700 * time.Second), "SIGKILL from outside the supervisor <it>"}, {noon.Add(2 * time.Hour), "after the end"}},
		From:  noon, To: noon.Add(time.Hour),
	}
}

// leak is a short one of descriptors.
func leak() Chart {
	l := Line{Name: "descriptors"}
	for s := range 120 {
		l.Points = append(l.Points, Point{noon.Add(time.Duration(s) * time.Second), float64(81 + s/5)})
	}
	return Chart{Title: "Open descriptors of agent-1", Lines: []Line{l}, Limit: 4096, From: noon, To: noon.Add(119 * time.Second)}
}

func golden(t *testing.T, name string, draw func(io.Writer) error) {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestPictures(t *testing.T) {
	golden(t, "sawtooth.txt", func(w io.Writer) error { return Text(w, sawtooth(), 80, 16, Braille) })
	golden(t, "sawtooth.svg", func(w io.Writer) error { return SVG(w, sawtooth()) })
	golden(t, "leak.txt", func(w io.Writer) error { return Text(w, leak(), 60, 10, Braille) })
	golden(t, "sawtooth.ascii.txt", func(w io.Writer) error { return Text(w, sawtooth(), 80, 16, ASCII) })
	golden(t, "leak.ascii.txt", func(w io.Writer) error { return Text(w, leak(), 60, 10, ASCII) })
	golden(t, "leak.svg", func(w io.Writer) error { return SVG(w, leak()) })
}

func TestAnSVGIsXMLAndNeedsNothingElse(t *testing.T) {
	for _, c := range []Chart{sawtooth(), leak(), {Title: "nothing", From: noon, To: noon}} {
		var b bytes.Buffer
		if err := SVG(&b, c); err != nil {
			t.Fatal(err)
		}
		if text := strings.ReplaceAll(b.String(), "http://www.w3.org/2000/svg", ""); strings.Contains(text, "http") || strings.Contains(text, "NaN") {
			t.Errorf("%s refers to something or has no number: %s", c.Title, text)
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", c.Title, err)
			}
		}
	}
}

func TestATextPictureIsNeverWiderThanTheTerminal(t *testing.T) {
	for _, width := range []int{40, 79, 80, 200} {
		for _, g := range []Glyphs{Braille, ASCII} {
			var b bytes.Buffer
			if err := Text(&b, sawtooth(), width, 10, g); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("width %d: a line of %d: %q", width, n, line)
				}
			}
		}
	}
}

func TestAPictureInASCIIHoldsNothingElse(t *testing.T) {
	c := sawtooth()
	c.Title = "Memory of tööls"
	c.Lines[0].Name = "résident"
	for i := range 20 {
		c.Marks = append(c.Marks, Mark{noon.Add(time.Duration(i) * time.Minute), "it took too long … → 💥 " + strings.Repeat("very long ", 20)})
	}
	var b bytes.Buffer
	if err := Text(&b, c, 80, 12, ASCII); err != nil {
		t.Fatal(err)
	}
	for i, r := range b.String() {
		if r >= utf8.RuneSelf {
			t.Fatalf("%q at %d of\n%s", r, i, b.String())
		}
	}
}

// A peak of one second must be seen in the picture of a day.
func TestAShortPeakIsNotDrawnAway(t *testing.T) {
	l := Line{Name: "x"}
	for s := range 86400 {
		v := 10.0
		if s == 50000 {
			v = 1000
		}
		l.Points = append(l.Points, Point{noon.Add(time.Duration(s) * time.Second), v})
	}
	kept := thin(Chart{From: noon, To: noon.Add(24 * time.Hour)}, l.Points)
	highest := 0.0
	for i, p := range kept {
		highest = max(highest, p.Value)
		if i > 0 && p.At.Before(kept[i-1].At) {
			t.Fatal("points are out of order")
		}
	}
	if highest != 1000 || len(kept) > 4*planeWidth+8 {
		t.Errorf("highest %v of %d points", highest, len(kept))
	}
}

func TestScalesAreRoundAndHoldAllValues(t *testing.T) {
	for _, c := range []struct {
		unit      Unit
		low, high float64
	}{{Count, 0, 7}, {Count, 81, 105}, {Count, 4000, 4001}, {Bytes, 20 << 20, 21 << 20}, {Bytes, 0, 900}, {Bytes, 1 << 30, 7 << 30}, {Count, 0, 0}} {
		s := Chart{Unit: c.unit, From: noon, To: noon, Lines: []Line{{Points: []Point{{noon, c.low}, {noon, c.high}}}}}.scale(5)
		ticks := s.ticks()
		if s.low > c.low || s.high < c.high || len(ticks) < 2 || len(ticks) > 12 || math.IsNaN(s.step) {
			t.Errorf("%+v: scale %+v, ticks %v", c, s, ticks)
		}
	}
}
