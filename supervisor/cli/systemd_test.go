package cli

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

// What is shown would be another unit than the one that is installed if the two understood the same words differently.
func TestShowAndInstallMeanTheSameUnits(t *testing.T) {
	p := &program{}
	install, show := p.systemdInstall(), p.systemdShow()
	for _, name := range []string{"name", "user", "system", "socket"} {
		a, b := install.Flags().Lookup(name), show.Flags().Lookup(name)
		if a == nil || b == nil || a.DefValue != b.DefValue || a.Usage != b.Usage {
			t.Errorf("--%s: install has %+v, show has %+v", name, a, b)
		}
	}
}

// systemd opens no socket whose service is active, so the advice must not be to ask it for that.
func TestTheAdviceHowToStartIsInAnOrderThatSystemdTakes(t *testing.T) {
	const both = "systemctl enable --now a.socket a.service"
	for _, c := range []struct {
		socket          bool
		service, opened string
		want            string
	}{
		{false, "inactive", "inactive", "systemctl enable --now a.service"},
		{false, "active", "inactive", "systemctl enable --now a.service"},
		{true, "inactive", "inactive", both},
		{true, "active", "active", both},
		{true, "active", "inactive", "systemctl stop a.service && " + both},
		{true, "activating", "inactive", "systemctl stop a.service && " + both},
	} {
		in := systemd.Installation{Run: func(_ context.Context, _ string, args ...string) (string, error) {
			state := map[string]string{"a.socket": c.opened, "a.service": c.service}[args[len(args)-1]]
			if state != "active" {
				return state + "\n", errors.New("exit status 3")
			}
			return state + "\n", nil
		}}
		var out strings.Builder
		p := &program{streams: streams{out: &out}}
		if err := p.enable(t.Context(), in, unitFlags{name: "a", socket: c.socket}, false); err != nil || out.String() != "start it with: "+c.want+"\n" {
			t.Errorf("%+v: %q, %v", c, out.String(), err)
		}
	}
}

// The service runs as who called sudo, and root's home is closed to that user.
func TestAServiceInstalledBySudoHasTheHomeOfWhoCalledIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root is who sudo made of somebody")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct {
		name, caller, flag, env string
		user                    bool
		want                    string
	}{
		{"sudo", "nobody", "", "", false, filepath.Join(nobody.HomeDir, ".hermes")},
		{"sudo with --home", "nobody", "/srv/hermes", "", false, "/srv/hermes"},
		{"sudo with HERMES_HOME", "nobody", "", "/srv/other", false, "/srv/other"},
		{"sudo for root's own manager", "nobody", "", "", true, filepath.Join(os.Getenv("HOME"), ".hermes")},
		{"root itself", "", "", "", false, filepath.Join(os.Getenv("HOME"), ".hermes")},
	} {
		t.Setenv("SUDO_USER", c.caller)
		t.Setenv("HERMES_HOME", c.env)
		p := &program{home: c.flag}
		in, err := p.installation(unitFlags{user: c.user, name: "hermes-supervisor"}, false)
		if err != nil || in.Home != c.want {
			t.Errorf("%s: the home is %q, not %q: %v", c.name, in.Home, c.want, err)
		}
		u, err := p.unit(unitFlags{user: c.user})
		if err != nil || u.Home != c.want {
			t.Errorf("%s: the unit's home is %q, not %q: %v", c.name, u.Home, c.want, err)
		}
	}
}
