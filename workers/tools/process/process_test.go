package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tree(t *testing.T) *Tree {
	t.Helper()
	tr, err := NewTree()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close(killWait) })
	return tr
}

// start runs a script whose output goes to a file.
func start(t *testing.T, tr *Tree, mark, script string) (c *Command, out string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "out")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("bash", "-c", script)
	cmd.Env = append(os.Environ(), MarkVariable+"="+mark, "OUT="+out)
	cmd.Stdout, cmd.Stderr = f, f
	if c, err = tr.Start(cmd, mark); err != nil {
		t.Fatal(err)
	}
	return c, out
}

// until waits for what only the kernel or a child can bring about.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func pids(t *testing.T, out string, n int) (all []int) {
	t.Helper()
	until(t, fmt.Sprintf("%d process numbers in %s", n, out), func() bool {
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		all = nil
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				all = append(all, pid)
			}
		}
		return len(all) >= n && strings.HasSuffix(string(b), "\n")
	})
	return all
}

// gone says whether a process is neither running nor a zombie.
func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func expectGone(t *testing.T, all []int) {
	t.Helper()
	for _, pid := range all {
		if !gone(pid) {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			t.Errorf("process %d is still there: %s", pid, b)
		}
	}
}

func TestACommandEndsByItself(t *testing.T) {
	c, out := start(t, tree(t), "a", "echo $$; exit 7")
	<-c.Exited()
	state, left := c.End(time.Second)
	if state.ExitCode() != 7 || left != 0 {
		t.Errorf("ended with %v, %d left", state, left)
	}
	expectGone(t, pids(t, out, 1))
	if again, _ := c.End(time.Second); again != state {
		t.Error("a second End says something else")
	}
}

func TestWhatACommandLeavesBehindEndsWithIt(t *testing.T) {
	for name, script := range map[string]string{
		"in the background":         `sleep 1000 & echo $!`,
		"without the shell waiting": `(sleep 1000 & echo $!)`,
		"in another session":        `setsid bash -c 'echo $$; exec sleep 1000' & sleep 0.1`,
		"double fork":               `(setsid bash -c '(echo $BASHPID; exec sleep 1000) &' &); until [ -s $OUT ]; do sleep 0.01; done`,
		"deaf to SIGTERM":           `bash -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & until [ -s $OUT ]; do sleep 0.01; done`,
		"environment cleared":       `(env -i setsid bash -c 'echo $$; exec sleep 1000' &); until [ -s $OUT ]; do sleep 0.01; done`,
		"stopped":                   `sleep 1000 & echo $!; kill -STOP $!`,
	} {
		t.Run(name, func(t *testing.T) {
			c, out := start(t, tree(t), name, script)
			all := pids(t, out, 1)
			<-c.Exited()
			if _, left := c.End(200 * time.Millisecond); left != 0 {
				t.Errorf("%d processes left", left)
			}
			expectGone(t, all)
		})
	}
}

func TestARunningCommandIsEnded(t *testing.T) {
	for name, script := range map[string]string{
		"plain":           `echo $$; sleep 1000; echo not reached`,
		"deaf to SIGTERM": `trap '' TERM; echo $$; while :; do sleep 1000; done`,
		"pipeline":        `echo $$; sleep 1000 | sleep 1000 | cat`,
	} {
		t.Run(name, func(t *testing.T) {
			c, out := start(t, tree(t), name, script)
			all := pids(t, out, 1)
			state, left := c.End(100 * time.Millisecond)
			if left != 0 || state == nil || state.Success() {
				t.Errorf("ended with %v, %d left", state, left)
			}
			expectGone(t, all)
		})
	}
}

func TestSIGTERMLetsACommandTidyUp(t *testing.T) {
	c, out := start(t, tree(t), "tidy", `trap 'echo 4242; exit 3' TERM; echo $$; while :; do sleep 0.01; done`)
	pids(t, out, 1)
	state, _ := c.End(10 * time.Second)
	if all := pids(t, out, 2); all[1] != 4242 || state.ExitCode() != 3 {
		t.Errorf("output %v, %v", all, state)
	}
}

