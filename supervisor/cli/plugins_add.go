package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// adding is one `plugins add`.
type adding struct {
	p     *program
	yes   bool
	plain bool
	none  bool
	extra catalogue.Permissions
	ports []uint

	home   string
	closed []string // folders that no grant opens
	config *config.Config
	cat    *catalogue.Catalogue
}

func (p *program) pluginsAdd() *cobra.Command {
	a := &adding{p: p}
	c := &cobra.Command{
		Use:   "add PATH",
		Short: "Add a plugin, or replace it by another version",
		Long: `Add copies the program into the home, starts the copy once, shut in and with nothing granted but --read, to ask it what it is,
and shows what it offers and what it asks for. You are asked before anything is granted; --yes grants what it asks for.

Added again it is an upgrade: the differences are shown. Calls that run go on with the old program.`,
		Example: `  hermes-supervisor plugins add ./weather
  hermes-supervisor plugins add --yes ./weather
  hermes-supervisor plugins add --read /opt/venv --connect 443 ./weather.py`,
		Args: exactly(1, "the path of a program"),
		RunE: func(c *cobra.Command, args []string) error { return a.run(c, args[0]) },
	}
	f := c.Flags()
	f.BoolVarP(&a.yes, "yes", "y", false, "grant what it asks for without a question")
	f.BoolVar(&a.none, "grant-nothing", false, "grant nothing of what it asks for, without a question")
	f.BoolVar(&a.plain, "plain", false, "it is not written in Go: no TLS, no multiplexing (found out by itself, as a rule)")
	f.StringSliceVar(&a.extra.Read, "read", nil, "grant reading a `path`, too")
	f.StringSliceVar(&a.extra.Write, "write", nil, "grant writing a `path`, too")
	f.UintSliceVar(&a.ports, "connect", nil, "grant connecting to a TCP `port`, too")
	f.StringSliceVar(&a.extra.Secrets, "secret", nil, "grant a secret of .env by its `name`, too")
	return p.withOutput(c)
}

func (a *adding) run(c *cobra.Command, path string) error {
	if err := a.open(); err != nil {
		return err
	}
	staged, err := a.cat.Stage(path)
	if err != nil {
		return err
	}
	e, err := a.describe(c, path, staged)
	if err == nil {
		err = a.grant(&e)
	}
	if err != nil {
		a.cat.Unstage(staged)
		return err
	}
	return a.p.withPlugins(c.Context(), func(k keeperOfPlugins) error {
		g, err := k.add(c.Context(), e)
		if err != nil {
			return err
		}
		return a.p.print(g, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s %s is added; granted: %s\n", g.Name, printable(g.Version), listed(e.Granted))
			return err
		})
	})
}

func (a *adding) open() (err error) {
	for _, n := range a.ports {
		if n == 0 || n > math.MaxUint16 {
			return usageError{fmt.Errorf("--connect %d: a port is 1 to 65535", n)}
		}
		a.extra.Connect = append(a.extra.Connect, uint16(n))
	}
	for _, list := range []*[]string{&a.extra.Read, &a.extra.Write} {
		for i := range *list {
			(*list)[i] = absolute((*list)[i])
		}
	}
	if a.home, a.closed, err = a.p.closed(); err != nil {
		return err
	}
	if err := config.Prepare(a.home); err != nil {
		return err
	}
	if a.config, err = config.Load(a.home); err != nil {
		return err
	}
	if a.cat, err = catalogue.Open(a.home, time.Now); err != nil {
		return err
	}
	_, err = worker.Prepare()
	return err
}

// closed are the folders that no grant opens: the home, and the one with the sockets of its supervisor.
func (p *program) closed() (home string, closed []string, err error) {
	socket, home, err := p.socket()
	return home, []string{home, filepath.Dir(socket)}, err
}

// describe asks the program what it is, and makes an entry of that. Nothing is granted yet but reading what --read names:
// the interpreter of a script may be there.
func (a *adding) describe(c *cobra.Command, path string, s catalogue.Staged) (catalogue.Entry, error) {
	now := time.Now().UTC().Truncate(time.Second)
	e := catalogue.Entry{
		SHA256: s.SHA256, Size: s.Size, Source: absolute(path), Added: now, Plain: a.plain, State: catalogue.Enabled, Since: now,
	}
	for _, path := range a.extra.Read {
		if err := confine.CheckPath(path, a.closed...); err != nil {
			return e, fmt.Errorf("--read: %w", err)
		}
	}
	trial := e
	trial.Granted.Read = a.extra.Read
	d, plain, err := supervisor.Trial{Config: a.config, Catalogue: a.cat, Closed: a.closed, Entry: trial}.Describe(c.Context())
	if err != nil {
		return e, fmt.Errorf("add %s: %w", path, err)
	}
	e.Plain = plain
	if err := describedBy(&e, d); err != nil {
		return e, err
	}
	if err := a.cat.Clash(e); err != nil { // before anybody is asked; Put looks again
		return e, ipc.WithKind(err, ipc.ErrExists)
	}
	return e, nil
}

