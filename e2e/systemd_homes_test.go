package e2e

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

const secondHome = "/srv/second"

// install is what daemon calls by sudo, for the home and with what else is given.
func (h *systemdHost) install(more ...string) string {
	h.t.Helper()
	return h.must(append([]string{"env", "SUDO_USER=daemon", "hermes-supervisor", "systemd", "install"}, more...)...)
}

// runDirOf returns the run directory that a home's supervisor says it has; no answer ends the test.
func (h *systemdHost) runDirOf(home string) string {
	h.t.Helper()
	var status controlv1.StatusResponse
	if err := json.Unmarshal([]byte(h.must("hermes-supervisor", "--home", home, "ctl", "status", "-o", "json")), &status); err != nil {
		h.t.Fatal(err)
	}
	return status.GetSupervisor().GetRunDir()
}

// sideBySide shows that the services of two homes have nothing of each other's: systemd removes the folder of one when it stops.
func (h *systemdHost) sideBySide() {
	h.must("sh", "-c", "mkdir -p "+secondHome+" && cp /srv/hermes/config.yaml "+secondHome+" && chown -R daemon: "+secondHome)
	h.install("--home", secondHome, "--name", "second", "--now")
	first, second := h.runDirOf("/srv/hermes"), h.runDirOf(secondHome)
	if path.Dir(first) == path.Dir(second) {
		h.t.Errorf("both have their sockets in %s", path.Dir(first))
	}
	for _, c := range []struct{ stops, home string }{{"second", "/srv/hermes"}, {"hermes-supervisor", secondHome}} {
		h.must("systemctl", "stop", c.stops)
		h.runDirOf(c.home)
		h.must("systemctl", "start", c.stops)
	}
	if _, err := h.run("test", "-e", "/run/hermes-supervisor"); err == nil {
		h.t.Error("somebody made a folder for all homes")
	}
	h.must("env", "SUDO_USER=daemon", "hermes-supervisor", "--home", secondHome, "systemd", "uninstall", "--name", "second")
	if _, err := h.run("test", "-e", path.Dir(second)); err == nil {
		h.t.Errorf("the folder of the sockets is left: %s", second)
	}
}

// asEarlier makes the installed units those of a release in which all homes had one folder, and starts them anew.
func (h *systemdHost) asEarlier(units ...string) {
	h.t.Helper()
	h.must(append([]string{"systemctl", "stop"}, units...)...)
	h.must("sh", "-c", `cd /etc/systemd/system && sed -i -E '/^X-HermesHome=/d; s,^(RuntimeDirectory=|ListenStream=/run/)hermes-supervisor-[0-9a-f]+,\1hermes-supervisor,' "$@" && rm -rf /run/hermes-supervisor-*`, "sh", units[0], units[len(units)-1])
	h.must("systemctl", "daemon-reload")
	h.must(append([]string{"systemctl", "start"}, units...)...)
}

// moved shows that this release serves under the units of an earlier one, where those say, and that an installation over them moves
// the sockets and restarts what runs.
func (h *systemdHost) moved() {
	const service, socket = "hermes-supervisor.service", "hermes-supervisor.socket"
	before := h.runDirOf("/srv/hermes")
	old := "/run/hermes-supervisor/" + path.Base(before)
	for _, c := range []struct {
		how   string
		units []string
		flags []string
	}{
		{"the service alone", []string{service}, []string{"--force"}},
		{"with its socket", []string{socket, service}, []string{"--force", "--socket"}},
	} {
		if len(c.units) > 1 {
			h.install("--socket", "--now")
		}
		h.asEarlier(c.units...)
		if dir := h.runDirOf("/srv/hermes"); dir != old {
			h.t.Errorf("%s: under the earlier units the run directory is %s, not %s", c.how, dir, old)
		}
		h.eventually("the warning of a folder that other homes share", func() error {
			if out := h.must("hermes-supervisor", "ctl", "status"); !strings.Contains(out, "RuntimeDirectory=hermes-supervisor,") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		pid := h.active("")
		h.install(c.flags...)
		h.active(pid)
		if dir := h.runDirOf("/srv/hermes"); dir != before {
			h.t.Errorf("%s: after the installation the run directory is %s, not %s", c.how, dir, before)
		}
		if _, err := h.run("test", "-e", old+"/control.sock"); err == nil {
			h.t.Errorf("%s: %s/control.sock is left", c.how, old)
		}
	}
	h.must("systemctl", "stop", service)
	if dir := h.runDirOf("/srv/hermes"); dir != before {
		h.t.Errorf("the command that started it was answered from %s, not %s", dir, before)
	}
	// An installation over a socket that waits for its first command leaves it waiting.
	h.asEarlier(socket, service)
	h.must("systemctl", "stop", service)
	h.install("--force", "--socket")
	if state := h.property("ActiveState"); state != "inactive" {
		h.t.Errorf("an installation over a service that was stopped made it %s", state)
	}
	if dir := h.runDirOf("/srv/hermes"); dir != before {
		h.t.Errorf("the command that started it was answered from %s, not %s", dir, before)
	}
	h.install("--now")
}
