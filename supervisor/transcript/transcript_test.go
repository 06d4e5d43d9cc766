package transcript_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/transcript"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// exported is a conversation in two sessions with everything that is hard about one: parts, calls, thoughts, text that looks
// like markup, messages that were taken back, kept twice or never shown.
var exported = []string{
	`{"id":"20260101_101010_aa","source":"telegram","title":"Plans <b>","model":"m-1","cwd":"/home/me","started_at":1767261000.5,"ended_at":1767262000.0,"end_reason":"compression","messages":[` +
		`{"id":1,"role":"user","content":"# not a heading\n` + "```" + `\nnor the end of a block","timestamp":1767261001.0,"active":0,"compacted":1,"display_order":1},` +
		`{"id":2,"role":"assistant","content":"","reasoning":"two\nlines","tool_calls":[{"id":"c1","type":"function","function":{"name":"terminal","arguments":"{\"command\": \"uptime\"}"}}],"timestamp":1767261002.0,"token_count":7,"active":1},` +
		`{"id":3,"role":"tool","content":"` + "````" + ` up 3 days","tool_name":"terminal","tool_call_id":"c1","timestamp":1767261003.0,"active":1},` +
		`{"id":4,"role":"assistant","content":"<script>alert(1)</script>","timestamp":1767261004.0,"active":1},` +
		`{"id":5,"role":"user","content":"taken back","timestamp":1767261005.0,"active":0,"compacted":0},` +
		`{"id":6,"role":"user","content":"scaffolding","display_kind":"hidden","timestamp":1767261006.0,"active":1}]}`,
	`{"id":"20260102_101010_bb","source":"telegram","parent_session_id":"20260101_101010_aa","started_at":1767262000.0,"messages":[` +
		`{"id":7,"role":"assistant","content":"what was said","_compressed_summary":1,"timestamp":1767262000.0,"active":1},` +
		`{"id":8,"role":"user","content":"\u0000json:[{\"type\":\"text\",\"text\":\"a picture\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}}]","timestamp":1767262001.0,"active":1,"display_order":8},` +
		`{"id":9,"role":"user","content":"a picture","timestamp":1767262001.0,"active":1,"display_order":8},` +
		`{"id":10,"role":"assistant","content":"fine","tool_calls":"no list","timestamp":1767262002.0,"active":1}]}`,
}

func parsed(t testing.TB) (list []transcript.Session) {
	t.Helper()
	for _, l := range exported {
		s, err := transcript.Parse([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func TestAConversationIsWrittenInEachFormat(t *testing.T) {
	for name, write := range map[string]func(io.Writer, []transcript.Session) error{
		"conversation.md":   func(w io.Writer, s []transcript.Session) error { return transcript.Markdown(w, s, false) },
		"conversation.qmd":  func(w io.Writer, s []transcript.Session) error { return transcript.Markdown(w, s, true) },
		"conversation.html": transcript.HTML, "conversation.trace.jsonl": transcript.Trace,
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b, parsed(t)); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.Bytes(), want) {
				t.Errorf("it differs from %s:\n%s", golden, b.String())
			}
		})
	}
}

// What a session holds is text of the page and never part of it.
func TestNothingInAConversationRunsInAPage(t *testing.T) {
	var b bytes.Buffer
	if err := transcript.HTML(&b, parsed(t)); err != nil {
		t.Fatal(err)
	}
	if page := b.String(); strings.Contains(page, "<script") || strings.Contains(page, "Plans <b>") {
		t.Error("markup of a message is in the page")
	}
}

func TestWhatAPersonSawIsShownOnce(t *testing.T) {
	var ids []int64
	for _, s := range parsed(t) {
		for _, m := range s.Messages {
			ids = append(ids, m.ID)
		}
	}
	if !slices.Equal(ids, []int64{1, 2, 3, 4, 7, 8, 10}) {
		t.Errorf("shown are %v", ids)
	}
	prompts := parsed(t)[1].Prompts()
	if len(prompts.Messages) != 1 || prompts.Messages[0].Content != "a picture\n[image_url]" {
		t.Errorf("prompts are %+v", prompts.Messages)
	}
}

