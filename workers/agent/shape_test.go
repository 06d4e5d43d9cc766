package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/hashicorp/go-hclog"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

func TestWhatTheProviderGetsToRead(t *testing.T) {
	call := func(id, args string) *turnv1.ToolCall {
		return &turnv1.ToolCall{Id: id, Name: "f", ArgumentsJson: args}
	}
	user := func(text string) *turnv1.Message { return &turnv1.Message{Role: "user", Content: text} }
	says := func(text string, calls ...*turnv1.ToolCall) *turnv1.Message {
		return &turnv1.Message{Role: "assistant", Content: text, ToolCalls: calls}
	}
	res := func(id, text string) *turnv1.Message {
		return &turnv1.Message{Role: "tool", ToolCallId: id, ToolName: "f", Content: text}
	}
	for _, c := range []struct {
		name     string
		in, want []*turnv1.Message
	}{
		{"a plain one", []*turnv1.Message{user("a"), says("b"), user("c")}, []*turnv1.Message{user("a"), says("b"), user("c")}},
		{"results in the order of calls", []*turnv1.Message{says("", call("1", "{}"), call("2", "{}")), res("2", "two"), res("1", "one")},
			[]*turnv1.Message{says("", call("1", "{}"), call("2", "{}")), res("1", "one"), res("2", "two")}},
		{"a missing result", []*turnv1.Message{says("", call("1", "{}"), call("2", "{}")), res("2", "two"), user("go on")},
			[]*turnv1.Message{says("", call("1", "{}"), call("2", "{}")), res("1", lostResult), res("2", "two"), user("go on")}},
		{"a second result", []*turnv1.Message{says("", call("1", "{}")), res("1", "one"), res("1", "again")}, []*turnv1.Message{says("", call("1", "{}")), res("1", "one")}},
		{"a result without a call", []*turnv1.Message{user("a"), res("1", "one"), says("b")}, []*turnv1.Message{user("a"), says("b")}},
		{"a result that comes late", []*turnv1.Message{says("", call("1", "{}")), user("a"), res("1", "one")}, []*turnv1.Message{says("", call("1", "{}")), res("1", lostResult), user("a")}},
		{"users in a row", []*turnv1.Message{user("a"), user("b"), says("c")}, []*turnv1.Message{user("a\n\nb"), says("c")}},
		{"a system message in the middle", []*turnv1.Message{says("a"), {Role: "system", Content: "b"}}, []*turnv1.Message{says("a"), user("[system note] b")}},
		{"only thoughts, or nothing", []*turnv1.Message{user("a"), {Role: "assistant", Reasoning: "hm"}, user(" "), user("b")}, []*turnv1.Message{user("a\n\nb")}},
		{"arguments in canonical form", []*turnv1.Message{says("", call("1", "{ \"b\" : 1.50,\n \"a\":\"<&>\" }"), call("2", "oops"), call("3", "")), res("1", "x"), res("2", "y"), res("3", "z")},
			[]*turnv1.Message{says("", call("1", `{"a":"<&>","b":1.50}`), call("2", "{}"), call("3", "{}")), res("1", "x"), res("2", "y"), res("3", "z")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := fmt.Sprint(c.in)
			got := conversation(c.in[:1], c.in[1:])
			if d := cmp.Diff(c.want, got, protocmp.Transform()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if fmt.Sprint(c.in) != before {
				t.Error("stored messages were changed")
			}
		})
	}
}

func TestLanes(t *testing.T) {
	read := func(p string) *turnv1.ToolCall {
		return &turnv1.ToolCall{Name: "read_file", ArgumentsJson: `{"path":"` + p + `"}`}
	}
	write := func(p string) *turnv1.ToolCall {
		return &turnv1.ToolCall{Name: "write_file", ArgumentsJson: `{"path":"` + p + `"}`}
	}
	run := &turnv1.ToolCall{Name: "terminal", ArgumentsJson: `{"command":"ls"}`}
	for _, c := range []struct {
		name  string
		calls []*turnv1.ToolCall
		want  [][]int
	}{
		{"none", nil, nil},
		{"no paths", []*turnv1.ToolCall{run, run}, [][]int{{0}, {1}}},
		{"reads of one file", []*turnv1.ToolCall{read("a"), read("a")}, [][]int{{0}, {1}}},
		{"writes of one file", []*turnv1.ToolCall{write("a"), write("./a")}, [][]int{{0, 1}}},
		{"other files", []*turnv1.ToolCall{write("a"), write("ab"), write("b/a")}, [][]int{{0}, {1}, {2}}},
		{"a folder and what is in it", []*turnv1.ToolCall{write("a/b"), read("c"), read("a")}, [][]int{{0, 2}, {1}}},
		{"everything here", []*turnv1.ToolCall{write("a"), read("."), write("/x")}, [][]int{{0, 1}, {2}}},
		{"everything", []*turnv1.ToolCall{write("/a"), read("/"), write("b")}, [][]int{{0, 1}, {2}}},
		{"two lanes become one", []*turnv1.ToolCall{write("a/1"), run, write("a/2"), read("a")}, [][]int{{0, 2, 3}, {1}}},
		{"no object", []*turnv1.ToolCall{{ArgumentsJson: "["}, {ArgumentsJson: `{"path":1}`}}, [][]int{{0}, {1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, lanes(c.calls, func(tool string) bool { return tool == "read_file" })); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatTheModelReadsOfAResult(t *testing.T) {
	failure := func(m string) *toolv1.ToolError { return &toolv1.ToolError{Message: m} }
	for _, c := range []struct {
		name string
		in   *toolv1.Result
		want string
	}{
		{"content", &toolv1.Result{Content: "x"}, "x"},
		{"nothing", &toolv1.Result{}, ""},
		{"an error alone", &toolv1.Result{Error: failure("bad <x>")}, `{"error":"bad <x>"}`},
		{"an error that the content tells", &toolv1.Result{Content: "it was bad", Error: failure("bad")}, "it was bad"},
		{"an error that the content tells in its own words", &toolv1.Result{Content: `{"error":"ouch"}`, Error: failure("bad")}, `{"error":"ouch"}`},
		{"an error beside the content", &toolv1.Result{Content: "half", Error: failure("bad")}, `{"error":"bad","output":"half"}`},
		{"a spill file", &toolv1.Result{Content: "head", SpillPath: "/tmp/x"}, "head\n[The whole output is in /tmp/x]"},
		{"a spill file that the content names", &toolv1.Result{Content: "see /tmp/x", SpillPath: "/tmp/x"}, "see /tmp/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := contentOf(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "abc", "abcdef": "abcd", "aääää": "aä", "\xff": "�", "ab\xffcd": "ab"} {
		if got := clip(in, 4); got != want {
			t.Errorf("clip(%q) = %q, want %q", in, got, want)
		}
	}
	if got := clip("abc", -1); got != "" {
		t.Errorf("got %q", got)
	}
}

// FuzzShape puts any reply of a model through what makes it fit to be stored and to be sent back.
func FuzzShape(f *testing.F) {
	f.Add("a", "echo", `{"path":"x"}`, "b", "Read-File", `{`)
	f.Add("", "", "", "", "\x00", "null")
	f.Add("a\n", strings.Repeat("ä", 100), "{}{}", "a\n", "X", "\xff")
	f.Fuzz(func(t *testing.T, id1, name1, args1, id2, name2, args2 string) {
		turn := &turn{specs: map[string]*toolv1.ToolSpec{"read_file": {ReadOnly: true}}, log: hclog.NewNullLogger()}
		in := []*turnv1.ToolCall{{Id: id1, Name: name1, ArgumentsJson: args1}, {Id: id2, Name: name2, ArgumentsJson: args2}, {Id: id1, Name: name2, ArgumentsJson: args1}}
		out := turn.tidyCalls(in, 3)
		ids := map[string]bool{}
		for _, c := range out {
			if c.Id == "" || ids[c.Id] || !utf8.ValidString(c.Id) || !utf8.ValidString(c.ArgumentsJson) || c.Name == "" || len(c.Name) > maxToolName {
				t.Errorf("call %q", c)
			}
			ids[c.Id] = true
		}
		if again := turn.tidyCalls(in, 3); !slices.EqualFunc(out, again, func(a, b *turnv1.ToolCall) bool { return a.Id == b.Id && a.Name == b.Name }) {
			t.Error("another time, other calls")
		}
		seen := 0
		for _, lane := range lanes(out, turn.readOnly) {
			if !slices.IsSorted(lane) {
				t.Errorf("lane %v", lane)
			}
			seen += len(lane)
		}
		if seen != len(out) {
			t.Errorf("%d of %d calls are in a lane", seen, len(out))
		}
		messages := conversation([]*turnv1.Message{{Role: "user", Content: "x"}, {Role: "assistant", ToolCalls: out}, {Role: "tool", ToolCallId: id1, Content: args1}})
		if len(messages) != 2+len(out) {
			t.Errorf("%d messages", len(messages))
		}
		for _, c := range messages[1].ToolCalls {
			if _, err := object(c.ArgumentsJson); err != nil {
				t.Errorf("arguments %q: %v", c.ArgumentsJson, err)
			}
		}
	})
}
