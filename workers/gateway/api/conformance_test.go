package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

func TestConformance(t *testing.T) {
	gatewaytest.Suite{Name: Platform, New: func(t *testing.T) gatewaytest.Platform { return newClients(t) }}.Run(t)
}

// clients are programs that talk to the adapter, one a chat, as careful ones do: each message has a key and is sent
// again until it is answered. Every second one asks for a stream.
type clients struct {
	addr   string
	ctx    context.Context
	stop   context.CancelFunc
	client *http.Client
	wg     sync.WaitGroup

	mu    sync.Mutex
	chats map[string]*program
}

type program struct {
	session string
	waiting []asked
	busy    bool
	asked   map[string]asked
	shown   []string
}

type asked struct{ id, text, session string }

func newClients(t *testing.T) *clients {
	c := &clients{addr: freeAddr(t), client: &http.Client{Transport: &http.Transport{}}, chats: map[string]*program{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// freeAddr asks the kernel for a free port.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (c *clients) Settings() map[string]any {
	return map[string]any{"enabled": true, "listen": c.addr, "max_concurrent_runs": 4} // fewer than chats: some are told to wait
}

func (c *clients) Secrets() map[string]string { return map[string]string{keySecret: "conformance"} }

func (c *clients) Close() {
	c.stop()
	c.wg.Wait()
	c.client.CloseIdleConnections()
}

func (c *clients) chat(name string) *program {
	p, ok := c.chats[name]
	if !ok {
		p = &program{asked: map[string]asked{}}
		c.chats[name] = p
	}
	return p
}

func (c *clients) Say(chat, id, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.chat(chat)
	p.waiting = append(p.waiting, asked{id: chat + "-" + id, text: text})
	if !p.busy {
		p.busy = true
		c.wg.Go(func() { c.work(p) })
	}
}

// work asks one thing after the other, as a person at a program does.
func (c *clients) work(p *program) {
	for {
		c.mu.Lock()
		if len(p.waiting) == 0 || c.ctx.Err() != nil {
			p.busy = false
			c.mu.Unlock()
			return
		}
		m := p.waiting[0]
		p.waiting = p.waiting[1:]
		m.session = p.session
		p.asked[m.id] = m
		c.mu.Unlock()
		text, session, err := c.untilAnswered(m)
		c.mu.Lock()
		if err != nil {
			text = "ERROR " + err.Error()
		}
		p.session = session
		p.shown = append(p.shown, text)
		c.mu.Unlock()
	}
}

// Again asks the same again, and shows what comes only if it is not what came before.
func (c *clients) Again(chat, id string) {
	c.mu.Lock()
	p := c.chat(chat)
	m := p.asked[chat+"-"+id]
	c.mu.Unlock()
	c.wg.Go(func() {
		text, _, err := c.untilAnswered(m)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && text != gatewaytest.Answer(m.text) {
			p.shown = append(p.shown, "another answer: "+text)
		}
	})
}

func (c *clients) Shown(chat string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.chat(chat).shown...)
}

func (c *clients) untilAnswered(m asked) (text, session string, err error) {
	for c.ctx.Err() == nil {
		text, session, err = c.ask(m)
		var refused *refusal
		if err == nil || errors.As(err, &refused) {
			return text, session, err
		}
		select {
		case <-time.After(10 * time.Millisecond): // the adapter is down or busy
		case <-c.ctx.Done():
		}
	}
	return "", "", c.ctx.Err()
}

// A refusal is an answer that repeating does not change.
type refusal struct{ error }

func (c *clients) ask(m asked) (text, session string, err error) {
	stream := m.id[len(m.id)-1]%2 == 0
	body, _ := json.Marshal(map[string]any{"stream": stream, "messages": []map[string]string{{"role": "user", "content": m.text}}})
	r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "http://"+c.addr+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", "", &refusal{err}
	}
	r.Header.Set("Authorization", "Bearer conformance")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(idempotencyHeader, m.id)
	if m.session != "" {
		r.Header.Set(sessionHeader, m.session)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		err := fmt.Errorf("%s: %s", resp.Status, raw)
		if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
			err = &refusal{err}
		}
		return "", "", err
	}
	session = resp.Header.Get(sessionHeader)
	if stream {
		text, err = readStream(resp.Body)
		return text, session, err
	}
	var whole completion
	if err := json.NewDecoder(resp.Body).Decode(&whole); err != nil {
		return "", "", err
	}
	return *whole.Choices[0].Message.Content, session, nil
}

// readStream joins the text of a stream that ended as it should.
func readStream(body io.Reader) (string, error) {
	var text strings.Builder
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
			continue
		case data == "[DONE]":
			return text.String(), nil
		}
		var chunk struct {
			completion
			Error *failure `json:"error"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", err
		}
		if chunk.Error != nil {
			return "", chunk.Error
		}
		for _, ch := range chunk.Choices {
			if ch.Delta.Content != nil {
				text.WriteString(*ch.Delta.Content)
			}
		}
	}
	return "", fmt.Errorf("the stream ended early: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// FailConnects makes connections that end at some point of their request.
func (c *clients) FailConnects(ctx context.Context, n int) error {
	parts := []string{"", "GET /v1/mod", "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{\"mess"}
	for i := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return err
		}
		_, _ = io.WriteString(conn, parts[i%len(parts)])
		_ = conn.Close()
	}
	return nil
}
