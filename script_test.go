package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience bounds every wait of a script. It is long because the machine may be busy.
const patience = 60 * time.Second

// TestScripts runs the built binaries as a person does, each script with a home of its own. Scripts have these commands
// besides those of testscript:
//
//	supervise [ARG…]      start `hermes-supervisor run` and wait until it is ready; $SUPERVISOR is its pid
//	ended CODE            wait until the supervisor of supervise has ended with that exit code
//	code N COMMAND…       run a command that must end with exit code N
//	eventually RE CMD…    run a command again and again until its stdout matches
//	signal NAME PID       send a signal
//	pictured PAGE LINE    what the last command printed has the shape of what PAGE shows below LINE
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	bin := build(t)
	testscript.Run(t, testscript.Params{
		Dir:       "testdata/script",
		Setup:     func(e *testscript.Env) error { return setup(e, bin) },
		Condition: func(name string) (bool, error) { return condition(bin, name) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"supervise": supervise, "ended": ended, "code": code, "eventually": eventually, "signal": sendSignal, "pictured": pictured,
		},
	})
}

// condition is landlock (this kernel can keep a plugin from files at all) or python (the example in Python can run).
func condition(bin, name string) (bool, error) {
	switch name {
	case "landlock":
		out, err := exec.Command(filepath.Join(bin, "hermes-confine"), "--report").Output()
		return err == nil && !strings.Contains(string(out), `"landlock_abi":0`), err
	case "python":
		return exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf").Run() == nil, nil
	}
	return false, fmt.Errorf("no condition is named %s", name)
}

var (
	buildOnce sync.Once
	built     string // folder of the binaries
	buildErr  error
)

// build makes all binaries as people do, once for all tests.
func build(t *testing.T) string {
	t.Helper()
	buildOnce.Do(func() {
		if built, buildErr = os.MkdirTemp("", "hs-bin-"); buildErr != nil {
			return
		}
		if out, err := exec.Command("make", "-s", "build", "BIN="+built).CombinedOutput(); err != nil {
			buildErr = fmt.Errorf("make build: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return built
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// setup gives a script a home with the offline provider and a free port, and a run directory with a short name.
func setup(e *testscript.Env, bin string) error {
	run, err := os.MkdirTemp("", "hs-")
	if err != nil {
		return err
	}
	e.Defer(func() { _ = os.RemoveAll(run) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	home := filepath.Join(e.WorkDir, ".hermes")
	e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("HERMES_HOME", home)
	e.Setenv("XDG_RUNTIME_DIR", run)
	e.Setenv("API", address)
	e.Setenv("BIN", bin)
	e.Setenv("LC_ALL", "C.UTF-8") // what is printed has signs
	if err := goEnvironment(e); err != nil {
		return err
	}
	e.Values["supervisor"] = &supervised{}
	config := filepath.Join(home, "config.yaml")
	if _, err := os.Stat(config); err == nil {
		return nil // the script brings its own
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf("model: {provider: offline}\nadapters: {api: {listen: %q}}\nsupervisor: {drain_timeout: 5s}\n", address)
	return os.WriteFile(config, []byte(text), 0o600)
}

// goEnvironment lets a script use go and make on this checkout, with the caches of the one who runs the test.
func goEnvironment(e *testscript.Env) error {
	repo, err := os.Getwd()
	if err != nil {
		return err
	}
	e.Setenv("REPO", repo)
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			return fmt.Errorf("go env %s: %w", name, err)
		}
		e.Setenv(name, strings.TrimSpace(string(out)))
	}
	return nil
}

// supervised is the supervisor that a script started last.
type supervised struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func supervise(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: supervise [ARG…]")
	}
	s := ts.Value("supervisor").(*supervised)
	s.log = ts.MkAbs("supervisor.log")
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(ts.Getenv("BIN"), "hermes-supervisor"), append([]string{"run"}, args...)...)
	cmd.Dir, cmd.Stderr = ts.MkAbs("."), log
	for _, name := range []string{"PATH", "HOME", "HERMES_HOME", "XDG_RUNTIME_DIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(cmd.Start())
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	s.cmd, s.done = cmd, done
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	ts.Setenv("SUPERVISOR", strconv.Itoa(cmd.Process.Pid))
	wait(ts, "the supervisor to be ready", func() bool {
		select {
		case <-done:
			text, _ := os.ReadFile(s.log)
			ts.Fatalf("the supervisor ended with %d:\n%s", cmd.ProcessState.ExitCode(), text)
		default:
		}
		out, _ := output(ts, "hermes-supervisor", "ctl", "status", "-o", "json")
		return strings.Contains(out, `"state": "ready"`) && strings.Contains(out, fmt.Sprintf(`"pid": %d,`, cmd.Process.Pid)) &&
			!regexp.MustCompile(`"state": "(starting|waiting)"`).MatchString(out)
	})
}

// output runs a command without leaving its output to the script.
func output(ts *testscript.TestScript, name string, args ...string) (string, error) {
	if !strings.Contains(name, "/") {
		if path := filepath.Join(ts.Getenv("BIN"), name); exists(path) {
			name = path
		}
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, v := range []string{"PATH", "HOME", "HERMES_HOME", "XDG_RUNTIME_DIR"} {
		cmd.Env = append(cmd.Env, v+"="+ts.Getenv(v))
	}
	out, err := cmd.Output()
	return string(out), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func wait(ts *testscript.TestScript, what string, done func() bool) {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ended CODE")
	}
	s := ts.Value("supervisor").(*supervised)
	select {
	case <-s.done:
	case <-time.After(patience):
		ts.Fatalf("the supervisor did not end within %v", patience)
	}
	if got := strconv.Itoa(s.cmd.ProcessState.ExitCode()); got != args[0] {
		text, _ := os.ReadFile(s.log)
		ts.Fatalf("the supervisor ended with %s, want %s:\n%s", got, args[0], text)
	}
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually RE COMMAND…")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	last := ""
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if last, _ = output(ts, args[1], args[2:]...); re.MatchString(last) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no match for %s within %v in\n%s", args[0], patience, last)
		}
	}
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal NAME PID")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(args[1]))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}
