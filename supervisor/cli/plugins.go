package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
)

func (p *program) plugins() *cobra.Command {
	return group(&cobra.Command{
		Use:   "plugins",
		Short: "Add, look at and remove tool plugins",
		Long: `A plugin is a program of its own that offers tools to the agent. It is copied into the home, pinned by its checksum,
started when one of its tools is called, and shut in: it sees the system's libraries, its own folder and what you
granted.
All of it works with a running supervisor, whose turns go on, and without one.`,
		Example: `  hermes-supervisor plugins new weather --checkout ~/src/hermes-supervisor
  hermes-supervisor plugins add ./weather/weather
  hermes-supervisor plugins info weather
  hermes-supervisor plugins test weather weather_repeat '{"text":"hi"}'`,
	}, p.pluginsList(), p.pluginsAdd(), p.pluginsRemove(), p.pluginsVerify(), p.pluginsEnable(), p.pluginsDisable(),
		p.pluginsInfo(), p.pluginsTest(), p.pluginsNew())
}

// A keeperOfPlugins changes the catalogue: the running supervisor, or this process while none runs.
type keeperOfPlugins interface {
	list(ctx context.Context) ([]*controlv1.Plugin, error)
	add(ctx context.Context, e catalogue.Entry) (*controlv1.Plugin, error)
	remove(ctx context.Context, name string, data bool) error
	set(ctx context.Context, name, state string) (*controlv1.Plugin, error)
}

// withPlugins runs f with whoever may change the catalogue.
func (p *program) withPlugins(ctx context.Context, f func(keeperOfPlugins) error) error {
	path, home, err := p.socket()
	if err != nil {
		return err
	}
	if answers(ctx, path) == nil {
		return p.connected(ctx, func(conn grpc.ClientConnInterface) error {
			return f(remotePlugins{controlv1.NewPluginsClient(conn)})
		})
	}
	lock, err := store.LockHome(home)
	if errors.Is(err, store.ErrLocked) {
		return ipc.WithKind(fmt.Errorf("%w, which does not answer at its control socket: wait until it has started, or stop it", err), ipc.ErrBusy)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	c, err := catalogue.Open(home, time.Now)
	if err != nil {
		return err
	}
	return f(localPlugins{c})
}

type remotePlugins struct{ client controlv1.PluginsClient }

func (r remotePlugins) list(ctx context.Context) ([]*controlv1.Plugin, error) {
	list, err := r.client.ListPlugins(ctx, &controlv1.ListPluginsRequest{})
	return list.GetPlugins(), err
}

func (r remotePlugins) add(ctx context.Context, e catalogue.Entry) (*controlv1.Plugin, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	a, err := r.client.AddPlugin(ctx, &controlv1.AddPluginRequest{EntryJson: text})
	return a.GetPlugin(), err
}

func (r remotePlugins) remove(ctx context.Context, name string, data bool) error {
	_, err := r.client.RemovePlugin(ctx, &controlv1.RemovePluginRequest{Name: name, Data: data})
	return err
}

func (r remotePlugins) set(ctx context.Context, name, state string) (*controlv1.Plugin, error) {
	if state == catalogue.Enabled {
		e, err := r.client.EnablePlugin(ctx, &controlv1.EnablePluginRequest{Name: name})
		return e.GetPlugin(), err
	}
	d, err := r.client.DisablePlugin(ctx, &controlv1.DisablePluginRequest{Name: name})
	return d.GetPlugin(), err
}

type localPlugins struct{ c *catalogue.Catalogue }

func (l localPlugins) list(context.Context) ([]*controlv1.Plugin, error) {
	var list []*controlv1.Plugin
	for _, e := range l.c.List() {
		s := supervisor.PluginStatus(e)
		s.DataBytes = l.c.DataBytes(e.Name)
		list = append(list, s)
	}
	return list, nil
}

func (l localPlugins) add(_ context.Context, e catalogue.Entry) (*controlv1.Plugin, error) {
	return supervisor.PluginStatus(e), l.c.Put(e)
}

func (l localPlugins) remove(_ context.Context, name string, data bool) error {
	return l.c.Remove(name, data)
}

func (l localPlugins) set(_ context.Context, name, state string) (*controlv1.Plugin, error) {
	e, err := l.c.SetState(name, state, "")
	return supervisor.PluginStatus(e), err
}

// completePlugins offers the names in the catalogue, which anybody may read.
func (p *program) completePlugins(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		if c, err := p.catalogue(); err == nil {
			for _, e := range c.List() {
				names = append(names, e.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) catalogue() (*catalogue.Catalogue, error) {
	home, err := p.resolvedHome()
	if err != nil {
		return nil, err
	}
	return catalogue.Open(home, time.Now)
}

func (p *program) pluginsList() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "list",
		Short:   "List the plugins with their state and tools",
		Example: "  hermes-supervisor plugins list",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.listed(c.Context(), func(list []*controlv1.Plugin) error {
				return p.print(&controlv1.ListPluginsResponse{Plugins: list}, func(w io.Writer) error { return p.pluginTable(w, list) })
			})
		},
	})
}

