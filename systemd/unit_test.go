package systemd

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestUnitFiles(t *testing.T) {
	for name, u := range map[string]Unit{
		"user.service":   {Executable: "/usr/local/bin/hermes-supervisor", Home: "/home/ada/.hermes", Drain: time.Minute},
		"socket.service": {Executable: "/opt/bin/hermes-supervisor", Home: "/srv/hermes", User: "hermes", Drain: time.Minute, RunDir: "hermes-supervisor-0123456789", Socket: "/run/hermes-supervisor-0123456789/0123456789/control.sock"},
		"system.service": {Executable: "/opt/hermes supervisor/bin/hermes-supervisor", Home: `/srv/50%/a"b$c`, User: "hermes", Drain: 1500 * time.Millisecond, RunDir: "hermes-supervisor-9876543210"},
	} {
		got, err := u.Render()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, got)
		everySettingHasAReason(t, name, string(got))
		if u.Socket != "" {
			got, err := u.RenderSocket()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "socket.socket", got)
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// everySettingHasAReason wants a comment above each setting of [Service] that somebody chose.
func everySettingHasAReason(t *testing.T, name, text string) {
	t.Helper()
	self := map[string]bool{"ExecStart": true, "User": true, "RuntimeDirectoryMode": true, "RestartSec": true,
		"ProtectKernelTunables": true, "ProtectKernelModules": true, "ProtectKernelLogs": true, "ProtectHostname": true, "ExecReload": true}
	_, text, _ = strings.Cut(text, "[Service]\n")
	text, _, _ = strings.Cut(text, "[Install]")
	before := ""
	for _, line := range strings.Split(text, "\n") {
		if key, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") && !self[key] && !strings.HasPrefix(before, "#") {
			t.Errorf("%s: %s has no reason above it", name, line)
		}
		before = line
	}
}

// TestStopTimeFollowsTheDrain is the promise of a known end: the two can never disagree.
func TestStopTimeFollowsTheDrain(t *testing.T) {
	for drain, want := range map[time.Duration]int{0: 30, time.Minute: 90, 1500 * time.Millisecond: 32} {
		if got := (Unit{Drain: drain}).StopSeconds(); got != want {
			t.Errorf("drain %v: TimeoutStopSec %d, want %d", drain, got, want)
		}
	}
}

func TestAPathWithALineBreakIsRefused(t *testing.T) {
	if _, err := (Unit{Executable: "/a", Home: "/b\n[Service]\nExecStart=/bad"}).Render(); err == nil {
		t.Error("no error")
	}
}

// systemd-analyze looks whether the program is there, and so whether its path was read as it was meant.
func TestSystemdFindsTheProgramWhereverItIs(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	for _, name := range []string{"plain", "a b", "50%", "a$b", "${HOME}", "a;b", "a#b", " a ", "ä", ";", `a"b`, "a'b", `a\b`, "a\tb"} {
		program := filepath.Join(t.TempDir(), name, "hermes-supervisor")
		if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		text, err := Unit{Executable: program, Home: "/srv/" + name, User: "root", Drain: time.Minute, RunDir: "hermes-supervisor-0123456789"}.Render()
		if strings.ContainsAny(name, "\"'\\\t") {
			if err == nil || !strings.Contains(err.Error(), "elsewhere") {
				t.Errorf("%q, which systemd does not start, is written into a unit: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "hermes-supervisor.service")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", "--recursive-errors=no", path).CombinedOutput()
		if err != nil || strings.Contains(string(out), filepath.Base(path)) {
			t.Errorf("%q: %v\n%s", name, err, out)
		}
	}
}
