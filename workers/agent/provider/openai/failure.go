package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// failure makes a *provider.Error of whatever ended a call, without the key in it. If the caller's context has
// ended, its cause is returned: that is nobody's failure.
func (p *Provider) failure(c *call, key string, err error) error {
	if err == nil {
		return nil
	}
	cause := context.Cause(c.ctx)
	e := &provider.Error{Err: err}
	var own *provider.Error
	switch {
	case errors.Is(cause, errIdle):
		e.Class, e.Message = provider.Timeout, fmt.Sprintf("the server sent nothing for %s", c.idle)
	case errors.Is(cause, errStall):
		e.Class, e.Message = provider.Timeout, fmt.Sprintf("the server sent only keep-alives for %s", stallFactor*c.idle)
	case errors.Is(cause, errTotal):
		e.Class, e.Message = provider.Timeout, fmt.Sprintf("the answer did not end within %s", callTimeout)
	case c.parent.Err() != nil:
		return context.Cause(c.parent)
	case errors.As(err, &own):
		e = own
	default:
		p.describe(c, e, err)
	}
	c.mu.Lock()
	e.RetryAfter = c.retryAfter
	if c.cut && e.Class == provider.Malformed {
		e.Class, e.Message = provider.CutStream, "the connection ended in the middle of the answer"
	}
	c.mu.Unlock()
	if len(key) >= 4 { // a shorter one is no key, and replacing it would garble the message
		e.Message = strings.ReplaceAll(e.Message, key, "[key]")
	}
	e.Message = provider.Shorten(e.Message)
	e.Err = nil // may hold the key, and says nothing that the class and the message do not
	return e
}

// describe classifies what came from the library or from below it.
func (p *Provider) describe(c *call, e *provider.Error, err error) {
	if status, message := statusOf(err); status != 0 {
		e.Status, e.Message, e.Class = status, message, provider.Classify(status, message)
		return
	}
	var api *sdk.APIError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &api):
		*e = *inStream(c.lastLine())
	case errors.Is(err, sdk.ErrTooManyEmptyStreamMessages):
		e.Class, e.Message = provider.Malformed, "the server sends blank lines instead of an answer"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
		e.Class, e.Message = provider.Exhausted, err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Class, e.Message = provider.Connection, "connection refused: nothing listens there"
	case errors.As(err, &dns):
		e.Class, e.Message = provider.Connection, "no such host: "+dns.Name
	case errors.As(err, &op) && op.Op == "dial":
		e.Class, e.Message = provider.Connection, op.Error()
	case c.hasAnswered():
		e.Class, e.Message = provider.CutStream, "the connection ended in the middle of the answer"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		e.Class, e.Message = provider.CutStream, "the server closed the connection without an answer"
	default:
		var slow interface{ Timeout() bool }
		e.Class, e.Message = provider.Connection, err.Error()
		if errors.As(err, &slow) && slow.Timeout() {
			e.Class = provider.Timeout
		}
	}
}

// statusOf returns the HTTP status and the words of an answer that was an error, 0 if there was none.
func statusOf(err error) (int, string) {
	var api *sdk.APIError
	if errors.As(err, &api) && api.HTTPStatusCode != 0 {
		message := api.Message
		if code, ok := api.Code.(string); ok && !strings.Contains(message, code) {
			message = strings.TrimSpace(message + " (" + code + ")")
		}
		return api.HTTPStatusCode, message
	}
	var req *sdk.RequestError
	if errors.As(err, &req) && req.HTTPStatusCode != 0 {
		return req.HTTPStatusCode, words(req.Body)
	}
	return 0, ""
}

// words finds the sentence in an error body: servers write {"error":"…"}, {"message":"…"}, {"detail":…} or a page.
func words(body []byte) string {
	var object struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &object) != nil {
		if strings.HasPrefix(text, "<") {
			return "the server answered with a web page"
		}
		return provider.Shorten(text)
	}
	for _, raw := range []json.RawMessage{object.Error, object.Detail} {
		var s string
		if json.Unmarshal(raw, &s) == nil && s != "" {
			return s
		}
	}
	if object.Message != "" {
		return object.Message
	}
	return provider.Shorten(text)
}

// inStream reads an error object that came as an event.
func inStream(line []byte) *provider.Error {
	line = []byte(strings.TrimSpace(strings.TrimPrefix(string(line), "data:")))
	var event struct {
		Error json.RawMessage `json:"error"`
	}
	e := &provider.Error{Class: provider.Server}
	if json.Unmarshal(line, &event) != nil {
		e.Message = "an error in the answer: " + provider.Shorten(string(line))
		return e
	}
	var object struct {
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
		Type    string          `json:"type"`
	}
	if json.Unmarshal(event.Error, &e.Message) != nil {
		if json.Unmarshal(event.Error, &object) == nil {
			e.Message = object.Message
		}
		if e.Message == "" {
			e.Message = string(event.Error)
		}
	}
	_ = json.Unmarshal(object.Code, &e.Status) // a number is a status, a word is not
	if e.Status < 400 || e.Status > 599 {
		e.Status = 0
	}
	if c := provider.Classify(e.Status, e.Message+" "+object.Type+" "+string(object.Code)); c != provider.Unknown {
		e.Class = c
	}
	return e
}

// notAStream describes an answer with status 200 that held no event at all.
func notAStream(c *call) *provider.Error {
	c.mu.Lock()
	html := c.html
	c.mu.Unlock()
	last := c.lastLine()
	switch {
	case html || strings.HasPrefix(string(last), "<"):
		return &provider.Error{Class: provider.WrongURL, Message: "the server answered with a web page"}
	case len(last) == 0 && c.sawDone():
		return &provider.Error{Class: provider.Empty, Message: "the answer holds nothing"}
	case len(last) == 0:
		return &provider.Error{Class: provider.CutStream, Message: "the server closed the connection without an answer"}
	}
	return &provider.Error{Class: provider.Malformed, Message: "the answer is no chat completion: " + provider.Shorten(string(last))}
}
