package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

const (
	// endLimit is how long a plugin may live without its supervisor, with room for a slow machine.
	endLimit = 5 * time.Second
	// cancelLimit is how long a call may go on after it was cancelled.
	cancelLimit = 10 * time.Second
	// sideBySide is how many calls are made at once.
	sideBySide = 8
	// rounds is how often each example is called to see whether something is left behind.
	rounds = 50
)

// An Example is a call that must work.
type Example struct {
	Tool      string
	Arguments string // JSON
	Want      string // must be in the result; empty for any
	// Slow marks a call that takes long enough to be cancelled while it runs, and lasts until then.
	Slow bool
}

// Run runs the suite: that the plugin describes itself well, that the examples work, one by one and side by side,
// that wrong arguments are refused before anything is done, that a cancelled call ends, that calls leave nothing
// behind, and that the plugin ends with its supervisor.
func Run(t *testing.T, path string, o Options, examples ...Example) {
	t.Run("Describes", func(t *testing.T) { describes(t, Start(t, path, o), examples) })
	t.Run("Examples", func(t *testing.T) { exemplary(t, Start(t, path, o), examples) })
	t.Run("RefusesBadArguments", func(t *testing.T) { refuses(t, Start(t, path, o)) })
	t.Run("SideBySide", func(t *testing.T) { together(t, Start(t, path, o), examples) })
	t.Run("LeavesNothing", func(t *testing.T) { leavesNothing(t, Start(t, path, o), examples) })
	t.Run("EndsCancelledCalls", func(t *testing.T) { cancels(t, Start(t, path, o), examples) })
	t.Run("EndsWithSupervisor", func(t *testing.T) {
		ends(t, Start(t, path, o), "its supervisor was gone", func(p *Plugin) error { return p.liveness.Close() })
	})
	t.Run("EndsWithSIGTERM", func(t *testing.T) {
		ends(t, Start(t, path, o), "SIGTERM", func(p *Plugin) error { return syscall.Kill(p.PID(), syscall.SIGTERM) })
	})
	if !o.NoCommandLine {
		t.Run("CommandLine", func(t *testing.T) { commandLine(t, Start(t, path, o), path) })
	}
}

var toolName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

func describes(t *testing.T, p *Plugin, examples []Example) {
	d := p.Describe()
	if d.Plugin == "" || d.Version == "" {
		t.Errorf("the plugin gives its name as %q and its version as %q", d.Plugin, d.Version)
	}
	if len(d.Tools) == 0 {
		t.Error("the plugin has no tools")
	}
	seen := map[string]bool{}
	for _, tool := range d.Tools {
		if err := describedWell(tool); err != nil {
			t.Errorf("tool %s: %v", tool.Name, err)
		}
		if seen[tool.Name] {
			t.Errorf("two tools are named %s", tool.Name)
		}
		seen[tool.Name] = true
	}
	for _, e := range examples {
		if !seen[e.Tool] {
			t.Errorf("there is an example for %s, which is no tool", e.Tool)
		}
	}
	again, err := p.tool.Describe(t.Context(), &toolv1.DescribeRequest{})
	if err != nil || again.String() != d.String() {
		t.Errorf("asked again the plugin describes itself in another way: %v, %v", again, err)
	}
}

func describedWell(tool *toolv1.ToolSpec) error {
	var s jsonschema.Schema
	switch err := json.Unmarshal([]byte(tool.InputSchemaJson), &s); {
	case !toolName.MatchString(tool.Name):
		return errors.New("the name must be lower case letters, digits and _, and begin with a letter")
	case strings.TrimSpace(tool.Description) == "":
		return errors.New("the model is told nothing about it")
	case err != nil:
		return fmt.Errorf("the schema of its arguments: %w", err)
	case s.Type != "object":
		return fmt.Errorf("the schema of its arguments is of type %q, not object", s.Type)
	case tool.MaxTimeoutMs < 0 || tool.DefaultTimeoutMs < 0 || tool.MaxTimeoutMs > 0 && tool.DefaultTimeoutMs > tool.MaxTimeoutMs:
		return fmt.Errorf("the timeouts %d and %d ms make no sense", tool.DefaultTimeoutMs, tool.MaxTimeoutMs)
	}
	if _, err := s.Resolve(nil); err != nil {
		return fmt.Errorf("the schema of its arguments: %w", err)
	}
	return nil
}

