package enter_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
)

var confineBinary, captiveBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "confine-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	confineBinary, captiveBinary = filepath.Join(dir, confine.Program), filepath.Join(dir, "captive")
	for _, b := range [][2]string{{confineBinary, "../../../workers/cmd/hermes-confine"}, {captiveBinary, "./testdata/captive"}} {
		if out, err := exec.Command("go", "build", "-o", b[0], b[1]).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", b[1], err, out)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the program that shuts plugins in, with flags for the linker.
func build(t *testing.T, flags string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), confine.Program)
	if out, err := exec.Command("go", "build", "-ldflags", flags, "-o", path, "../../../workers/cmd/hermes-confine").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// report is what this kernel enforces.
func report(t *testing.T) confine.Report {
	t.Helper()
	return reportOf(t, confineBinary)
}

func reportOf(t *testing.T, program string) confine.Report {
	t.Helper()
	out, err := exec.Command(program, confine.ReportFlag).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r confine.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r
}

func need(t *testing.T, abi int) {
	t.Helper()
	if r := report(t); r.ABI < abi {
		t.Skipf("this kernel has Landlock %d, the wall needs %d", r.ABI, abi)
	}
}

// A cell is a place for one captive: its own folder and one with a secret.
type cell struct {
	t       *testing.T
	policy  confine.Policy
	confine string // the program that shuts in
	program string // what is shut in
	secret  string // file that it must not read
	env     []string
}

func newCell(t *testing.T) *cell {
	t.Helper()
	dir := t.TempDir()
	c := &cell{t: t, confine: confineBinary, program: captiveBinary, secret: filepath.Join(dir, "home", "state.db")}
	c.policy = confine.Policy{Name: "captive", Data: filepath.Join(dir, "home", "data")}
	if err := os.MkdirAll(filepath.Dir(c.secret), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// try lets the captive try things and returns what it printed, one line each.
func (c *cell) try(verbs ...string) map[string]string {
	c.t.Helper()
	out, err := c.command(verbs...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("captive: %v\n%s", err, out)
	}
	got := map[string]string{}
	for _, v := range verbs {
		if _, after, ok := strings.Cut(string(out), v+": "); ok {
			got[v], _, _ = strings.Cut(after, "\n")
		}
	}
	return got
}

func (c *cell) command(verbs ...string) *exec.Cmd {
	c.t.Helper()
	f, err := os.Open(c.program)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = f.Close() })
	cmd := exec.Command(c.confine, c.policy.Encode())
	cmd.ExtraFiles = []*os.File{nil, f} // 3 is the liveness pipe of a real start
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "TRY=" + strings.Join(verbs, "\n")}, c.env...)
	return cmd
}

func (c *cell) refused(got map[string]string, verbs ...string) {
	c.t.Helper()
	for _, v := range verbs {
		if !strings.HasPrefix(got[v], "refused: ") {
			c.t.Errorf("%s: %q, want it refused", v, got[v])
		}
	}
}

func TestTheStateIsOutOfReachAndItsOwnFolderIsNot(t *testing.T) {
	need(t, 1)
	c := newCell(t)
	own := filepath.Join(c.policy.Data, "note")
	got := c.try("read "+c.secret, "list "+filepath.Dir(c.secret), "write "+c.secret, "read /etc/shadow", "list /proc",
		"write "+own, "read "+own, "env HOME", "env TMPDIR")
	c.refused(got, "read "+c.secret, "list "+filepath.Dir(c.secret), "write "+c.secret, "read /etc/shadow", "list /proc")
	if got["read "+own] != "x" || got["env HOME"] != c.policy.Data || got["env TMPDIR"] != filepath.Join(c.policy.Data, "tmp") {
		t.Errorf("its own folder: %v", got)
	}
	if b, _ := os.ReadFile(c.secret); string(b) != "secret" {
		t.Errorf("the file is now %q", b)
	}
}

