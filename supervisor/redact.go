package supervisor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
)

// minSecret is the shortest value that is searched for in log lines: a shorter one is no secret, and replacing "1" or
// "true" would make every line unreadable.
const minSecret = 8

// redactor returns a function that replaces every value in a text, or nil if there are none. Values are given longest
// first, so that one that is part of another does not leave the rest of it behind.
func redactor(values []string) func(string) string {
	var pairs []string
	for _, v := range values {
		if len(v) >= minSecret {
			pairs = append(pairs, v, "[redacted]")
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return strings.NewReplacer(pairs...).Replace
}

// A redaction is a redactor whose secrets may grow while it is used. It is safe for concurrent use.
type redaction struct {
	mu     sync.Mutex // of add
	values []string
	redact atomic.Pointer[func(string) string]
}

// add makes more values secret. Those of before stay so: a token that was replaced may still be in a text on its way.
func (r *redaction) add(values []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, value := range values {
		if len(value) < minSecret {
			continue // its spellings may be longer, and are no secret either
		}
		for _, v := range config.Spellings(value) {
			if !slices.Contains(r.values, v) {
				r.values = append(r.values, v)
			}
		}
	}
	slices.SortStableFunc(r.values, func(a, b string) int { return len(b) - len(a) })
	if f := redactor(r.values); f != nil {
		r.redact.Store(&f)
	}
}

// text returns a text without the secrets in it.
func (r *redaction) text(s string) string {
	if f := r.redact.Load(); f != nil {
		return (*f)(s)
	}
	return s
}

// redactedEvents keeps secrets out of the journal, which outlives the log and is what people paste into reports. Texts of
// events come from workers and their libraries as well: errors, panics, the last lines before a death.
type redactedEvents struct {
	event.Store
	redact func(string) string // nil: nothing is secret
}

// Append stores the event without the secrets in it.
func (r redactedEvents) Append(ctx context.Context, e store.Event) (int64, error) {
	if r.redact != nil {
		e.Message = r.redact(e.Message)
		fields := make(map[string]string, len(e.Fields)) // whose map it is may still read it
		for k, v := range e.Fields {
			fields[k] = r.redact(v)
		}
		e.Fields = fields
	}
	return r.Store.Append(ctx, e)
}
