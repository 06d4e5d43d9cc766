package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

// server is an adapter that serves in this process, against a host.
type server struct {
	t      *testing.T
	h      *gatewaytest.Host
	a      *adapter
	url    string
	stop   context.CancelFunc
	ended  chan error
	client *http.Client
}

func setup(t *testing.T, h *gatewaytest.Host, settings gateway.Settings) gateway.Setup {
	return gateway.Setup{Platform: Platform, Services: gateway.NewServices(h.Connect(t)), Settings: settings, Log: hclog.NewNullLogger()}
}

// serve starts an adapter. key may be empty; settings may be nil.
func serveAdapter(t *testing.T, key string, settings gateway.Settings) *server {
	t.Helper()
	h := gatewaytest.NewHost(t, Platform)
	if key != "" {
		h.Secrets[keySecret] = key
	}
	return serveWith(t, h, settings)
}

func serveWith(t *testing.T, h *gatewaytest.Host, settings gateway.Settings) *server {
	t.Helper()
	if settings == nil {
		settings = gateway.Settings{}
	}
	if _, ok := settings["listen"]; !ok {
		settings["listen"] = "127.0.0.1:0"
	}
	opened, err := Open(context.Background(), setup(t, h, settings))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, h: h, a: opened.(*adapter), ended: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	s.url = "http://" + s.a.listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.ended <- opened.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.client.CloseIdleConnections()
		if err := <-s.ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return s
}

// end stops the adapter before the test ends.
func (s *server) end() {
	s.stop()
	s.ended <- <-s.ended
}

// A reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) failure(t *testing.T) failure {
	t.Helper()
	var f struct {
		Error *failure `json:"error"`
	}
	if err := json.Unmarshal([]byte(r.body), &f); err != nil || f.Error == nil || f.Error.Message == "" || f.Error.Type == "" || f.Error.Code == nil {
		t.Fatalf("%d %q is not an error of the protocol: %v", r.status, r.body, err)
	}
	return *f.Error
}

func (r reply) completion(t *testing.T) completion {
	t.Helper()
	var c completion
	if err := json.Unmarshal([]byte(r.body), &c); err != nil || r.status != http.StatusOK || len(c.Choices) != 1 {
		t.Fatalf("%d %q is not a completion: %v", r.status, r.body, err)
	}
	return c
}

func (r reply) text(t *testing.T) string { return *r.completion(t).Choices[0].Message.Content }

// send makes a request. headers are pairs; Host is one too.
func (s *server) send(method, path, body string, headers ...string) reply {
	s.t.Helper()
	resp := s.open(context.Background(), method, path, body, headers...)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(raw)}
}

func (s *server) open(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else if headers[i+1] == "" {
			r.Header.Del(headers[i])
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

const completions = "/v1/chat/completions"

func (s *server) ask(text string, headers ...string) reply {
	s.t.Helper()
	return s.send(http.MethodPost, completions, question(text, false), headers...)
}

func question(text string, stream bool) string {
	body, _ := json.Marshal(map[string]any{"stream": stream, "messages": []map[string]string{{"role": "user", "content": text}}})
	return string(body)
}

// waitFor waits for what happens on other goroutines, and fails if it never does.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
