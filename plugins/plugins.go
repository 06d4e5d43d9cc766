// Package plugins is what the author of a tool plugin imports. A tool is a function of Go types; the package makes
// the JSON schema that the model sees from the argument type, checks every call against it before the function
// runs, and carries progress, output, cancellation, deadlines and secrets:
//
//	type Args struct {
//		City string `json:"city" jsonschema:"city name, for example Paris"`
//		Days int    `json:"days,omitempty" jsonschema:"days ahead" minimum:"1" maximum:"7" default:"1"`
//	}
//
//	func main() {
//		plugins.Main("weather", "0.1.0", plugins.Func("forecast", "Weather forecast for a city.", forecast))
//	}
//
//	func forecast(ctx context.Context, c *plugins.Call, a Args) (string, error) { … }
//
// The built-in tools worker is made of the same parts.
//
// Rules: a call ends when its context ends; a handler that goes on regardless is given up after a grace period and
// its plugin reported as degraded. A panic in a handler costs that call alone, a panic in a goroutine that the
// handler started costs the process. Nothing that a handler returns or prints can break the connection: results
// are capped, made valid UTF-8, and progress is limited in rate.
package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// SDKVersion names the version of this package that a plugin was built with. 0.2.0 brought UsesSecret and its kin. Older
// versions are kept in testdata/compat, and run by a test.
const SDKVersion = "0.2.0"

const (
	// defaultTimeout ends a call of a tool that names no time of its own. Most tools answer in seconds; a model
	// waits for the slowest of its parallel calls.
	defaultTimeout = 60 * time.Second
	// maxTimeout is the longest that any tool may ask for. What takes longer belongs in a job that is polled.
	maxTimeout = time.Hour
)

// A Tool is a typed function together with what the model is told about it. Make one with Func.
type Tool struct {
	spec  *toolv1.ToolSpec
	in    reflect.Type
	input *schema
	run   func(ctx context.Context, c *Call, arguments json.RawMessage) (any, error)
	check func(ctx context.Context, arguments json.RawMessage) (Verdict, error)
	wants *toolv1.Wants
	err   error // of an option
}

// Name is the name under which the model calls the tool.
func (t Tool) Name() string { return t.spec.Name }

// Description is what the model reads about the tool.
func (t Tool) Description() string { return t.spec.Description }

// InputSchema is the JSON schema of the arguments.
func (t Tool) InputSchema() string { return t.spec.InputSchemaJson }

// An Option changes a tool. It is given to Func.
type Option func(*Tool)

// longestToolName is what every model provider takes.
const longestToolName = 64

// isToolName says whether a name is one that every model provider accepts for a function, and that a person can type. (An
// expression that counts to 64 takes longer to compile than a worker's whole code before main.)
func isToolName(name string) bool {
	for i, c := range []byte(name) {
		if c < 'a' || c > 'z' {
			if i == 0 || c != '_' && (c < '0' || c > '9') {
				return false
			}
		}
	}
	return name != "" && len(name) <= longestToolName
}

// Func makes a tool of a function. In must be a struct: each exported field is an argument, named by its json tag
// and described to the model by its jsonschema tag; the tags enum (values separated by commas), minimum, maximum
// and default narrow it further. A field is required unless its json tag says omitempty. An In with a method
// Validate() error has the last word on its arguments.
//
// An Out that is a string (or a type of one) reaches the model as it is, anything else as JSON.
//
// A tool that cannot be made is a mistake in the program, so Func panics, at its start, and says which.
func Func[In, Out any](name, description string, f func(context.Context, *Call, In) (Out, error), options ...Option) Tool {
	t := Tool{
		in: reflect.TypeFor[In](), wants: &toolv1.Wants{},
		spec: &toolv1.ToolSpec{
			Name: name, Description: strings.TrimSpace(description),
			DefaultTimeoutMs: defaultTimeout.Milliseconds(), MaxTimeoutMs: defaultTimeout.Milliseconds(),
		},
		run: func(ctx context.Context, c *Call, arguments json.RawMessage) (any, error) {
			in, err := decode[In](name, arguments)
			if err != nil {
				return nil, err
			}
			return f(ctx, c, in)
		},
	}
	if err := t.define(options); err != nil {
		panic(fmt.Sprintf("plugins.Func(%q): %v", name, err))
	}
	return t
}

func (t *Tool) define(options []Option) error {
	if !isToolName(t.spec.Name) {
		return fmt.Errorf("the name must be lower case letters, digits and _, begin with a letter and have at most 64 of them")
	}
	if t.spec.Description == "" {
		return fmt.Errorf("the description is empty; it is all that the model knows of the tool")
	}
	input, err := schemaFor(t.in)
	if err != nil {
		return err
	}
	t.input, t.spec.InputSchemaJson = input, input.text
	for _, o := range options {
		if o(t); t.err != nil {
			return t.err
		}
	}
	return nil
}

// ReadOnly says that a call changes nothing, so that it is simply made again when its outcome was lost in a crash.
// For any other tool the model is told that the effect is unknown.
func ReadOnly() Option {
	return func(t *Tool) { t.spec.ReadOnly = true }
}

// Timeout sets how long a call may take: usual is told to whoever waits, and at longest the call's context ends. A
// tool without this option has a minute.
func Timeout(usual, longest time.Duration) Option {
	return func(t *Tool) {
		if usual <= 0 || longest < usual || longest > maxTimeout {
			t.err = fmt.Errorf("timeout: %s and %s must be positive, in this order and at most %s", usual, longest, maxTimeout)
			return
		}
		t.spec.DefaultTimeoutMs, t.spec.MaxTimeoutMs = usual.Milliseconds(), longest.Milliseconds()
	}
}

// Check has every call judged by f before it is made: allowed, to be asked about, or refused. f must have no
// effects and answer at once; it is given the same checked arguments as the tool.
func Check[In any](f func(context.Context, In) Verdict) Option {
	return func(t *Tool) {
		if in := reflect.TypeFor[In](); in != t.in {
			t.err = fmt.Errorf("check takes %s, the tool takes %s", in, t.in)
			return
		}
		t.spec.Checked = true
		t.check = func(ctx context.Context, arguments json.RawMessage) (Verdict, error) {
			in, err := decode[In](t.spec.Name, arguments)
			if err != nil {
				return Verdict{}, err
			}
			return f(ctx, in), nil
		}
	}
}

// A Verdict is the answer of a check. Make one with Allow, Ask or Refuse.
type Verdict struct {
	kind    toolv1.CheckResponse_Verdict
	reason  string
	summary string
}

// Allow lets a call be made. The summary says in one line, for a person, what it does.
func Allow(summary string) Verdict {
	return Verdict{toolv1.CheckResponse_VERDICT_ALLOW, "", summary}
}

// Ask has a person decide. The reason says why, the summary what would be done.
func Ask(reason, summary string) Verdict {
	return Verdict{toolv1.CheckResponse_VERDICT_ASK, reason, summary}
}

// Refuse forbids a call, whatever a person says.
func Refuse(reason, summary string) Verdict {
	return Verdict{toolv1.CheckResponse_VERDICT_REFUSE, reason, summary}
}
