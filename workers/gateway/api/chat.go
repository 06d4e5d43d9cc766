package api

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// Headers of requests and answers.
const (
	idempotencyHeader = "Idempotency-Key"
	sessionHeader     = "X-Hermes-Session-Id"
	progressHeader    = "X-Hermes-Tool-Progress" // comment | event
)

const (
	maxKey = 255
	// chatID is the one chat of all clients: message ids are unique within it, conversations are by session.
	chatID = "api"
	// interruptTimeout bounds the call that ends the turn of a client that went away.
	interruptTimeout = 5 * time.Second
)

// A run is one chat completion from its request to its answer.
type run struct {
	*adapter
	request
	key      string // Idempotency-Key, may be empty
	session  string // X-Hermes-Session-Id, may be empty
	progress string
	accepted gateway.Accepted
}

// complete serves POST /v1/chat/completions.
func (a *adapter) complete(w http.ResponseWriter, r *http.Request) {
	if a.draining.Load() {
		unavailable("draining", "The agent is stopping and takes nothing new. Try again.").write(w)
		return
	}
	c, f := a.readRun(w, r)
	if f != nil {
		f.write(w)
		return
	}
	select {
	case a.runs <- struct{}{}:
		defer func() { <-a.runs }()
	default:
		f := fail(http.StatusTooManyRequests, typeRate, "too_many_runs",
			"%d requests are being answered, which is the limit (adapters.api.max_concurrent_runs). Try again.", cap(a.runs))
		f.RetryAfter = busySeconds
		f.write(w)
		return
	}
	defer a.services.Begin()()
	var err error
	// Neither a client that goes nor a stop cuts this short: what became of the message has to be known.
	if c.accepted, err = a.services.Accept(context.WithoutCancel(r.Context()), c.message()); err != nil {
		f := acceptFailure(err, c.key != "")
		if f.Status >= http.StatusInternalServerError { // anything else is the client's business
			a.log.Warn("message not accepted", "error", err)
		}
		f.write(w)
		return
	}
	w.Header().Set(sessionHeader, c.accepted.SessionID)
	if c.stream {
		err = c.streamed(w, r)
	} else {
		err = c.whole(w, r)
	}
	switch {
	case err == nil:
		a.received()
	case r.Context().Err() != nil || errors.Is(err, errGone):
		c.left(err)
	default:
		a.log.Warn("answer lost", "turn", c.accepted.TurnID, "error", err)
	}
}

// readRun reads all that a request says.
func (a *adapter) readRun(w http.ResponseWriter, r *http.Request) (*run, *failure) {
	c := &run{
		adapter: a, key: r.Header.Get(idempotencyHeader), session: r.Header.Get(sessionHeader),
		progress: r.Header.Get(progressHeader),
	}
	if !header(c.key) || !header(c.session) {
		return nil, fail(http.StatusBadRequest, typeInvalid, "invalid_header",
			"%s and %s may have up to %d visible ASCII characters.", idempotencyHeader, sessionHeader, maxKey)
	}
	if c.progress != "" && c.progress != "comment" && c.progress != "event" {
		return nil, fail(http.StatusBadRequest, typeInvalid, "invalid_header", "%s must be comment or event.", progressHeader)
	}
	body, f := readBody(w, r)
	if f != nil {
		return nil, f
	}
	parsed, f := parse(body)
	if f != nil {
		return nil, f
	}
	c.request = *parsed
	return c, nil
}

func header(s string) bool {
	for _, b := range []byte(s) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return len(s) <= maxKey
}

// readBody reads a body of JSON within the limits of size and time. Other types are refused: a web page can send
// them anywhere without asking.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *failure) {
	if t := mediaType(r); t != "application/json" {
		return nil, fail(http.StatusUnsupportedMediaType, typeInvalid, "unsupported_media_type",
			"Content-Type is %q, it must be application/json.", t)
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	// Without a deadline again, or the watch for the client's end would take it for that.
	_ = conn.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, fail(http.StatusRequestEntityTooLarge, typeInvalid, "request_too_large", "The body is larger than %d MiB.", maxBody>>20)
	case err != nil:
		return nil, invalid("", "incomplete_body", "The body did not arrive: %s.", err)
	}
	return body, nil
}

// message is the request as the supervisor takes it.
func (c *run) message() gateway.Message {
	m := gateway.Message{
		ChatID: chatID, ChatType: "dm", UserID: c.user, UserName: c.user,
		Text: c.text, SessionID: c.session, System: c.system, History: c.history,
	}
	if c.key != "" {
		// The prefixes keep a client's key from being a number of ours.
		m.ID, m.Fingerprint = "key/"+c.key, c.fingerprint(c.session)
	} else {
		m.ID = "request/" + rand.Text()
	}
	if c.session == "" {
		m.SessionKey = "agent:main:" + Platform + ":dm:" + m.ID // each is a conversation of its own
	}
	return m
}

// whole answers in one piece when the turn has ended.
func (c *run) whole(w http.ResponseWriter, r *http.Request) error {
	final, err := c.services.Follow(r.Context(), c.accepted.TurnID, func(*turnv1.TurnEvent) error { return nil })
	if err != nil {
		c.lost().write(w)
		return err
	}
	writeJSON(w, http.StatusOK, newAnswer(c.accepted.TurnID, c.model).whole(final, c.accepted.TurnID))
	return nil
}

// lost is the answer when the turn can no longer be followed. The turn itself goes on.
func (c *run) lost() *failure {
	f := unavailable("answer_lost", "The agent is stopping or restarting. The message was taken and is still answered; ask again with the same Idempotency-Key to get the answer.")
	if c.key == "" {
		f.Message = "The agent is stopping or restarting. The message was taken and is answered, but it was sent without an Idempotency-Key, so the answer cannot be asked for. It will be in session " + c.accepted.SessionID + "."
		f.Final = true
	}
	return f
}

// left decides about a turn whose client did not wait for the answer. With a key the client can come back for it;
// without one nobody can, so nothing more is done for it. A stop of this process is not the client's doing.
func (c *run) left(cause error) {
	if c.key != "" || c.stopping.Err() != nil {
		c.log.Debug("answer not given", "turn", c.accepted.TurnID, "error", cause)
		return
	}
	ctx, cancel := context.WithTimeout(c.stopping, interruptTimeout)
	defer cancel()
	if _, err := c.services.Interrupt(ctx, c.accepted.TurnID, "the client went away"); err != nil {
		c.log.Warn("turn of a client that went away not interrupted", "turn", c.accepted.TurnID, "error", err)
	}
}
