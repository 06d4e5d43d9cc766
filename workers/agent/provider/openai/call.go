package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

const (
	// maxBody bounds what one call may send us, thrown away or not.
	maxBody = 64 << 20
	// maxWhole bounds an answer that is no stream, with all its escapes.
	maxWhole = 8 << 20
	// maxErrorBody is enough for any error object; a proxy's error page may be longer.
	maxErrorBody = 64 << 10
	// maxLastLine is what is kept of the line last read, to say what was wrong with it.
	maxLastLine = 4 << 10
	// maxRetryAfter takes the place of numbers that would overflow.
	maxRetryAfter = 30 * 24 * time.Hour
	// drainTime is how long the end of a finished stream is waited for, so that its connection can be used again.
	drainTime = 20 * time.Millisecond
)

var (
	errIdle  = errors.New("the server sent nothing")
	errStall = errors.New("the server sent only keep-alives")
	errTotal = errors.New("the answer did not end")
)

// A call is one HTTP exchange as seen from below the library: what its headers said, what its stream ended with, and
// the clocks that end it when the server falls silent.
type call struct {
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   time.Duration

	silence, stall, total *time.Timer

	mu         sync.Mutex
	retryAfter time.Duration
	html       bool
	answered   bool   // there was at least one event
	done       bool   // the stream said [DONE]
	cut        bool   // the last line had no end
	last       []byte // start of the last line that was neither blank nor [DONE]
}

type callKey struct{}

func startCall(ctx context.Context, idle time.Duration) *call {
	c := &call{parent: ctx, idle: idle}
	ctx, c.cancel = context.WithCancelCause(ctx)
	c.ctx = context.WithValue(ctx, callKey{}, c)
	c.silence = time.AfterFunc(idle, func() { c.cancel(errIdle) })
	c.stall = time.AfterFunc(stallFactor*idle, func() { c.cancel(errStall) })
	c.total = time.AfterFunc(callTimeout, func() { c.cancel(errTotal) })
	return c
}

func (c *call) end() {
	c.silence.Stop()
	c.stall.Stop()
	c.total.Stop()
	c.cancel(context.Canceled)
}

// heard is called for every byte, progressed for every event.
func (c *call) heard() { c.silence.Reset(c.idle) }

func (c *call) progressed() {
	c.stall.Reset(stallFactor * c.idle)
	c.mu.Lock()
	c.answered = true
	c.mu.Unlock()
}

func (c *call) sawDone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

func (c *call) hasAnswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

func (c *call) lastLine() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.last)
}

// transport looks at responses on their way to the library, which passes on neither headers nor what it could not read.
type transport struct {
	next *http.Transport
}

func (t *transport) CloseIdleConnections() { t.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	c, ok := req.Context().Value(callKey{}).(*call)
	if err != nil || !ok {
		return resp, err
	}
	c.heard()
	c.mu.Lock()
	c.retryAfter = retryAfter(resp.Header, time.Now())
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	c.html = media == "text/html"
	c.mu.Unlock()
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		resp.Body = &limited{Reader: io.LimitReader(resp.Body, maxErrorBody), Closer: resp.Body}
	case media == eventStream:
		resp.Body = newEvents(c, resp.Body)
	default:
		if err := admit(c, resp, media); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

type limited struct {
	io.Reader
	io.Closer
}

// asStream turns the answer of a server that cannot stream into a stream of one event. An error object is one, too.
func asStream(c *call, resp *http.Response, media string) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxWhole))
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	if !spoken(body) {
		return foreign(media, body)
	}
	var one bytes.Buffer
	one.WriteString("data: ")
	if json.Compact(&one, body) == nil {
		one.WriteString("\n\ndata: [DONE]\n\n")
	} else {
		one.Reset()
		one.Write(body)
		one.WriteByte('\n')
	}
	resp.Body = newEvents(c, io.NopCloser(&one))
	return nil
}

// listening tells the call of every byte that comes.
type listening struct {
	c   *call
	src io.Reader
}

func (l *listening) Read(p []byte) (int, error) {
	n, err := l.src.Read(p)
	if n > 0 {
		l.c.heard()
	}
	return n, err
}

