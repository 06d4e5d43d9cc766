package provider

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		status  int
		message string
		want    Class
	}{
		{401, "", Auth},
		{402, "Insufficient credits", Billing},
		{402, "usage limit reached, try again at 5", RateLimit},
		{403, "billing hard limit", Billing},
		{403, "", Auth},
		{404, "The model `x` does not exist or you do not have access to it", ModelNotFound},
		{404, "", WrongURL},
		{405, "", WrongURL},
		{408, "", Timeout},
		{409, "", BadRequest},
		{413, "", ContextOverflow},
		{400, "x is not a valid model id", ModelNotFound},
		{400, "maximum context length is 5", ContextOverflow},
		{400, "violates our usage policies", Refused},
		{400, "bad", BadRequest},
		{429, "too many tokens per minute", RateLimit},
		{429, "the engine is overloaded", Overloaded},
		{429, "insufficient_quota", Billing},
		{500, "", Server},
		{502, "", Server},
		{503, "", Overloaded},
		{504, "", Timeout},
		{524, "", Timeout},
		{529, "", Overloaded},
		{599, "", Server},
		{0, "Rate limit reached", RateLimit},
		{0, "server_error", Server},
		{0, "context_length_exceeded", ContextOverflow},
		{0, "whatever", Unknown},
		{302, "", Unknown},
	} {
		if got := Classify(c.status, c.message); got != c.want {
			t.Errorf("%d %q: %s, want %s", c.status, c.message, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	err := fmt.Errorf("call: %w", &Error{Class: RateLimit, Status: 429, Message: "slow down"})
	if ClassOf(err) != RateLimit || ClassOf(io.EOF) != Unknown {
		t.Error("ClassOf")
	}
	for _, c := range []struct {
		err  *Error
		want string
	}{
		{&Error{Class: RateLimit, Status: 429, Message: "slow down"}, "rate_limit (429): slow down"},
		{&Error{Class: Timeout, Err: io.EOF}, "timeout: EOF"},
		{&Error{}, "unknown"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if !errors.Is(&Error{Err: io.EOF}, io.EOF) {
		t.Error("does not unwrap")
	}
	for c := Unknown; c <= Exhausted; c++ {
		if c.String() == "" {
			t.Errorf("class %d has no name", c)
		}
	}
}

func TestShorten(t *testing.T) {
	for in, want := range map[string]string{" a\n b\t": "a b", "\xff": "?", "": "", "a\x1b[2Jb\x00": "a?[2Jb?"} {
		if got := Shorten(in); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Shorten(strings.Repeat("ä", 1000)); !utf8.ValidString(got) || len(got) > maxMessage+4 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestUsageAdds(t *testing.T) {
	u := Usage{1, 2, 3, 4}
	if got := u.Add(u); got != (Usage{2, 4, 6, 8}) {
		t.Errorf("%v", got)
	}
}
