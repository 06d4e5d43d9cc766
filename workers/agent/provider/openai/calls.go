package openai

import (
	"encoding/json"
	"strings"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// calls puts tool calls together from their parts. The protocol numbers calls by index and gives the id in the first
// part only, but servers send the same index for every call (Ollama), no index (older ones), no id, the id in every
// part, or whole calls at once. So a part starts a new call if it has a name and
//   - an id not seen before, unless the call at its index still waits for one, or
//   - no id, and the call at its index (or the last one, without an index) has a name and complete arguments.
//
// Everything else goes on with the call that its id, its index, or being the last one points to.
type calls struct {
	all  []*partial
	size int
}

type partial struct {
	id, name string
	index    int // -1: none was given
	args     strings.Builder
}

func (c *calls) add(p callPart) {
	call := c.find(p)
	if call == nil {
		call = &partial{index: -1}
		if p.Index != nil {
			call.index = *p.Index
		}
		c.all = append(c.all, call)
	}
	if call.id == "" {
		call.id = p.ID
	}
	if call.name == "" {
		call.name = p.Function.Name
	}
	text := arguments(p.Function.Arguments)
	call.args.WriteString(text)
	c.size += len(text) + len(p.ID) + len(p.Function.Name)
}

// find returns the call that p belongs to, nil if it starts one.
func (c *calls) find(p callPart) *partial {
	if p.ID != "" {
		for _, call := range c.all {
			if call.id == p.ID {
				return call
			}
		}
	}
	call := c.pointed(p.Index)
	if call == nil || p.Function.Name == "" {
		return call
	}
	if p.ID != "" {
		if call.id == "" {
			return call
		}
		return nil
	}
	if call.name != "" && json.Valid([]byte(call.args.String())) {
		return nil
	}
	return call
}

// pointed returns the newest call of an index, or the newest of all without one.
func (c *calls) pointed(index *int) *partial {
	for i := len(c.all) - 1; i >= 0; i-- {
		if index == nil || c.all[i].index == *index {
			return c.all[i]
		}
	}
	return nil
}

func (c *calls) list() []*turnv1.ToolCall {
	var out []*turnv1.ToolCall
	for _, p := range c.all {
		out = append(out, &turnv1.ToolCall{Id: p.id, Name: p.name, ArgumentsJson: p.args.String()})
	}
	return out
}

// arguments takes a fragment of text, or the arguments themselves from servers that send an object.
func arguments(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
