package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Secrets holds the values of .env and looks further in the environment. It prints as a mask in every format, so
// that a configuration can be logged whole.
type Secrets struct {
	values map[string]string
	env    func(string) (string, bool)
}

const mask = "[redacted]"

func newSecrets(values map[string]string, env func(string) (string, bool)) Secrets {
	return Secrets{values: values, env: env}
}

// Lookup returns the value of a variable: from .env, else from the environment. An empty value is not set.
func (s Secrets) Lookup(name string) (string, bool) {
	if v := s.values[name]; v != "" {
		return v, true
	}
	if s.env == nil {
		return "", false
	}
	v, ok := s.env(name)
	return v, ok && v != ""
}

// Has says whether a variable is set.
func (s Secrets) Has(name string) bool {
	_, ok := s.Lookup(name)
	return ok
}

// Names lists the variables of .env.
func (s Secrets) Names() []string { return slices.Sorted(maps.Keys(s.values)) }

// Values lists the values of .env, longest first, for a redactor of logs.
func (s Secrets) Values() []string {
	list := slices.Collect(maps.Values(s.values))
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// Spellings are a value as it is, and as it is written in a string of JSON, with <, > and & as they are and escaped, and in an
// address: a redactor that knows the value alone does not find it in a request that is logged.
func Spellings(value string) []string {
	list := []string{value, url.QueryEscape(value), url.PathEscape(value)}
	for _, escapeHTML := range []bool{false, true} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(escapeHTML)
		if e.Encode(value) == nil {
			list = append(list, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// The methods below are every way in which fmt, encoding/json and slog would look inside.

func (s Secrets) String() string               { return mask }
func (s Secrets) GoString() string             { return mask }
func (s Secrets) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(mask)) }
func (s Secrets) MarshalText() ([]byte, error) { return []byte(mask), nil }
func (s Secrets) LogValue() slog.Value         { return slog.StringValue(mask) }
