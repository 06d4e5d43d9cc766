package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

func TestParseReads(t *testing.T) {
	user := func(s string) *turnv1.Message { return &turnv1.Message{Role: "user", Content: s} }
	for _, c := range []struct {
		name, body string
		want       request
	}{
		{"one message", `{"messages":[{"role":"user","content":"hi"}]}`, request{text: "hi"}},
		{"all fields", `{"model":"m","user":"u","stream":true,"stream_options":{"include_usage":true},"n":1,"temperature":0.2,"max_tokens":5,"tools":[],
			"response_format":{"type":"text"},"modalities":["text"],"unknown":{"a":[1]},"messages":[{"role":"user","content":"hi"}]}`,
			request{model: "m", user: "u", stream: true, usage: true, text: "hi"}},
		{"nulls", `{"model":null,"stream":null,"stream_options":null,"n":null,"tools":null,"messages":[{"role":"user","content":"hi","name":null}]}`, request{text: "hi"}},
		{"parts", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]}]}`, request{text: "a\nb"}},
		{"history", `{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},
			{"role":"developer","content":"and short"},{"role":"user","content":"c"}]}`,
			request{system: "be kind\n\nand short", text: "c", history: []*turnv1.Message{user("a"), {Role: "assistant", Content: "b"}}}},
		{"system after the message", `{"messages":[{"role":"user","content":"a"},{"role":"system","content":"s"}]}`, request{system: "s", text: "a"}},
		{"tools in the history", `{"messages":[{"role":"user","content":"a"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"1","content":"r","name":"f"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"b"}]}`,
			request{text: "b", history: []*turnv1.Message{user("a"),
				{Role: "assistant", ToolCalls: []*turnv1.ToolCall{{Id: "1", Name: "f", ArgumentsJson: "{}"}}},
				{Role: "tool", ToolCallId: "1", ToolName: "f", Content: "r"}, {Role: "assistant", Content: "no"}}}},
		{"bytes that are no UTF-8", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\xffb\"}]}", request{text: "a\ufffdb"}},
		{"the longest text", `{"messages":[{"role":"user","content":"` + strings.Repeat("ä", maxText) + `"}]}`, request{text: strings.Repeat("ä", maxText)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, f := parse([]byte(c.body))
			if f != nil {
				t.Fatalf("parse() refused: %s", f)
			}
			if d := cmp.Diff(&c.want, got, cmp.AllowUnexported(request{}), protocmp.Transform(), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("parse() (-want +got):\n%s", d)
			}
		})
	}
}

// A bad is a body that is refused, and how.
type bad struct{ name, body, param, code, says string }

func badBodies() []bad {
	message := func(m string) string { return `{"messages":[` + m + `]}` }
	many := strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"a"},`, maxParts+1), ",")
	return []bad{
		{"nothing", ``, "", "invalid_json", "empty"},
		{"space", " \n", "", "invalid_json", "empty"},
		{"no JSON", `{"messages":[}`, "", "invalid_json", "at byte 14"},
		{"half", `{"messages":[{"role":"user"`, "", "invalid_json", "ends too early"},
		{"two", `{"messages":[{"role":"user","content":"a"}]} {}`, "", "invalid_json", "goes on after"},
		{"a list", `[]`, "", "invalid_type", "must be a JSON object, it is array"},
		{"a number", `3`, "", "invalid_type", "must be a JSON object"},
		{"deep", strings.Repeat(`{"a":`, 20000), "", "invalid_json", "exceeded max depth"},
		{"no messages", `{}`, "messages", "missing_required_parameter", "at least one"},
		{"messages of another type", `{"messages":"hi"}`, "messages", "invalid_type", "cannot be string"},
		{"stream of another type", `{"stream":"yes","messages":[]}`, "stream", "invalid_type", "stream cannot be string"},
		{"role of another type", message(`{"role":1,"content":"a"}`), "messages.role", "invalid_type", "cannot be number"},
		{"content of another type", message(`{"role":"user","content":{"a":1}}`), "messages", "invalid_type", "neither a text nor a list"},
		{"part of another type", message(`{"role":"user","content":["a"]}`), "", "invalid_type", ""},
		{"unknown role", message(`{"role":"robot","content":"a"}`), "messages[0].role", "invalid_value", `"robot"`},
		{"role that was removed", message(`{"role":"function","content":"a"}`), "messages[0].role", "invalid_value", `"function"`},
		{"only instructions", message(`{"role":"system","content":"a"}`), "messages", "invalid_value", "role user"},
		{"ends with an answer", message(`{"role":"user","content":"a"},{"role":"assistant","content":"b"}`), "messages", "invalid_value", "The last message"},
		{"empty message", message(`{"role":"user","content":" \n "}`), "messages[0].content", "invalid_value", "empty"},
		{"null message", message(`{"role":"user","content":null}`), "messages[0].content", "invalid_value", "empty"},
		{"image", message(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}`), "messages[0].content[1]", "unsupported_content", `"image_url"`},
		{"part without a type", message(`{"role":"user","content":[{"text":"a"}]}`), "messages[0].content[0]", "unsupported_content", ""},
		{"too many parts", message(`{"role":"user","content":[` + many + `]}`), "messages[0].content", "too_many_parts", "1001 parts"},
		{"too long", message(`{"role":"user","content":"` + strings.Repeat("ä", maxText+1) + `"}`), "messages[0].content", "string_above_max_length", "65537 characters"},
		{"too long a part", message(`{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("a", maxText+1) + `"}]}`), "messages[0].content[0]", "string_above_max_length", ""},
		{"tool without its call", message(`{"role":"tool","content":"a"}`), "messages[0].tool_call_id", "missing_required_parameter", "which call"},
		{"call without a name", message(`{"role":"assistant","tool_calls":[{"id":"1"}]}`), "messages[0].tool_calls[0]", "missing_required_parameter", ""},
		{"two answers", `{"n":2,"messages":[]}`, "n", "unsupported_parameter", "one answer"},
		{"tools", `{"tools":[{}],"messages":[]}`, "tools", "unsupported_parameter", "the agent uses its own"},
		{"functions", `{"functions":[{}],"messages":[]}`, "functions", "unsupported_parameter", ""},
		{"logprobs", `{"logprobs":true,"messages":[]}`, "logprobs", "unsupported_parameter", ""},
		{"JSON answers", `{"response_format":{"type":"json_object"},"messages":[]}`, "response_format", "unsupported_parameter", "json_object"},
		{"speech", `{"modalities":["text","audio"],"messages":[]}`, "modalities", "unsupported_parameter", "audio"},
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range badBodies() {
		t.Run(c.name, func(t *testing.T) {
			_, f := parse([]byte(c.body))
			if f == nil {
				t.Fatal("parse() took it")
			}
			param := ""
			if f.Param != nil {
				param = *f.Param
			}
			if f.Status != http.StatusBadRequest || f.Type != typeInvalid || *f.Code != c.code || !strings.Contains(f.Message, c.says) {
				t.Errorf("parse() = %d %s %s %q, want %s and %q", f.Status, f.Type, *f.Code, f.Message, c.code, c.says)
			}
			if c.param != "" && param != c.param {
				t.Errorf("parse() blames %q, want %q", param, c.param)
			}
		})
	}
}