// events is the body of a stream on its way to the library. It drops the lines that are no data, because the library
// would collect comments (OpenRouter and others send them as keep-alives) and then not recognise an error after them;
// it ends a last line that was cut, which the library would drop; and it remembers how the stream ended.
type events struct {
	c       *call
	other   bool   // it does not call itself a stream of events
	media   string // but this, if anything
	begun   bool   // there was a line that is not blank
	src     io.ReadCloser
	r       *bufio.Reader
	left    int64
	pending []byte
	line    []byte // start of the current line
	inLine  bool   // the next part continues it
	drop    bool   // it is not passed on
	eof     bool
}

func newEvents(c *call, src io.ReadCloser) *events {
	return &events{c: c, src: src, r: bufio.NewReader(&listening{c: c, src: src}), left: maxBody}
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.pending) == 0 {
		if e.eof {
			return 0, io.EOF
		}
		if err := e.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, e.pending)
	e.pending = e.pending[n:]
	return n, nil
}

// fill reads one line, or a part of a long one, into pending, which is valid until the next fill.
func (e *events) fill() error {
	part, err := e.r.ReadSlice('\n')
	if e.left -= int64(len(part)); e.left < 0 {
		return &provider.Error{Class: provider.TooLarge, Message: "the server sent more than 64 MiB for one answer"}
	}
	e.eof = errors.Is(err, io.EOF)
	if text := bytes.TrimSpace(part); !e.begun && len(text) > 0 {
		e.begun = true
		if e.other && !isField(text) && !bytes.HasPrefix(text, []byte("data:")) {
			return foreign(e.media, text)
		}
	}
	if len(part) > 0 {
		e.take(part)
	}
	if e.eof && e.inLine {
		e.endLine()
		e.c.mu.Lock()
		e.c.cut = true
		e.c.mu.Unlock()
		if !e.drop {
			e.pending = append(bytes.Clone(e.pending), '\n')
		}
	}
	if e.eof || errors.Is(err, bufio.ErrBufferFull) {
		return nil
	}
	return err
}

// take decides about a line at its start and keeps that start.
func (e *events) take(part []byte) {
	text := bytes.TrimSpace(part)
	if !e.inLine {
		e.drop = isField(text)
		e.line = e.line[:0]
	}
	e.line = append(e.line, text[:min(len(text), maxLastLine-len(e.line))]...)
	if !e.drop {
		e.pending = part
		if !e.inLine {
			e.pending = plain(part)
		}
	}
	if e.inLine = !bytes.HasSuffix(part, []byte("\n")); !e.inLine {
		e.endLine()
	}
}

// plain spaces out an event that begins with an error field. The library takes such an event for a failure even if the
// field is null, reads it only if it is an object, and waits for one more line before it says so.
func plain(part []byte) []byte {
	field, object, found := bytes.Cut(part, []byte("{"))
	if !found || !bytes.HasPrefix(object, []byte(`"error":`)) || string(bytes.TrimSpace(field)) != "data:" {
		return part
	}
	return append([]byte("data: { "), object...)
}

func (e *events) endLine() {
	if e.drop || len(e.line) == 0 {
		return
	}
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	if bytes.Equal(bytes.TrimSpace(bytes.TrimPrefix(e.line, []byte("data:"))), []byte("[DONE]")) {
		e.c.done = true
		return
	}
	e.c.last = append(e.c.last[:0], e.line...)
}

// isField says whether a line is a comment or a field of an event stream other than its data.
func isField(line []byte) bool {
	for _, f := range []string{":", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(line, []byte(f)) {
			return true
		}
	}
	return false
}

// Close waits a moment for the end of a stream that has said its last word: a connection closed before its end
// cannot be used again, and the next call would pay for a new one.
func (e *events) Close() error {
	if e.c.sawDone() && !e.eof {
		t := time.AfterFunc(drainTime, func() { e.c.cancel(context.Canceled) })
		_, _ = io.CopyN(io.Discard, e.r, 4<<10)
		t.Stop()
	}
	return e.src.Close()
}

// retryAfter reads how long the server asks us to wait: milliseconds, seconds or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	var d time.Duration
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		d = scaled(ms, time.Millisecond)
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		d = scaled(s, time.Second)
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

func scaled(n float64, unit time.Duration) time.Duration {
	if !(n < maxRetryAfter.Seconds()*1000) {
		return maxRetryAfter
	}
	return time.Duration(n * float64(unit))
}
