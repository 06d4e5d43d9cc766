package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

func TestRoutes(t *testing.T) {
	s := serveAdapter(t, "", nil)
	for _, c := range []struct {
		method, path string
		status       int
		code, holds  string
	}{
		{"GET", "/health", 200, "", `"status":"ok"`},
		{"GET", "/v1/health", 200, "", `"platform":"hermes-agent"`},
		{"GET", "/v1/models", 200, "", `"object":"list"`},
		{"GET", "/v1/models", 200, "", `"id":"hermes-agent","object":"model"`},
		{"GET", "/v1/models/hermes-agent", 200, "", `"owned_by":"hermes-supervisor"`},
		{"GET", "/v1/models/gpt-x", 404, "model_not_found", "gpt-x"},
		{"GET", "/v1/models/a/b", 404, "model_not_found", "a/b"},
		{"POST", "/health", 405, "method_not_allowed", "POST"},
		{"DELETE", "/v1/models", 405, "method_not_allowed", "DELETE"},
		{"GET", completions, 405, "method_not_allowed", "GET"},
		{"OPTIONS", completions, 405, "method_not_allowed", "OPTIONS"},
		{"GET", "/", 404, "unknown_url", "GET /"},
		{"POST", "/v1/responses", 404, "unknown_url", "/v1/responses"},
		{"POST", completions + "/", 404, "unknown_url", ""},
		{"GET", "//v1/models", 404, "unknown_url", ""},
		{"GET", "/v1/models/", 404, "model_not_found", ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := s.send(c.method, c.path, "")
			if r.status != c.status || !strings.Contains(r.body, c.holds) || r.header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %s %q, want %d with %q", r.status, r.header.Get("Content-Type"), r.body, c.status, c.holds)
			}
			if c.code != "" {
				if f := r.failure(t); *f.Code != c.code {
					t.Errorf("code %s, want %s", *f.Code, c.code)
				}
			}
			if c.status == 405 && r.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
	if r := s.send("HEAD", "/health", ""); r.status != 200 || r.body != "" {
		t.Errorf("HEAD /health = %+v", r)
	}
}

func TestCompletion(t *testing.T) {
	s := serveAdapter(t, "", nil)
	s.h.Script = func(u *gatewaytest.Turn) string {
		u.Usage = &turnv1.Usage{InputTokens: 10, CacheReadTokens: 5, OutputTokens: 3, ReasoningTokens: 1}
		return "answer to " + u.Text()
	}
	r := s.send("POST", completions, `{"model":"some-model","messages":[{"role":"user","content":"hi"}]}`)
	c := r.completion(t)
	if c.Object != "chat.completion" || !strings.HasPrefix(c.ID, "chatcmpl-") || c.Created == 0 || c.Model != "some-model" {
		t.Errorf("completion = %+v", c)
	}
	if ch := c.Choices[0]; ch.Index != 0 || ch.Message.Role != "assistant" || *ch.Message.Content != "answer to hi" || *ch.FinishReason != "stop" || ch.Delta != nil {
		t.Errorf("choice = %+v", ch)
	}
	if u := c.Usage; u.Prompt != 15 || u.Completion != 3 || u.Total != 18 || u.PromptBy.Cached != 5 || u.AnswerBy.Reasoning != 1 {
		t.Errorf("usage = %+v", u)
	}
	session := r.header.Get(sessionHeader)
	if c.Hermes.Outcome != "completed" || c.Hermes.SessionID != session || session == "" || c.Hermes.TurnID == "" {
		t.Errorf("hermes = %+v, session %q", c.Hermes, session)
	}
	m := s.h.Turns()[0].Message
	if m.ChatId != chatID || m.ChatType != "dm" || !strings.HasPrefix(m.MessageId, "request/") || m.SessionKey != "agent:main:api:dm:"+m.MessageId || m.Fingerprint != "" {
		t.Errorf("accepted %v", m)
	}
	if c := s.ask("x").completion(t); c.Model != defaultModel {
		t.Errorf("model %q without one asked for", c.Model)
	}
}

func TestOutcomes(t *testing.T) {
	for outcome, want := range map[turnv1.Outcome][2]string{
		turnv1.Outcome_OUTCOME_COMPLETED:   {"completed", "stop"},
		turnv1.Outcome_OUTCOME_INTERRUPTED: {"interrupted", "stop"},
		turnv1.Outcome_OUTCOME_FAILED:      {"failed", "stop"},
		turnv1.Outcome_OUTCOME_BUDGET:      {"budget", "length"},
		turnv1.Outcome_OUTCOME_PARKED:      {"parked", "stop"},
	} {
		s := serveAdapter(t, "", nil)
		s.h.Script = func(u *gatewaytest.Turn) string {
			u.Outcome, u.Error = outcome, "what happened"
			return "this is what happened"
		}
		c := s.ask("x").completion(t)
		if c.Hermes.Outcome != want[0] || *c.Choices[0].FinishReason != want[1] || c.Hermes.Error != "what happened" {
			t.Errorf("%s: %+v, finish reason %s", outcome, c.Hermes, *c.Choices[0].FinishReason)
		}
	}
}

func TestSessions(t *testing.T) {
	s := serveAdapter(t, "", nil)
	first := s.send("POST", completions, `{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"a"},
		{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"user":"ann"}`)
	m := s.h.Turns()[0].Message
	if m.Text != "c" || m.SystemPrompt != "be kind" || len(m.History) != 2 || m.History[1].Content != "b" || m.UserId != "ann" {
		t.Errorf("accepted %v", m)
	}
	session := first.header.Get(sessionHeader)
	next := s.ask("d", sessionHeader, session)
	if got := next.header.Get(sessionHeader); got != session {
		t.Errorf("went on in session %q, want %q", got, session)
	}
	if m := s.h.Turns()[1].Message; m.SessionId != session || m.SessionKey != "" {
		t.Errorf("accepted %v", m)
	}
	if other := s.ask("e").header.Get(sessionHeader); other == session || other == "" {
		t.Errorf("a new conversation is in session %q", other)
	}
	r := s.ask("f", sessionHeader, "20200101_000000_00000000")
	if f := r.failure(t); r.status != 404 || *f.Code != "session_not_found" {
		t.Errorf("unknown session: %d %s", r.status, *f.Code)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := serveAdapter(t, "", nil)
	runs := 0
	s.h.Script = func(u *gatewaytest.Turn) string {
		runs++
		return fmt.Sprintf("answer %d", runs)
	}
	first := s.ask("x", idempotencyHeader, "k1")
	again := s.ask("x", idempotencyHeader, "k1")
	if a, b := first.completion(t), again.completion(t); a.ID != b.ID || *a.Choices[0].Message.Content != *b.Choices[0].Message.Content {
		t.Errorf("answers %q and %q", first.body, again.body)
	}
	if a, b := first.header.Get(sessionHeader), again.header.Get(sessionHeader); a != b {
		t.Errorf("sessions %q and %q", a, b)
	}
	stream := s.send("POST", completions, question("x", true), idempotencyHeader, "k1")
	if got, err := readStream(strings.NewReader(stream.body)); err != nil || got != "answer 1" {
		t.Errorf("streamed again: %q, %v", got, err)
	}
	if other := s.ask("x", idempotencyHeader, "k2"); other.text(t) != "answer 2" {
		t.Errorf("another key: %s", other.body)
	}
	r := s.ask("y", idempotencyHeader, "k1")
	if f := r.failure(t); r.status != 422 || *f.Code != "idempotency_key_reused" {
		t.Errorf("another body under the key: %d %s", r.status, *f.Code)
	}
	// A key of a client is never a number of ours.
	own := s.h.Turns()[0].Message.MessageId
	if s.ask("z", idempotencyHeader, own).text(t) != "answer 3" {
		t.Error("a client's key met another message's id")
	}
}

func TestIdempotencyKeyOutlivesTheAdapter(t *testing.T) {
	h := gatewaytest.NewHost(t, Platform)
	s := serveWith(t, h, nil)
	first := s.ask("x", idempotencyHeader, "k").text(t)
	s.end()
	s = serveWith(t, h, nil)
	if got := s.ask("x", idempotencyHeader, "k").text(t); got != first || len(h.Turns()) != 1 {
		t.Errorf("answered %q and %q with %d turns", first, got, len(h.Turns()))
	}
	if r := s.ask("y", idempotencyHeader, "k"); r.status != 422 {
		t.Errorf("another body under the key: %d", r.status)
	}
}

func TestBadRequests(t *testing.T) {
	s := serveAdapter(t, "", nil)
	large := `{"messages":[{"role":"user","content":"` + strings.Repeat("a", maxBody) + `"}]}`
	parts := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"`+strings.Repeat("a", maxText)+`"},`, 140), ",")
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
		code       string
	}{
		{"another type", question("x", false), []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		{"no type", question("x", false), []string{"Content-Type", ""}, 415, "unsupported_media_type"},
		{"a type that cannot be read", question("x", false), []string{"Content-Type", ";"}, 415, "unsupported_media_type"},
		{"a large body", large, nil, 413, "request_too_large"},
		{"more than one call holds", `{"messages":[` + parts + `]}`, nil, 413, "request_too_large"},
		{"a key with a space", question("x", false), []string{idempotencyHeader, "a b"}, 400, "invalid_header"},
		{"a key that is too long", question("x", false), []string{idempotencyHeader, strings.Repeat("k", maxKey+1)}, 400, "invalid_header"},
		{"a session with an umlaut", question("x", false), []string{sessionHeader, "ä"}, 400, "invalid_header"},
		{"a progress of another kind", question("x", false), []string{progressHeader, "loud"}, 400, "invalid_header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.send("POST", completions, c.body, c.headers...)
			if f := r.failure(t); r.status != c.status || *f.Code != c.code {
				t.Errorf("%d %s, want %d %s", r.status, *f.Code, c.status, c.code)
			}
		})
	}
	for _, c := range badBodies() {
		t.Run("body: "+c.name, func(t *testing.T) {
			if r := s.send("POST", completions, c.body, "Content-Type", "application/json; charset=utf-8"); r.status != 400 || *r.failure(t).Code != c.code {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	if got := len(s.h.Turns()); got != 0 {
		t.Errorf("%d turns were started by bad requests", got)
	}
	if r := s.send("POST", completions, question("x", false), "Content-Type", "Application/JSON; charset=utf-8"); r.status != 200 {
		t.Errorf("a good request after all the bad ones: %d %s", r.status, r.body)
	}
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	s := serveAdapter(t, "", nil)
	conn := dial(t, s)
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"mess", completions)
	_ = conn.CloseWrite()
	r := readReply(t, conn)
	if f := r.failure(t); r.status != 400 || *f.Code != "incomplete_body" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestTooManyRuns(t *testing.T) {
	s := serveAdapter(t, "", gateway.Settings{"max_concurrent_runs": 2})
	hold := make(chan struct{})
	s.h.Script = func(u *gatewaytest.Turn) string {
		select {
		case <-hold:
		case <-u.Over():
		}
		return "done"
	}
	answers := make(chan reply)
	for range 2 {
		go func() { answers <- s.ask("x") }()
	}
	waitFor(t, "both run", func() bool { return len(s.h.Turns()) == 2 })
	r := s.ask("y")
	if f := r.failure(t); r.status != 429 || f.Type != typeRate || *f.Code != "too_many_runs" || r.header.Get("Retry-After") == "" {
		t.Errorf("the third: %d %+v, %v", r.status, f, r.header)
	}
	if r := s.send("GET", "/v1/models", ""); r.status != 200 {
		t.Errorf("models while all are busy: %d", r.status)
	}
	close(hold)
	for range 2 {
		if r := <-answers; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if r := s.ask("z"); r.status != 200 {
		t.Errorf("after the others: %d", r.status)
	}
	if len(s.h.Turns()) != 3 {
		t.Errorf("%d turns, want 3: a request that was told to wait starts none", len(s.h.Turns()))
	}
}

func TestClientThatGoesAway(t *testing.T) {
	for _, c := range []struct {
		name      string
		stream    bool
		key       string
		interrupt bool
	}{
		{"without a key its turn ends", false, "", true},
		{"a stream without a key too", true, "", true},
		{"with a key it goes on", false, "k", false},
		{"a stream with a key too", true, "k", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveAdapter(t, "", nil)
			begun, hold := make(chan *gatewaytest.Turn, 1), make(chan struct{})
			s.h.Script = func(u *gatewaytest.Turn) string {
				u.Say("a")
				begun <- u
				select {
				case <-u.Interrupted():
					return "stopped"
				case <-hold:
				case <-u.Over():
				}
				return "done"
			}
			ctx, leave := context.WithCancel(context.Background())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				r, _ := http.NewRequestWithContext(ctx, "POST", s.url+completions, strings.NewReader(question("x", c.stream)))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set(idempotencyHeader, c.key)
				if resp, err := s.client.Do(r); err == nil {
					<-ctx.Done()
					_ = resp.Body.Close()
				}
			}()
			turn := <-begun
			leave()
			<-gone
			waitFor(t, "the request ends", func() bool { return len(s.a.runs) == 0 })
			if !c.interrupt {
				close(hold)
			}
			turn.Done(context.Background())
			want := map[bool]string{true: "stopped", false: "done"}[c.interrupt]
			if got := turn.Final().Text; got != want {
				t.Errorf("the turn ended with %q, want %q", got, want)
			}
			if c.key != "" {
				if got := s.ask("x", idempotencyHeader, c.key).text(t); got != "done" || len(s.h.Turns()) != 1 {
					t.Errorf("asked again: %q, %d turns", got, len(s.h.Turns()))
				}
			}
		})
	}
}