func TestATraceIsAChain(t *testing.T) {
	var b bytes.Buffer
	if err := transcript.Trace(&b, parsed(t)); err != nil {
		t.Fatal(err)
	}
	var last *string
	n := 0
	for line := range strings.Lines(b.String()) {
		var l struct {
			UUID   string  `json:"uuid"`
			Parent *string `json:"parentUuid"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if n > 0 && (l.Parent == nil || *l.Parent != *last) {
			t.Errorf("line %d follows %v", n, l.Parent)
		}
		last = &l.UUID
		n++
	}
	if n != 7 {
		t.Errorf("%d lines", n)
	}
}

// The values here are made up.
func TestSecretsAreTakenOut(t *testing.T) {
	r := transcript.NewRedactor([]string{"correct-horse-battery", "correct-horse", "short"})
	for text, want := range map[string]string{
		"it is correct-horse-battery.":                                       "it is [redacted].",
		"a short word stays":                                                 "a short word stays",
		"OPENAI_API_KEY=sk-proj-" + strings.Repeat("a1", 20):                 "OPENAI_API_KEY=sk-proj-[redacted]",
		"use sk-" + strings.Repeat("Z9", 12) + " please":                     "use sk-[redacted] please",
		"push with ghp_" + strings.Repeat("x", 36):                           "push with ghp_[redacted]",
		"Authorization: Bearer " + strings.Repeat("q", 20):                   "Authorization: Bearer [redacted]",
		"postgres://me:pa55word@db.example/x":                                "postgres://me:[redacted]@db.example/x",
		"bot 123456789:" + strings.Repeat("A", 35):                           "bot 123456789:[redacted]",
		"x-api-key: 0123456789abcdef":                                        "x-api-key: [redacted]",
		`{"password": "hunter2hunter2"}`:                                     `{"password": "[redacted]"}`,
		"AKIAIOSFODNN7EXAMPLE is one":                                        "AKIAIOSF[redacted] is one",
		"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\nafter": "-----BEGIN PRIVATE KEY-----[redacted]-----END PRIVATE KEY-----\nafter",
		"the token of gratitude: thanks":                                     "the token of gratitude: thanks",
		"https://example.com:8080/path?x=1 and a@b.example":                  "https://example.com:8080/path?x=1 and a@b.example",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		if again := r.Text(r.Text(text)); again != r.Text(text) {
			t.Errorf("a second time it is %q", again)
		}
	}
}

// The arguments of a tool call are a document inside a string, and an address has signs of its own.
func TestASecretIsFoundAsItIsWrittenInDocumentsAndAddresses(t *testing.T) {
	secret := `p&ss"w<ord>\7 /ä`
	r := transcript.NewRedactor([]string{secret})
	inGo, err := json.Marshal(map[string]string{"a": secret})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plain": secret, "escaped by Go": string(inGo), "escaped by others": `{"a":"p&ss\"w<ord>\\7 /ä"}`,
		"in a query": "https://a.example/?k=" + url.QueryEscape(secret), "in a path": "https://a.example/" + url.PathEscape(secret),
	} {
		got := r.Text(text)
		doc, err := json.Marshal(map[string]any{"arguments": text})
		if err != nil {
			t.Fatal(err)
		}
		inside, err := r.JSON(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, out := range []string{got, string(inside)} {
			if !strings.Contains(out, transcript.Removed) || strings.Contains(out, "ord") {
				t.Errorf("%s: %s", name, out)
			}
		}
	}
}

func TestARedactedDocumentIsOtherwiseTheSame(t *testing.T) {
	r := transcript.NewRedactor([]string{"correct-horse"})
	in := `{"b":[1,2.50,1e3,-0,12345678901234567890,null,true],"a":{"x":"<correct-horse>","\u00e9":""},"c":[],"d":{}}`
	got, err := r.JSON([]byte(in + "\n"))
	if want := `{"b":[1,2.50,1e3,-0,12345678901234567890,null,true],"a":{"x":"<[redacted]>","é":""},"c":[],"d":{}}` + "\n"; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := r.JSON([]byte(`{"a":`)); err == nil {
		t.Error("half a document was taken")
	}
}

// FuzzDocuments gives lines that other programs may have written to everything here.
func FuzzDocuments(f *testing.F) {
	for _, l := range exported {
		f.Add(l)
	}
	f.Add(`{"id":"x","messages":[{"content":[{"type":"text"}],"tool_calls":{"a":1},"timestamp":-1e300}]}`)
	f.Fuzz(func(t *testing.T, line string) {
		r := transcript.NewRedactor([]string{"correct-horse"})
		redacted, err := r.JSON([]byte(line))
		if err == nil && !json.Valid(bytes.TrimSpace(redacted)) && json.Valid([]byte(line)) {
			t.Errorf("redacted is no document: %q", redacted)
		}
		s, err := transcript.Parse([]byte(line))
		if err != nil {
			return
		}
		list := []transcript.Session{s, s.Prompts()}
		for _, write := range []func() error{
			func() error { return transcript.Markdown(io.Discard, list, true) },
			func() error { return transcript.HTML(io.Discard, list) },
			func() error { return transcript.Trace(io.Discard, list) },
		} {
			if err := write(); err != nil {
				t.Error(err)
			}
		}
	})
}
