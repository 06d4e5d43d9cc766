package provider

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// A Class is a kind of failure, as far as it makes a difference to what is done next or what a person is told.
type Class int

// The classes. Unknown is the zero value, so an error nobody thought of is tried again and told as it is.
const (
	Unknown         Class = iota
	Auth                  // the key is missing, wrong or not allowed this
	Billing               // no credit; waiting does not help
	RateLimit             // too many requests; waiting helps
	Overloaded            // the provider has too much to do
	Server                // the provider broke
	Timeout               // no answer, or silence in the middle of one
	Connection            // nothing there: refused, no such host, no route
	CutStream             // the answer ended in the middle
	Malformed             // an answer that is not of the protocol
	Empty                 // a well-formed answer with nothing in it
	ContextOverflow       // the conversation is too long for the model
	ModelNotFound         // the endpoint does not know the model
	WrongURL              // something answers, but no such interface
	Refused               // the provider's content filter
	BadRequest            // the provider does not accept the request as it is
	TooLarge              // the answer is larger than this program takes
	Exhausted             // this machine has no descriptors or memory left for the call; nobody else's fault
)

// rules says what is done about each class as Hermes Agent does it.
//
// Slow doubles the first wait: what was wrong with an answer is seldom right two seconds later.
var rules = [...]struct {
	name  string
	retry bool
	slow  bool
}{
	Unknown:         {"unknown", true, false},
	Auth:            {"auth", false, false},
	Billing:         {"billing", false, false},
	RateLimit:       {"rate_limit", true, false},
	Overloaded:      {"overloaded", true, false},
	Server:          {"server_error", true, false},
	Timeout:         {"timeout", true, false},
	Connection:      {"connection", true, false},
	CutStream:       {"cut_stream", true, false},
	Malformed:       {"malformed", true, true},
	Empty:           {"empty", true, true},
	ContextOverflow: {"context_overflow", false, false},
	ModelNotFound:   {"model_not_found", false, false},
	WrongURL:        {"wrong_url", false, false},
	Refused:         {"content_policy", false, false},
	BadRequest:      {"format_error", false, false},
	TooLarge:        {"too_large", false, false},
	Exhausted:       {"exhausted", false, false},
}

func (c Class) String() string { return rules[c].name }

// Retry says whether the same call may succeed when it is made again.
func (c Class) Retry() bool { return rules[c].retry }

// Slow says whether the first wait before a repeat should be longer.
func (c Class) Slow() bool { return rules[c].slow }

// An Error is a call that failed.
type Error struct {
	Class      Class
	Status     int           // of HTTP, 0 if there was none
	RetryAfter time.Duration // asked for by the provider, 0 if not
	Message    string        // the provider's own words or ours, without secrets, at most maxMessage long
	Err        error         // what is underneath, may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Class.String())
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	} else if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns what is underneath.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of err, Unknown if it has none.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Unknown
}

// maxMessage bounds what of a provider's error page reaches a chat.
const maxMessage = 400

// Shorten makes text fit for a sentence: one line, at most 400 bytes, cut between characters, with nothing in it that moves a
// terminal's cursor.
func Shorten(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + " …"
}
