package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// callTimeout bounds one request. The frame's deliveries have 29 s for several of them; a healthy server answers
	// within one.
	callTimeout = 12 * time.Second
	// dialTimeout bounds connecting, with a proxy between.
	dialTimeout = 10 * time.Second
	// idleTimeout is less than servers and middle boxes keep an idle connection for: a request that is written to one
	// that was just closed has an unknown outcome.
	idleTimeout = 20 * time.Second
	// maxAnswer bounds an answer in memory; a hundred updates of the longest texts have about 3 MiB.
	maxAnswer = 16 << 20
)

// A client makes requests of one bot. Its errors are *apiError (the server said no) and *callError (no answer to go
// by), and neither holds the token or an address with it.
//
// go-telegram/bot gives the types; its own calls are not used: they lose the status of an answer that is not
// JSON and with it whether a message may have been sent, send bodies of unknown length, which makes a
// connection that the server just closed an unknown outcome too, read answers without a limit, and decode the whole
// message that was sent, whose unknown parts would cost its id.
type client struct {
	base  string // with the token: never in an error or a log
	files string
	http  *http.Client
	hide  func(string) string
	ahead atomic.Int64 // of our clock, the server's, in nanoseconds, as far as its answers tell
}

// dialFunc connects to a server; nil is the network.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// newClient returns a client of the server at base. Each client has connections of its own.
func newClient(base, token string, via route, dial dialFunc) *client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	t := &http.Transport{
		Proxy: via.proxy, DialContext: dial, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns: 32, MaxIdleConnsPerHost: 32, MaxConnsPerHost: 64, IdleConnTimeout: idleTimeout,
	}
	base = strings.TrimRight(base, "/")
	return &client{
		base: base + "/bot" + token + "/", files: base + "/file/bot" + token + "/",
		http: &http.Client{Transport: t, CheckRedirect: noRedirect}, hide: hider(token, via.password),
	}
}

// noRedirect keeps the token from being carried to wherever a redirect points.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// hider returns a function that takes secrets out of a text.
func hider(token, password string) func(string) string {
	pairs := []string{token, "[token]", url.PathEscape(token), "[token]"}
	if _, secret, ok := strings.Cut(token, ":"); ok && len(secret) > 8 {
		pairs = append(pairs, secret, "[token]")
	}
	if password != "" {
		pairs = append(pairs, password, "[password]")
	}
	return strings.NewReplacer(pairs...).Replace
}

// call makes a request with JSON parameters. result may be nil.
func (c *client) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.long(ctx, method, params, result)
}

// long is call without its time limit.
func (c *client) long(ctx context.Context, method string, params, result any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if params == nil {
		body = []byte("{}")
	}
	return c.post(ctx, method, "application/json", bytes.NewReader(body), result)
}

// post sends a body and reads the answer.
func (c *client) post(ctx context.Context, method, contentType string, body io.Reader, result any) error {
	sent := new(atomic.Bool)
	trace := &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) {
		if i.Err == nil {
			sent.Store(true)
		}
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, c.base+method, body)
	if err != nil {
		return &callError{method: method, cause: "the address is not valid"} // err would print it
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.http.Do(req)
	if err != nil {
		return c.failed(ctx, method, err, sent.Load())
	}
	defer resp.Body.Close()
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		c.ahead.Store(int64(time.Until(date)))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return c.failed(ctx, method, err, true)
	}
	if len(raw) > maxAnswer {
		return &callError{method: method, sent: true, cause: "the answer is too long"}
	}
	return decodeAnswer(method, resp.StatusCode, raw, result)
}

// answer is the frame of every answer of the API.
type answer struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	ErrorCode   int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter      int64 `json:"retry_after"`
		MigrateToChatID int64 `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

func decodeAnswer(method string, status int, raw []byte, result any) error {
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil || !a.OK && a.ErrorCode == 0 && a.Description == "" {
		// Something between us and the server answered, or the server is broken: nothing says what it did.
		return &callError{method: method, sent: true, status: status, cause: fmt.Sprintf("answered %d %s without JSON", status, http.StatusText(status))}
	}
	if !a.OK {
		e := &apiError{method: method, code: a.ErrorCode, description: a.Description, migrateTo: a.Parameters.MigrateToChatID}
		if e.code == 0 {
			e.code = status
		}
		e.retryAfter = time.Duration(min(max(a.Parameters.RetryAfter, 0), maxRetryAfter)) * time.Second
		if e.code == http.StatusTooManyRequests && e.retryAfter == 0 {
			e.retryAfter = time.Second
		}
		return e
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return &callError{method: method, sent: true, cause: "the result is not what the API says"}
	}
	return nil
}

// maxRetryAfter bounds what a server may ask for, in seconds: a day.
const maxRetryAfter = 24 * 60 * 60

// failed makes a *callError of what package http returned, whose text has the whole URL in it.
func (c *client) failed(ctx context.Context, method string, err error, sent bool) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	e := &callError{method: method, sent: sent, cause: c.hide(err.Error())}
	switch {
	case ctx.Err() != nil:
		e.kind = ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		e.kind = context.DeadlineExceeded
	}
	if errors.Is(e.kind, context.DeadlineExceeded) {
		e.cause = "no answer in time"
	}
	if e.cause == "" {
		e.cause = fmt.Sprintf("%T", err)
	}
	return e
}

// serverTime is the time by the server's clock, to about a second.
func (c *client) serverTime() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// closeIdle ends connections that are not used. One whose other end is gone would fail the next request.
func (c *client) closeIdle() { c.http.CloseIdleConnections() }

// open starts a download and returns its body.
func (c *client) open(ctx context.Context, path string) (io.ReadCloser, error) {
	const method = "download"
	escaped := (&url.URL{Path: path}).EscapedPath()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.files+escaped, nil)
	if err != nil {
		return nil, &callError{method: method, cause: "the path is not valid"}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(ctx, method, err, false)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, &apiError{method: method, code: resp.StatusCode, description: http.StatusText(resp.StatusCode)}
	}
	return resp.Body, nil
}