// describedBy takes over what a plugin says of itself.
func describedBy(e *catalogue.Entry, d *toolv1.DescribeResponse) error {
	e.Name, e.Version, e.SDK = d.Plugin, d.Version, d.SdkVersion
	if err := catalogue.CheckName(e.Name); err != nil {
		return err
	}
	e.Tools = nil
	for _, t := range d.Tools {
		if !json.Valid([]byte(t.InputSchemaJson)) {
			return fmt.Errorf("plugin %s: the schema of tool %q is not JSON", e.Name, printable(t.Name))
		}
		e.Tools = append(e.Tools, catalogue.Tool{
			Name: t.Name, Description: t.Description, Schema: json.RawMessage(t.InputSchemaJson), ReadOnly: t.ReadOnly,
			Checked: t.Checked, TimeoutMS: t.DefaultTimeoutMs, MaxTimeoutMS: t.MaxTimeoutMs,
		})
	}
	w := d.Wants
	e.Wants = catalogue.Permissions{
		Secrets: w.GetSecrets(), Read: w.GetReadPaths(), Write: w.GetWritePaths(), ConnectAny: w.GetConnectAny(),
		Connect: ports(w.GetConnectPorts()), Listen: ports(w.GetListenPorts()),
	}.Sorted()
	return e.Wants.Check()
}

// ports makes numbers ports; one that is none becomes 0, which is refused.
func ports(list []uint32) []uint16 {
	var out []uint16
	for _, n := range list {
		if n > math.MaxUint16 {
			n = 0
		}
		out = append(out, uint16(n))
	}
	return out
}

// grant shows what is asked for and asks. What comes with flags is granted by them.
func (a *adding) grant(e *catalogue.Entry) error {
	for _, path := range slices.Concat(e.Wants.Read, e.Wants.Write, a.extra.Read, a.extra.Write) {
		if err := confine.CheckPath(path, a.closed...); err != nil {
			return fmt.Errorf("plugin %s: %w", e.Name, err)
		}
	}
	before, _ := a.cat.Get(e.Name) // none: an empty one
	a.show(*e, before)
	e.Granted = a.extra
	if !e.Wants.None() && !a.none {
		if !a.yes {
			if err := a.ask(); err != nil {
				return err
			}
		}
		e.Granted = union(e.Wants, a.extra)
	} else if !a.yes && !a.none {
		if err := a.ask(); err != nil {
			return err
		}
	}
	e.Granted = e.Granted.Sorted()
	return e.Granted.Check()
}

func union(a, b catalogue.Permissions) catalogue.Permissions {
	return catalogue.Permissions{
		Secrets: slices.Concat(a.Secrets, b.Secrets), Read: slices.Concat(a.Read, b.Read), Write: slices.Concat(a.Write, b.Write),
		Connect: slices.Concat(a.Connect, b.Connect), Listen: slices.Concat(a.Listen, b.Listen), ConnectAny: a.ConnectAny || b.ConnectAny,
	}
}

// show writes to stderr what the plugin is: stdout is for the result.
func (a *adding) show(e, before catalogue.Entry) {
	w := forPeople(a.p.err)
	fmt.Fprintf(w, "%s %s  sha256 %s\n", e.Name, printable(e.Version), e.SHA256)
	if before.Name != "" {
		fmt.Fprintf(w, "replaces %s  sha256 %s\n", printable(before.Version), before.SHA256)
	}
	for _, t := range e.Tools {
		fmt.Fprintf(w, "  tool %s: %s\n", t.Name, oneLine(t.Description, 100))
	}
	for _, t := range before.Tools {
		if !slices.ContainsFunc(e.Tools, func(n catalogue.Tool) bool { return n.Name == t.Name }) {
			fmt.Fprintf(w, "  no longer: tool %s\n", t.Name)
		}
	}
	had := before.Granted.Words()
	asks := union(e.Wants, a.extra).Sorted().Words()
	if len(asks) == 0 {
		fmt.Fprintln(w, "it asks for nothing beyond its own folder")
	}
	for _, word := range asks {
		mark := ""
		if before.Name != "" && !slices.Contains(had, word) {
			mark = "  (new)"
		}
		fmt.Fprintf(w, "  asks for: %s%s\n", printable(word), mark)
	}
	if e.Plain {
		fmt.Fprintln(w, "it is spoken to without TLS: another program of this user could call it")
	}
	if r, err := a.p.confinement(a.config); err == nil {
		if missing := r.WithUser(a.config.Supervisor.PluginFor(e.Name).User).Missing(); missing != "" {
			fmt.Fprintf(w, "not enforced by this kernel: %s (see plugins info)\n", missing)
		}
	}
}

// ask wants a yes at a terminal or on stdin; the end of input is a no.
func (a *adding) ask() error {
	fmt.Fprint(a.p.err, "add it with that? y or n: ")
	line, err := bufio.NewReader(a.p.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	return declined("it was not added", "grants")
}

// listed says permissions in one line.
func listed(p catalogue.Permissions) string {
	if p.None() {
		return "nothing"
	}
	return printable(strings.Join(p.Words(), ", "))
}