// worked says what is wrong with the outcome of an example.
func worked(e Example, o Outcome) error {
	switch {
	case o.Err != nil:
		return fmt.Errorf("%s %s: no result: %w", e.Tool, e.Arguments, o.Err)
	case o.Kind != 0 || o.Message != "":
		return fmt.Errorf("%s %s: %v: %s", e.Tool, e.Arguments, o.Kind, o.Message)
	case !utf8.ValidString(o.Content):
		return fmt.Errorf("%s %s: the result is not text: %q", e.Tool, e.Arguments, o.Content)
	case !strings.Contains(o.Content, e.Want):
		return fmt.Errorf("%s %s: %q has no %q", e.Tool, e.Arguments, o.Content, e.Want)
	}
	return nil
}

func exemplary(t *testing.T, p *Plugin, examples []Example) {
	for _, e := range examples {
		if e.Slow {
			continue
		}
		if err := worked(e, p.Call(t.Context(), e.Tool, e.Arguments)); err != nil {
			t.Error(err)
		}
	}
}

func refuses(t *testing.T, p *Plugin) {
	for _, tool := range p.Describe().Tools {
		for _, arguments := range []string{`[]`, `"text"`, `{"`, `{"no_such_argument_of_any_tool": 1}`} {
			if o := p.Call(t.Context(), tool.Name, arguments); o.Err != nil || o.Kind != toolv1.ToolError_KIND_BAD_ARGUMENTS || o.Message == "" {
				t.Errorf("%s %s: %v %q %q %v, want bad arguments and what is wrong with them", tool.Name, arguments, o.Kind, o.Message, o.Content, o.Err)
			}
		}
	}
	if o := p.Call(t.Context(), "no_such_tool", `{}`); o.Err == nil {
		t.Errorf("a tool that is not there: %+v", o)
	}
}

func together(t *testing.T, p *Plugin, examples []Example) {
	var calls sync.WaitGroup
	for _, e := range examples {
		for range sideBySide {
			if e.Slow {
				continue
			}
			calls.Go(func() {
				if err := worked(e, p.Call(t.Context(), e.Tool, e.Arguments)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
}

func leavesNothing(t *testing.T, p *Plugin, examples []Example) {
	round := func(n int) {
		for range n {
			for _, e := range examples {
				if !e.Slow {
					p.Call(t.Context(), e.Tool, e.Arguments)
				}
			}
		}
	}
	round(5)
	descriptors := p.descriptors()
	round(rounds)
	// A few connections may be kept for reuse, but not one for each call.
	if n := p.descriptors(); n > descriptors+rounds/5 {
		t.Errorf("%d more rounds of calls left %d more descriptors", rounds, n-descriptors)
	}
	if n := p.inFlight(t); n != 0 {
		t.Errorf("%d calls still run", n)
	}
}

func (p *Plugin) descriptors() int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	return len(entries)
}

func (p *Plugin) inFlight(t *testing.T) uint32 {
	t.Helper()
	h, err := p.worker.Health(t.Context(), &workerv1.HealthRequest{})
	if err != nil {
		t.Fatalf("health: %v", err)
	}
	return h.InFlight
}

func cancels(t *testing.T, p *Plugin, examples []Example) {
	for _, e := range examples {
		if !e.Slow {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan Outcome, 1)
		go func() { ended <- p.Call(ctx, e.Tool, e.Arguments) }()
		for deadline := time.Now().Add(endLimit); p.inFlight(t) == 0 && time.Now().Before(deadline); {
			select {
			case o := <-ended:
				cancel()
				t.Fatalf("%s %s is called slow, but ended by itself: %+v", e.Tool, e.Arguments, o)
			case <-time.After(10 * time.Millisecond):
			}
		}
		cancel()
		if o := <-ended; !errors.Is(o.Err, ipc.ErrCancelled) {
			t.Errorf("%s was cancelled and ended with %+v", e.Tool, o)
		}
		for deadline := time.Now().Add(cancelLimit); p.inFlight(t) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s goes on %s after it was cancelled", e.Tool, cancelLimit)
			}
		}
	}
}

func ends(t *testing.T, p *Plugin, cause string, end func(*Plugin) error) {
	if err := end(p); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(endLimit); !p.client.Exited(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the plugin lives on %s after %s", endLimit, cause)
		}
	}
}

// commandLine runs the plugin as a person does.
func commandLine(t *testing.T, p *Plugin, path string) {
	out, err := exec.Command(path, "describe").Output()
	if err != nil {
		t.Fatalf("describe: %v", err)
	}
	var d struct {
		Plugin string
		Tools  []struct{ Name string }
	}
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatalf("describe: %v in %s", err, out)
	}
	if d.Plugin != p.Describe().Plugin || len(d.Tools) != len(p.Describe().Tools) {
		t.Errorf("by hand it describes itself as %s", out)
	}
	if out, err := exec.Command(path, "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "invoke") {
		t.Errorf("--help: %v, %s", err, out)
	}
	if err := exec.Command(path, "no-such-command").Run(); err == nil {
		t.Error("a command that is not there works")
	}
}
