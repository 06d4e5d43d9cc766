package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// maxProblems bounds how many faults of one call are listed. All at once spare the model a call for each; more
// than a handful means that it called another tool in its mind.
const maxProblems = 5

// An argumentError says what is wrong with the arguments of a call, for the model to mend.
type argumentError struct{ message string }

func (e *argumentError) Error() string { return e.message }

// BadArguments is for a handler that finds its arguments wrong in a way that no schema can say. The model reads
// the text and may call again; the call counts as not made.
func BadArguments(format string, a ...any) error {
	return &argumentError{fmt.Sprintf(format, a...)}
}

// arguments checks what the model wrote against the schema and returns it in a form that decodes into the Go type:
// defaults filled in, absent values that were written as null removed.
func (s *schema) arguments(tool, text string) (json.RawMessage, error) {
	value, err := parse(text)
	if err != nil {
		return nil, BadArguments("arguments of %s: %v", tool, err)
	}
	dropNulls(s.root, value)
	if err := s.resolved.Validate(value); err != nil {
		found := problems(s.root, value, "")
		if len(found) == 0 {
			found = []string{err.Error()}
		}
		if len(found) > maxProblems {
			found = append(found[:maxProblems], "and more")
		}
		return nil, BadArguments("arguments of %s: %s", tool, strings.Join(found, "; "))
	}
	// A value that is an object is needed as a pointer to it, or the defaults have nowhere to go.
	var filled any = value
	if err := s.resolved.ApplyDefaults(&filled); err != nil {
		return nil, fmt.Errorf("defaults of %s: %w", tool, err)
	}
	return json.Marshal(filled)
}

// parse reads one JSON object. No text at all is an object without members, as some models write it.
func parse(text string) (map[string]any, error) {
	if strings.TrimSpace(text) == "" {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // identifiers of 64 bits stay whole
	var value any
	if err := d.Decode(&value); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("they end in the middle of the JSON; they were cut off, nothing was done")
		}
		return nil, fmt.Errorf("they are not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more after the JSON object")
	}
	if value, err := exact(value); err != nil {
		return nil, err
	} else if object, ok := value.(map[string]any); ok {
		return object, nil
	}
	return nil, fmt.Errorf("they must be a JSON object, not %s", kindOf(value))
}

// exact replaces each json.Number by an int64 where it is one, else by a float64.
func exact(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			if v[name], err = exact(v[name]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = exact(v[i]); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %.20s is out of range", v.String())
		}
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 { // 5.0 and 1e3 are whole numbers too
			return int64(f), nil
		}
		return f, nil
	}
	return value, nil
}

// dropNulls removes members that are null where the schema has them optional and not nullable.
func dropNulls(s *jsonschema.Schema, value any) {
	if s == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			p := s.Properties[name]
			if member == nil && p != nil && !slices.Contains(s.Required, name) && !nullable(p) {
				delete(v, name)
				continue
			}
			if p == nil {
				p = s.AdditionalProperties
			}
			dropNulls(p, member)
		}
	case []any:
		for i := range v {
			dropNulls(s.Items, v[i])
		}
	}
}

func nullable(s *jsonschema.Schema) bool {
	return slices.Contains(s.Types, "null") || s.Type == "" && s.Types == nil
}

// problems lists in plain words what the schema has against value. The library's own text names schemas by
// pointers and stops at the first.
func problems(s *jsonschema.Schema, value any, path string) []string {
	if s == nil {
		return nil
	}
	if found := problem(s, value, path); found != "" {
		return []string{found}
	}
	var all []string
	switch v := value.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				all = append(all, fmt.Sprintf("%q is missing", join(path, name)))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch p := s.Properties[name]; {
			case p != nil:
				all = append(all, problems(p, v[name], join(path, name))...)
			case s.Properties != nil:
				all = append(all, fmt.Sprintf("%q is not an argument (there are: %s)", join(path, name), strings.Join(s.PropertyOrder, ", ")))
			default:
				all = append(all, problems(s.AdditionalProperties, v[name], join(path, name))...)
			}
		}
	case []any:
		for i := range v {
			all = append(all, problems(s.Items, v[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return all
}

// problem names what is wrong with value itself, not with what it holds.
func problem(s *jsonschema.Schema, value any, path string) string {
	kind := kindOf(value)
	allowed := s.Types
	if s.Type != "" {
		allowed = []string{s.Type}
	}
	if len(allowed) > 0 && !slices.Contains(allowed, kind) && !(kind == "integer" && slices.Contains(allowed, "number")) {
		return fmt.Sprintf("%q must be %s, not %s", path, strings.Join(allowed, " or "), kind)
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e any) bool { return e == value }) {
		return fmt.Sprintf("%q must be one of %s", path, listed(s.Enum))
	}
	var f float64
	switch n := value.(type) {
	case int64:
		f = float64(n)
	case float64:
		f = n
	default:
		return ""
	}
	switch {
	case s.Minimum != nil && f < *s.Minimum:
		return fmt.Sprintf("%q must be at least %v", path, *s.Minimum)
	case s.Maximum != nil && f > *s.Maximum:
		return fmt.Sprintf("%q must be at most %v", path, *s.Maximum)
	}
	return ""
}

func listed(values []any) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v", v)
	}
	return b.String()
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// kindOf names the JSON type of a decoded value.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case int64:
		return "integer"
	case float64, json.Number:
		return "number"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// decode turns checked arguments into the Go type.
func decode[In any](tool string, arguments json.RawMessage) (In, error) {
	var in In
	d := json.NewDecoder(bytes.NewReader(arguments))
	if err := d.Decode(&in); err != nil {
		return in, BadArguments("arguments of %s: %v", tool, err)
	}
	if v, ok := any(&in).(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return in, BadArguments("arguments of %s: %v", tool, err)
		}
	}
	return in, nil
}
