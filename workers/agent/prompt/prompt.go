// Package prompt writes the system prompt of a session: who the agent is, how it uses its tools, what the caller
// added, what it remembers, and when and where the conversation takes place.
//
// Rules: a prompt is built once a session and replayed byte for byte afterwards, so that providers find the prefix of
// every request in their cache; memories written meanwhile are for the next session. Nothing in it is as large as a
// file may be: each file is cut to a limit in characters, its middle first. A file that cannot be read costs its part
// of the prompt, not the turn.
package prompt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits where the configuration says nothing.
const (
	DefaultFileChars   = 20_000
	DefaultMemoryChars = 2_200
	DefaultUserChars   = 1_375
)

// Input is what a prompt is made from.
type Input struct {
	Home        string // of SOUL.md and memories; empty: neither
	FileChars   int    // limit of one file; 0: DefaultFileChars
	MemoryChars int    // what the memory tool lets MEMORY.md grow to; 0: DefaultMemoryChars
	UserChars   int    // the same of USER.md; 0: DefaultUserChars
	Tools       []string
	Caller      string // what the one who opened the session added
	SessionID   string
	Started     time.Time // of the session
	Platform    string
	Model       string
	Provider    string
}

// startedLine is how this system and Hermes begin the last part of their prompts.
const startedLine = "Conversation started: "

// Built says whether text is a whole prompt, ours or of Hermes, and not only what a caller added.
func Built(text string) bool {
	return strings.HasPrefix(text, startedLine) || strings.Contains(text, "\n"+startedLine)
}

// Build writes the prompt. It is whole but for files that the error, if any, says could not be read.
func Build(in Input) (string, error) {
	var errs []error
	file := func(name string) string {
		if in.Home == "" {
			return ""
		}
		text, err := readFile(filepath.Join(in.Home, name), orDefault(in.FileChars, DefaultFileChars))
		errs = append(errs, err)
		return text
	}
	identity := strings.TrimSpace(file("SOUL.md"))
	if identity == "" {
		identity = defaultIdentity
	}
	parts := []string{identity}
	parts = append(parts, guidance(in.Tools)...)
	parts = append(parts, platformNotes[in.Platform], strings.TrimSpace(in.Caller))
	parts = append(parts,
		memoryBlock("MEMORY (your personal notes)", file("memories/MEMORY.md"), orDefault(in.MemoryChars, DefaultMemoryChars)),
		memoryBlock("USER PROFILE (who the user is)", file("memories/USER.md"), orDefault(in.UserChars, DefaultUserChars)),
		facts(in))
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	return strings.Join(parts, "\n\n"), errors.Join(errs...)
}

func facts(in Input) string {
	var b strings.Builder
	b.WriteString(startedLine + in.Started.Format("Monday, January 02, 2006"))
	for _, f := range [][2]string{{"Session ID", in.SessionID}, {"Platform", in.Platform}, {"Model", in.Model}, {"Provider", in.Provider}} {
		if f[1] != "" {
			fmt.Fprintf(&b, "\n%s: %s", f[0], f[1])
		}
	}
	return b.String()
}

const defaultIdentity = `You are Hermes, an assistant that runs on its owner's own machine and stays there for months. You help with whatever you are asked: answering, writing, programming, looking after files and machines. Be direct and honest, say what you know and what you do not, and prefer doing a thing to describing how it could be done.`

// notes of a tool, given if the session has it. The order is that of the prompt.
var notes = []struct {
	tools []string // any of them
	text  string
}{
	{nil, `You act through tools. When a request can be met by calling a tool, call it in the same reply in which you say so; never claim to have done what no tool result shows. Calls that do not depend on each other go into one reply: they run side by side. Finish the task before you answer, and base the answer on what the tools returned, failures included.`},
	{nil, `A tool result may say that the effect of a call is unknown, because a process ended while it ran. Look at the present state first, and repeat the call only if the effect is missing. A result that says BLOCKED or denied is the person's decision: do not look for another way to the same effect.`},
	{[]string{"terminal"}, `Commands in the terminal run without a keyboard: use options that make them ask nothing. What a command prints beyond a limit is kept in a file that the result names.`},
	{[]string{"memory"}, `You remember between sessions by the memory tool. Save what will still be of use later: preferences, corrections, facts about the person and their surroundings, lessons that cost effort. Write short statements of fact. Do not save the progress of the present task or what a file or search can tell at any time. What you save appears in your prompt from the next session on.`},
	{[]string{"kanban_create"}, `Work that is not to be done now, or that somebody wants to follow, belongs on the kanban board: create a card for it.`},
}

func guidance(tools []string) (out []string) {
	if len(tools) == 0 {
		return nil
	}
	for _, n := range notes {
		if n.tools == nil || slices.ContainsFunc(n.tools, func(t string) bool { return slices.Contains(tools, t) }) {
			out = append(out, n.text)
		}
	}
	return out
}

var platformNotes = map[string]string{
	"terminal": `You are read in a terminal. Keep answers short enough for one, and use little Markdown.`,
	"telegram": `You are read on Telegram, mostly on a phone. Write short paragraphs; bold, italics, links and code are shown, tables and headings are not.`,
}

func orDefault(n, d int) int {
	if n > 0 {
		return n
	}
	return d
}
