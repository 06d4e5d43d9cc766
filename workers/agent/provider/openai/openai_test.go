package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "sk-test-0123456789"

// serve starts a server of the test and a client of it.
func serve(t *testing.T, idle time.Duration, h http.HandlerFunc) *Provider {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server sees that its client has gone only once it has read the body.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return client(t, s.URL+"/v1", idle)
}

func client(t *testing.T, base string, idle time.Duration) *Provider {
	t.Helper()
	p, err := New(Config{BaseURL: base, Idle: idle, Key: func(context.Context) (string, error) { return secret, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// sse answers with events, each with a data field, as they are.
func sse(events ...string) http.HandlerFunc {
	return raw("text/event-stream", "data: "+strings.Join(events, "\n\ndata: ")+"\n\n")
}

func raw(media, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, body)
	}
}

func fail(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// cut sends body and drops the connection in the middle of the response.
func cut(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, body)
		w.(http.Flusher).Flush()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
}

func text(s string) string {
	b, _ := json.Marshal(s)
	return `{"choices":[{"index":0,"delta":{"content":` + string(b) + `}}]}`
}

func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func calling(parts string) string {
	return `{"choices":[{"index":0,"delta":{"tool_calls":[` + parts + `]}}]}`
}

func ask(t *testing.T, p *Provider) (provider.Reply, string, error) {
	t.Helper()
	var shown strings.Builder
	reply, err := p.Stream(t.Context(), hello, func(d provider.Delta) { shown.WriteString(d.Text) })
	return reply, shown.String(), err
}

var hello = provider.Request{Model: "m", Messages: []*turnv1.Message{{Role: "user", Content: "hello"}}}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		server http.HandlerFunc
		want   provider.Reply
	}{
		{"text", sse(text("Hel"), text("lo"), finish("stop"), "[DONE]"),
			provider.Reply{Text: "Hello", FinishReason: "stop"}},
		{"usage comes last, without choices", sse(text("Hi"), finish("stop"),
			`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`, "[DONE]"),
			provider.Reply{Text: "Hi", FinishReason: "stop", Usage: provider.Usage{Input: 6, Output: 3, CacheRead: 4, Reasoning: 2}}},
		{"no final marker but a finish reason", sse(text("Hi"), finish("stop")), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"a final marker but no finish reason", sse(text("Hi"), "[DONE]"), provider.Reply{Text: "Hi"}},
		{"a stream under another name", raw("text/plain", "\n: wait\n\ndata: "+text("Hi")+"\n\ndata: "+finish("stop")+"\n\n"), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"a stream that calls itself JSON", raw("application/json", "data: "+text("Hi")+"\n\ndata: "+finish("stop")+"\n\n"), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"a whole answer that calls itself text", raw("text/plain", "\n\n"+`{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}`), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"a final marker without a line end", raw("text/event-stream", "data: "+text("Hi")+"\n\ndata: [DONE]"), provider.Reply{Text: "Hi"}},
		{"a last event without a line end", raw("text/event-stream", "data: "+text("Hi")+"\n\ndata: "+finish("stop")), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"CRLF and no space after data:", raw("text/event-stream", "data:"+text("Hi")+"\r\n\r\ndata:"+finish("stop")+"\r\n\r\ndata:[DONE]\r\n\r\n"), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"comments and other fields", raw("text/event-stream", strings.Repeat(": PROCESSING\n\n", 1000)+"event: x\nid: 1\nretry: 3\ndata: "+text("Hi")+"\n\ndata: "+finish("stop")+"\n\n"), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"null content and an empty event", sse(`{"choices":[{"delta":{"role":"assistant","content":null}}]}`, `{"choices":[]}`, text("Hi"), finish("stop")), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"a null error beside the answer", sse(`{"error":null,"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}`), provider.Reply{Text: "Hi", FinishReason: "stop"}},
		{"reasoning_content", sse(`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, text("Hi"), finish("stop")), provider.Reply{Text: "Hi", Reasoning: "hm", FinishReason: "stop"}},
		{"reasoning", sse(`{"choices":[{"delta":{"reasoning":"hm"}}]}`, text("Hi"), finish("stop")), provider.Reply{Text: "Hi", Reasoning: "hm", FinishReason: "stop"}},
		{"reasoning in tags", sse(text("\n<th"), text("ink>h"), text("m</thi"), text("nk>\n\n"), text("Hi <think>"), finish("stop")), provider.Reply{Text: "Hi <think>", Reasoning: "hm", FinishReason: "stop"}},
		{"no stream but one answer", raw("application/json", "{\n \"choices\":[{\"message\":{\"content\":\"Hi\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\n\"finish_reason\":\"tool_calls\"}]}"),
			provider.Reply{Text: "Hi", FinishReason: "tool_calls", ToolCalls: toolCalls("a", "f", "{}")}},
		{"half a surrogate pair", sse(`{"choices":[{"delta":{"content":"a\ud800b"},"finish_reason":"stop"}]}`), provider.Reply{Text: "a�b", FinishReason: "stop"}},
		{"cut at the length limit", sse(text("Hi"), finish("length")), provider.Reply{Text: "Hi", FinishReason: "length"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply, shown, err := ask(t, serve(t, 0, c.server))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, reply, protocmp.Transform()); d != "" {
				t.Errorf("reply (-want +got):\n%s", d)
			}
			if shown != reply.Text {
				t.Errorf("streamed %q", shown)
			}
		})
	}
}

func toolCalls(fields ...string) (out []*turnv1.ToolCall) {
	for i := 0; i < len(fields); i += 3 {
		out = append(out, &turnv1.ToolCall{Id: fields[i], Name: fields[i+1], ArgumentsJson: fields[i+2]})
	}
	return out
}

func TestToolCallsArePutTogether(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   []*turnv1.ToolCall
	}{
		{"in fragments, side by side", []string{
			calling(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`),
			calling(`{"index":0,"function":{"arguments":"{\"x\""}}`),
			calling(`{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}`),
			calling(`{"index":0,"function":{"arguments":":1}"}}`),
			calling(`{"index":1,"function":{"arguments":"}"}}`),
		}, toolCalls("a", "f", `{"x":1}`, "b", "g", "{}")},
		{"two in one event", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"f","arguments":"{}"}}`)},
			toolCalls("a", "f", "{}", "b", "f", "{}")},
		{"the same index for all (Ollama)", []string{
			calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`),
			calling(`{"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}}`),
		}, toolCalls("a", "f", `{"x":1}`, "b", "f", `{"x":2}`)},
		{"the same index in fragments", []string{
			calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calling(`{"index":0,"function":{"arguments":":1}"}}`),
			calling(`{"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\""}}`), calling(`{"index":0,"function":{"arguments":":2}"}}`),
		}, toolCalls("a", "f", `{"x":1}`, "b", "f", `{"x":2}`)},
		{"no index", []string{calling(`{"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calling(`{"function":{"arguments":":1}"}}`), calling(`{"id":"b","function":{"name":"g","arguments":"{}"}}`)},
			toolCalls("a", "f", `{"x":1}`, "b", "g", "{}")},
		{"no id", []string{calling(`{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"g","arguments":"{}"}}`)},
			toolCalls("", "f", "{}", "", "g", "{}")},
		{"neither id nor index", []string{calling(`{"function":{"name":"f","arguments":"{}"}}`), calling(`{"function":{"name":"g","arguments":"{}"}}`)},
			toolCalls("", "f", "{}", "", "g", "{}")},
		{"the id in every part", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calling(`{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}}`)},
			toolCalls("a", "f", `{"x":1}`)},
		{"another id in every part", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), calling(`{"index":0,"id":"b","function":{"arguments":":1}"}}`)},
			toolCalls("a", "f", `{"x":1}`)},
		{"the id after the name", []string{calling(`{"index":0,"function":{"name":"f"}}`), calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`)},
			toolCalls("a", "f", "{}")},
		{"arguments as an object", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}`)}, toolCalls("a", "f", `{"x":1}`)},
		{"no arguments", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":null}}`)}, toolCalls("a", "f", "")},
		{"arguments that are no JSON", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"x: 1"}}`)}, toolCalls("a", "f", "x: 1")},
		{"repeated ids", []string{calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}`)},
			toolCalls("a", "f", "{}{}")},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply, _, err := ask(t, serve(t, 0, sse(append(c.events, finish("tool_calls"), "[DONE]")...)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, reply.ToolCalls, protocmp.Transform()); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
		})
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(sse(text("Hi"), finish("stop"), "[DONE]"))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	p := client(t, s.URL, 0)
	for range 20 {
		if _, _, err := ask(t, p); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n > 2 {
		t.Errorf("%d connections for 20 calls", n)
	}
}

