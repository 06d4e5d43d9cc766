package terminal

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// Widths of the columns that do not grow. With their gaps they leave 20 of 80 columns to memory's past and verdicts.
const (
	nameWidth  = 12
	stateWidth = 8
	fdsWidth   = 9
	sizeWidth  = 9
	cpuWidth   = 5
	countWidth = 4
	fixedWidth = 2 + nameWidth + stateWidth + fdsWidth + sizeWidth + cpuWidth + 2*countWidth + 7
	// maxSpark is four minutes; more says little in one line.
	maxSpark = 60
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
	lines = append(lines, m.style(styleBold, m.columns()))
	for i, w := range rows[first:min(len(rows), first+room)] {
		lines = append(lines, m.row(w, first+i == m.at(rows)))
	}
	for len(lines)+len(foot) < m.height {
		lines = append(lines, "")
	}
	lines = append(lines, foot...)
	return strings.Join(lines[:min(len(lines), m.height)], "\n")
}

// head says how the supervisor is.
func (m *topModel) head() []string {
	s := m.status.GetSupervisor()
	if m.status == nil {
		text := "asking the supervisor …"
		if m.lost != nil {
			text = m.lostText()
		}
		return []string{m.fit(text)}
	}
	lines := []string{
		m.fit(fmt.Sprintf("hermes-supervisor %s is %s, pid %d, up %s", s.GetVersion(), s.GetState(), s.GetPid(), upFor(s.GetUptimeSeconds()))),
		m.fit(fmt.Sprintf("%s, %d of %d descriptors; turns: %d queued, %d running, %d parked; outbox: %d pending",
			sizeOf(s.GetRssBytes()), s.GetFds(), s.GetFdLimit(), m.status.GetTurns().GetQueued(), m.status.GetTurns().GetRunning(),
			m.status.GetTurns().GetParked(), m.status.GetOutbox().GetPending())),
	}
	if m.lost != nil {
		return append(lines, m.style(styleRed, m.fit(m.lostText()+"; what is shown is old")))
	}
	if list := m.status.GetWarnings(); len(list) > 0 {
		return append(lines, m.style(styleYellow, m.fit("warning: "+list[0])))
	}
	return append(lines, m.fit(together(m.status.GetMemory())))
}

// lostText says why there is no answer, and since when.
func (m *topModel) lostText() string {
	text := lost(m.lost, m.gone, m.clock().Sub(m.answered))
	if m.gone {
		text += ", waiting for it"
	}
	return text
}

// together says what all workers hold.
func together(t *controlv1.WorkersMemory) string {
	if t.GetProcesses() == 0 {
		return ""
	}
	text := fmt.Sprintf("workers: %s in %d processes", sizeOf(t.GetRssBytes()), t.GetProcesses())
	if t.GetSpares() > 0 {
		text += fmt.Sprintf(", %s of it in spares (%d)", sizeOf(t.GetSpareRssBytes()), t.GetSpares())
	}
	return text
}

// foot holds what was said last and the keys.
func (m *topModel) foot() []string {
	said := m.said
	if m.asking != "" {
		said = "restart " + m.asking + "? Its turns end or go on in another worker. y or n"
	}
	keys := "↑↓ choose  s sort (" + sortings[m.sort].name + ")  r restart  q quit"
	return []string{m.style(styleYellow, m.fit(said)), m.style(styleDim, m.fit(keys))}
}

func (m *topModel) columns() string {
	spark, verdict := m.split()
	return m.fit("  " + strings.Join([]string{
		pad("WORKER", nameWidth), pad("STATE", stateWidth), left("FDS", fdsWidth), left("MEMORY", sizeWidth), pad("PAST", spark),
		left("CPU%", cpuWidth), left("BUSY", countWidth), left("RST", countWidth), pad("VERDICT", verdict),
	}, " "))
}

// split shares what the fixed columns leave.
func (m *topModel) split() (spark, verdict int) {
	rest := max(m.width-fixedWidth-1, 14)
	spark = min(rest/2, maxSpark)
	return spark, rest - spark
}

func (m *topModel) row(w *controlv1.WorkerStatus, chosen bool) string {
	spark, verdict := m.split()
	fds, memory, cpu := "", "", ""
	if w.Pid != 0 {
		fds, memory, cpu = fmt.Sprintf("%d/%d", w.Fds, w.FdLimit), sizeOf(w.RssBytes), fmt.Sprintf("%.1f", w.CpuPercent)
	}
	mark, state := "  ", m.style(stateStyle(w.State), pad(w.State, stateWidth))
	text, grows := topVerdict(w)
	said := pad(text, verdict)
	if grows {
		said = m.style(styleRed, said)
	}
	if chosen {
		mark, state, said = "› ", pad(w.State, stateWidth), pad(text, verdict)
	}
	line := mark + strings.Join([]string{
		pad(w.Name, nameWidth), state, left(fds, fdsWidth), left(memory, sizeWidth), pad(sparkline(m.past[w.Name], spark), spark),
		left(cpu, cpuWidth), left(fmt.Sprint(w.InFlight), countWidth), left(fmt.Sprint(w.Restarts), countWidth), said,
	}, " ")
	if m.width <= fixedWidth+15 {
		line = m.fit(mark + pad(w.Name, nameWidth) + " " + pad(w.State, stateWidth) + " " + left(fds, fdsWidth) + " " + left(memory, sizeWidth))
	}
	if chosen {
		return m.style(styleReverse, line)
	}
	return line
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
	if m.plain || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
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
