package systemd

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const asActivated = "HERMES_TEST_ACTIVATED"

func TestMain(m *testing.M) {
	if path := os.Getenv(asActivated); path != "" {
		os.Exit(activated(path))
	}
	os.Exit(m.Run())
}

// activated is a process that was given sockets: it answers one connection.
func activated(path string) int {
	_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	l, err := Passed(path)
	if err != nil || l == nil {
		_, _ = os.Stderr.WriteString(strings.Join([]string{"no socket", errText(err)}, ": "))
		return 3
	}
	c, err := l.Accept()
	if err != nil {
		return 4
	}
	_, _ = c.Write([]byte("served"))
	_ = c.Close()
	_ = l.Close()
	return 0
}

func errText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

func TestThePassedSocketIsServedAndItsFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	start := func(want string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asActivated+"="+want, "LISTEN_FDS=1")
		cmd.ExtraFiles = []*os.File{file}
		return cmd
	}
	cmd := start(path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	n, _ := c.Read(buf)
	_ = c.Close()
	if err := cmd.Wait(); err != nil || string(buf[:n]) != "served" {
		t.Errorf("%v, answer %q", err, buf[:n])
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the manager's socket is gone: %v", err)
	}
	out, err := start("/elsewhere").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "none is /elsewhere") {
		t.Errorf("another path: %v %s", err, out)
	}
}
