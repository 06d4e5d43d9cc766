package agent

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
)

// serveModel starts a model server of the test that answers each request with the next handler, the last one for ever.
func serveModel(t *testing.T, answers ...http.HandlerFunc) string {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		answers[min(int(n.Add(1)), len(answers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func events(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, l := range lines {
			_, _ = io.WriteString(w, "data: "+l+"\n\n")
		}
	}
}

func saying(text string) string {
	b, _ := json.Marshal(text)
	return `{"choices":[{"delta":{"content":` + string(b) + `}}]}`
}

// TestWhatAPersonReadsWhenTheProviderFails goes over HTTP: each of these is a thing that servers do.
func TestWhatAPersonReadsWhenTheProviderFails(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for _, c := range []struct {
		name   string
		server http.HandlerFunc // nil: nobody listens
		want   []string
	}{
		{"wrong key", status(401, `{"error":{"message":"Incorrect API key provided: sk-test-0123456789"}}`), []string{"does not accept the key", "401", "[key]", "SOME_API_KEY in /h/.env", "hermes-supervisor ctl reload"}},
		{"rate limit", status(429, `{"error":{"message":"slow down"}}`), []string{"no more requests", "429: slow down", "again in a minute"}},
		{"server error", status(500, `oops`), []string{"failed (500: oops)", "later"}},
		{"unknown model", status(404, `{"error":{"message":"The model 'm' does not exist"}}`), []string{"does not know the model m", "model.default", "/h/config.yaml"}},
		{"wrong path", status(404, `404 page not found`), []string{"no OpenAI-compatible interface", "base_url", "/v1"}},
		{"another server", status(200, "It works! sk-test-0123456789"), []string{"no OpenAI-compatible interface at http://127.0.0.1", "/v1 (the answer is no chat completion but text/plain: It works! [key])", "base_url"}},
		{"garbage", events("x{"), []string{"does not speak the OpenAI protocol"}},
		{"half a stream", events(saying("The answer is"), `{"choices":[{"del`), []string{"The answer is\n\n⚠️ ", "cannot be read"}},
		{"a stream without an end", events(saying("The answer is")), []string{"The answer is\n\n⚠️ ", "broke off in the middle"}},
		{"connection refused", nil, []string{"cannot reach", "connection refused", gone.Addr().String() + "/v1", "model.base_url in /h/config.yaml"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			base := "http://" + gone.Addr().String() + "/v1"
			if c.server != nil {
				base = serveModel(t, c.server)
			}
			r.host.Secrets["SOME_API_KEY"] = "sk-test-0123456789"
			r.host.Accept("t1", "go")
			w := agenttest.Start(t, r.host, &Agent{}, ipc.AgentConfig{Provider: "openai", BaseURL: base, Model: "m", APIKeyName: "SOME_API_KEY", APIRetries: 1, Home: "/h"})
			if err := w.Run(t, "t1").Wait(); err != nil {
				t.Fatal(err)
			}
			text := r.ended(failed)
			contains(t, text, c.want...)
			if strings.Contains(text+w.Log(), "sk-test") {
				t.Errorf("the key is told:\n%s\n%s", text, w.Log())
			}
		})
	}
}

func TestAMissingKeyIsNamed(t *testing.T) {
	r := newRig(t)
	r.host.Accept("t1", "go")
	w := agenttest.Start(t, r.host, &Agent{}, ipc.AgentConfig{Provider: "openai", BaseURL: serveModel(t, status(500, "")), APIKeyName: "SOME_API_KEY", Home: "/h"})
	if err := w.Run(t, "t1").Wait(); err != nil {
		t.Fatal(err)
	}
	contains(t, r.ended(failed), "SOME_API_KEY is not set", "SOME_API_KEY in /h/.env")
}

func TestATurnWithToolsOverHTTP(t *testing.T) {
	base := serveModel(t,
		events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"echo","arguments":"{\"x\""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"id":"b","function":{"name":"echo","arguments":"x"}}]}}]}`,
			`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"),
		events(saying("do"), saying("ne"), `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, "[DONE]"))
	r := newRig(t)
	r.host.Accept("t1", "go")
	w := agenttest.Start(t, r.host, &Agent{}, ipc.AgentConfig{Provider: "openai", BaseURL: base, Model: "m"})
	run := w.Run(t, "t1")
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if text := r.ended(completed); text != "done" || run.Shown(4) != "done" {
		t.Errorf("answered %q, shown %q", text, run.Shown(4))
	}
	contains(t, r.rows(), `tool a: {"x":1}`, "tool b: Error: the arguments of this call are not a JSON object")
	if u := r.host.End("t1").Reply.Usage; u.InputTokens != 5 || u.OutputTokens != 2 {
		t.Errorf("usage %v", u)
	}
}
