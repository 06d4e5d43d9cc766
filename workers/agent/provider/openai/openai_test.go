package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

func TestFailuresHaveAClass(t *testing.T) {
	hi := "data: " + text("Hi") + "\n\n"
	for _, c := range []struct {
		name    string
		server  http.HandlerFunc
		want    provider.Error // Message: what it must contain
		partial string
	}{
		{"wrong key", fail(401, `{"error":{"message":"Incorrect API key provided: `+secret+`","code":"invalid_api_key"}}`), provider.Error{Class: provider.Auth, Status: 401, Message: "provided: [key]"}, ""},
		{"not allowed", fail(403, `{"message":"no"}`), provider.Error{Class: provider.Auth, Status: 403, Message: "no"}, ""},
		{"no credit", fail(402, `{"error":{"message":"Insufficient credits"}}`), provider.Error{Class: provider.Billing, Status: 402}, ""},
		{"rate limit with seconds", fail(429, `{"error":{"message":"slow down"}}`, "Retry-After", "7"), provider.Error{Class: provider.RateLimit, Status: 429, RetryAfter: 7 * time.Second, Message: "slow down"}, ""},
		{"rate limit with milliseconds", fail(429, `{}`, "Retry-After-Ms", "1500"), provider.Error{Class: provider.RateLimit, Status: 429, RetryAfter: 1500 * time.Millisecond}, ""},
		{"rate limit about tokens", fail(429, `{"error":"Too many tokens, please wait"}`), provider.Error{Class: provider.RateLimit, Status: 429}, ""},
		{"quota used up", fail(429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`), provider.Error{Class: provider.Billing, Status: 429, Message: "(insufficient_quota)"}, ""},
		{"server error", fail(500, `oops`), provider.Error{Class: provider.Server, Status: 500, Message: "oops"}, ""},
		{"server error without a body", fail(500, ``), provider.Error{Class: provider.Server, Status: 500}, ""},
		{"overloaded", fail(503, `<html>busy</html>`), provider.Error{Class: provider.Overloaded, Status: 503, Message: "web page"}, ""},
		{"gateway timeout", fail(504, ``), provider.Error{Class: provider.Timeout, Status: 504}, ""},
		{"too long", fail(400, `{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}`), provider.Error{Class: provider.ContextOverflow, Status: 400}, ""},
		{"too long for llama.cpp", fail(400, `{"error":{"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`), provider.Error{Class: provider.ContextOverflow, Status: 400}, ""},
		{"too large", fail(413, ``), provider.Error{Class: provider.ContextOverflow, Status: 413}, ""},
		{"unknown model", fail(404, `{"error":{"message":"The model 'x' does not exist"}}`), provider.Error{Class: provider.ModelNotFound, Status: 404}, ""},
		{"unknown model (Ollama)", fail(404, `{"error":"model \"x\" not found, try pulling it first"}`), provider.Error{Class: provider.ModelNotFound, Status: 404}, ""},
		{"no such path", fail(404, `404 page not found`), provider.Error{Class: provider.WrongURL, Status: 404}, ""},
		{"content filter", fail(400, `{"error":{"message":"The response was filtered","code":"content_filter"}}`), provider.Error{Class: provider.Refused, Status: 400}, ""},
		{"bad request", fail(422, `{"detail":[{"msg":"field required"}]}`), provider.Error{Class: provider.BadRequest, Status: 422, Message: "field required"}, ""},
		{"a huge error page", fail(500, strings.Repeat("x", 1<<20)), provider.Error{Class: provider.Server, Status: 500, Message: "x …"}, ""},
		{"a web page", raw("text/html", "<!doctype html><html>\n\n<p>login</html>"), provider.Error{Class: provider.WrongURL, Message: "web page"}, ""},
		{"garbage", raw("text/event-stream", "\x00\xff\x12garbage\n\n"), provider.Error{Class: provider.Malformed, Message: "garbage"}, ""},
		{"garbage in an event", sse(text("Hi"), "not json"), provider.Error{Class: provider.Malformed, Message: "not json"}, "Hi"},
		{"an event of another protocol", sse(`{"type":"ping"}`, `[1]`), provider.Error{Class: provider.Malformed}, ""},
		{"events that say nothing", sse(`{"type":"ping"}`, `{"type":"ping"}`), provider.Error{Class: provider.Malformed, Message: "no chat completion"}, ""},
		{"JSON of another protocol", raw("application/json", `{"hello":"world"}`), provider.Error{Class: provider.Malformed, Message: `{"hello":"world"}`}, ""},
		{"only the final marker", sse("[DONE]"), provider.Error{Class: provider.Empty}, ""},
		{"JSON garbage", raw("application/json", `{"hello`), provider.Error{Class: provider.Malformed}, ""},
		{"nothing at all", raw("text/event-stream", ""), provider.Error{Class: provider.CutStream, Message: "without an answer"}, ""},
		{"a clean end too early", raw("text/event-stream", hi), provider.Error{Class: provider.CutStream}, "Hi"},
		{"a cut connection", cut(hi), provider.Error{Class: provider.CutStream}, "Hi"},
		{"a cut connection in a line", cut(hi + `data: {"choices":[{"delta":{"con`), provider.Error{Class: provider.CutStream}, "Hi"},
		{"a clean end in a line", raw("text/event-stream", hi+`data: {"choices":[{"delta":{"con`), provider.Error{Class: provider.CutStream}, "Hi"},
		{"a cut connection before anything", cut(""), provider.Error{Class: provider.CutStream}, ""},
		{"an error in the stream", raw("text/event-stream", hi+`data: {"error":{"message":"Overloaded","type":"overloaded_error"}}`+"\n\n"), provider.Error{Class: provider.Overloaded, Message: "Overloaded"}, "Hi"},
		{"an error after keep-alives", raw("text/event-stream", ": wait\n\n: wait\n\n"+`data: {"error":{"message":"boom","code":502}}`+"\n\n"), provider.Error{Class: provider.Server, Status: 502, Message: "boom"}, ""},
		{"an error that is a word", sse(text("Hi"), `{"error":"boom"}`, "[DONE]"), provider.Error{Class: provider.Server, Message: "boom"}, "Hi"},
		{"an error beside other fields", sse(`{"id":"1","error":{"code":429,"message":"slow down"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}`), provider.Error{Class: provider.RateLimit, Status: 429, Message: "slow down"}, ""},
		{"an error in a choice", sse(`{"choices":[{"delta":{},"error":{"message":"boom"}}]}`), provider.Error{Class: provider.Server, Message: "boom"}, ""},
		{"an error as finish reason", sse(text("Hi"), finish("error")), provider.Error{Class: provider.Server}, "Hi"},
		{"an error with status 200", raw("application/json", `{"error":{"message":"model 'x' not found"}}`), provider.Error{Class: provider.Server, Message: "not found"}, ""},
		{"an error object without a message", sse(`{"error":{"code":"x"}}`), provider.Error{Class: provider.Server, Message: `{"code":"x"}`}, ""},
		{"an endless answer", func(w http.ResponseWriter, _ *http.Request) {
			for range 20 {
				_, _ = io.WriteString(w, "data: "+text(strings.Repeat("x", 100<<10))+"\n\n")
			}
		}, provider.Error{Class: provider.TooLarge, Message: "768 KiB"}, strings.Repeat("x", 800<<10)},
		{"an endless line", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "data: ")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
					return
				}
			}
		}, provider.Error{Class: provider.TooLarge, Message: "64 MiB"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply, shown, err := ask(t, serve(t, 0, c.server))
			var e *provider.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			if e.Class != c.want.Class || e.Status != c.want.Status || e.RetryAfter != c.want.RetryAfter || !strings.Contains(e.Message, c.want.Message) {
				t.Errorf("got %s %d %s %q, want %s %d %s %q", e.Class, e.Status, e.RetryAfter, e.Message, c.want.Class, c.want.Status, c.want.RetryAfter, c.want.Message)
			}
			if reply.Text != c.partial || shown != c.partial {
				t.Errorf("kept %.40q, streamed %.40q, want %.40q", reply.Text, shown, c.partial)
			}
			if len(e.Message) > 500 || strings.Contains(fmt.Sprintf("%v %+v", err, e), secret) {
				t.Errorf("message %q", e.Message)
			}
		})
	}
}

