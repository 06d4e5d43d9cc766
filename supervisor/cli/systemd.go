package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

func (p *program) systemd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "systemd",
		Short:   "Run this home as a service",
		Example: "  hermes-supervisor systemd install --user --now",
	}, p.systemdShow(), p.systemdInstall(), p.systemdUninstall())
}

// unitFlags say which units are meant.
type unitFlags struct {
	user   bool
	system bool // what is meant without user, said
	socket bool
	name   string
}

func (f *unitFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "name", "hermes-supervisor", "`name` of the units, for a second home")
	c.Flags().BoolVar(&f.user, "user", false, "units of your own service manager instead of the system's")
	c.Flags().BoolVar(&f.system, "system", false, "units of the system's service manager, which is the default")
}

// addSocket adds what says which units are written.
func (f *unitFlags) addSocket(c *cobra.Command) {
	c.Flags().BoolVar(&f.socket, "socket", false, "let systemd hold the control socket, so that a command starts the service")
}

// check refuses names that systemd or the folder of units would take for something else.
func (f *unitFlags) check() error {
	if f.user && f.system {
		return usageError{errors.New("--user and --system exclude each other")}
	}
	if !unitName.MatchString(f.name) {
		return usageError{fmt.Errorf("--name %q: a name of a unit has letters, digits, - and _, and begins with a letter or digit", f.name)}
	}
	return nil
}

var unitName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]*$`)

// serviceHome is the home that the service serves: for a system's service that is installed by sudo and names no home, that of
// the user who called it, as whom the service runs. root's would be closed to it.
func (p *program) serviceHome(f unitFlags) (string, error) {
	caller := sudoCaller()
	if f.user || caller == "" || p.home != "" || os.Getenv("HERMES_HOME") != "" {
		return p.resolvedHome()
	}
	u, err := user.Lookup(caller)
	if err != nil {
		return "", fmt.Errorf("find the home of %s, who called sudo: %w; name it with --home", caller, err)
	}
	return config.Home(filepath.Join(u.HomeDir, ".hermes"))
}

// unit is what the service of this call's home depends on.
func (p *program) unit(f unitFlags) (systemd.Unit, error) {
	home, err := p.serviceHome(f)
	if err != nil {
		return systemd.Unit{}, err
	}
	c, err := config.Load(home)
	if err != nil {
		return systemd.Unit{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return systemd.Unit{}, fmt.Errorf("find this executable: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	u := systemd.Unit{Executable: self, Home: c.Home, Drain: c.Supervisor.DrainTimeout}
	base := fmt.Sprintf("/run/user/%d/hermes-supervisor", os.Getuid())
	if !f.user {
		base = config.ServiceBase(c.Home)
		u.RunDir = filepath.Base(base)
		if u.User, err = userName(); err != nil {
			return u, err
		}
	}
	if f.socket {
		if u.Socket, err = config.FindSocket(base, c.Home); err != nil {
			return u, err
		}
	}
	return u, nil
}

// files renders the units that the flags ask for.
func (p *program) files(f unitFlags) ([]systemd.File, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	u, err := p.unit(f)
	if err != nil {
		return nil, err
	}
	text, err := u.Render()
	if err != nil {
		return nil, err
	}
	files := []systemd.File{{Name: f.name + ".service", Text: text}}
	if f.socket {
		if text, err = u.RenderSocket(); err != nil {
			return nil, err
		}
		files = append(files, systemd.File{Name: f.name + ".socket", Text: text})
	}
	return files, nil
}

func (p *program) systemdShow() *cobra.Command {
	var f unitFlags
	c := p.withOutput(&cobra.Command{
		Use:   "show",
		Short: "Print the units, with a reason for each setting",
		Long: `Show prints the units for this home and this executable as install with the same flags would write them. Their times follow
from the configuration: print them again after supervisor.drain_timeout has changed.`,
		Example: `  hermes-supervisor systemd show --user
  hermes-supervisor systemd show | diff /etc/systemd/system/hermes-supervisor.service -
  hermes-supervisor systemd show --socket -o json`,
		Args: none,
		RunE: func(*cobra.Command, []string) error { return p.printUnits(f) },
	})
	f.add(c)
	f.addSocket(c)
	return c
}

// shownUnit is a unit in what `systemd show -o json` prints.
type shownUnit struct {
	Name string `json:"name"`
	Path string `json:"path"` // where install would write it
	Text string `json:"text"`
}

func (p *program) printUnits(f unitFlags) error {
	files, err := p.files(f)
	if err != nil {
		return err
	}
	in, err := p.installation(f, false)
	if err != nil {
		return err
	}
	var shown []shownUnit
	for _, file := range files {
		shown = append(shown, shownUnit{file.Name, filepath.Join(in.Dir, file.Name), string(file.Written())})
	}
	if p.output == outputJSON {
		return p.printJSON(map[string]any{"units": shown})
	}
	for _, unit := range shown {
		if _, err := io.WriteString(p.out, unit.Text); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) systemdInstall() *cobra.Command {
	var f unitFlags
	var now, print, force bool
	c := &cobra.Command{
		Use:   "install",
		Short: "Write the units of this home and let systemd read them",
		Long: `Install writes the service for this home and this executable, into the system's folder of units (as root; the service