func TestACommandLeavesAnotherAlone(t *testing.T) {
	tr := tree(t)
	one, out1 := start(t, tr, "one", `setsid bash -c 'echo $$; exec sleep 1000' & (env -i setsid bash -c 'echo $$; exec sleep 1000' &); sleep 1000`)
	two, out2 := start(t, tr, "two", `setsid bash -c 'echo $$; exec sleep 1000' & sleep 1000`)
	first, second := pids(t, out1, 2), pids(t, out2, 1)
	two.End(0)
	expectGone(t, second)
	for _, pid := range first {
		if gone(pid) {
			t.Errorf("process %d of the other command was ended", pid)
		}
	}
	one.End(0) // the last: now the one that nothing ties to a command ends too
	expectGone(t, first)
}

func TestManyProcessesEnd(t *testing.T) {
	c, out := start(t, tree(t), "many", `for i in $(seq 100); do setsid sleep 1000 & echo $!; done; while :; do sleep 1000 & sleep 0.01; done`)
	all := pids(t, out, 100)
	if _, left := c.End(0); left != 0 {
		t.Errorf("%d processes left", left)
	}
	expectGone(t, all)
}

func TestNoZombiesStay(t *testing.T) {
	tr := tree(t)
	c, out := start(t, tr, "zombies", `for i in $(seq 50); do (setsid bash -c 'echo $$' &); done; sleep 1000`)
	all := pids(t, out, 50)
	until(t, "orphans reaped while the command runs", func() bool {
		for _, pid := range all {
			if !gone(pid) {
				return false
			}
		}
		return true
	})
	c.End(0)
}

func TestCloseEndsEverythingAndRefusesMore(t *testing.T) {
	tr := tree(t)
	c, out := start(t, tr, "a", `trap '' TERM; setsid bash -c 'trap "" TERM; echo $$; sleep 1000' & echo $$; sleep 1000`)
	_, out2 := start(t, tr, "b", `echo $$; sleep 1000`)
	all := append(pids(t, out, 2), pids(t, out2, 1)...)
	tr.Close(killWait)
	for _, e := range table() {
		for _, pid := range all {
			if e.pid == pid && !e.zombie {
				t.Errorf("process %d still runs", pid)
			}
		}
	}
	if _, err := tr.Start(exec.Command("true"), "c"); !errors.Is(err, ErrClosed) {
		t.Errorf("started after Close: %v", err)
	}
	c.End(0)
	for _, other := range tr.running {
		other.End(0)
	}
}

func TestAStartThatFailsLeavesNothing(t *testing.T) {
	tr := tree(t)
	before := descriptors(t)
	for range 50 {
		if _, err := tr.Start(exec.Command("/no/such/program"), "x"); err == nil {
			t.Fatal("started")
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
	if len(tr.running) != 0 || tr.reaping != nil {
		t.Error("the tree thinks that a command runs")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestStatIsReadWhateverTheName(t *testing.T) {
	for stat, want := range map[string]entry{
		"7 (sleep) S 1 5 5 0 -1":        {pid: 7, parent: 1, group: 5},
		"7 (a ) Z 9 (b) ) Z 2 6 6 0 -1": {pid: 7, parent: 2, group: 6, zombie: true},
		"7 (\n) R 3 4 4":                {pid: 7, parent: 3, group: 4},
		"7 ((sd-pam)) S 10 11 12":       {pid: 7, parent: 10, group: 11},
	} {
		if got, ok := parseStat(7, []byte(stat)); !ok || got != want {
			t.Errorf("%q: %+v, %v", stat, got, ok)
		}
	}
	for _, stat := range []string{"", "7 (x", "7 (x) S", "7 (x) S a b", "7 (x) S 1"} {
		if _, ok := parseStat(7, []byte(stat)); ok {
			t.Errorf("%q is accepted", stat)
		}
	}
}
