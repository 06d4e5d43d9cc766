package turn

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func FuzzCut(f *testing.F) {
	f.Add("héllo", 2)
	f.Add("\xff\xfe", 1)
	f.Add("", -1)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		got := cut(s, limit)
		if len(got) > max(limit, 0) || !strings.HasPrefix(s, got) || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("cut(%q, %d) is %q", s, limit, got)
		}
		if limit >= 10 {
			if line := oneLine(s, limit); len(line) > limit || strings.ContainsAny(line, "\n\t\r") {
				t.Errorf("oneLine(%q, %d) is %q", s, limit, line)
			}
		}
		if name := cleanName(s); checkName("name", name) != nil {
			t.Errorf("cleanName(%q) is %q", s, name)
		}
	})
}

// A message that any caller can put on the wire is refused or comes back as it was.
func FuzzMessage(f *testing.F) {
	add := func(m *turnv1.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(&turnv1.Message{Role: "user", Content: "hello", Timestamp: 1782000000.25})
	add(&turnv1.Message{Role: "user", Timestamp: 1e-7})
	add(&turnv1.Message{Role: "assistant", Seq: 3, ToolCalls: []*turnv1.ToolCall{{Id: "c", Name: "terminal", ArgumentsJson: "{"}},
		Usage: &turnv1.Usage{InputTokens: 1, OutputTokens: -2}, Reasoning: "because", FinishReason: "tool_calls"})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p turnv1.Message
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		m := messageFromProto(&p)
		if checkMessage(m) != nil {
			return
		}
		again := messageFromProto(messageToProto(m))
		if diff := cmp.Diff(m, again); diff != "" {
			t.Errorf("message changed on its way (-before +after):\n%s", diff)
		}
		if _, err := proto.Marshal(messageToProto(m)); err != nil {
			t.Errorf("a checked message cannot be sent: %v", err)
		}
	})
}

func FuzzInbound(f *testing.F) {
	f.Add("main", "1", "hi", "dm", "agent:main:api:dm:1")
	f.Add("a\x00", strings.Repeat("x", 600), "", "cat", "key")
	f.Fuzz(func(t *testing.T, chat, id, text, kind, key string) {
		in := store.Inbound{Platform: "api", ChatID: chat, MessageID: id, Text: text, ChatType: kind, SessionKey: key}
		if checkInbound(in) != nil {
			return
		}
		for _, s := range []string{chat, id, text, kind, key} {
			if !utf8.ValidString(s) || len(s) > maxText {
				t.Errorf("%q was taken", s)
			}
		}
		if chat == "" || id == "" || text == "" {
			t.Error("a message without chat, id or text was taken")
		}
		if k, err := ownKey("api", key); err == nil && k != "" && !strings.HasPrefix(k, "agent:main:api:") {
			t.Errorf("key %q of a gateway became %q", key, k)
		}
	})
}

func TestOutcomesHaveNames(t *testing.T) {
	for n := range turnv1.Outcome_name {
		o := turnv1.Outcome(n)
		if o == turnv1.Outcome_OUTCOME_UNSPECIFIED {
			continue
		}
		s := outcomeFromProto(o)
		if s == "" || outcomeToProto(s) != o || "OUTCOME_"+strings.ToUpper(string(s)) != o.String() {
			t.Errorf("%v is %q in the store", o, s)
		}
	}
	if got := outcomeFromProto(99); got != "" {
		t.Errorf("no outcome became %q", got)
	}
}

func TestNamesOfPeopleAreTakenAsFarAsTheyFit(t *testing.T) {
	for name, want := range map[string]string{
		"Ada":                          "Ada",
		"  A\x00d\na\t ":               "Ad a",
		"\xff":                         "",
		strings.Repeat("é", maxID/2+1): strings.Repeat("é", (maxID-3)/2) + "…",
	} {
		if got := cleanName(name); got != want {
			t.Errorf("%q became %q", name, got)
		}
	}
}
