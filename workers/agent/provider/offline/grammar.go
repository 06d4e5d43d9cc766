package offline

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// maxWait bounds one wait line, and all of a message together, so that a typing error does not hold a turn for a year.
const maxWait = 10 * time.Minute

// A request is a message as the stand-in understands it.
type request struct {
	calls []command
	wait  time.Duration
	other []string // lines that are no command, without empty ones
}

// A command is a line that becomes a tool call.
type command struct {
	line string // as it was written, for the answer
	tool string
	args map[string]any
}

// verbs maps the word before the colon to the tool and the shape of its arguments. A rest that lacks what the tool
// needs makes the line no command.
var verbs = map[string]func(rest string) (tool string, args map[string]any, ok bool){
	"run":      single("terminal", "command"),
	"read":     single("read_file", "path"),
	"search":   single("search_files", "pattern"),
	"task":     single("kanban_create", "title"),
	"remember": remember,
	"write":    write,
	"call":     call,
}

func single(tool, arg string) func(string) (string, map[string]any, bool) {
	return func(rest string) (string, map[string]any, bool) {
		return tool, map[string]any{arg: rest}, rest != ""
	}
}

func remember(rest string) (string, map[string]any, bool) {
	return "memory", map[string]any{"target": "memory", "action": "add", "content": rest}, rest != ""
}

// write takes a path, in double quotes if it has spaces, and the text after it.
func write(rest string) (string, map[string]any, bool) {
	var path, text string
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		path, text, ok = strings.Cut(quoted, `"`)
		if !ok {
			return "", nil, false
		}
	} else {
		path, text, _ = strings.Cut(rest, " ")
	}
	return "write_file", map[string]any{"path": path, "content": strings.TrimPrefix(text, " ")}, path != ""
}

// call takes the name of any tool, a plugin's for example, and its arguments as a JSON object, none if they are left out.
func call(rest string) (string, map[string]any, bool) {
	tool, text, _ := strings.Cut(rest, " ")
	args := map[string]any{}
	if text = strings.TrimSpace(text); text != "" && json.Unmarshal([]byte(text), &args) != nil {
		return "", nil, false
	}
	return tool, args, tool != "" && args != nil
}

// parse reads a message, one command a line.
func parse(message string) request {
	var r request
	for line := range strings.Lines(message) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		verb, rest, found := strings.Cut(line, ":")
		verb, rest = strings.ToLower(strings.TrimSpace(verb)), strings.TrimSpace(rest)
		if found && verb == "wait" {
			if d, ok := seconds(rest); ok {
				r.wait = min(r.wait+d, maxWait)
				continue
			}
		}
		if build := verbs[verb]; found && build != nil {
			if tool, args, ok := build(rest); ok {
				r.calls = append(r.calls, command{line: line, tool: tool, args: args})
				continue
			}
		}
		r.other = append(r.other, line)
	}
	return r
}

func seconds(text string) (time.Duration, bool) {
	s, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "s")), 64)
	if err != nil || !(s > 0) {
		return 0, false
	}
	if s > maxWait.Seconds() {
		return maxWait, true
	}
	return time.Duration(s * float64(time.Second)), true
}

// toolCalls makes the calls of a request. Their ids are those of a model that numbers its calls.
func (r request) toolCalls() []*turnv1.ToolCall {
	calls := make([]*turnv1.ToolCall, len(r.calls))
	for i, c := range r.calls {
		args, err := json.Marshal(c.args)
		if err != nil {
			args = []byte("{}") // strings only, so this cannot be
		}
		calls[i] = &turnv1.ToolCall{Id: "call_" + strconv.Itoa(i+1), Name: c.tool, ArgumentsJson: string(args)}
	}
	return calls
}
