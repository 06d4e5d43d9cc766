package transcript

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Markdown writes a conversation, which may be several sessions that continue each other. With front a head of YAML says
// what it is, for programs that file notes by it.
func Markdown(out io.Writer, sessions []Session, front bool) error {
	w := bufio.NewWriter(out)
	if front {
		frontMatter(w, sessions)
	}
	fmt.Fprintf(w, "# %s\n", heading(Name(sessions)))
	for _, s := range sessions {
		if !front || len(sessions) > 1 {
			fmt.Fprintln(w)
			for _, f := range s.facts() {
				fmt.Fprintf(w, "- %s: %s\n", f[0], codeSpan(f[1]))
			}
		}
		for _, m := range s.Messages {
			m.markdown(w)
		}
	}
	return w.Flush()
}

// facts are what is known of a session besides its messages, as pairs.
func (s Session) facts() (list [][2]string) {
	for _, f := range [][2]string{
		{"session", s.ID}, {"source", s.Source}, {"model", s.Model}, {"folder", s.Cwd}, {"continues", s.Parent},
		{"started", stamp(s.Started)}, {"ended", strings.TrimSpace(stamp(s.Ended) + " " + s.EndReason)},
	} {
		if f[1] != "" {
			list = append(list, f)
		}
	}
	return list
}

// frontMatter writes values as JSON strings, which YAML reads as they are.
func frontMatter(w io.Writer, sessions []Session) {
	quoted := func(text string) string { b, _ := json.Marshal(text); return string(b) }
	fmt.Fprintf(w, "---\ntitle: %s\n", quoted(Name(sessions)))
	for _, f := range sessions[0].facts() {
		fmt.Fprintf(w, "%s: %s\n", f[0], quoted(f[1]))
	}
	if len(sessions) > 1 {
		ids := make([]string, len(sessions))
		for i, s := range sessions {
			ids[i] = quoted(s.ID)
		}
		fmt.Fprintf(w, "lineage: [%s]\n", strings.Join(ids, ", "))
	}
	fmt.Fprintf(w, "messages: %d\n---\n\n", Count(sessions))
}

func (m Message) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n", heading(m.who()))
	if m.Reasoning != "" {
		fmt.Fprintf(w, "\n> %s\n", strings.ReplaceAll(strings.TrimSpace(m.Reasoning), "\n", "\n> "))
	}
	switch {
	case m.Content == "":
	case m.Role == "tool":
		fmt.Fprintf(w, "\n%s\n", fenced(m.Content, ""))
	default:
		fmt.Fprintf(w, "\n%s\n", closed(strings.TrimRight(m.Content, "\n")))
	}
	for _, c := range m.Calls {
		fmt.Fprintf(w, "\n%s asks %s for:\n\n%s\n", "→", codeSpan(c.Name), fenced(c.Arguments, "json"))
	}
}

// who wrote a message, and when.
func (m Message) who() string {
	who := m.Role
	switch {
	case m.Summary:
		who = "summary of what came before"
	case m.ToolName != "":
		who += " " + m.ToolName
	}
	if at := stamp(m.At); at != "" {
		who += ", " + at
	}
	return who
}

// heading is a text on one line that is nothing but a heading.
func heading(text string) string {
	return strings.NewReplacer("\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "<", "\\<", "#", "\\#").Replace(short(text, 200))
}

// codeSpan is a text on one line that is shown as it is.
func codeSpan(text string) string {
	text = short(text, 300)
	marks := "`"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return marks + text + marks
}

// closed ends a block of code that a text leaves open, so that it does not swallow what follows.
func closed(text string) string {
	open := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		marks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case len(marks) < 3:
		case open == "":
			open = marks
		case len(marks) >= len(open) && marks == line:
			open = ""
		}
	}
	if open == "" {
		return text
	}
	return text + "\n" + open
}

// fenced is a text as a block that nothing in the text ends.
func fenced(text, language string) string {
	marks := "```"
	for strings.Contains(text, marks) {
		marks += "`"
	}
	return marks + language + "\n" + strings.TrimRight(text, "\n") + "\n" + marks
}
