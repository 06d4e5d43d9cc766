package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

const (
	eventStream = "text/event-stream"
	// maxBlank of white space before an answer are passed over: some servers send it while their model is busy.
	maxBlank = 64 << 10
)

// admit makes a stream of an answer that does not call itself one: of a whole answer, or of a stream under another name. Any
// other is not asked for again, as the next would be the same.
func admit(c *call, resp *http.Response, media string) error {
	r := bufio.NewReader(&listening{c: c, src: resp.Body})
	body := &limited{Reader: r, Closer: resp.Body}
	switch first, err := firstOf(r); {
	case err != nil && !errors.Is(err, io.EOF):
		_ = body.Close()
		return err
	case first == '{' || first == '[':
		resp.Body = body
		return asStream(c, resp, media)
	}
	e := newEvents(c, body)
	e.other, e.media = true, media
	resp.Body = e
	return nil
}

// firstOf returns the first byte that is no white space and leaves it to be read.
func firstOf(r *bufio.Reader) (byte, error) {
	for range maxBlank {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return b, r.UnreadByte()
		}
	}
	return 0, nil
}

// spoken says whether a whole answer is of the protocol, as an error is too, or may have been before it was cut.
func spoken(body []byte) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return !json.Valid(body)
	}
	for _, name := range []string{"choices", "usage", "error"} {
		if _, there := fields[name]; there {
			return true
		}
	}
	return false
}

// foreign describes an answer of another protocol. One that tells of a trouble that passes is believed.
func foreign(media string, body []byte) *provider.Error {
	if media == "text/html" || bytes.HasPrefix(body, []byte("<")) {
		return &provider.Error{Class: provider.WrongURL, Message: "the server answered with a web page"}
	}
	said := provider.Shorten(string(body[:min(len(body), maxLastLine)]))
	if media != "" {
		media = " but " + media
	}
	e := &provider.Error{Class: provider.Classify(0, said), Message: "the answer is no chat completion" + media + ": " + said}
	if e.Class == provider.Unknown {
		e.Class = provider.WrongURL
	}
	return e
}
