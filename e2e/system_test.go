package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// bin holds the binaries under test, built once by TestMain.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hs-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // some tests run the programs as another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = filepath.Join(dir, "bin")
	build := exec.Command("make", "-s", "-C", "..", "build", "BIN="+bin)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		return 1
	}
	return m.Run()
}

// A system is one home with its supervisor, which tests start, kill and start again.
type system struct {
	t      *testing.T
	home   string
	runDir string
	api    string // address of the api adapter
	out    *tail
	// managed makes the supervisor believe that a service manager started it, which the test then is.
	managed bool
	low     string // what a shell does before it becomes the supervisor: ulimit
	// user runs the supervisor and the commands; 0 is who runs the tests.
	user uint32

	mu  sync.Mutex
	cmd *exec.Cmd
}

// apiPort asks the kernel for a free port. Nothing holds it until the adapter binds; tests run one at a time.
func apiPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// newSystem makes a home whose configuration is the given YAML plus an api adapter on a free port. It starts nothing.
func newSystem(t *testing.T, supervisorYAML string) *system {
	t.Helper()
	// Not t.TempDir: its long names break the socket path limit.
	dir, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &system{t: t, home: filepath.Join(dir, "home"), runDir: filepath.Join(dir, "run"), api: apiPort(t), out: &tail{}}
	if err := os.MkdirAll(s.home, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("model: {provider: offline}\nadapters:\n  api: {enabled: true, listen: %q}\n%s\n", s.api, supervisorYAML)
	if err := os.WriteFile(filepath.Join(s.home, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("supervisor's last output:\n%s", s.out.String())
		}
	})
	return s
}

func (s *system) args(more ...string) []string {
	return append([]string{"--home", s.home, "--run-dir", s.runDir}, more...)
}

// start starts the supervisor and returns when it serves all required workers.
func (s *system) start() {
	s.t.Helper()
	s.spawn()
	s.waitReady(30 * time.Second)
}

// spawn starts the supervisor and returns at once.
func (s *system) spawn() {
	cmd := exec.Command(filepath.Join(bin, "hermes-supervisor"), s.args("run")...)
	if s.low != "" {
		cmd = exec.Command("/bin/sh", append([]string{"-c", s.low + `exec "$0" "$@"`, filepath.Join(bin, "hermes-supervisor")}, s.args("run")...)...)
	}
	if s.managed {
		cmd = exec.Command("/bin/sh", append([]string{"-c", `SYSTEMD_EXEC_PID=$$ exec "$0" "$@"`, filepath.Join(bin, "hermes-supervisor")}, s.args("run")...)...)
	}
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.Env, cmd.SysProcAttr = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home}, s.credential()
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
}

func (s *system) credential() *syscall.SysProcAttr {
	if s.user == 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.user, Gid: s.user}}
}

func (s *system) process() *exec.Cmd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd
}

func (s *system) pid() int { return s.process().Process.Pid }

// kill ends the supervisor with SIGKILL, if it runs, and reaps it.
func (s *system) kill() {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// stop ends the supervisor with SIGTERM and returns its exit code and how long it took.
func (s *system) stop() (code int, took time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	start := time.Now()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	guard := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), time.Since(start)
}

// ended waits for the supervisor to end by itself.
func (s *system) ended(limit time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	guard := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	if !guard.Stop() {
		s.t.Fatalf("the supervisor did not end within %v", limit)
	}
}

func (s *system) waitReady(limit time.Duration) {
	s.t.Helper()
	s.eventually(limit, "supervisor is ready", func() error {
		st, err := s.status()
		if err != nil {
			return err
		}
		if st.Supervisor.State != "ready" {
			return fmt.Errorf("state %s", st.Supervisor.State)
		}
		return nil
	})
}

// eventually polls until check returns nil.
func (s *system) eventually(limit time.Duration, what string, check func() error) {
	s.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dial returns a connection to the control socket. It connects when used.
func (s *system) dial() *grpc.ClientConn {
	conn, err := grpc.NewClient("unix://"+s.socket(), append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		s.t.Error(err)
	}
	return conn
}

// socket finds the control socket: the run directory holds one folder a home.
func (s *system) socket() string {
	found, _ := filepath.Glob(filepath.Join(s.runDir, "*", "control.sock"))
	if len(found) == 0 {
		return filepath.Join(s.runDir, "control.sock")
	}
	return found[0]
}

func (s *system) status() (*controlv1.StatusResponse, error) {
	conn := s.dial()
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return controlv1.NewControlClient(conn).Status(ctx, &controlv1.StatusRequest{})
}

func (s *system) worker(name string) *controlv1.WorkerStatus {
	s.t.Helper()
	st, err := s.status()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range st.Workers {
		if w.Name == name {
			return w
		}
	}
	s.t.Fatalf("no worker %s", name)
	return nil
}

func (s *system) boards() (hostv1.BoardsClient, func()) {
	conn := s.dial()
	return hostv1.NewBoardsClient(conn), func() { _ = conn.Close() }
}

// command runs the CLI against this home and returns stdout, stderr and the exit code.
func (s *system) command(stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "hermes-supervisor"), s.args(args...)...)
	cmd.Env, cmd.SysProcAttr = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home}, s.credential()
	var out, err bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &err
	runErr := cmd.Run()
	var exit *exec.ExitError
	if runErr != nil && !errors.As(runErr, &exit) {
		s.t.Fatal(runErr)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// tail keeps the last output of a process.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 64 << 10

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if len(w.buf) > 2*tailBytes {
		w.buf = append([]byte(nil), w.buf[len(w.buf)-tailBytes:]...)
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.ToValidUTF8(string(w.buf), "?")
}
