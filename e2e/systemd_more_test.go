package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// socketActivated shows that with the control socket held by systemd a command starts the service, and one that comes during
// a restart waits for the new supervisor.
func (h *systemdHost) socketActivated() {
	_, advice, ok := strings.Cut(h.install("--socket"), "start it with: ")
	if out, err := h.run("sh", "-c", advice); !ok || err != nil {
		h.t.Errorf("the advice is %q, and that says %q, %v", advice, out, err)
	}
	h.must("systemctl", "is-active", "hermes-supervisor.socket")
	h.install("--now")
	h.install("--socket", "--now")
	if warned := h.must("hermes-supervisor", "ctl", "status"); strings.Contains(warned, "warning") {
		h.t.Errorf("the units do not fit:\n%s", warned)
	}
	h.must("systemctl", "stop", "hermes-supervisor.service")
	if state := h.property("ActiveState"); state != "inactive" {
		h.t.Fatalf("it is %s", state)
	}
	if out := h.must("hermes-supervisor", "ctl", "status"); !strings.Contains(out, ", pid ") {
		h.t.Errorf("the command that started it got:\n%s", out)
	}
	pid := h.active("")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	restart := h.command(ctx, "systemctl", "restart", "hermes-supervisor.service")
	if err := restart.Start(); err != nil {
		h.t.Fatal(err)
	}
	failed := 0
	for restarting := true; restarting; {
		if out, err := h.run("hermes-supervisor", "ctl", "status"); err != nil {
			failed++
			h.t.Logf("during the restart: %v\n%s", err, out)
		}
		restarting = h.property("MainPID") == pid || h.property("ActiveState") != "active"
	}
	if err := restart.Wait(); err != nil {
		h.t.Error(err)
	}
	// One that was connected when the old process ended has lost its connection; none finds nobody.
	if failed > 1 {
		h.t.Errorf("%d commands failed during the restart", failed)
	}
	if out := h.must("stat", "-c", "%a %U", strings.TrimSpace(h.must("sh", "-c", "ls /run/hermes-supervisor-*/*/control.sock"))); out != "600 daemon\n" {
		h.t.Errorf("the socket is %s", out)
	}
	h.socketTakenAway()
}

// socketTakenAway shows that an installation that asks for no socket leaves a service that holds its own.
func (h *systemdHost) socketTakenAway() {
	pid := h.active("")
	if out := h.must("env", "SUDO_USER=daemon", "hermes-supervisor", "systemd", "install", "--now"); !strings.Contains(out, "removed /etc/systemd/system/hermes-supervisor.socket") {
		h.t.Errorf("install said %q", out)
	}
	h.active(pid)
	if out := h.must("hermes-supervisor", "ctl", "status"); !strings.Contains(out, " is ready, ") {
		h.t.Errorf("without the socket unit:\n%s", out)
	}
	if out, err := h.run("systemctl", "is-active", "hermes-supervisor.socket"); err == nil {
		h.t.Errorf("the socket unit is %s", out)
	}
	if out, err := h.run("sh", "-c", "ls /etc/systemd/system/sockets.target.wants /etc/systemd/system/*.socket | grep hermes"); err == nil {
		h.t.Errorf("left: %s", out)
	}
}

// restartedFromAChat shows that /restart ends the supervisor in a way after which systemd starts it, and that the chat is told.
func (h *systemdHost) restartedFromAChat() {
	bot := bottest.New()
	url := bot.Listen() // the namespaces share this machine's network
	defer bot.Close()
	bot.Private(firstPerson, "Ann")
	config := fmt.Sprintf("model: {provider: offline}\nadapters:\n  api: {enabled: false}\n  telegram: {base_url: %q, allowed_users: \"%d\", poll_timeout: 5s, retry_first: 100ms, home_chat: \"%d\"}\nsupervisor: {drain_timeout: 5s}\n",
		url, firstPerson, firstPerson)
	h.must("sh", "-c", "printf '%s' \"$1\" > /srv/hermes/config.yaml; printf 'TELEGRAM_BOT_TOKEN=%s\\n' \"$2\" > /srv/hermes/.env; chmod 600 /srv/hermes/.env; chown daemon: /srv/hermes/.env", "sh", config, bottest.Token)
	h.must("systemctl", "restart", "hermes-supervisor")
	pid := h.active("")
	shows := func(words string) (found bottest.Message) {
		h.t.Helper()
		h.eventually("the chat to show "+words, func() error {
			for _, m := range bot.Messages(firstPerson) {
				if strings.Contains(m.Text, words) {
					found = m
					return nil
				}
			}
			return fmt.Errorf("it shows %q", bot.Texts(firstPerson))
		})
		return found
	}
	bot.Say(bottest.Post{From: firstPerson, Text: "/restart"})
	asked := shows("Restart the whole system?")
	bot.Press(firstPerson, firstPerson, asked.ID, "✅ Approve Once")
	h.active(pid)
	shows("I have been restarted")
	h.configure("")
	h.must("rm", "/srv/hermes/.env")
	h.must("systemctl", "restart", "hermes-supervisor")
}

// asAUsersService shows the same under a manager of a user's own.
func (h *systemdHost) asAUsersService() {
	const person = "/srv/person"
	h.must("sh", "-c", "mkdir -p "+person+" /run/user/1 && chmod 700 "+person+" /run/user/1 && chown daemon: "+person+" /run/user/1")
	// The unit that comes with systemd needs its login manager.
	h.must("sh", "-c", `printf '%s' "$1" > /run/systemd/system/user@.service`, "sh", "[Service]\nType=notify\nUser=%i\nDelegate=yes\nSlice=user-%i.slice\n"+
		"Environment=HOME="+person+" XDG_RUNTIME_DIR=/run/user/%i PATH=/shared/bin:/usr/bin:/bin\nExecStart=/lib/systemd/systemd --user\n")
	h.must("systemctl", "daemon-reload")
	h.must("systemctl", "start", "user@1.service")
	as := func(args ...string) (string, error) {
		return h.run(append([]string{"setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", "env", "HOME=" + person, "XDG_RUNTIME_DIR=/run/user/1", "HERMES_HOME=" + person + "/.hermes"}, args...)...)
	}
	must := func(args ...string) string {
		h.t.Helper()
		out, err := as(args...)
		if err != nil {
			h.t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return out
	}
	must("sh", "-c", "mkdir -p "+person+"/.hermes && printf 'model: {provider: offline}\\nadapters: {api: {enabled: false}}\\n' > "+person+"/.hermes/config.yaml")
	if out := must("hermes-supervisor", "systemd", "install", "--user", "--now"); !strings.Contains(out, "is enabled and started") {
		h.t.Errorf("install said %q", out)
	}
	if out := must("systemctl", "--user", "show", "--value", "-p", "StatusText", "hermes-supervisor"); !strings.HasPrefix(out, "ready, 4 of 4 workers serve") {
		h.t.Errorf("status text %q", out)
	}
	if out := must("hermes-supervisor", "chat", "-q", "run: echo as-a-user"); !strings.Contains(out, "as-a-user") {
		h.t.Errorf("the reply is %q", out)
	}
	if out := must("hermes-supervisor", "ctl", "status"); strings.Contains(out, "warning") {
		h.t.Errorf("the unit does not fit:\n%s", out)
	}
	must("hermes-supervisor", "systemd", "uninstall", "--user")
	if out, _ := as("systemctl", "--user", "is-active", "hermes-supervisor"); !strings.HasPrefix(out, "inactive") {
		h.t.Errorf("after uninstall it is %s", out)
	}
	h.must("systemctl", "stop", "user@1.service")
}
