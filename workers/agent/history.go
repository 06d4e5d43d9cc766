package agent

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"

	lostResult = "[The result of this call is not to be had; it is unknown whether the call had an effect.]"
)

// conversation is what the provider gets to read: the stored messages and extra ones that are not stored, in the shape
// that every provider accepts, as far as the model can read it. Stored messages are not changed.
func (t *turn) conversation(extra []*turnv1.Message) []*turnv1.Message {
	note := leftOutNote
	if t.specs["session_search"] != nil {
		note = searchNote
	}
	before, now := t.window().of(t.history, t.steps, note)
	return conversation(before, now, extra)
}

func conversation(parts ...[]*turnv1.Message) []*turnv1.Message {
	var in, out []*turnv1.Message
	for _, p := range parts {
		in = append(in, p...)
	}
	for i := 0; i < len(in); i++ {
		m := in[i]
		switch {
		case m.Role == roleTool:
			// Results are taken with their calls below; one without is of no use to the model and an error to providers.
		case m.Role == roleAssistant && len(m.ToolCalls) > 0:
			results := resultsAfter(in[i+1:])
			out = append(out, withTidyArguments(m))
			for _, c := range m.ToolCalls {
				out = append(out, resultOf(c, results))
			}
		case strings.TrimSpace(m.Content) == "":
			// An assistant that only thought, or nothing at all.
		case m.Role == roleAssistant:
			out = append(out, m)
		default:
			out = addUser(out, m)
		}
	}
	return out
}

// resultsAfter collects the tool messages that directly follow, by call id. The first result of a call counts.
func resultsAfter(rest []*turnv1.Message) map[string]*turnv1.Message {
	results := map[string]*turnv1.Message{}
	for _, m := range rest {
		if m.Role != roleTool {
			break
		}
		if results[m.ToolCallId] == nil {
			results[m.ToolCallId] = m
		}
	}
	return results
}

func resultOf(c *turnv1.ToolCall, results map[string]*turnv1.Message) *turnv1.Message {
	if m := results[c.Id]; m != nil {
		return m
	}
	return &turnv1.Message{Role: roleTool, ToolCallId: c.Id, ToolName: c.Name, Content: lostResult}
}

// addUser adds a message of the user, or of the system, which many models take only at the beginning. Messages in a row
// are joined: models whose template wants the roles to alternate refuse them.
func addUser(out []*turnv1.Message, m *turnv1.Message) []*turnv1.Message {
	content := m.Content
	if m.Role != roleUser {
		content = "[" + m.Role + " note] " + content
	}
	if n := len(out); n > 0 && out[n-1].Role == roleUser {
		content = out[n-1].Content + "\n\n" + content
		out = out[:n-1]
	}
	return append(out, &turnv1.Message{Role: roleUser, Content: content})
}

// withTidyArguments returns m with the arguments of its calls in canonical form, so that the same call is the same bytes
// in every request. Arguments that are no object become an empty one: many providers refuse anything else, and the
// result of the call says what was wrong.
func withTidyArguments(m *turnv1.Message) *turnv1.Message {
	tidy := proto.CloneOf(m)
	for _, c := range tidy.ToolCalls {
		args, err := object(c.ArgumentsJson)
		if err != nil {
			args = map[string]any{}
		}
		c.ArgumentsJson = canonical(args)
	}
	return tidy
}

// object reads arguments. No text at all is an empty object: models leave it out for tools without parameters.
func object(arguments string) (map[string]any, error) {
	args := map[string]any{}
	if strings.TrimSpace(arguments) == "" {
		return args, nil
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber()
	if err := d.Decode(&args); err != nil {
		return nil, err
	}
	if args == nil { // null
		args = map[string]any{}
	}
	if d.More() {
		return nil, errMore
	}
	return args, nil
}

type jsonError string

func (e jsonError) Error() string { return string(e) }

const errMore = jsonError("there is more after the object")

// canonical writes arguments with sorted keys, no spaces and no escapes that JSON does not need.
func canonical(args map[string]any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(args); err != nil {
		return "{}" // what was decoded can be encoded
	}
	return strings.TrimRight(b.String(), "\n")
}
