package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/starter"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

func (p *program) pluginsInfo() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:               "info NAME",
		Short:             "Show what a plugin is, what it was granted and what keeps it in",
		Long:              "Info shows each layer that a plugin is shut in by, and which of them this kernel does not enforce.",
		Example:           "  hermes-supervisor plugins info weather",
		Args:              exactly(1, "the name of a plugin"),
		ValidArgsFunction: p.completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			cat, err := p.catalogue()
			if err != nil {
				return err
			}
			e, err := cat.Get(args[0])
			if err != nil {
				return err
			}
			conf, err := p.load()
			if err != nil {
				return err
			}
			report, err := p.confinement(conf)
			if err != nil {
				return err
			}
			user := conf.Supervisor.PluginFor(e.Name).User
			d := infoDoc{Entry: e, User: user, Data: cat.DataDir(e.Name), Confinement: report.WithUser(user)}
			return p.doc(d, func(w io.Writer) error { return p.infoText(w, d) })
		},
	})
}

type infoDoc struct {
	catalogue.Entry
	User        string         `json:"user,omitempty"`
	Data        string         `json:"data"`
	Confinement confine.Report `json:"confinement"`
}

// confinement asks the program that shuts plugins in what this kernel enforces.
func (p *program) confinement(c *config.Config) (r confine.Report, err error) {
	path, err := supervisor.FindBinary(confine.Program, c.Supervisor.Libexec)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, confine.ReportFlag).Output()
	if err != nil {
		return r, fmt.Errorf("%s %s: %w", path, confine.ReportFlag, err)
	}
	return r, json.Unmarshal(out, &r)
}

func (p *program) infoText(w io.Writer, d infoDoc) error {
	user := d.User
	if user == "" {
		user = "that of the supervisor"
	}
	err := pairs(w, "plugin", d.Name+" "+d.Version, "state", strings.TrimSpace(d.State+" "+d.Reason),
		"sha256", d.SHA256, "added", d.Added.Local().Format(time.DateTime)+" from "+d.Source, "data", d.Data, "user", user,
		"asks for", listed(d.Wants), "granted", listed(d.Granted))
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	var lines [][]string
	for _, t := range d.Tools {
		kind := "has effects"
		if t.ReadOnly {
			kind = "reads only"
		}
		lines = append(lines, []string{t.Name, kind, (time.Duration(t.MaxTimeoutMS) * time.Millisecond).String(), oneLine(t.Description, 80)})
	}
	if err := rows(w, "TOOL | EFFECTS | LIMIT | DESCRIPTION", lines); err != nil {
		return err
	}
	fmt.Fprintln(w)
	lines = nil
	for _, l := range d.Confinement.Layers {
		state := "enforced"
		if !l.Enforced {
			state = "NOT ENFORCED"
		}
		lines = append(lines, []string{l.Name, state, l.Detail})
	}
	return rows(w, "LAYER | STATE | WHAT IT MEANS", lines)
}

func (p *program) pluginsTest() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "test NAME [TOOL [JSON]]",
		Short: "Start a plugin as a turn would and make a call",
		Long: `Test starts the plugin shut in, with what it was granted, looks whether it still says of itself what it said when it was
added, makes the call if one is given, and prints its result. No supervisor and no model is involved.`,
		Example: `  hermes-supervisor plugins test weather
  hermes-supervisor plugins test weather weather_repeat '{"text":"hi"}'`,
		Args:              between(1, 3, "the name of a plugin, and perhaps a tool and its arguments"),
		ValidArgsFunction: p.completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := worker.Prepare(); err != nil {
				return err
			}
			cat, err := p.catalogue()
			if err != nil {
				return err
			}
			e, err := cat.Get(args[0])
			if err != nil {
				return err
			}
			conf, err := p.load()
			if err != nil {
				return err
			}
			_, closed, err := p.closed()
			if err != nil {
				return err
			}
			t := supervisor.Trial{Config: conf, Catalogue: cat, Closed: closed, Entry: e, Granted: true}
			return t.With(c.Context(), e.Plain, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				return p.tried(ctx, toolv1.NewToolClient(conn), e, args[1:])
			})
		},
	})
}

