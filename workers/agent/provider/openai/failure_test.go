package openai

import (
	"context"
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

	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

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
		{"plain text", raw("text/plain", "It works!\n"), provider.Error{Class: provider.WrongURL, Message: "the answer is no chat completion but text/plain: It works!"}, ""},
		{"plain text without an end", raw("text/plain; charset=utf-8", "It works!"), provider.Error{Class: provider.WrongURL, Message: "but text/plain: It works!"}, ""},
		{"plain text that does not end", endless("It works!\n"), provider.Error{Class: provider.WrongURL, Message: "no chat completion but text/plain: It works!"}, ""},
		{"text without a name", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "It works!")
		}, provider.Error{Class: provider.WrongURL, Message: "the answer is no chat completion: It works!"}, ""},
		{"plain text with the key", raw("text/plain", "you are "+secret+"\x1b[2J"), provider.Error{Class: provider.WrongURL, Message: "but text/plain: you are [key]?[2J"}, ""},
		{"plain text that asks to wait", raw("text/plain", "Too many requests"), provider.Error{Class: provider.RateLimit, Message: "Too many requests"}, ""},
		{"a picture", raw("image/png", "\x89PNG\r\n\x1a\n"), provider.Error{Class: provider.WrongURL, Message: "but image/png: ?PNG"}, ""},
		{"a web page that does not end", endless("<p>wait</p>\n"), provider.Error{Class: provider.WrongURL, Message: "web page"}, ""},
		{"JSON of another protocol", raw("application/json", `{"hello":"world"}`), provider.Error{Class: provider.WrongURL, Message: `no chat completion but application/json: {"hello":"world"}`}, ""},
		{"JSON of another protocol sent as text", raw("text/plain", "\n{\n\"hello\": 1\n}\n"), provider.Error{Class: provider.WrongURL, Message: `{ "hello": 1 }`}, ""},
		{"a list of JSON", raw("application/json", `[1, 2]`), provider.Error{Class: provider.WrongURL, Message: "[1, 2]"}, ""},
		{"text sent as JSON", raw("application/json", `OK`), provider.Error{Class: provider.WrongURL, Message: "OK"}, ""},
		{"JSON of another protocol that asks to wait", raw("application/json", `{"code":1302,"msg":"Rate limit reached"}`), provider.Error{Class: provider.RateLimit, Message: "Rate limit reached"}, ""},
		{"a chat completion without choices", raw("application/json", `{"object":"chat.completion","choices":null}`), provider.Error{Class: provider.Malformed, Message: "no chat completion"}, ""},
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
			endless(strings.Repeat("x", 1<<20))(w, r)
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

// endless answers with the same for as long as somebody listens.
func endless(part string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
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
	// The limit is ten times what a busy machine takes to answer.
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
			p := serve(t, 500*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
				tick := time.NewTicker(50 * time.Millisecond)
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
