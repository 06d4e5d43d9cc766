package sample

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// household runs a script that prints pids on one line and then waits; it returns them.
func household(t *testing.T, script string) (pid int, printed []int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range printed {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(line) {
		p, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, p)
	}
	return cmd.Process.Pid, printed
}

func pids(list []Stat) []int {
	var out []int
	for _, s := range list {
		out = append(out, s.PID)
	}
	slices.Sort(out)
	return out
}

func TestOffspringIsWhatTheTableShows(t *testing.T) {
	if !System.listsChildren() {
		t.Skip("this kernel keeps no lists of children")
	}
	// A child with a session of its own, and a grandchild.
	pid, _ := household(t, `setsid sleep 1000 & printf '%s ' $!; sh -c 'sleep 1000 & echo $!; wait' & wait`)
	table, err := System.Table()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pids(System.offspring(pid, nil)), table.Descendants(pid); !slices.Equal(got, want) || len(got) < 2 {
		t.Errorf("%v, the table has %v", got, want)
	}
	if got := System.offspring(os.Getpid(), nil); !slices.Contains(pids(got), pid) {
		t.Errorf("our own child is not among %v", got)
	}
}

func TestWhoLostItsParentIsStillBelow(t *testing.T) {
	if !System.listsChildren() {
		t.Skip("this kernel keeps no lists of children")
	}
	pid, printed := household(t, `sleep 1000 & echo $!; wait`)
	known := System.offspring(pid, nil)
	if got := pids(known); !slices.Equal(got, printed) {
		t.Fatalf("%v, want %v", got, printed)
	}
	stranger := os.Getpid()
	if got := pids(System.offspring(stranger, known)); !slices.Contains(got, printed[0]) {
		t.Errorf("%v without %v", got, printed)
	}
	known[0].Start++ // the pid is somebody else's by now
	if got := System.offspring(printed[0], known); len(got) != 0 {
		t.Errorf("another process with the same pid is taken for it: %v", got)
	}
}

func TestNewProcessesAreFoundWithoutAWalk(t *testing.T) {
	if !System.listsChildren() {
		t.Skip("this kernel keeps no lists of children")
	}
	c := crowd{proc: System, lists: true}
	self := os.Getpid()
	c.look(true)
	known, _ := c.below(self, nil, true)
	pid, printed := household(t, `sh -c 'sleep 1000 & echo $!; wait' & wait`)
	c.look(true)
	if c.walk {
		t.Skip("other programs make too many processes")
	}
	known, _ = c.below(self, known, false)
	if got := pids(known); !slices.Contains(got, pid) || !slices.Contains(got, printed[0]) {
		t.Errorf("%v without %d and %v", got, pid, printed)
	}
	for _, s := range known {
		if !System.leads(s.PID) {
			t.Errorf("%d is a thread", s.PID)
		}
	}
}

// The kernel shows a thread of a worker as it shows a child: with the worker's mark, and us as its parent.
func TestAThreadOfAWorkerIsNoOrphanOfIt(t *testing.T) {
	p := Proc(t.TempDir())
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []struct{ pid, leader int }{{500, 500}, {501, 500}, {502, 502}} {
		write(p.path(s.pid, "stat"), fmt.Sprintf("%d (w) S %d 500 500 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 5000 0 0\n", s.pid, os.Getpid()))
		write(p.path(s.pid, "status"), fmt.Sprintf("Name:\tw\nTgid:\t%d\n", s.leader))
	}
	loadavg := func(newest int) { write(p.loadavg(), fmt.Sprintf("0 0 0 1/1 %d\n", newest)) }
	c := crowd{proc: p, lists: true, owner: func(s Stat) int {
		if s.PID == 500 {
			return 0
		}
		return 500
	}}
	loadavg(499)
	c.look(true)
	c.look(true)
	loadavg(502)
	c.look(true)
	if got := c.adopted[500]; len(got) != 1 || got[0].PID != 502 {
		t.Errorf("adopted %+v, want the process 502 and not the thread 501", got)
	}
}
