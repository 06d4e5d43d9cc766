package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

const serviceGroup = "/sys/fs/cgroup/system.slice/hermes-supervisor.service"

// limitsHeld shows who holds workers to their limits: the kernel in a cgroup of each, where this machine has the controllers in
// version 2, else the watch, and that it is said.
func (h *systemdHost) limitsHeld() {
	if got := h.property("Delegate"); got != "yes" {
		h.t.Errorf("Delegate is %q", got)
	}
	kernel := false
	offered, _ := h.run("cat", serviceGroup+"/cgroup.controllers")
	for _, c := range strings.Fields(offered) {
		kernel = kernel || c == "memory"
	}
	var status controlv1.StatusResponse
	if err := json.Unmarshal([]byte(h.must("hermes-supervisor", "ctl", "status", "-o", "json")), &status); err != nil {
		h.t.Fatal(err)
	}
	// doctor ends with 1 for what else is not well here.
	doctor, _ := h.run("hermes-supervisor", "doctor")
	h.t.Logf("controllers: %q; %v", strings.TrimSpace(offered), status.Enforcement)
	if !kernel {
		if status.Enforcement.GetMemory() != "watch" || !strings.Contains(doctor, "memory is held by the supervisor's watch") ||
			!strings.Contains(status.Enforcement.GetDetail(), "handed neither memory nor pids") {
			h.t.Errorf("%v\n%s", status.Enforcement, doctor)
		}
		return
	}
	if status.Enforcement.GetMemory() != "cgroup" || !strings.Contains(doctor, "memory is held by the kernel") {
		h.t.Errorf("%v\n%s", status.Enforcement, doctor)
	}
	if procs := h.must("cat", serviceGroup+"/cgroup.procs"); strings.TrimSpace(procs) != "" {
		h.t.Errorf("in the service's own cgroup are %q", procs)
	}
	for _, w := range status.Workers {
		own := strings.TrimPrefix(strings.TrimSpace(h.must("cat", fmt.Sprintf("/proc/%d/cgroup", w.Pid))), "0::")
		if limit := strings.TrimSpace(h.must("cat", "/sys/fs/cgroup"+own+"/memory.max")); limit != strconv.Itoa(1<<30+1<<27) {
			h.t.Errorf("%s is in %s and may have %s", w.Name, own, limit)
		}
	}
}

// partsStuck has each part that the watchdog looks at stand still, in a supervisor that a test can do this to. The writer has a
// test of its own, on a disk that is frozen.
func (h *systemdHost) partsStuck() {
	h.must("systemctl", "stop", "hermes-supervisor")
	_, _ = h.run("umount", "/srv/hermes") // of the test of the writer, if that ran
	h.configure("")
	h.must("chown", "-R", "daemon:", "/srv/hermes")
	version := strings.Fields(h.must("hermes-agent", "--version"))
	flag := "-X github.com/hermes-supervisor/hermes-supervisor/ipc.version=" + version[len(version)-1]
	out, err := exec.Command("go", "test", "-c", "-tags", "sqlite_fts5,sqlite_omit_load_extension", "-ldflags", flag,
		"-o", filepath.Join(h.shared, "bin", "freezable"), "../supervisor").CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
	h.must("sh", "-c", "printf '[Service]\\nExecStart=\\nExecStart=/shared/bin/freezable\\nEnvironment=TEST_FREEZE=/srv/hermes\\n' > /run/systemd/system/hermes-supervisor.service.d/freezable.conf")
	h.quickWatchdog()
	h.slowStarts()
	for _, part := range []string{"turn queue", "sampler", "control socket"} {
		pid := h.active("")
		before := strings.Count(h.must("journalctl", "--no-pager", "-u", "hermes-supervisor", "-n", "100000"), "Watchdog timeout")
		h.must("sh", "-c", "printf '"+part+"' > /srv/hermes/freeze")
		h.eventually("the watchdog to end one whose "+part+" is stuck", func() error {
			out := h.must("journalctl", "--no-pager", "-u", "hermes-supervisor", "-n", "100000")
			if strings.Count(out, "Watchdog timeout") == before {
				return errors.New("no timeout of the watchdog in the journal")
			}
			return nil
		})
		h.active(pid)
		if out := h.must("journalctl", "--no-pager", "-u", "hermes-supervisor", "_PID="+pid); !strings.Contains(out, "no progress") || !strings.Contains(out, part) {
			h.t.Errorf("it is not said that the %s stands still:\n%s", part, out)
		}
	}
	h.must("rm", "/run/systemd/system/hermes-supervisor.service.d/freezable.conf")
	h.must("systemctl", "daemon-reload")
	h.must("systemctl", "restart", "hermes-supervisor")
}

// slowStarts shows that a start which gets on may take longer than TimeoutStartSec, and that one which hangs may not.
func (h *systemdHost) slowStarts() {
	h.must("sh", "-c", "printf '[Service]\\nTimeoutStartSec=6s\\nRestart=no\\n' > /run/systemd/system/hermes-supervisor.service.d/start.conf")
	h.must("systemctl", "daemon-reload")
	h.must("systemctl", "stop", "hermes-supervisor")
	h.must("sh", "-c", "printf 'long start' > /srv/hermes/freeze")
	h.must("systemctl", "start", "hermes-supervisor")
	h.must("systemctl", "stop", "hermes-supervisor")
	h.must("sh", "-c", "printf 'start' > /srv/hermes/freeze")
	if out, err := h.run("systemctl", "start", "hermes-supervisor"); err == nil {
		h.t.Errorf("a start that hangs succeeded: %s", out)
	}
	if result := h.property("Result"); result != "timeout" {
		h.t.Errorf("it ended with %q", result)
	}
	h.must("rm", "/srv/hermes/freeze", "/run/systemd/system/hermes-supervisor.service.d/start.conf")
	h.must("systemctl", "daemon-reload")
	h.must("systemctl", "reset-failed", "hermes-supervisor")
	h.must("systemctl", "start", "hermes-supervisor")
}
