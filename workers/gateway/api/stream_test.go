package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

// A clientStream is a streamed answer that a test reads piece by piece.
type clientStream struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Reader
}

func (s *server) stream(body string, headers ...string) *clientStream {
	s.t.Helper()
	resp := s.open(context.Background(), http.MethodPost, completions, body, headers...)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return &clientStream{s.t, resp, bufio.NewReader(resp.Body)}
}

// block reads one event or comment: its lines up to the empty one.
func (c *clientStream) block() (string, bool) {
	var b strings.Builder
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return b.String(), false
		}
		if line == "\n" {
			return strings.TrimSuffix(b.String(), "\n"), true
		}
		b.WriteString(line)
	}
}

// wait holds up a turn until a test goes on, or fails.
func wait(u *gatewaytest.Turn, next <-chan struct{}) {
	select {
	case <-next:
	case <-u.Over():
	}
}

func (c *clientStream) rest() (blocks []string) {
	for {
		b, ok := c.block()
		if !ok {
			return blocks
		}
		blocks = append(blocks, b)
	}
}

// until reads until a block holds s.
func (c *clientStream) until(s string) {
	c.t.Helper()
	for {
		b, ok := c.block()
		if !ok {
			c.t.Fatalf("the stream ended before %q", s)
		}
		if strings.Contains(b, s) {
			return
		}
	}
}

// shape replaces what differs from run to run.
func shape(t *testing.T, block string) string {
	t.Helper()
	data, ok := strings.CutPrefix(block, "data: ")
	if !ok || data == "[DONE]" {
		return block
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		t.Fatalf("%q is not JSON: %v", data, err)
	}
	if id, _ := m["id"].(string); strings.HasPrefix(id, "chatcmpl-") {
		m["id"] = "ID"
	}
	if n, _ := m["created"].(float64); n > 0 {
		m["created"] = 0
	}
	if h, ok := m["hermes"].(map[string]any); ok {
		h["session_id"], h["turn_id"] = "S", "T"
	}
	out, _ := json.Marshal(m)
	return string(out)
}

func chunkShape(choices, more string) string {
	return `{"choices":` + choices + `,"created":0,` + more + `"id":"ID","model":"hermes-agent","object":"chat.completion.chunk"`
}

func delta(d, finish string) string {
	return `[{"delta":` + d + `,"finish_reason":` + finish + `,"index":0,"logprobs":null}]`
}

const done = `"hermes":{"outcome":"completed","session_id":"S","turn_id":"T"},`

