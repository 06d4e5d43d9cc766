package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A Change is one key whose value differs between two configurations. Values are as `config show` prints them, so no secret is
// among them.
type Change struct {
	Key      string
	From, To string // empty: not there
}

// Changes lists what next says differently, by key.
func (c *Config) Changes(next *Config) []Change {
	before, after := c.flat(), next.flat()
	var list []Change
	for key, from := range before {
		if to := after[key]; to != from {
			list = append(list, Change{Key: key, From: from, To: to})
		}
	}
	for key, to := range after {
		if _, known := before[key]; !known {
			list = append(list, Change{Key: key, To: to})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// flat returns the document as keys with dots and their values as JSON.
func (c *Config) flat() map[string]string {
	out := map[string]string{}
	text, err := c.JSON()
	if err != nil {
		return out
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		return out
	}
	flatten(out, "", doc)
	delete(out, "model.reason") // words about the rest
	return out
}

func flatten(out map[string]string, key string, v any) {
	if m, ok := v.(map[string]any); ok {
		for k, inner := range m {
			flatten(out, strings.TrimPrefix(key+"."+k, "."), inner)
		}
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Append(nil, v)
	}
	out[key] = string(text)
}