func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	_, _, err = ask(t, client(t, "http://"+l.Addr().String()+"/v1", 0))
	var e *provider.Error
	if !errors.As(err, &e) || e.Class != provider.Connection || !strings.Contains(e.Message, "refused") {
		t.Errorf("got %v", err)
	}
}

func TestSilenceEndsACall(t *testing.T) {
	for _, c := range []struct {
		name string
		send string
		want string
		text string
	}{
		{"no header", "", "sent nothing", ""},
		{"in the middle", "data: " + text("Hi") + "\n\n", "sent nothing", "Hi"},
		{"keep-alives only", ": wait\n\n", "only keep-alives", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := serve(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for i := 0; ; i++ {
					if c.send != "" && (i == 0 || strings.HasPrefix(c.send, ":")) {
						_, _ = io.WriteString(w, c.send)
						w.(http.Flusher).Flush()
					}
					select {
					case <-r.Context().Done():
						return
					case <-tick.C:
					}
				}
			})
			reply, _, err := ask(t, p)
			var e *provider.Error
			if !errors.As(err, &e) || e.Class != provider.Timeout || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %v", err)
			}
			if reply.Text != c.text {
				t.Errorf("kept %q", reply.Text)
			}
		})
	}
}

func TestTheCallerEndsACall(t *testing.T) {
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan struct{})
	p := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: "+text("Hi")+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	reply, err := p.Stream(ctx, hello, func(provider.Delta) { cancel(stop) })
	if !errors.Is(err, stop) || reply.Text != "Hi" {
		t.Errorf("got %v, kept %q", err, reply.Text)
	}
	<-gone // the server sees that nobody listens
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

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "x": 0, "NaN": maxRetryAfter, "1e300": maxRetryAfter,
		"Tue, 01 Dec 2026 12:00:30 GMT": 30 * time.Second, "Tue, 01 Dec 2026 11:00:00 GMT": 0, "Fri, 01 Dec 2090 12:00:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(http.Header{"Retry-After": {in}}, now); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
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