func TestFingerprintIsOfWhatIsAsked(t *testing.T) {
	of := func(session, body string) string {
		r, f := parse([]byte(body))
		if f != nil {
			t.Fatal(f)
		}
		return r.fingerprint(session)
	}
	base := `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	for _, same := range []string{
		strings.Replace(base, `{"model"`, `{ "stream":true,"stream_options":{"include_usage":true},"model"`, 1),
		strings.Replace(base, `"content":"c"`, `"content":[{"type":"text","text":"c"}]`, 1),
	} {
		if of("", base) != of("", same) {
			t.Errorf("another way to ask the same has another fingerprint: %s", same)
		}
	}
	seen := map[string]string{of("", base): base}
	for i, other := range []string{
		strings.Replace(base, `"c"`, `"d"`, 1),
		strings.Replace(base, `"m"`, `"n"`, 1),
		strings.Replace(base, `"content":"b"`, `"content":"b","tool_calls":[{"id":"1","function":{"name":"f"}}]`, 1),
		`{"model":"m","messages":[{"role":"user","content":"ab"},{"role":"assistant","content":""},{"role":"user","content":"c"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"c"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"c"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"c"},{"role":"user","content":"a"}]}`,
	} {
		f := of("", other)
		if twin, ok := seen[f]; ok {
			t.Errorf("%d: %s has the fingerprint of %s", i, other, twin)
		}
		seen[f] = other
	}
	if of("", base) == of("s", base) {
		t.Error("another session has the same fingerprint")
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range badBodies() {
		if len(c.body) < 2000 {
			f.Add([]byte(c.body))
		}
	}
	f.Add([]byte(`{"stream":true,"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"\ud800"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, failed := parse(body)
		if (r == nil) == (failed == nil) {
			t.Fatalf("parse() = %v, %v", r, failed)
		}
		if failed != nil {
			raw, err := json.Marshal(map[string]*failure{"error": failed})
			if err != nil || !utf8.Valid(raw) || failed.Status != http.StatusBadRequest || failed.Message == "" || failed.Code == nil {
				t.Errorf("parse() fails with %+v (%v)", failed, err)
			}
			return
		}
		if strings.TrimSpace(r.text) == "" || !utf8.ValidString(r.text+r.system+r.model+r.user) {
			t.Errorf("parse() = %+v", r)
		}
		again, _ := parse(body)
		if r.fingerprint("s") != again.fingerprint("s") {
			t.Error("one body has two fingerprints")
		}
		for i, m := range r.history {
			if m.Role != "user" && m.Role != "assistant" && m.Role != "tool" || !utf8.ValidString(fmt.Sprint(m)) {
				t.Errorf("history %d is %v", i, m)
			}
		}
	})
}
