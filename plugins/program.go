package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// Main is all that a plugin's main function calls. Started by the supervisor it serves the tools and ends with the
// supervisor. Started by a person it describes them and makes single calls:
//
//	weather describe
//	weather invoke forecast '{"city":"Oslo"}'
func Main(name, version string, tools ...Tool) {
	if os.Getenv(ipc.Handshake.MagicCookieKey) == ipc.Handshake.MagicCookieValue {
		serve(name, version, tools)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	p := program{name: name, version: version, tools: tools, in: os.Stdin, out: os.Stdout, err: os.Stderr}
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// A program is the plugin as a person runs it, without a supervisor.
type program struct {
	name, version string
	tools         []Tool
	in            io.Reader
	out, err      io.Writer
}

// run returns the exit code of a command line.
func (p *program) run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		p.help(p.err)
		return ipc.ExitUsage
	}
	switch args[0] {
	case "help", "--help", "-h":
		p.help(p.out)
		return ipc.ExitOK
	case "version", "--version":
		fmt.Fprintln(p.out, p.name, p.version, "sdk", SDKVersion)
		return ipc.ExitOK
	}
	server := NewServer(p.name, p.version)
	defer server.Close()
	if err := server.Start(p.env(), p.tools...); err != nil {
		return p.fail(err)
	}
	switch {
	case args[0] == "describe" && len(args) == 1:
		return p.describe(ctx, server)
	case args[0] == "invoke" && (len(args) == 2 || len(args) == 3):
		return p.invoke(ctx, server, args[1:])
	case args[0] == "check" && (len(args) == 2 || len(args) == 3):
		return p.check(ctx, server, args[1:])
	}
	fmt.Fprintf(p.err, "%s: %q is not how it is used\n\n", p.name, strings.Join(args, " "))
	p.help(p.err)
	return ipc.ExitUsage
}

// env is what tools get without a supervisor: secrets come from the environment, logs go to the terminal.
func (p *program) env() Env {
	return Env{
		Log:      hclog.New(&hclog.LoggerOptions{Name: p.name, Output: p.err, Level: hclog.Info}),
		SpillDir: filepath.Join(os.TempDir(), p.name+"-outputs"),
		Secret: func(_ context.Context, name string) (string, error) {
			if v, ok := os.LookupEnv(name); ok {
				return v, nil
			}
			return "", fmt.Errorf("%w: set it in the environment to call the tool by hand", ipc.ErrNotFound)
		},
	}
}

func (p *program) help(w io.Writer) {
	fmt.Fprintf(w, "%s %s is a tool plugin of hermes-supervisor, which starts it when one of its tools is called.\n\n", p.name, p.version)
	fmt.Fprintf(w, "By hand:\n  %[1]s describe                print the tools and their schemas as JSON\n"+
		"  %[1]s invoke TOOL [JSON|-]    call a tool; progress goes to stderr, the result to stdout\n"+
		"  %[1]s check TOOL [JSON|-]     show whether a call would be allowed, asked about or refused\n"+
		"  %[1]s version\n\nTools:\n", filepath.Base(os.Args[0]))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, tool := range p.tools {
		first, _, _ := strings.Cut(tool.Description(), "\n")
		fmt.Fprintf(t, "  %s\t%s\n", tool.Name(), first)
	}
	_ = t.Flush()
}

// toolInfo is a tool as describe prints it.
type toolInfo struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	ReadOnly    bool            `json:"read_only"`
	Checked     bool            `json:"checked"`
	TimeoutMS   int64           `json:"timeout_ms"`
	MaxMS       int64           `json:"max_timeout_ms"`
	Arguments   json.RawMessage `json:"arguments"`
}

func (p *program) describe(ctx context.Context, s *Server) int {
	d, err := s.Describe(ctx, nil)
	if err != nil {
		return p.fail(err)
	}
	out := struct {
		Plugin  string     `json:"plugin"`
		Version string     `json:"version"`
		SDK     string     `json:"sdk_version"`
		Tools   []toolInfo `json:"tools"`
	}{d.Plugin, d.Version, d.SdkVersion, []toolInfo{}}
	for _, t := range d.Tools {
		out.Tools = append(out.Tools, toolInfo{
			t.Name, t.Description, t.ReadOnly, t.Checked, t.DefaultTimeoutMs, t.MaxTimeoutMs, json.RawMessage(t.InputSchemaJson),
		})
	}
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(out); err != nil {
		return p.fail(err)
	}
	return ipc.ExitOK
}

func (p *program) invoke(ctx context.Context, s *Server, args []string) int {
	text, err := p.arguments(args[1:])
	if err != nil {
		return p.fail(err)
	}
	var result *toolv1.Result
	err = s.invoke(ctx, &toolv1.InvokeRequest{Tool: args[0], ArgumentsJson: text, CallId: "by-hand", Attempt: 1}, func(e *toolv1.InvokeEvent) error {
		switch e := e.Event.(type) {
		case *toolv1.InvokeEvent_Progress:
			fmt.Fprintln(p.err, e.Progress)
		case *toolv1.InvokeEvent_Chunk:
			_, err := p.err.Write(e.Chunk)
			return err
		case *toolv1.InvokeEvent_Result:
			result = e.Result
		}
		return nil
	})
	switch {
	case err != nil:
		return p.fail(err)
	case result.Error != nil && result.Error.Kind == toolv1.ToolError_KIND_BAD_ARGUMENTS:
		return p.fail(fmt.Errorf("%s: %w", result.Error.Message, ipc.ErrInvalid))
	case result.Error != nil:
		return p.fail(errors.New(result.Error.Message))
	}
	fmt.Fprintln(p.out, result.Content)
	return ipc.ExitOK
}

func (p *program) check(ctx context.Context, s *Server, args []string) int {
	text, err := p.arguments(args[1:])
	if err != nil {
		return p.fail(err)
	}
	r, err := s.Check(ctx, &toolv1.CheckRequest{Tool: args[0], ArgumentsJson: text})
	if err != nil {
		return p.fail(err)
	}
	fmt.Fprintln(p.out, strings.ToLower(strings.TrimPrefix(r.Verdict.String(), "VERDICT_")))
	for _, line := range []string{r.Reason, r.Summary} {
		if line != "" {
			fmt.Fprintln(p.out, line)
		}
	}
	return ipc.ExitOK
}

// arguments returns the JSON of a command line, which may be left out or read from the standard input.
func (p *program) arguments(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if args[0] != "-" {
		return args[0], nil
	}
	b, err := io.ReadAll(io.LimitReader(p.in, ipc.MaxMessageBytes))
	return string(b), err
}

func (p *program) fail(err error) int {
	fmt.Fprintf(p.err, "%s: %v\n", p.name, err)
	return ipc.ExitCode(err)
}
