package main

import (
	"bytes"
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

	"github.com/creack/pty"
)

// TestForegroundChatOutlivesItsSupervisor is `make run` at a terminal, with the supervisor killed in the middle of a
// reply: the reply comes, once, and leaving the chat ends everything.
func TestForegroundChatOutlivesItsSupervisor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	s := newScreen(t, build(t))
	s.sees("model: offline")
	s.sees("› ")
	s.types("run: echo x >>effect; sleep 2; echo done-$((3+4))\r")
	s.eventually("the command runs", func() bool { _, err := os.Stat(filepath.Join(s.dir, "effect")); return err == nil })
	s.kill(s.supervisor())
	s.sees("(the supervisor is gone; waiting for it)")
	s.sees("(it is back)")
	s.sees("› ")
	if effect, _ := os.ReadFile(filepath.Join(s.dir, "effect")); string(effect) != "x\n" {
		t.Errorf("the command ran %d times", strings.Count(string(effect), "x"))
	}
	s.types("run: echo again-$((40+2))\r")
	s.sees("again-42")
	s.sees("› ")
	pid := s.supervisor()
	s.types("/quit\r")
	s.ends(0)
	s.eventually("the supervisor has gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// A screen is run --foreground-chat in a pseudo-terminal.
type screen struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	tty  *os.File
	done chan struct{}

	mu   sync.Mutex
	seen bytes.Buffer
	at   int
}

func newScreen(t *testing.T, bin string) *screen {
	t.Helper()
	run, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, dir: t.TempDir(), done: make(chan struct{})}
	home := filepath.Join(s.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	config := "model: {provider: offline}\nadapters: {api: {enabled: false}}\nsupervisor: {drain_timeout: 5s}\n"
	if err := os.WriteFile(filepath.Join(home, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(filepath.Join(bin, "hermes-supervisor"), "run", "--foreground-chat", "--home", home, "--run-dir", run)
	s.cmd.Dir = s.dir
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR=1"}
	if s.tty, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	go s.watch()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_ = s.tty.Close()
		<-s.done
		_ = os.RemoveAll(run)
	})
	return s
}

func (s *screen) watch() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buf)
		s.mu.Lock()
		s.seen.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func (s *screen) eventually(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited %v until %s; seen after byte %d:\n%s", patience, what, s.at, s.text())
		}
	}
}

// sees waits for a text after the one that was waited for before.
func (s *screen) sees(text string) {
	s.t.Helper()
	s.eventually(strconv.Quote(text)+" is shown", func() bool {
		i := strings.Index(s.text()[s.at:], text)
		if i >= 0 {
			s.at += i + len(text)
		}
		return i >= 0
	})
}

func (s *screen) types(keys string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// supervisor finds the supervisor among the children of the command.
func (s *screen) supervisor() int {
	s.t.Helper()
	pid := 0
	s.eventually("the supervisor runs", func() bool {
		out, _ := exec.Command("pgrep", "-P", strconv.Itoa(s.cmd.Process.Pid), "-a").Output()
		m := regexp.MustCompile(`(?m)^(\d+) \S*hermes-supervisor run --until-eof`).FindSubmatch(out)
		if m != nil {
			pid, _ = strconv.Atoi(string(m[1]))
		}
		return m != nil
	})
	return pid
}

func (s *screen) kill(pid int) {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) ends(code int) {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Fatalf("did not end; seen:\n%s", s.text())
	}
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("exit code %d, want %d; seen:\n%s", got, code, s.text())
	}
}