type testDoc struct {
	Plugin string `json:"plugin"`
	Tools  int    `json:"tools"`
	Tool   string `json:"tool,omitempty"`
	Result string `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// tried compares a running plugin with its entry and makes one call.
func (p *program) tried(ctx context.Context, client toolv1.ToolClient, e catalogue.Entry, args []string) error {
	d, err := client.Describe(ctx, &toolv1.DescribeRequest{})
	if err != nil {
		return fmt.Errorf("plugin %s: %w", e.Name, err)
	}
	now := e
	if err := describedBy(&now, d); err != nil {
		return err
	}
	if len(now.Tools) != len(e.Tools) || now.Name != e.Name || now.Version != e.Version {
		return fmt.Errorf("plugin %s now says that it is %s %s with %s; it was added as %s with %d",
			e.Name, now.Name, printable(now.Version), wording.Count(len(now.Tools), "tool", "tools"), printable(e.Version), len(e.Tools))
	}
	doc := testDoc{Plugin: e.Name, Tools: len(e.Tools)}
	if len(args) > 0 {
		doc.Tool = args[0]
		r, err := invoke(ctx, client, args, p.err)
		if err != nil {
			return fmt.Errorf("call of %s: %w", args[0], err)
		}
		doc.Result, doc.Error = r.Content, r.Error.GetMessage()
	}
	if err := p.doc(doc, func(w io.Writer) error { return testText(w, doc) }); err != nil {
		return err
	}
	if doc.Error != "" {
		return silentError{ipc.ExitFailed}
	}
	return nil
}

func testText(w io.Writer, d testDoc) error {
	text := fmt.Sprintf("%s starts, shut in, and offers %s as declared", d.Plugin, wording.Count(d.Tools, "tool", "tools"))
	switch {
	case d.Error != "":
		text = "the call failed: " + d.Error
	case d.Tool != "":
		text = d.Result
	}
	_, err := fmt.Fprintln(w, printable(text))
	return err
}

// invoke makes one call; progress goes to stderr.
func invoke(ctx context.Context, client toolv1.ToolClient, args []string, progress io.Writer) (*toolv1.Result, error) {
	r := &toolv1.InvokeRequest{Tool: args[0], CallId: "by-hand", Attempt: 1}
	if len(args) > 1 {
		r.ArgumentsJson = args[1]
	}
	stream, err := client.Invoke(ctx, r)
	if err != nil {
		return nil, err
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		switch e := ev.Event.(type) {
		case *toolv1.InvokeEvent_Progress:
			fmt.Fprintln(progress, printable(e.Progress))
		case *toolv1.InvokeEvent_Result:
			return e.Result, nil
		}
	}
}

func (p *program) pluginsNew() *cobra.Command {
	o := starter.Options{Version: ipc.Version()}
	c := &cobra.Command{
		Use:   "new NAME [FOLDER]",
		Short: "Write the beginning of a plugin in Go",
		Long:  "New writes a program with one tool, its module, its test and its README into a new folder, by default one of that name.",
		Example: `  hermes-supervisor plugins new weather --checkout ~/src/hermes-supervisor
  hermes-supervisor plugins new weather ~/src/weather --checkout ~/src/hermes-supervisor --module example.com/me/weather`,
		Args: between(1, 2, "a name for the plugin, and perhaps a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := args[len(args)-1]
			if o.Checkout != "" {
				o.Checkout = absolute(o.Checkout)
			}
			files, err := starter.Write(dir, args[0], o)
			if err != nil {
				return usageError{err}
			}
			return p.doc(newDoc{args[0], absolute(dir), files}, func(w io.Writer) error {
				fmt.Fprintf(w, "%s: %s\nnext: cd %s && go mod tidy && go test ./... && go build -o %s . && hermes-supervisor plugins add ./%s\n",
					dir, strings.Join(files, " "), shellWord(dir), args[0], args[0])
				return nil
			})
		},
	}
	c.Flags().StringVar(&o.Module, "module", "", "`path` of its module (default example.org/NAME)")
	c.Flags().StringVar(&o.Checkout, "checkout", "", "build with the source in this `folder` instead of a released version")
	return p.withOutput(c)
}

type newDoc struct {
	Plugin string   `json:"plugin"`
	Folder string   `json:"folder"`
	Files  []string `json:"files"`
}
