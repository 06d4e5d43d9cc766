package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// A failure is an error as clients of the protocol expect it.
type failure struct {
	Status     int    `json:"-"`
	RetryAfter int    `json:"-"` // seconds; 0: no header
	Allow      string `json:"-"` // methods, with 405
	// Final asks the client's library not to repeat by itself: the message may have been taken and has no key that
	// would make the repeat harmless.
	Final bool `json:"-"`

	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (f *failure) Error() string { return f.Message }

// The types of failure that clients of the protocol know.
const (
	typeInvalid    = "invalid_request_error"
	typeAuth       = "authentication_error"
	typePermission = "permission_error"
	typeRate       = "rate_limit_error"
	typeServer     = "server_error"
)

func fail(status int, kind, code, format string, args ...any) *failure {
	return &failure{Status: status, Type: kind, Code: &code, Message: fmt.Sprintf(format, args...)}
}

// invalid is a mistake in one field of the request.
func invalid(param, code, format string, args ...any) *failure {
	f := fail(http.StatusBadRequest, typeInvalid, code, format, args...)
	if param != "" {
		f.Param = &param
	}
	return f
}

// busySeconds is when to come back: turns take seconds, and a client has its own backoff on top.
const busySeconds = 2

func unavailable(code, format string, args ...any) *failure {
	f := fail(http.StatusServiceUnavailable, typeServer, code, format, args...)
	f.RetryAfter = busySeconds
	return f
}

// acceptFailure says why a message was not taken. keyed is whether a repeat of it is harmless.
func acceptFailure(err error, keyed bool) *failure {
	switch {
	case errors.Is(err, gateway.ErrTooLarge):
		return fail(http.StatusRequestEntityTooLarge, typeInvalid, "request_too_large",
			"The messages are larger than %d MiB together. Go on in a session (X-Hermes-Session-Id) instead of sending the whole conversation.", ipc.MaxMessageBytes>>20)
	case errors.Is(err, ipc.ErrNotFound):
		return fail(http.StatusNotFound, typeInvalid, "session_not_found", "There is no session of the id in X-Hermes-Session-Id.")
	case errors.Is(err, ipc.ErrDenied):
		return fail(http.StatusForbidden, typePermission, "session_not_allowed", "The session of %s cannot be used here: %s.", sessionHeader, err)
	case errors.Is(err, ipc.ErrExists):
		return fail(http.StatusUnprocessableEntity, typeInvalid, "idempotency_key_reused",
			"This Idempotency-Key was used with another request. A key stands for one message: use a new key for a new one.")
	case errors.Is(err, ipc.ErrInvalid):
		return invalid("", "invalid_request", "The message was refused: %s.", err)
	case errors.Is(err, ipc.ErrBusy), errors.Is(err, ipc.ErrRefused):
		return unavailable("not_accepted", "The message was not taken: %s. Try again.", err)
	}
	if keyed {
		return unavailable("not_confirmed", "It is not known whether the message was taken: %s. Try again with the same Idempotency-Key.", err)
	}
	f := unavailable("not_confirmed", "It is not known whether the message was taken: %s. It was sent without an Idempotency-Key, so a repeat may have it answered twice.", err)
	f.Final = true
	return f
}

// write sends a failure as the whole answer.
func (f *failure) write(w http.ResponseWriter) {
	h := w.Header()
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	if f.Allow != "" {
		h.Set("Allow", f.Allow)
	}
	if f.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="hermes"`)
	}
	if f.Final {
		h.Set("X-Should-Retry", "false")
	}
	writeJSON(w, f.Status, map[string]*failure{"error": f})
}

// writeJSON sends v as the whole answer. A client that is gone by now is nobody's error.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only values of this package come here
		panic(fmt.Sprintf("api: answer: %v", err))
	}
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_ = conn.Flush() // while the deadline holds
}