func TestStreamIsAsClientsExpectIt(t *testing.T) {
	s := serveAdapter(t, "", nil)
	s.h.Script = func(u *gatewaytest.Turn) string {
		u.Usage = &turnv1.Usage{InputTokens: 7, OutputTokens: 2}
		return "Hello"
	}
	c := s.stream(question("x", true))
	if h := c.resp.Header; c.resp.StatusCode != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-cache" || h.Get(sessionHeader) == "" {
		t.Errorf("%d %v", c.resp.StatusCode, h)
	}
	want := []string{
		chunkShape(delta(`{"content":"","role":"assistant"}`, "null"), "") + "}",
		chunkShape(delta(`{"content":"Hello"}`, "null"), "") + "}",
		chunkShape(delta(`{}`, `"stop"`), done) + "}",
		"data: [DONE]",
	}
	check := func(got, want []string) {
		t.Helper()
		for i := range got {
			got[i] = shape(t, got[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("stream:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check(c.rest(), want)

	const usage = `,"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":0},"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":0},"total_tokens":9}}`
	for i := range 3 {
		want[i] = strings.TrimSuffix(want[i], "}") + `,"usage":null}`
	}
	want = slices.Insert(want, 3, chunkShape("[]", "")+usage)
	body := strings.Replace(question("x", true), `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
	check(s.stream(body).rest(), want)
}

func TestStreamShowsTextAsItComes(t *testing.T) {
	s := serveAdapter(t, "", nil)
	next := make(chan struct{})
	s.h.Script = func(u *gatewaytest.Turn) string {
		for _, word := range []string{"one ", "two ", "three"} {
			u.Say(word)
			wait(u, next)
		}
		return "one two three"
	}
	c := s.stream(question("x", true))
	for _, word := range []string{"one ", "two ", "three"} {
		c.until(`"content":"` + word + `"`)
		next <- struct{}{}
	}
	c.until("[DONE]")
}

// P2: whatever happens to the processes behind it, text is never there twice.
func TestStreamGoesOnAfterTheAgentDied(t *testing.T) {
	for _, c := range []struct{ name, first, second, want string }{
		{"the successor says the same", "one two ", "one two three", "one two three"},
		{"the successor says something else", "one two ", "uno due tre", "one two " + marker + "uno due tre"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveAdapter(t, "", nil)
			die := make(chan struct{})
			s.h.Script = func(u *gatewaytest.Turn) string {
				u.Say(c.first)
				wait(u, die)
				u.Restart()
				for _, r := range c.second {
					u.Say(string(r))
				}
				return c.second
			}
			st := s.stream(question("x", true))
			first, _ := st.block() // the role
			second, _ := st.block()
			close(die)
			got, err := readStream(io.MultiReader(strings.NewReader(first+"\n\n"+second+"\n\n"), st.lines))
			if err != nil || got != c.want {
				t.Errorf("streamed %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestSilentStreamIsKeptAlive(t *testing.T) {
	s := serveAdapter(t, "", gateway.Settings{"keep_alive": "5ms"})
	hold := make(chan struct{})
	s.h.Script = func(u *gatewaytest.Turn) string {
		wait(u, hold)
		return "x"
	}
	c := s.stream(question("x", true))
	for range 3 {
		c.until(": keep-alive")
	}
	close(hold)
	c.until("[DONE]")
}

func TestToolsAreShownToThoseWhoAsk(t *testing.T) {
	script := func(u *gatewaytest.Turn) string {
		finish := u.Tool("terminal", "ls\n-la")
		finish(true)
		finish = u.Tool("terminal", "false")
		finish(false)
		u.NextStep()
		u.Say("Done.")
		return "Done."
	}
	for _, c := range []struct {
		ask  string
		want []string
	}{
		{"", nil},
		{"comment", []string{": terminal running ls -la", ": terminal completed", ": terminal running false", ": terminal failed"}},
		{"event", []string{
			`event: hermes.tool.progress` + "\n" + `data: {"tool":"terminal","tool_call_id":"call_2","status":"running","label":"ls\n-la"}`,
			`event: hermes.tool.progress` + "\n" + `data: {"tool":"terminal","tool_call_id":"call_2","status":"completed"}`,
			`event: hermes.tool.progress` + "\n" + `data: {"tool":"terminal","tool_call_id":"call_4","status":"running","label":"false"}`,
			`event: hermes.tool.progress` + "\n" + `data: {"tool":"terminal","tool_call_id":"call_4","status":"failed"}`,
		}},
	} {
		t.Run("asked for "+c.ask, func(t *testing.T) {
			s := serveAdapter(t, "", nil)
			hold := make(chan struct{})
			s.h.Script = func(u *gatewaytest.Turn) string {
				u.Say("Let me look.")
				wait(u, hold)
				return script(u)
			}
			st := s.stream(question("x", true), progressHeader, c.ask)
			st.until("Let me look.")
			close(hold)
			var got, text []string
			for _, b := range st.rest() {
				if strings.HasPrefix(b, "data: ") {
					text = append(text, b)
				} else {
					got = append(got, b)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("progress %q, want %q", got, c.want)
			}
			said, err := readStream(strings.NewReader(strings.Join(text, "\n")))
			if err != nil || said != "\n\nDone." {
				t.Errorf("text %q, %v", said, err)
			}
		})
	}
}

func TestApprovalIsShownToThoseWhoAsk(t *testing.T) {
	s := serveAdapter(t, "", nil)
	asked := make(chan struct{})
	s.h.Script = func(u *gatewaytest.Turn) string {
		wait(u, asked)
		if u.Ask("terminal", "rm -r /tmp/x") {
			return "gone"
		}
		return "kept"
	}
	c := s.stream(question("x", true), progressHeader, "event")
	close(asked)
	c.until(`"status":"waiting","label":"waits for a person's yes: rm -r /tmp/x"`)
	turn := s.h.Turns()[0].ID
	if _, _, err := s.a.services.Decide(context.Background(), turn+"-approval-0", false); err != nil {
		t.Fatal(err)
	}
	c.until("kept")
}

// What a client is told when the process must go, and whether its library may repeat by itself.
func TestStopWhileATurnRuns(t *testing.T) {
	for _, c := range []struct {
		name, key string
		stream    bool
	}{
		{"whole, without a key", "", false},
		{"whole, with a key", "k", false},
		{"streamed, without a key", "", true},
		{"streamed, with a key", "k", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := gatewaytest.NewHost(t, Platform)
			s := serveWith(t, h, nil)
			hold, begun := make(chan struct{}), make(chan struct{})
			h.Script = func(u *gatewaytest.Turn) string {
				close(begun)
				select {
				case <-hold:
					return "done"
				case <-u.Interrupted():
					return "interrupted"
				case <-u.Over():
					return "over"
				}
			}
			answer := make(chan reply)
			go func() { answer <- s.send("POST", completions, question("x", c.stream), idempotencyHeader, c.key) }()
			<-begun
			s.end()
			r := <-answer
			var f failure
			if c.stream {
				if _, err := readStream(strings.NewReader(r.body)); err == nil || !errorAs(err, &f) {
					t.Fatalf("the stream ended with %v: %s", err, r.body)
				}
			} else {
				f = r.failure(t)
				if retry := r.header.Get("X-Should-Retry"); r.status != 503 || r.header.Get("Retry-After") == "" || (retry == "false") != (c.key == "") {
					t.Errorf("%d %v", r.status, r.header)
				}
			}
			if *f.Code != "answer_lost" || f.Type != typeServer || strings.Contains(f.Message, "same Idempotency-Key") != (c.key != "") {
				t.Errorf("%+v", f)
			}
			close(hold)
			turn := h.Turns()[0]
			turn.Done(context.Background())
			if got := turn.Final().Text; got != "done" {
				t.Errorf("the turn ended with %q: a stop is not the client's doing", got)
			}
			if c.key == "" {
				return
			}
			s = serveWith(t, h, nil)
			if got := s.ask("x", idempotencyHeader, c.key).text(t); got != "done" || len(h.Turns()) != 1 {
				t.Errorf("asked again: %q, %d turns", got, len(h.Turns()))
			}
		})
	}
}

func errorAs(err error, into *failure) bool {
	var f *failure
	if !errors.As(err, &f) {
		return false
	}
	*into = *f
	return true
}

func TestDrainLetsAnswersEnd(t *testing.T) {
	s := serveAdapter(t, "", nil)
	hold, begun := make(chan struct{}), make(chan struct{})
	s.h.Script = func(u *gatewaytest.Turn) string {
		close(begun)
		wait(u, hold)
		return "done"
	}
	answer := make(chan reply)
	go func() { answer <- s.ask("x") }()
	<-begun
	drained := make(chan int)
	go func() { drained <- s.a.Drain(context.Background()) }()
	waitFor(t, "the way in closes", func() bool {
		resp, err := http.Post(s.url+completions, "application/json", strings.NewReader(question("y", false)))
		if err != nil {
			return true
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != 503 {
			t.Errorf("%d while draining, want 503 or nothing", resp.StatusCode)
		}
		return false
	})
	select {
	case <-drained:
		t.Error("the drain did not wait for the answer")
	default:
	}
	close(hold)
	if got := (<-answer).text(t); got != "done" {
		t.Errorf("answered %q", got)
	}
	if left := <-drained; left != 0 {
		t.Errorf("Drain() = %d", left)
	}
	if st := s.a.Status(); st.Detail != "stopping, no new requests" {
		t.Errorf("Status() = %+v", st)
	}
	if len(s.h.Turns()) != 1 {
		t.Errorf("%d turns, want 1: nothing is taken while draining", len(s.h.Turns()))
	}
}

func TestRequestsWhileDraining(t *testing.T) {
	s := serveAdapter(t, "", nil)
	s.a.draining.Store(true) // as a kept-alive connection meets it
	if r := s.ask("x"); r.status != 503 || *r.failure(t).Code != "draining" || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.send("GET", "/health", ""); r.status != 503 || !strings.Contains(r.body, "draining") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestMessageThatIsNotConfirmed(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for _, step := range []gatewaytest.Step{gatewaytest.BeforeAccept, gatewaytest.AfterAccept} {
			s := serveAdapter(t, "", nil)
			s.h.At(step, 0, func() {})
			r := s.ask("x", idempotencyHeader, key)
			f := r.failure(t)
			if retry := r.header.Get("X-Should-Retry"); r.status != 503 || *f.Code != "not_confirmed" || (retry == "false") != (key == "") {
				t.Errorf("%s, key %q: %d %+v, %v", step, key, r.status, f, r.header)
			}
			if key != "" {
				if got := s.ask("x", idempotencyHeader, key).text(t); got != "answer to x" || len(s.h.Turns()) != 1 {
					t.Errorf("%s, asked again: %q, %d turns", step, got, len(s.h.Turns()))
				}
			}
		}
	}
}

func TestStatusComesFromWhatWasServed(t *testing.T) {
	h := gatewaytest.NewHost(t, Platform)
	opened, err := Open(context.Background(), setup(t, h, gateway.Settings{"listen": "127.0.0.1:0"}))
	if err != nil {
		t.Fatal(err)
	}
	if st := opened.Status(); st.State != gateway.StateConnecting || !st.LastReceive.IsZero() {
		t.Errorf("before Run: %+v", st)
	}
	_ = opened.(*adapter).listener.Close()
	s := serveAdapter(t, "", nil)
	s.ask("x")
	waitFor(t, "the answer is noted", func() bool { return !s.a.Status().LastReceive.IsZero() })
	if st := s.a.Status(); st.State != gateway.StateConnected || st.LastReceive.IsZero() || !strings.Contains(st.Detail, "127.0.0.1") {
		t.Errorf("after an answer: %+v", st)
	}
}

func TestBrokenStreamsLeaveNothingBehind(t *testing.T) {
	s := serveAdapter(t, "", gateway.Settings{"max_concurrent_runs": 3})
	s.h.Script = func(u *gatewaytest.Turn) string {
		u.Say("x")
		select {
		case <-u.Interrupted():
		case <-u.Over():
		}
		return "stopped"
	}
	abort := func() {
		c := s.stream(question("x", true))
		c.until(`"content":"x"`)
		_ = c.resp.Body.Close()
		waitFor(t, "the request ends", func() bool { return len(s.a.runs) == 0 })
	}
	for range 20 {
		abort()
	}
	before := openFDs(t)
	for range 300 {
		abort()
	}
	waitFor(t, "descriptors are back", func() bool { return openFDs(t) <= before+2 })
	for _, u := range s.h.Turns() {
		if !u.Done(context.Background()) || u.Final().Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
			t.Fatalf("turn %s ended with %v", u.ID, u.Final())
		}
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("cannot count descriptors: %v", err)
	}
	return len(list)
}
