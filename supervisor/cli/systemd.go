package cli

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

func (p *program) systemd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "systemd",
		Short:   "Print the service unit of this home",
		Example: "  hermes-supervisor systemd show > ~/.config/systemd/user/hermes-supervisor.service",
	}, p.systemdShow())
}

func (p *program) systemdShow() *cobra.Command {
	system := false
	c := &cobra.Command{
		Use:   "show",
		Short: "Print the unit file, with a reason for each setting",
		Long:  "Show prints a unit for this home and this executable. Its times follow from the configuration: print it again after\nsupervisor.drain_timeout has changed.",
		Example: `  hermes-supervisor systemd show > ~/.config/systemd/user/hermes-supervisor.service
  systemctl --user daemon-reload && systemctl --user enable --now hermes-supervisor`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			c, err := p.load()
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this executable: %w", err)
			}
			if real, err := filepath.EvalSymlinks(self); err == nil {
				self = real
			}
			u := systemd.Unit{Executable: self, Home: c.Home, Drain: c.Supervisor.DrainTimeout}
			if system {
				if u.User, err = userName(); err != nil {
					return err
				}
			}
			text, err := u.Render()
			if err != nil {
				return err
			}
			_, err = p.out.Write(text)
			return err
		},
	}
	c.Flags().BoolVar(&system, "system", false, "a unit for the system instead of for your own service manager")
	return c
}

// userName is who the system unit runs as: the one who asked, also through sudo.
func userName() (string, error) {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the user's name: %w", err)
	}
	return u.Username, nil
}