// listed runs f with all plugins. Without a supervisor the lock file is enough, whoever holds the home.
func (p *program) listed(ctx context.Context, f func([]*controlv1.Plugin) error) error {
	path, _, err := p.socket()
	if err != nil {
		return err
	}
	if answers(ctx, path) == nil {
		return p.connected(ctx, func(conn grpc.ClientConnInterface) error {
			list, err := remotePlugins{controlv1.NewPluginsClient(conn)}.list(ctx)
			if err != nil {
				return err
			}
			return f(list)
		})
	}
	c, err := p.catalogue()
	if err != nil {
		return err
	}
	list, _ := localPlugins{c}.list(ctx)
	return f(list)
}

func (p *program) pluginTable(w io.Writer, list []*controlv1.Plugin) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no plugins; add one with: hermes-supervisor plugins add PATH")
		return err
	}
	var lines [][]string
	for _, g := range list {
		worker := g.WorkerState
		if g.Pid != 0 {
			worker += fmt.Sprintf(" %d", g.Pid)
		}
		note := g.Reason
		if note == "" && g.DataBytes >= catalogue.LargeData {
			note = "it has much in its own folder"
		}
		lines = append(lines, []string{g.Name, g.Version, g.State, worker, strings.Join(g.Tools, " "), short(g.Sha256), size(g.DataBytes), oneLine(note, 80)})
	}
	return rows(w, "PLUGIN | VERSION | STATE | PROCESS | TOOLS | SHA256 | DATA | NOTE", lines)
}

// short is enough of a checksum to tell two apart.
func short(sum string) string { return sum[:min(len(sum), 12)] }

func (p *program) pluginsRemove() *cobra.Command {
	var data bool
	c := &cobra.Command{
		Use:               "remove NAME",
		Short:             "End a plugin and forget it",
		Long:              "Remove ends the plugin's process, after the calls that it is making, and forgets it. What it stored in its own folder\nis kept unless --data is given.",
		Example:           "  hermes-supervisor plugins remove weather --data",
		Args:              exactly(1, "the name of a plugin"),
		ValidArgsFunction: p.completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			return p.withPlugins(c.Context(), func(k keeperOfPlugins) error {
				if err := k.remove(c.Context(), args[0], data); err != nil {
					return err
				}
				return p.print(&controlv1.Plugin{Name: args[0], State: "removed"}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is removed\n", args[0])
					return err
				})
			})
		},
	}
	c.Flags().BoolVar(&data, "data", false, "remove what it stored, too")
	return p.withOutput(c)
}

func (p *program) pluginsEnable() *cobra.Command {
	return p.pluginsSet("enable", catalogue.Enabled, "Let a disabled or quarantined plugin run again")
}

func (p *program) pluginsDisable() *cobra.Command {
	return p.pluginsSet("disable", catalogue.Disabled, "Keep a plugin down until it is enabled")
}

func (p *program) pluginsSet(verb, state, what string) *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:               verb + " NAME",
		Short:             what,
		Example:           "  hermes-supervisor plugins " + verb + " weather",
		Args:              exactly(1, "the name of a plugin"),
		ValidArgsFunction: p.completePlugins,
		RunE: func(c *cobra.Command, args []string) error {
			return p.withPlugins(c.Context(), func(k keeperOfPlugins) error {
				g, err := k.set(c.Context(), args[0], state)
				if err != nil {
					return err
				}
				return p.print(g, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s is %s\n", g.Name, g.State)
					return err
				})
			})
		},
	})
}

func (p *program) pluginsVerify() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:               "verify [NAME]",
		Short:             "Compare the programs with their checksums, as each start does",
		Long:              "Verify reads each program again and compares its checksum with the one that it was added with, and looks whether\nothers could change it. The exit code is 1 if anything is wrong.",
		Example:           "  hermes-supervisor plugins verify",
		Args:              between(0, 1, "at most the name of a plugin"),
		ValidArgsFunction: p.completePlugins,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := p.catalogue()
			if err != nil {
				return err
			}
			list := c.List()
			if len(args) == 1 {
				e, err := c.Get(args[0])
				if err != nil {
					return err
				}
				list = []catalogue.Entry{e}
			}
			return p.verified(c, list)
		},
	})
}

type verifyDoc struct {
	Plugin string `json:"plugin"`
	SHA256 string `json:"sha256"`
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
}

func (p *program) verified(c *catalogue.Catalogue, list []catalogue.Entry) error {
	docs, wrong := []verifyDoc{}, 0
	for _, e := range list {
		d := verifyDoc{Plugin: e.Name, SHA256: e.SHA256, OK: true}
		f, err := c.Program(e)
		if err != nil {
			d.OK, d.Error = false, err.Error()
			wrong++
		} else {
			_ = f.Close()
		}
		docs = append(docs, d)
	}
	err := p.doc(docs, func(w io.Writer) error {
		var lines [][]string
		for _, d := range docs {
			text := "ok"
			if !d.OK {
				text = d.Error
			}
			lines = append(lines, []string{d.Plugin, short(d.SHA256), printable(text)})
		}
		if len(lines) == 0 {
			return nil
		}
		return rows(w, "PLUGIN | SHA256 | PROGRAM", lines)
	})
	if err == nil && wrong > 0 {
		return silentError{ipc.ExitFailed}
	}
	return err
}

// doc prints a document of ours as JSON, or lets table write it for people.
func (p *program) doc(v any, table func(io.Writer) error) error {
	if p.output == outputJSON {
		return p.json(v)
	}
	return table(forPeople(p.out))
}

// absolute is a path as it is shown and stored.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
