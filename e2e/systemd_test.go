package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// serviceConfig is that of the service under test; %s is what a test adds.
const serviceConfig = "model: {provider: offline}\nadapters: {api: {enabled: false}}\nsupervisor: {drain_timeout: 5s%s}\n"

// serve installs the service and starts it.
func (h *systemdHost) serve() {
	h.t.Helper()
	h.copyBinaries()
	h.configure("")
	h.must("chown", "-R", "daemon:", "/srv/hermes")
	out := h.must("env", "SUDO_USER=daemon", "hermes-supervisor", "systemd", "install", "--now")
	if !strings.Contains(out, "wrote /etc/systemd/system/hermes-supervisor.service") || !strings.Contains(out, "is enabled and started") {
		h.t.Errorf("install said %q", out)
	}
}

func (h *systemdHost) configure(more string) {
	h.t.Helper()
	h.must("sh", "-c", "mkdir -p /srv/hermes && printf '%s' \"$1\" > /srv/hermes/config.yaml", "sh", fmt.Sprintf(serviceConfig, more))
}

// copyBinaries puts the binaries where they are replaced later, each by a rename as package managers do it.
func (h *systemdHost) copyBinaries() {
	h.t.Helper()
	to := filepath.Join(h.shared, "bin")
	if err := os.MkdirAll(to, 0o755); err != nil {
		h.t.Fatal(err)
	}
	list, err := os.ReadDir(bin)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range list {
		text, err := os.ReadFile(filepath.Join(bin, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, ".new"), text, 0o755)
		}
		if err == nil {
			err = os.Chmod(filepath.Join(to, ".new"), 0o755)
		}
		if err == nil {
			err = os.Rename(filepath.Join(to, ".new"), filepath.Join(to, e.Name()))
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// TestAsAServiceOfARealSystemd is one service over one boot: each part begins with it active.
func TestAsAServiceOfARealSystemd(t *testing.T) {
	h := bootSystemd(t)
	h.serve()
	for _, part := range []struct {
		name string
		f    func(*systemdHost)
	}{
		{"it is active when it serves, and says what it does", (*systemdHost).readyAndStatus},
		{"workers are held to their limits", (*systemdHost).limitsHeld},
		{"log lines have their worker, process and priority", (*systemdHost).journalFields},
		{"reload applies a configuration or says why not", (*systemdHost).reload},
		{"a restart under load loses nothing", (*systemdHost).restartUnderLoad},
		{"binaries are replaced under a running turn", (*systemdHost).upgrade},
		{"kill -9 leaves no orphan", (*systemdHost).killed},
		{"a stop ends within its budget", (*systemdHost).stopped},
		{"a command starts it by its socket, and waits for it", (*systemdHost).socketActivated},
		{"the services of two homes leave each other alone", (*systemdHost).sideBySide},
		{"units of an earlier release serve, and an installation moves them", (*systemdHost).moved},
		{"a chat restarts it", (*systemdHost).restartedFromAChat},
		{"as a user's service", (*systemdHost).asAUsersService},
		{"the watchdog ends a frozen supervisor", (*systemdHost).frozen},
		{"the watchdog ends one whose writer is stuck", (*systemdHost).writerStuck},
		{"the watchdog ends one of which any other part stands still", (*systemdHost).partsStuck},
		{"uninstall leaves nothing but the home", (*systemdHost).uninstalled},
	} {
		if !t.Run(part.name, func(t *testing.T) { inner := *h; inner.t = t; part.f(&inner) }) {
			return
		}
	}
}

func (h *systemdHost) readyAndStatus() {
	// `systemctl start` has returned, so READY=1 has come: by then everything serves.
	if out := h.must("hermes-supervisor", "ctl", "status"); !strings.Contains(out, " is ready, ") || strings.Contains(out, "starting") {
		h.t.Errorf("active, and yet:\n%s", out)
	}
	if got := h.property("StatusText"); !strings.HasPrefix(got, "ready, 4 of 4 workers serve, model offline") {
		h.t.Errorf("status text %q", got)
	}
	if out := h.must("systemctl", "status", "--no-pager", "hermes-supervisor"); !strings.Contains(out, `Status: "ready, 4 of 4 workers serve`) {
		h.t.Errorf("systemctl status:\n%s", out)
	}
	if again := h.must("env", "SUDO_USER=daemon", "hermes-supervisor", "systemd", "install"); !strings.Contains(again, "are as they should be") {
		h.t.Errorf("install again said %q", again)
	}
	if out := h.must("hermes-supervisor", "ctl", "status"); strings.Contains(out, "warning") {
		h.t.Errorf("the unit does not fit:\n%s", out)
	}
}

func (h *systemdHost) journalFields() {
	out := h.must("journalctl", "-o", "json", "--no-pager", "-n", "1", "HERMES_WORKER=agent-1")
	var entry map[string]any
	if err := json.Unmarshal([]byte(strings.TrimSpace(out)), &entry); err != nil {
		h.t.Fatalf("%v in %q", err, out)
	}
	for _, field := range []string{"MESSAGE", "PRIORITY", "HERMES_PID", "HERMES_STREAM", "_SYSTEMD_UNIT"} {
		if entry[field] == nil {
			h.t.Errorf("no %s in %v", field, entry)
		}
	}
	if entry["_SYSTEMD_UNIT"] != "hermes-supervisor.service" || entry["SYSLOG_IDENTIFIER"] != "hermes-supervisor" {
		h.t.Errorf("entry %v", entry)
	}
}

func (h *systemdHost) reload() {
	pid := h.property("MainPID")
	h.configure(", agent_instances: 3")
	h.must("systemctl", "reload", "hermes-supervisor")
	if out := h.must("hermes-supervisor", "ctl", "status"); !strings.Contains(out, "agent-3") {
		h.t.Errorf("after the reload:\n%s", out)
	}
	h.configure(", agent_instances: none")
	if out, err := h.run("systemctl", "reload", "hermes-supervisor"); err == nil {
		h.t.Errorf("a wrong configuration was taken: %s", out)
	}
	h.configure("")
	// By the signal, too, which does not wait.
	h.must("systemctl", "kill", "-s", "HUP", "--kill-who=main", "hermes-supervisor")
	h.eventually("the reload by SIGHUP", func() error {
		if out := h.must("hermes-supervisor", "ctl", "status"); strings.Contains(out, "agent-3") {
			return fmt.Errorf("agent-3 is still there:\n%s", out)
		}
		return nil
	})
	if h.active("") != pid {
		h.t.Error("it was restarted")
	}
}

// ask begins a chat of a person with so many seconds of patience, and returns what waits for its reply.
func (h *systemdHost) ask(ctx context.Context, patience, text string) func() string {
	h.t.Helper()
	cmd := h.command(ctx, "timeout", patience, "hermes-supervisor", "chat", "-q", text)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	return func() string { _ = cmd.Wait(); return out.String() }
}

// running waits until n turns run.
func (h *systemdHost) running(n int) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("%d running turns", n), func() error {
		if out := h.must("hermes-supervisor", "ctl", "status"); !strings.Contains(out, fmt.Sprintf(" %d running", n)) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

func (h *systemdHost) restartUnderLoad() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	const chats = 4
	replies := make([]string, chats)
	var asking sync.WaitGroup
	for n := range chats {
		// Some end within the drain of 5 s, the others go on after the restart.
		reply := h.ask(ctx, "100", fmt.Sprintf("wait: %d\nrun: echo once-%d >> /srv/hermes/effect-%d; echo reply-%d", 1+4*n, n, n, n))
		asking.Go(func() { replies[n] = reply() })
	}
	h.running(chats)
	h.must("systemctl", "restart", "hermes-supervisor")
	asking.Wait()
	for n, reply := range replies {
		if !strings.Contains(reply, fmt.Sprintf("reply-%d", n)) {
			h.t.Errorf("chat %d got %q", n, reply)
		}
		if effect := h.must("cat", fmt.Sprintf("/srv/hermes/effect-%d", n)); effect != fmt.Sprintf("once-%d\n", n) {
			h.t.Errorf("chat %d had the effect %q", n, effect)
		}
	}
}

func (h *systemdHost) upgrade() {
	before := h.property("MainPID")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	reply := h.ask(ctx, "100", "wait: 3\nrun: echo upgraded")
	h.running(1)
	h.copyBinaries()
	h.must("systemctl", "restart", "hermes-supervisor")
	if text := reply(); !strings.Contains(text, "upgraded") {
		h.t.Errorf("the turn's reply is %q", text)
	}
	pid := h.active(before)
	if exe := h.must("readlink", "/proc/"+pid+"/exe"); strings.Contains(exe, "deleted") {
		h.t.Errorf("the old binary runs: %s", exe)
	}
}

// below lists the processes of the service, inside.
func (h *systemdHost) below() []string {
	out, err := h.run("sh", "-c", "cat /sys/fs/cgroup/system.slice/hermes-supervisor.service/cgroup.procs")
	if err != nil {
		return nil // the group is gone with its last process
	}
	return strings.Fields(out)
}

func (h *systemdHost) killed() {
	pid, old := h.property("MainPID"), h.below()
	if len(old) < 5 {
		h.t.Fatalf("only %v run", old)
	}
	h.must("kill", "-KILL", pid)
	h.active(pid)
	h.eventually("the old workers to be gone", func() error {
		for _, p := range old {
			if _, err := h.run("test", "-e", "/proc/"+p); err == nil {
				return fmt.Errorf("process %s is left", p)
			}
		}
		return nil
	})
}

func (h *systemdHost) stopped() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	reply := h.ask(ctx, "6", "wait: 60")
	h.running(1)
	before := time.Now()
	h.must("systemctl", "stop", "hermes-supervisor")
	h.t.Logf("stopped after %v", time.Since(before).Round(time.Millisecond))
	// After its time systemd would have killed it, with Result=timeout.
	if result, left := h.property("Result"), h.below(); result != "success" || len(left) > 0 {
		h.t.Errorf("result %q, left %v", result, left)
	}
	reply() // the person gives up; the turn goes on after the start
	h.must("systemctl", "start", "hermes-supervisor")
	h.running(1)
}

// quickWatchdog makes the watchdog's time one that a test can wait for.
func (h *systemdHost) quickWatchdog() {
	h.must("sh", "-c", "mkdir -p /run/systemd/system/hermes-supervisor.service.d && printf '[Service]\\nWatchdogSec=8s\\nTimeoutAbortSec=5s\\nStartLimitBurst=100\\n' > /run/systemd/system/hermes-supervisor.service.d/quick.conf")
	h.must("systemctl", "daemon-reload")
	h.must("systemctl", "restart", "hermes-supervisor")
}

func (h *systemdHost) frozen() {
	h.quickWatchdog()
	pid := h.active("")
	h.must("kill", "-STOP", pid)
	h.active(pid)
	if out := h.must("journalctl", "--no-pager", "-u", "hermes-supervisor", "-n", "20000"); !strings.Contains(out, "Watchdog timeout") {
		h.t.Errorf("it ended for another reason:\n%s", out)
	}
}

// onItsOwnDisk moves the home of the service to a file system that can be frozen, and skips the test where there is none.
func (h *systemdHost) onItsOwnDisk() {
	h.t.Helper()
	image := filepath.Join(h.shared, "image")
	for _, args := range [][]string{{"truncate", "-s", "64M", image}, {"mkfs.ext4", "-q", image}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			h.t.Skipf("no file system that can be frozen: %v: %s", err, out)
		}
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		h.t.Skipf("no loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	h.t.Cleanup(func() { _ = exec.Command("losetup", "-d", device).Run() }) // in use it goes with its last user
	h.must("systemctl", "stop", "hermes-supervisor")
	h.must("mknod", device, "b", "7", strings.TrimPrefix(device, "/dev/loop"))
	h.must("mount", device, "/srv/hermes")
	h.configure("")
	h.must("chown", "-R", "daemon:", "/srv/hermes")
}

// writerStuck freezes the disk, so that the writer hangs in its commit. A lock of a foreign process would not do: the loop goes
// on then, and a restart would not help.
func (h *systemdHost) writerStuck() {
	h.onItsOwnDisk()
	h.quickWatchdog()
	pid := h.active("")
	said := h.journalFromNow()
	h.must("fsfreeze", "-f", "/srv/hermes")
	defer func() { _, _ = h.run("fsfreeze", "-u", "/srv/hermes") }()
	h.eventually("the watchdog, and the name of what is stuck", func() error {
		out := said()
		for _, want := range []string{"no progress", "store writer", "Watchdog timeout"} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("no %q in the journal, which begins:\n%s", want, out[:min(len(out), 2000)])
			}
		}
		return nil
	})
	h.must("fsfreeze", "-u", "/srv/hermes") // until then the kernel does not let the process go
	h.active(pid)
}

// journalFromNow returns what reads the service's journal from this moment on: what came before may be dropped meanwhile, as
// the traces of an aborted process are long.
func (h *systemdHost) journalFromNow() (read func() string) {
	h.t.Helper()
	_, cursor, ok := strings.Cut(h.must("journalctl", "--no-pager", "-n", "1", "--show-cursor"), "-- cursor: ")
	if !ok {
		h.t.Fatal("the journal has no cursor")
	}
	return func() string {
		return h.must("journalctl", "--no-pager", "-u", "hermes-supervisor", "--after-cursor", strings.TrimSpace(cursor))
	}
}

func (h *systemdHost) uninstalled() {
	h.must("env", "SUDO_USER=daemon", "hermes-supervisor", "systemd", "uninstall")
	if _, err := h.run("test", "-e", "/etc/systemd/system/hermes-supervisor.service"); err == nil {
		h.t.Error("the unit is left")
	}
	if state := h.property("ActiveState"); state != "inactive" {
		h.t.Errorf("it is %s", state)
	}
	h.must("test", "-e", "/srv/hermes/state.db")
}
