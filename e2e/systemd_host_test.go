package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A systemdHost is a real systemd, process 1 of namespaces of its own, over a copy of this machine's root whose changes are
// gone afterwards.
type systemdHost struct {
	t      *testing.T
	shared string // this folder is /shared inside
	init   int    // its process, seen from outside
	log    *tail
}

// bootSystemd boots one, or skips the test with the reason.
func bootSystemd(t *testing.T) *systemdHost {
	t.Helper()
	if os.Getenv("HERMES_E2E_SYSTEMD") == "" {
		t.Skip("boots a systemd, a minute's work: make systemd-e2e")
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make the namespaces that a systemd needs")
	}
	for _, program := range []string{"/lib/systemd/systemd", "/usr/bin/unshare", "/usr/bin/nsenter", "/usr/bin/systemctl", "/usr/bin/journalctl"} {
		if _, err := os.Stat(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir, err := os.MkdirTemp("", "hs-systemd-")
	if err != nil {
		t.Fatal(err)
	}
	h := &systemdHost{t: t, shared: filepath.Join(dir, "shared"), log: &tail{}}
	for _, d := range []string{dir, h.shared} { // the service's user must get at the binaries
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(d, 0o755)
	}
	script, err := filepath.Abs("testdata/boot-systemd.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/unshare", "-p", "-m", "-u", "-i", "-f", "--kill-child=SIGKILL", "/bin/sh", script, dir)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := h.run("journalctl", "--no-pager", "-n", "120", "-u", "hermes-supervisor")
			t.Logf("systemd said:\n%s\nits journal:\n%s", h.log.String(), out)
		}
		_ = cmd.Process.Kill() // process 1 goes with it, and with that all below
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	h.waitBooted(cmd.Process.Pid)
	return h
}

func (h *systemdHost) waitBooted(outer int) {
	h.t.Helper()
	h.eventually("systemd to be up", func() error {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outer, outer))
		pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			return fmt.Errorf("children of unshare: %q", children)
		}
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) != "systemd" {
			return fmt.Errorf("process 1 is %q", name)
		}
		h.init = pid
		state, _ := h.run("systemctl", "is-system-running")
		if s := strings.TrimSpace(state); s != "running" && s != "degraded" {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
}

// run runs a command inside and returns what it printed.
func (h *systemdHost) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := h.command(ctx, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return out.String(), err
}

func (h *systemdHost) command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(h.init), "-p", "-m", "-u", "-i", "-r", "-w", "/usr/bin/env", "-i",
		"PATH=/shared/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HERMES_HOME=/srv/hermes", "LC_ALL=C.UTF-8"}
	return exec.CommandContext(ctx, "/usr/bin/nsenter", append(enter, args...)...)
}

// must is run for what has to work.
func (h *systemdHost) must(args ...string) string {
	h.t.Helper()
	out, err := h.run(args...)
	if err != nil {
		h.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

// property returns one property of the service.
func (h *systemdHost) property(name string) string {
	h.t.Helper()
	return strings.TrimSpace(h.must("systemctl", "show", "--value", "-p", name, "hermes-supervisor.service"))
}

func (h *systemdHost) eventually(what string, check func() error) {
	h.t.Helper()
	var err error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	h.t.Fatalf("waiting for %s: %v", what, err)
}

// active waits until a process other than the given one serves, and returns it.
func (h *systemdHost) active(other string) string {
	h.t.Helper()
	pid := ""
	h.eventually("the service to be active with a new process", func() error {
		state := h.property("ActiveState")
		if pid = h.property("MainPID"); state != "active" || pid == other || pid == "0" {
			return fmt.Errorf("it is %s with process %s", state, pid)
		}
		return nil
	})
	return pid
}
