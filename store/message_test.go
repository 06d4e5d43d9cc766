package store_test

import (
	"reflect"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestContentOfHermes(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain",
		"":      "",
		"\x00json:[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"},{\"type\":\"text\",\"text\":\"b\"}]": "a\nb",
		"\x00json:{\"text\":\"an object\"}": `{"text":"an object"}`,
		"\x00json:broken":                   "broken",
		"json:[]":                           "json:[]",
	} {
		if got := store.DecodeContent(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

func TestToolCallsOfHermes(t *testing.T) {
	for in, want := range map[string][]store.ToolCall{
		"":       nil,
		"null":   nil,
		"[]":     nil,
		"broken": nil,
		`[{"id": "c", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]`: {{ID: "c", Name: "terminal", Arguments: `{"command": "ls"}`}},
		`[{"id": "c", "function": {"name": "terminal", "arguments": {"command": "ls"}}}]`:                           {{ID: "c", Name: "terminal", Arguments: `{"command": "ls"}`}},
		`[{"id": "c", "function": {"name": "terminal"}}, {"id": "d"}]`:                                              {{ID: "c", Name: "terminal"}, {ID: "d"}},
	} {
		if got := store.DecodeCalls(in); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, not %+v", in, got, want)
		}
	}
}

func FuzzHermesRow(f *testing.F) {
	f.Add("\x00json:[{\"text\":\"a\"}]", `[{"id":"c","function":{"name":"n","arguments":"{}"}}]`)
	f.Add("plain", "")
	f.Fuzz(func(t *testing.T, content, calls string) {
		store.DecodeContent(content)
		store.DecodeCalls(calls)
	})
}