// FuzzStream feeds any body to a client: it must end, with a reply or with an error that has a class.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"data: " + text("Hi") + "\n\ndata: " + finish("stop") + "\n\ndata: [DONE]\n\n",
		"data: " + calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`) + "\n\n",
		`data: {"error":{"message":"x"}}` + "\n\n", `data: {"error":`, ": x\nevent: y\n", "data:\n\n", "data: null\n", "{}\n",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	var body atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b := body.Load().([2]string)
		w.Header().Set("Content-Type", b[0])
		_, _ = io.WriteString(w, b[1])
	}))
	f.Cleanup(s.Close)
	p, err := New(Config{BaseURL: s.URL, Idle: 5 * time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.Close)
	f.Fuzz(func(t *testing.T, in string, stream bool) {
		body.Store([2]string{map[bool]string{true: "text/event-stream", false: "application/json"}[stream], in})
		var shown strings.Builder
		reply, err := p.Stream(t.Context(), hello, func(d provider.Delta) { shown.WriteString(d.Text) })
		var e *provider.Error
		if err != nil && (!errors.As(err, &e) || e.Message == "" || e.Class == provider.Unknown || e.Class == provider.Timeout) {
			t.Errorf("error %#v", err)
		}
		if shown.String() != reply.Text {
			t.Errorf("streamed %q of %q", shown.String(), reply.Text)
		}
	})
}
