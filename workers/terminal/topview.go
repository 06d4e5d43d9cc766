package terminal

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// Escape sequences of colours.
const (
	styleBold    = "1"
	styleDim     = "2"
	styleRed     = "31"
	styleGreen   = "32"
	styleYellow  = "33"
	styleReverse = "7"
)

// View draws the whole screen.
func (m *topModel) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "hermes-supervisor"
	return v
}

// draw returns at most height lines of at most width columns.
func (m *topModel) draw() string {
	lines := m.head()
	foot := m.foot()
	rows := m.rows()
	room := max(m.height-len(lines)-1-len(foot), 1)
	first := 0
	if at := m.at(rows); at >= room {
		first = at - room + 1
	}
	columns := m.columns()
	lines = append(lines, m.titles(columns))
	for i, w := range rows[first:min(len(rows), first+room)] {
		lines = append(lines, m.row(columns, w, first+i == m.at(rows)))
	}
	for len(lines)+len(foot) < m.height {
		lines = append(lines, "")
	}
	lines = append(lines, foot...)
	screen := strings.Join(lines[:min(len(lines), m.height)], "\n")
	if m.ascii {
		return inASCII(screen)
	}
	return screen
}

// foot holds what was said last, or else all that is known of the chosen worker, and the keys.
func (m *topModel) foot() []string {
	said, style := m.said, styleYellow
	if m.asking != "" {
		said = "restart " + m.asking + "? Its turns end or go on in another worker. y or n"
	}
	if rows := m.rows(); said == "" && m.at(rows) >= 0 {
		said, style = whole(rows[m.at(rows)]), styleDim
	}
	keys := "↑↓ choose  s sort (" + sortings[m.sort].name + ")  r restart  q quit"
	return []string{m.style(style, m.fit(said)), m.style(styleDim, m.fit(keys))}
}

// whole says of a worker what its columns may have no room for.
func whole(w *controlv1.WorkerStatus) string {
	var parts []string
	if w.NextStartSeconds > 0 {
		parts = append(parts, fmt.Sprintf("starts in %.0fs", math.Ceil(w.NextStartSeconds)))
	}
	if w.Detail != "" {
		parts = append(parts, w.Detail)
	}
	v := w.GetVerdict()
	if v.GetFds() != "" {
		parts = append(parts, "descriptors "+v.GetFds())
	}
	if v.GetRss() != "" {
		parts = append(parts, "memory "+v.GetRss())
	}
	if v.GetBelow() != "" && v.GetBelow() != v.GetFds() {
		parts = append(parts, strings.TrimSuffix("descriptors below it "+v.GetBelow()+", "+v.GetBelowDetail(), ", "))
	}
	if w.SparePid != 0 {
		parts = append(parts, "a spare stands by")
	}
	return w.Name + ": " + strings.Join(parts, "; ")
}

// topVerdict is the one thing to know of a worker, and whether a spare stands by.
func topVerdict(w *controlv1.WorkerStatus) (text string, grows bool) {
	text, grows = oneVerdict(w)
	if w.SparePid != 0 {
		text += ", spare"
	}
	return text, grows
}

// oneVerdict is what grows, else why the worker does not serve, else what is said of both.
func oneVerdict(w *controlv1.WorkerStatus) (text string, grows bool) {
	fds, rss := w.GetVerdict().GetFds(), w.GetVerdict().GetRss()
	for _, v := range []struct{ what, verdict string }{{"fds", fds}, {"mem", rss}, {"fds below", w.GetVerdict().GetBelow()}} {
		if v.verdict == "leak" || v.verdict == "staircase" {
			return v.what + " " + v.verdict, true
		}
	}
	switch {
	case w.NextStartSeconds > 0:
		return fmt.Sprintf("in %.0fs", math.Ceil(w.NextStartSeconds)), false
	case w.State != "ready":
		return w.Detail, false
	case fds == rss:
		return fds, false
	}
	return fds + "/" + rss, false
}

func stateStyle(state string) string {
	switch state {
	case "ready":
		return styleGreen
	case "failed":
		return styleRed
	}
	return styleYellow
}

func (m *topModel) style(code, text string) string {
	if m.plain || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// sparksASCII are the sparks where there is nothing but ASCII.
const sparksASCII = "_.-:=+*#"

// inASCII puts one ASCII character in the place of each other one, so that columns stay where they are.
func inASCII(screen string) string {
	return strings.Map(func(r rune) rune {
		switch i := slices.Index(sparks, r); {
		case r < utf8.RuneSelf:
			return r
		case i >= 0:
			return rune(sparksASCII[i])
		case r == '›':
			return '>'
		case r == '…':
			return '~'
		case r == '↑':
			return '^'
		case r == '↓':
			return 'v'
		}
		return '?'
	}, screen)
}

// fit makes one line of a text that the screen is wide enough for.
func (m *topModel) fit(text string) string { return cut(text, max(m.width, 1)) }

// cut makes one line of a text, at most n characters long, and keeps its blanks.
func cut(text string, n int) string {
	text = strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(text))
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// pad makes a text exactly n columns wide, left the same with the text at the right.
func pad(text string, n int) string {
	text = cut(text, n)
	return text + strings.Repeat(" ", max(n-utf8.RuneCountInString(text), 0))
}

func left(text string, n int) string {
	text = cut(text, n)
	return strings.Repeat(" ", max(n-utf8.RuneCountInString(text), 0)) + text
}

// sizeOf writes a size in at most nine characters.
func sizeOf(n int64) string {
	switch {
	case n <= 0:
		return ""
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 1000<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// upFor writes seconds as people say them.
func upFor(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Truncate(time.Second)
	if days := int(d.Hours()) / 24; days > 0 {
		return fmt.Sprintf("%dd%dh", days, int(d.Hours())%24)
	}
	return d.String()
}

// sparks are eighths of a character's height.
var sparks = []rune("▁▂▃▄▅▆▇█")

// flatRange is the part of its size by which a line must move to be more than flat: noise of some pages is no picture.
const flatRange = 0.02

// sparkline draws values in one line of at most width characters, the newest at the right. The highest is a full block.
func sparkline(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if high-low > high*flatRange {
			i = int((v - low) / (high - low) * float64(len(sparks)-1))
		}
		b.WriteRune(sparks[i])
	}
	return b.String()
}