func TestOnlyWhatIsGrantedIsRead(t *testing.T) {
	need(t, 1)
	c := newCell(t)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, p := range []string{in, out} {
		if err := os.WriteFile(p, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.policy.Read, c.policy.Write = []string{in}, []string{out}
	got := c.try("read "+in, "write "+in, "write "+out, "list "+dir)
	c.refused(got, "write "+in, "list "+dir)
	if got["read "+in] != "text" || got["write "+out] != "ok" {
		t.Errorf("%v", got)
	}
}

func TestOnlyGrantedPortsAreConnectedTo(t *testing.T) {
	need(t, 4)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dial := "dial tcp " + l.Addr().String()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	c := newCell(t)
	c.refused(c.try(dial), dial)
	c.policy.Connect = []uint16{port}
	if got := c.try(dial); got[dial] != "ok" {
		t.Errorf("granted: %v", got)
	}
	c.policy.Connect, c.policy.Any = nil, true
	if got := c.try(dial); got[dial] != "ok" {
		t.Errorf("any port granted: %v", got)
	}
}

func TestOtherProcessesAreOutOfReach(t *testing.T) {
	need(t, 6)
	c := newCell(t)
	env := fmt.Sprintf("read /proc/%d/environ", os.Getpid())
	kill := fmt.Sprintf("kill %d", os.Getpid())
	l, err := net.Listen("unix", "@hermes-confine-test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	abstract := "dial unix @hermes-confine-test"
	c.refused(c.try(env, kill, abstract), env, kill, abstract)
	// Granted folders change nothing about that.
	c.policy.Read = []string{"/proc"}
	c.refused(c.try(env), env)
}

func TestLimitsHold(t *testing.T) {
	c := newCell(t)
	c.policy.Limits = confine.Limits{FDs: 77, FileBytes: 1 << 16, DataBytes: 1 << 30}
	big := "grow " + filepath.Join(c.policy.Data, "big") + " 1000000"
	limits := "run ulimit -n; ulimit -c; grep NoNewPrivs /proc/self/status || echo hidden"
	c.policy.Read = []string{"/proc"}
	got := c.try(limits)
	if got[limits] != "77" {
		t.Errorf("limits: %q", got[limits])
	}
	out, _ := c.command(big).CombinedOutput()
	if strings.Contains(string(out), ": ok") {
		t.Errorf("a file beyond the limit: %s", out)
	}
}

func TestRootsPowersAreDropped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("does not run as root")
	}
	c := newCell(t)
	c.policy.Read = []string{"/proc"}
	try := "run grep CapEff /proc/self/status"
	if got := c.try(try); got[try] != "CapEff:\t0000000000000000" {
		t.Errorf("capabilities: %v", got)
	}
}

// idleUser is a user of this machine who has no process: the kernel counts all of a user's against the limit, those of others
// who borrowed the same one included.
func idleUser(t *testing.T) string {
	t.Helper()
	busy := map[string]bool{}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if info, err := os.Stat(path); err == nil {
			busy[strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))] = true
		}
	}
	for _, name := range []string{"games", "news", "uucp", "irc", "list", "lp", "backup", "mail", "bin", "nobody"} {
		if u, err := user.Lookup(name); err == nil && u.Uid != "0" && !busy[u.Uid] {
			return name
		}
	}
	t.Skip("each user of this machine has processes")
	return ""
}

func TestAnotherUserHasNothingOfTheSupervisors(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("does not run as root")
	}
	c := newCell(t)
	c.policy.User, c.policy.Limits.Processes = idleUser(t), 20
	socket := filepath.Join(t.TempDir(), "plugin-dir1")
	if err := os.Mkdir(socket, 0o700); err != nil {
		t.Fatal(err)
	}
	// The program of a plugin with a user of its own is executable for all; only its folder is closed.
	c.program = filepath.Join(filepath.Dir(c.secret), "program")
	if err := os.Link(captiveBinary, c.program); err != nil {
		b, err := os.ReadFile(captiveBinary)
		if err == nil {
			err = os.WriteFile(c.program, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.env = []string{"PLUGIN_UNIX_SOCKET_DIR=" + socket}
	got := c.try("uid", "write /proc/self/fd/50/socket", "write /proc/self/fd/51/note", "env PLUGIN_UNIX_SOCKET_DIR", "env HOME", "forks 40", "read "+c.secret)
	if got["uid"] == "0" || got["write /proc/self/fd/50/socket"] != "ok" || got["write /proc/self/fd/51/note"] != "ok" {
		t.Errorf("%v", got)
	}
	if got["env PLUGIN_UNIX_SOCKET_DIR"] != "/proc/self/fd/50" || got["env HOME"] != "/proc/self/fd/51" || got["forks 40"] != "true" {
		t.Errorf("%v", got)
	}
	c.refused(got, "read "+c.secret)
}

func TestAScriptIsRunThroughItsDescriptor(t *testing.T) {
	c := newCell(t)
	c.program = filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(c.program, []byte("#!/bin/sh\necho \"from $0\"\n"), 0o500); err != nil {
		t.Fatal(err)
	}
	cmd := c.command()
	// What comes to its path after the check has no effect.
	if err := os.Rename(c.program, c.program+".old"); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "from /proc/self/fd/4" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWhatIsNoProgramIsRefused(t *testing.T) {
	c := newCell(t)
	c.program = filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(c.program, []byte("echo hello\n"), 0o500); err != nil {
		t.Fatal(err)
	}
	out, err := c.command().CombinedOutput()
	if err == nil || !strings.Contains(string(out), "neither a program of this machine nor a script") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWithoutAPolicyItSaysWhatItIs(t *testing.T) {
	for _, args := range [][]string{nil, {"{}"}, {"{"}, {`{"name":"a","data":"b"}`}} {
		out, err := exec.Command(confineBinary, args...).CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "hermes-confine: ") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}
