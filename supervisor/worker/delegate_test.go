package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder makes a folder that looks like a cgroup, as far as files go.
func folder(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func text(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func yes(string) error { return nil }

func TestASupervisorGoesIntoACgroupOfItsOwnSoThatTheKernelCountsForItsWorkers(t *testing.T) {
	for _, c := range []struct{ offered, asked, missing string }{
		{"cpuset cpu io memory pids\n", "+memory +pids", ""},
		{"pids\n", "+pids", "memory"},
		{"memory\n", "+memory", "pids"},
	} {
		home := folder(t, t.TempDir(), map[string]string{"cgroup.controllers": c.offered, "cgroup.subtree_control": "", "cgroup.procs": ""})
		folder(t, filepath.Join(home, ownCgroup), map[string]string{"cgroup.procs": ""})
		e := delegate(home, 4711, yes)
		if e.Memory != strings.Contains(c.asked, "memory") || e.Processes != strings.Contains(c.asked, "pids") || !strings.Contains(e.Why, c.missing) || c.missing == "" && e.Why != "" {
			t.Errorf("%q: %+v", c.offered, e)
		}
		if got := text(t, home, ownCgroup, "cgroup.procs"); got != "4711" {
			t.Errorf("%q: in the cgroup of its own is %q", c.offered, got)
		}
		if got := text(t, home, "cgroup.subtree_control"); got != c.asked {
			t.Errorf("%q: asked for %q", c.offered, got)
		}
	}
}

func TestWhatIsNotHandedOverIsLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name, offered string
		mine          error
	}{
		{"no controllers", "cpu io\n", nil},
		{"another's", "memory pids\n", errors.New("other processes are in its cgroup")},
	} {
		home := folder(t, t.TempDir(), map[string]string{"cgroup.controllers": c.offered, "cgroup.subtree_control": "", "cgroup.procs": ""})
		e := delegate(home, 4711, func(string) error { return c.mine })
		if e.Memory || e.Processes || e.Why == "" {
			t.Errorf("%s: %+v", c.name, e)
		}
		if _, err := os.Stat(filepath.Join(home, ownCgroup)); err == nil {
			t.Errorf("%s: a cgroup was made", c.name)
		}
	}
}

func TestACgroupWithOthersInItIsNotDivided(t *testing.T) {
	home := folder(t, t.TempDir(), map[string]string{"cgroup.subtree_control": "", "cgroup.procs": "1\n"})
	if err := ours(home); err == nil {
		t.Error("it is taken for ours")
	}
}

func TestLimitsAreGivenToTheKernelALittleAboveTheWatch(t *testing.T) {
	for _, c := range []struct {
		limits           Limits
		memory, pids     string
		held             int64
		swap             bool // the kernel has some
		noMemory, noPids bool
	}{
		{limits: Limits{Memory: 1 << 30, Processes: 100}, memory: "1207959552", pids: "200", held: 1207959552, swap: true},
		{limits: Limits{Memory: 64 << 20}, memory: "83886080", held: 83886080},
		{limits: Limits{}},
		{limits: Limits{Memory: 64 << 20, Processes: 10}, noMemory: true, pids: "20"},
		{limits: Limits{Memory: 64 << 20, Processes: 10}, noPids: true, memory: "83886080", held: 83886080},
	} {
		files := map[string]string{"memory.max": "", "pids.max": "", "memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n", "memory.peak": "8192\n"}
		if c.swap {
			files["memory.swap.max"] = "1"
		}
		if c.noMemory {
			delete(files, "memory.max")
		}
		if c.noPids {
			delete(files, "pids.max")
		}
		g := &cgroup{dir: folder(t, t.TempDir(), files)}
		g.limit(c.limits)
		if c.memory != "" && text(t, g.dir, "memory.max") != c.memory || g.memory != c.held {
			t.Errorf("%+v: memory.max %q, held %d", c.limits, text(t, g.dir, "memory.max"), g.memory)
		}
		if c.pids != "" && text(t, g.dir, "pids.max") != c.pids || g.pids != (c.pids != "") {
			t.Errorf("%+v: pids.max %q, held %v", c.limits, text(t, g.dir, "pids.max"), g.pids)
		}
		if c.swap && text(t, g.dir, "memory.swap.max") != "0" {
			t.Errorf("%+v: it may swap", c.limits)
		}
		if want := uint64(0); c.held > 0 {
			want = 1
			if n := g.kills(); n != want || g.peak() != 8192 {
				t.Errorf("%+v: %d kills, peak %d", c.limits, n, g.peak())
			}
		} else if n := g.kills(); n != want {
			t.Errorf("%+v: %d kills", c.limits, n)
		}
		g.remove()
	}
}

func TestAKillByTheKernelAtTheOwnLimitIsAMemoryExit(t *testing.T) {
	e := Exit{Signal: "SIGKILL", Code: -1, atLimit: true, oom: true, memory: 64 << 20, Peak: 80 << 20}
	e.Last.Anon = 50 << 20
	e.judge(machine{state: Ready})
	if e.Cause != CauseMemory || e.Message != "the kernel ended it, as it took more memory than it may (64 MiB, and a margin); it last held 50 MiB and at most 80 MiB" {
		t.Errorf("%s: %s", e.Cause, e.Message)
	}
	e = Exit{Signal: "SIGKILL", Code: -1, atLimit: true, oom: true, memory: 64 << 20}
	e.judge(machine{state: Starting})
	if e.Cause != CauseStartFailed || !strings.HasPrefix(e.Message, "the kernel ended it") {
		t.Errorf("%s: %s", e.Cause, e.Message)
	}
}

func FuzzMemoryEvents(f *testing.F) {
	f.Add([]byte("low 0\noom_kill 3\n"))
	f.Add([]byte("oom_kill x"))
	f.Fuzz(func(_ *testing.T, text []byte) { oomKills(text) })
}
