package offline

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// maxQuote is how much of a message is said back.
const maxQuote = 500

// introduction is the answer to anything that is no command. It names every way forward, because for a newcomer
// this is the first thing the program says.
const introduction = `I am the offline stand-in, not a language model: I follow fixed rules and use no network.
You wrote: %s

One command a line works here, several lines at once run side by side:
  run: COMMAND        read: PATH       write: PATH TEXT
  search: PATTERN     remember: TEXT   task: TITLE        wait: SECONDS
  call: TOOL {"argument": "value"}

For a real model, put this into %s and restart:
  model:
    provider: openai                      # any OpenAI-compatible server
    base_url: http://127.0.0.1:11434/v1   # for example Ollama, llama.cpp, vLLM, OpenRouter
    default: NAME-OF-THE-MODEL
A server that wants a key: OPENAI_API_KEY=… in %s.`

func introduce(message, home string) string {
	if home == "" {
		home = "~/.hermes"
	}
	return fmt.Sprintf(introduction, quote(message), home+"/config.yaml", home+"/.env")
}

func quote(text string) string {
	if len(text) > maxQuote {
		cut := maxQuote
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + " …"
	}
	return "“" + text + "”"
}

// summarise answers with the results of tool calls: a single one speaks for itself, several are told apart by the
// line that asked for them. Lines that were no command are named, so that a typing error is seen.
func summarise(r request, calls []*turnv1.ToolCall, results map[string]string) string {
	var parts []string
	for i, c := range calls {
		text := render(c.Name, results[c.Id])
		if len(calls) > 1 {
			heading := c.Name
			if i < len(r.calls) {
				heading = r.calls[i].line
			}
			text = heading + "\n" + text
		}
		parts = append(parts, text)
	}
	if len(r.other) > 0 {
		parts = append(parts, "Not understood: "+quote(strings.Join(r.other, "\n")))
	}
	return strings.Join(parts, "\n\n")
}

// result holds the fields that the built-in tools answer with, of which each uses some.
type result struct {
	Output   *string         `json:"output"`
	Content  *string         `json:"content"`
	Message  string          `json:"message"`
	Error    json.RawMessage `json:"error"`
	ExitCode *int            `json:"exit_code"`
	Meaning  string          `json:"exit_code_meaning"`
	Path     string          `json:"path"`
	Written  *int            `json:"bytes_written"`
	TaskID   string          `json:"task_id"`
	Status   string          `json:"status"`
}

// render turns a tool result into what a person wants to see of it.
func render(tool, content string) string {
	var r result
	if json.Unmarshal([]byte(content), &r) != nil {
		return orNothing(content)
	}
	failure := errorText(r.Error)
	var lines []string
	switch {
	case r.Output != nil:
		lines = append(lines, *r.Output)
	case r.Content != nil:
		lines = append(lines, *r.Content)
	case failure != "":
	case r.Message != "":
		lines = append(lines, r.Message)
	case r.Written != nil:
		lines = append(lines, fmt.Sprintf("wrote %d bytes to %s", *r.Written, r.Path))
	case r.TaskID != "":
		lines = append(lines, fmt.Sprintf("task %s is %s", r.TaskID, r.Status))
	default:
		return orNothing(content)
	}
	if failure != "" {
		lines = append(lines, fmt.Sprintf("%s failed: %s", tool, failure))
	}
	if r.ExitCode != nil && *r.ExitCode != 0 {
		status := fmt.Sprintf("exit code %d", *r.ExitCode)
		if r.Meaning != "" {
			status += " (" + r.Meaning + ")"
		}
		lines = append(lines, status)
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, "\r\n")
	}
	return orNothing(strings.TrimLeft(strings.Join(lines, "\n"), "\n"))
}

func errorText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func orNothing(text string) string {
	if strings.TrimSpace(text) == "" {
		return "(no output)"
	}
	return strings.TrimRight(text, "\r\n")
}