runs as the user who called sudo, with that user's home where none is named) or with --user into your own.
It may be called again after an upgrade or a change of the configuration:
what is as it should be is left alone, and a unit that was edited is not overwritten without --force.
Without --socket the socket unit of an earlier call is taken away. Units of other homes and of other programs are not touched.
Changes of your own belong into a drop-in: systemctl edit hermes-supervisor.`,
		Example: `  hermes-supervisor systemd install --user --now
  sudo hermes-supervisor --home /srv/hermes systemd install --now
  hermes-supervisor systemd install --user --print`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if print {
				return p.printUnits(f)
			}
			files, err := p.files(f)
			if err != nil {
				return err
			}
			in, err := p.installation(f, force)
			if err != nil {
				return err
			}
			if err := p.install(c.Context(), in, f, files); err != nil {
				return installError(err)
			}
			return p.enable(c.Context(), in, f, now)
		},
	}
	f.add(c)
	f.addSocket(c)
	c.Flags().BoolVar(&now, "now", false, "enable and start it, too")
	c.Flags().BoolVar(&print, "print", false, "print the units like show, and write nothing")
	c.Flags().BoolVar(&force, "force", false, "overwrite units that were edited")
	return c
}

// install writes the units, and takes the socket of an earlier installation away where none is asked for.
func (p *program) install(ctx context.Context, in systemd.Installation, f unitFlags, files []systemd.File) error {
	var unwanted []string
	if !f.socket {
		unwanted = append(unwanted, f.name+".socket")
	}
	done, err := in.Install(ctx, files, unwanted...)
	for _, path := range done.Wrote {
		fmt.Fprintln(p.out, "wrote", printable(path))
	}
	for _, path := range done.Removed {
		fmt.Fprintln(p.out, "removed", printable(path))
	}
	if err == nil && len(done.Wrote)+len(done.Removed) == 0 {
		fmt.Fprintln(p.out, "the units are as they should be")
	}
	return err
}

// enable starts what was installed, or says how.
func (p *program) enable(ctx context.Context, in systemd.Installation, f unitFlags, now bool) error {
	service, socket := f.name+".service", f.name+".socket"
	units := []string{service}
	if f.socket {
		units = []string{socket, service}
	}
	if !now {
		return p.howToStart(ctx, in, f, units)
	}
	if f.socket {
		if err := in.MakeRoom(ctx, socket, service); err != nil {
			return installError(err)
		}
	}
	if err := in.Enable(ctx, units...); err != nil {
		return installError(err)
	}
	for _, unit := range units {
		fmt.Fprintln(p.out, unit, "is enabled and started")
	}
	return nil
}

// howToStart prints the command that starts the units, in an order that systemd takes.
func (p *program) howToStart(ctx context.Context, in systemd.Installation, f unitFlags, units []string) error {
	line := systemctlLine(f.user, "enable --now "+strings.Join(units, " "))
	if f.socket {
		crowded, err := in.Crowded(ctx, f.name+".socket", f.name+".service")
		if err != nil {
			return installError(err)
		}
		if crowded {
			line = systemctlLine(f.user, "stop "+f.name+".service") + " && " + line
		}
	}
	_, err := fmt.Fprintln(p.out, "start it with:", line)
	return err
}

func (p *program) systemdUninstall() *cobra.Command {
	var f unitFlags
	force := false
	c := &cobra.Command{
		Use:     "uninstall",
		Short:   "Stop the service and remove its units; the home stays",
		Example: "  hermes-supervisor systemd uninstall --user",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := p.installation(f, force)
			if err != nil {
				return err
			}
			removed, err := in.Uninstall(c.Context(), f.name+".socket", f.name+".service")
			if err != nil {
				return installError(err)
			}
			for _, path := range removed {
				fmt.Fprintln(p.out, "removed", printable(path))
			}
			if len(removed) == 0 {
				fmt.Fprintln(p.out, "no units were there")
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&force, "force", false, "remove units that were edited")
	return c
}

// systemFolder is where an administrator's units are.
const systemFolder = "/etc/systemd/system"

func (p *program) installation(f unitFlags, force bool) (systemd.Installation, error) {
	if err := f.check(); err != nil {
		return systemd.Installation{}, err
	}
	home, err := p.serviceHome(f)
	if err != nil {
		return systemd.Installation{}, err
	}
	in := systemd.Installation{Dir: systemFolder, User: f.user, Force: force, Home: home, RunName: config.RunName(home)}
	if f.user {
		base, err := os.UserConfigDir()
		if err != nil {
			return in, fmt.Errorf("find the folder of your units: %w", err)
		}
		in.Dir = filepath.Join(base, "systemd", "user")
	}
	return in, nil
}

// installError says what helps.
func installError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\nthe system's units need root: use sudo, or --user for your own service manager", err)
	}
	if errors.Is(err, systemd.ErrEdited) || errors.Is(err, systemd.ErrForeign) || errors.Is(err, systemd.ErrStranger) {
		return ipc.WithKind(err, ipc.ErrRefused)
	}
	if errors.Is(err, systemd.ErrSlow) {
		return ipc.WithKind(fmt.Errorf("%w\nlook with: systemctl list-jobs; then try again", err), ipc.ErrTimeout)
	}
	return err
}

func systemctlLine(user bool, rest string) string {
	if user {
		return "systemctl --user " + rest
	}
	return "systemctl " + rest
}

// userName is who the system unit runs as: the one who asked, also through sudo.
func userName() (string, error) {
	if name := sudoCaller(); name != "" {
		return name, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the user's name: %w", err)
	}
	return u.Username, nil
}

// sudoCaller is who became root by sudo, empty if nobody did. Below "sudo -u ada" SUDO_USER is set, too, and is not who ada is.
func sudoCaller() string {
	if os.Geteuid() != 0 {
		return ""
	}
	return os.Getenv("SUDO_USER")
}
