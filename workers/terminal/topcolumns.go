package terminal

import (
	"fmt"
	"strings"
	"unicode/utf8"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// Widths of the columns that do not grow.
const (
	nameWidth  = 12
	stateWidth = 8
	fdsWidth   = 9
	fewWidth   = 5 // of descriptors without their limit
	sizeWidth  = 9
	cpuWidth   = 5
	countWidth = 4
	// maxSpark is a minute; more says little in one line.
	maxSpark = 60

	// wideFixed is what a wide row needs for all but memory's past and the verdict, which share 19 of 80 columns; middleFixed is
	// that of a middle one, without the past, the limit and the processor.
	wideFixed   = 2 + nameWidth + stateWidth + fdsWidth + sizeWidth + cpuWidth + 2*countWidth + 8
	middleFixed = 2 + nameWidth + stateWidth + fewWidth + sizeWidth + 2*countWidth + 6
	// leastShared and leastVerdict are the least with which the columns that share the rest say something.
	leastShared  = 15
	leastVerdict = 8
)

// A column of the table of workers.
type column struct {
	title string
	width int
	right bool
	text  func(*controlv1.WorkerStatus) string
	style func(*controlv1.WorkerStatus) string // nil: none
}

// columns are those for which the screen is wide enough.
func (m *topModel) columns() []column {
	name := column{title: "WORKER", width: nameWidth, text: (*controlv1.WorkerStatus).GetName}
	state := column{title: "STATE", width: stateWidth, text: (*controlv1.WorkerStatus).GetState,
		style: func(w *controlv1.WorkerStatus) string { return stateStyle(w.State) }}
	fds := column{title: "FDS", width: fdsWidth, right: true, text: running(func(w *controlv1.WorkerStatus) string { return fmt.Sprintf("%d/%d", w.Fds, w.FdLimit) })}
	few := column{title: "FDS", width: fewWidth, right: true, text: running(func(w *controlv1.WorkerStatus) string { return fmt.Sprint(w.Fds) })}
	memory := column{title: "MEMORY", width: sizeWidth, right: true, text: running(func(w *controlv1.WorkerStatus) string { return sizeOf(w.RssBytes) })}
	cpu := column{title: "CPU%", width: cpuWidth, right: true, text: running(func(w *controlv1.WorkerStatus) string { return fmt.Sprintf("%.1f", w.CpuPercent) })}
	busy := column{title: "BUSY", width: countWidth, right: true, text: func(w *controlv1.WorkerStatus) string { return fmt.Sprint(w.InFlight) }}
	restarts := column{title: "RST", width: countWidth, right: true, text: func(w *controlv1.WorkerStatus) string { return fmt.Sprint(w.Restarts) }}
	verdict := column{title: "VERDICT", text: func(w *controlv1.WorkerStatus) string { text, _ := topVerdict(w); return text },
		style: func(w *controlv1.WorkerStatus) string {
			if _, grows := topVerdict(w); grows {
				return styleRed
			}
			return ""
		}}
	switch rest := m.width - wideFixed; {
	case rest >= leastShared:
		past := column{title: "PAST", width: min(rest/2, maxSpark)}
		past.text = func(w *controlv1.WorkerStatus) string { return sparkline(m.past[w.Name], past.width) }
		verdict.width = rest - past.width
		return []column{name, state, fds, memory, past, cpu, busy, restarts, verdict}
	case m.width >= middleFixed+leastVerdict:
		verdict.width = m.width - middleFixed
		return []column{name, state, few, memory, busy, restarts, verdict}
	}
	return []column{name, state, few, memory}
}

// running is empty for a worker without a process.
func running(text func(*controlv1.WorkerStatus) string) func(*controlv1.WorkerStatus) string {
	return func(w *controlv1.WorkerStatus) string {
		if w.Pid == 0 {
			return ""
		}
		return text(w)
	}
}

// cell is a text in the width of the column.
func (c column) cell(text string) string {
	if c.right {
		return left(text, c.width)
	}
	return pad(text, c.width)
}

// titles is the row above all workers.
func (m *topModel) titles(columns []column) string {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.cell(c.title)
	}
	return m.style(styleBold, m.fit("  "+strings.Join(cells, " ")))
}

// row is a worker in one line. A screen that is too narrow even for the least columns has no colours: they cannot be cut.
func (m *topModel) row(columns []column, w *controlv1.WorkerStatus, chosen bool) string {
	plain, coloured := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		plain[i] = c.cell(c.text(w))
		coloured[i] = plain[i]
		if c.style != nil {
			coloured[i] = m.style(c.style(w), plain[i])
		}
	}
	line := "  " + strings.Join(plain, " ")
	switch {
	case chosen:
		return m.style(styleReverse, m.fit("› "+strings.Join(plain, " ")))
	case utf8.RuneCountInString(line) > m.width:
		return m.fit(line)
	}
	return "  " + strings.Join(coloured, " ")
}
