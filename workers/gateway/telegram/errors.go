package telegram

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An apiError is an answer of the server that says no. The request had no effect, but for codes from 500 on.
type apiError struct {
	method      string
	code        int
	description string
	retryAfter  time.Duration
	migrateTo   int64
}

func (e *apiError) Error() string { return fmt.Sprintf("%s: %d %s", e.method, e.code, e.description) }

// A callError is a request without an answer to go by. It has no cause to unwrap but a context's: the errors of
// package net/http print the URL, and with it the token.
type callError struct {
	method string
	sent   bool // the whole request was written: it may have had its effect
	status int  // of an answer that was not of the API
	cause  string
	kind   error // of package context, or nil
}

func (e *callError) Error() string { return e.method + ": " + e.cause }
func (e *callError) Unwrap() error { return e.kind }

// mayHaveHappened reports whether a request that ended with err may have had its effect.
func mayHaveHappened(err error) bool {
	var c *callError
	if errors.As(err, &c) {
		return c.sent
	}
	var a *apiError
	return errors.As(err, &a) && a.code >= 500
}

// codeOf is the code of an *apiError, 0 for other errors.
func codeOf(err error) int {
	var a *apiError
	if errors.As(err, &a) {
		return a.code
	}
	return 0
}

// retryAfter is how long the server asked to wait.
func retryAfter(err error) (time.Duration, bool) {
	var a *apiError
	if errors.As(err, &a) && a.code == http.StatusTooManyRequests {
		return a.retryAfter, true
	}
	return 0, false
}

// says reports whether the server refused with a text that contains one of these. The API has no finer codes.
func says(err error, texts ...string) bool {
	var a *apiError
	if !errors.As(err, &a) || a.code < 400 || a.code >= 500 {
		return false
	}
	desc := strings.ToLower(a.description)
	for _, t := range texts {
		if strings.Contains(desc, t) {
			return true
		}
	}
	return false
}

// The refusals that are told apart. Texts are the server's, in lower case.
func isNotModified(err error) bool { return says(err, "message is not modified") }
func isNoThread(err error) bool {
	return says(err, "message thread not found", "topic_deleted", "topic_closed")
}
func isWebhookSet(err error) bool { return codeOf(err) == 409 && says(err, "webhook") }

// isNotEditable means that the message is gone or not the bot's: a new one must take its place.
func isNotEditable(err error) bool {
	return says(err, "message to edit not found", "message can't be edited", "message_id_invalid", "no text in the message to edit")
}

// isFormat means that the styling was refused, not the text.
func isFormat(err error) bool { return says(err, "can't parse entities", "entit") }

// isChatGone means that the chat will not take anything from the bot, whatever it is.
func isChatGone(err error) bool {
	return codeOf(err) == http.StatusForbidden || says(err, "chat not found", "peer_id_invalid", "user is deactivated",
		"not enough rights", "have no rights", "need administrator rights", "chat_write_forbidden", "bot is not a member", "group is deactivated")
}

// isUnauthorised means that the server does not know the token. It answers 404 to one that has not the form of a token.
func isUnauthorised(err error) bool {
	return codeOf(err) == http.StatusUnauthorized || codeOf(err) == http.StatusNotFound
}

// asAPI returns err as an answer of the server, nil if it is none.
func asAPI(err error) *apiError {
	var a *apiError
	errors.As(err, &a)
	return a
}