func TestARefusedUsageOptionIsLeftOut(t *testing.T) {
	var bodies []string
	p := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		if strings.Contains(string(b), "stream_options") {
			fail(422, `{"detail":"extra inputs are not permitted: stream_options"}`)(w, r)
			return
		}
		sse(text("Hi"), finish("stop"))(w, r)
	})
	for range 2 {
		if _, _, err := ask(t, p); err != nil {
			t.Fatal(err)
		}
	}
	if len(bodies) != 3 {
		t.Errorf("%d requests, want one more than calls", len(bodies))
	}
}

func TestTheRequest(t *testing.T) {
	var got struct {
		Auth, Path string
		Body       map[string]any
	}
	p := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
		got.Auth, got.Path = r.Header.Get("Authorization"), r.URL.Path
		if err := json.NewDecoder(r.Body).Decode(&got.Body); err != nil {
			t.Error(err)
		}
		sse(finish("stop"))(w, r)
	})
	_, err := p.Stream(t.Context(), provider.Request{
		Model: "the-model", System: "be brief",
		Messages: []*turnv1.Message{
			{Role: "user", Content: "one"},
			{Role: "assistant", Content: "earlier", Reasoning: "of an earlier turn"},
			{Role: "user", Content: "two"},
			{Role: "assistant", Reasoning: "needed", ToolCalls: toolCalls("a", "f", "{}")},
			{Role: "tool", ToolCallId: "a"},
		},
		Tools: []provider.Tool{{Name: "f", Description: "d", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "g"}},
	}, func(provider.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	if got.Auth != "Bearer "+secret || got.Path != "/v1/chat/completions" {
		t.Errorf("auth %q, path %q", got.Auth, got.Path)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(`{
		"model": "the-model", "stream": true, "stream_options": {"include_usage": true},
		"messages": [
			{"role": "system", "content": "be brief"},
			{"role": "user", "content": "one"},
			{"role": "assistant", "content": "earlier"},
			{"role": "user", "content": "two"},
			{"role": "assistant", "reasoning_content": "needed", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
			{"role": "tool", "tool_call_id": "a", "content": "(empty)"}],
		"tools": [
			{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
			{"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.Body); d != "" {
		t.Errorf("body (-want +got):\n%s", d)
	}
}

func TestBaseURL(t *testing.T) {
	for _, c := range []struct {
		in, endpoint, err string
		idle              time.Duration
	}{
		{in: "http://127.0.0.1:11434/v1/", endpoint: "http://127.0.0.1:11434/v1", idle: localIdle},
		{in: "http://localhost:1", endpoint: "http://localhost:1", idle: localIdle},
		{in: "http://192.168.1.5/v1", endpoint: "http://192.168.1.5/v1", idle: localIdle},
		{in: "https://user:pass@api.example.com/v1?key=x", endpoint: "https://api.example.com/v1", idle: hostedIdle},
		{in: "127.0.0.1:11434/v1", err: "is not an http address"},
		{in: "ftp://u:p@host", err: `"…@host"`},
		{in: "", err: "is not an http address"},
	} {
		t.Run(c.in, func(t *testing.T) {
			p, err := New(Config{BaseURL: c.in})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "u:p") {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Endpoint() != c.endpoint || p.idle != c.idle {
				t.Errorf("endpoint %q, idle %s", p.Endpoint(), p.idle)
			}
		})
	}
}

func TestThinkFilter(t *testing.T) {
	for _, c := range []struct{ name, in, text, thought string }{
		{"no tag", "hello", "hello", ""},
		{"a tag", "<think>a</think>b", "b", "a"},
		{"the long tag", "<REASONING_SCRATCHPAD>a</REASONING_SCRATCHPAD>b", "b", "a"},
		{"another tag closes nothing", "<think>a</thinking>b", "", "a</thinking>b"},
		{"never closed", "<think>a", "", "a"},
		{"half a tag", "<thi", "<thi", ""},
		{"half a closing tag", "<think>a</thi", "", "a</thi"},
		{"later", "x <think>a</think>", "x <think>a</think>", ""},
		{"leading space is kept without a tag", "  x", "  x", ""},
		{"only space", "  ", "  ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for size := 1; size <= len(c.in); size++ {
				var f thinkFilter
				var text, thought string
				for rest := c.in; rest != ""; {
					n := min(size, len(rest))
					a, b := f.add(rest[:n])
					text, thought, rest = text+a, thought+b, rest[n:]
				}
				a, b := f.rest()
				if text+a != c.text || thought+b != c.thought {
					t.Errorf("in pieces of %d: text %q, thought %q", size, text+a, thought+b)
				}
			}
		})
	}
}
