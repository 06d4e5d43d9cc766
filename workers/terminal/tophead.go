package terminal

import (
	"fmt"
	"strings"
	"unicode/utf8"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// tall is the height from which there is room for more than the most important lines.
const tall = 20

// head says how the supervisor is, what is wrong, and what is owed. On a screen that is not tall it ends there.
func (m *topModel) head() []string {
	if m.status == nil {
		text := "asking the supervisor …"
		if m.lost != nil {
			text = m.lostText()
		}
		return []string{m.fit(text)}
	}
	s, turns, outbox := m.status.GetSupervisor(), m.status.GetTurns(), m.status.GetOutbox()
	lines := m.parts(", ", fmt.Sprintf("hermes-supervisor %s is %s", s.GetVersion(), s.GetState()),
		fmt.Sprintf("pid %d, up %s", s.GetPid(), upFor(s.GetUptimeSeconds())))
	lines = append(lines, m.problems()...)
	lines = append(lines, m.parts("; ",
		fmt.Sprintf("turns: %d queued, %d running, %d parked", turns.GetQueued(), turns.GetRunning(), turns.GetParked()),
		fmt.Sprintf("outbox: %d pending, %d unknown", outbox.GetPending(), outbox.GetUnknown()))...)
	if m.height < tall {
		return lines
	}
	lines = append(lines, m.fit(fmt.Sprintf("supervisor: %s, %d of %d descriptors", sizeOf(s.GetRssBytes()), s.GetFds(), s.GetFdLimit())))
	return append(lines, m.parts(", ", together(m.status.GetMemory())...)...)
}

// problems says what a person should know first, in as many lines as there is room for.
func (m *topModel) problems() []string {
	style, texts, most := styleYellow, m.wrong(), 1
	if m.height >= tall {
		most = 4
	}
	if m.lost != nil {
		style, texts, most = styleRed, []string{m.lostText() + "; what is shown is old"}, 4
	}
	lines := m.within(most, texts)
	for i := range lines {
		lines[i] = m.style(style, m.fit(lines[i]))
	}
	return lines
}

// within wraps texts into at most so many lines; the last one says that there is more.
func (m *topModel) within(most int, texts []string) []string {
	const more = " more: ctl status"
	var lines []string
	for i, text := range texts {
		wrapped := wrap(text, m.width)
		room := most - len(lines)
		if len(wrapped) < room || len(wrapped) == room && i == len(texts)-1 {
			lines = append(lines, wrapped...)
			continue
		}
		lines = append(lines, wrapped[:room-1]...)
		last := strings.Join(wrapped[room-1:], " ") + " …"
		return append(lines, cut(last, max(m.width-utf8.RuneCountInString(more), 1))+more)
	}
	return lines
}

// wrong lists what is not as it should be, the worst first.
func (m *topModel) wrong() (list []string) {
	add := func(text string, more ...string) {
		for _, t := range more {
			if t != "" {
				text += ": " + t
			}
		}
		list = append(list, text)
	}
	for _, s := range m.status.GetStores() {
		if s.State != "ok" {
			add("store "+s.Name+" is "+s.State, s.Detail, s.Advice)
		}
	}
	for _, a := range m.status.GetAdapters() {
		if a.State != "connected" && a.State != "connecting" {
			add("adapter "+a.Platform+" is "+a.State, a.Detail)
		}
	}
	for _, warning := range m.status.GetWarnings() {
		add("warning", warning)
	}
	return list
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
func together(t *controlv1.WorkersMemory) []string {
	if t.GetProcesses() == 0 {
		return []string{"workers: no process"}
	}
	list := []string{fmt.Sprintf("workers: %s in %d processes", sizeOf(t.GetRssBytes()), t.GetProcesses())}
	if t.GetSpares() > 0 {
		list = append(list, fmt.Sprintf("%s of it in spares (%d)", sizeOf(t.GetSpareRssBytes()), t.GetSpares()))
	}
	return list
}

// parts puts texts side by side as far as they fit, each whole, and the rest into lines of their own.
func (m *topModel) parts(between string, list ...string) []string {
	lines := list[:1:1]
	for _, text := range list[1:] {
		last := &lines[len(lines)-1]
		if utf8.RuneCountInString(*last+between+text) <= m.width {
			*last += between + text
			continue
		}
		lines = append(lines, text)
	}
	for i := range lines {
		lines[i] = m.fit(lines[i])
	}
	return lines
}

// wrap breaks a text between words into lines of at most width runes; a longer word has a line of its own.
func wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(clean(text)) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last+" "+word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
