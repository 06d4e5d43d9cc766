package store_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A child is another process that works on a database.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.WriteCloser
	errs  bytes.Buffer
}

// startChild runs the function of that name in a process of its own. It lives at most as long as the test.
func startChild(t testing.TB, name string, args ...string) *child {
	t.Helper()
	return startChildEnv(t, nil, name, args...)
}

func startChildEnv(t testing.TB, env []string, name string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(self, args...)}
	c.cmd.Env = append(append(os.Environ(), childVar+"="+name), env...)
	c.cmd.Stderr = &c.errs
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	c.lines.Buffer(nil, 64<<20)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	return c
}

// line waits for the next line of the child, "" at its end.
func (c *child) line() string {
	if c.lines.Scan() {
		return c.lines.Text()
	}
	return ""
}

// expect waits for a line.
func (c *child) expect(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		c.t.Fatalf("child said %q, not %q; %s", got, want, c.errs.String())
	}
}

// wait lets the child end by itself.
func (c *child) wait() error {
	_ = c.stdin.Close()
	for c.lines.Scan() {
	}
	return c.cmd.Wait()
}

// kill ends the child without a warning.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for c.lines.Scan() {
	}
	_ = c.cmd.Wait()
}

// eventually waits for a condition that another goroutine or process brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}
