package sample

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree makes a small proc file system of files: an agent (100) with a shell (200) that has a sleep (201) in a session of
// its own, a zombie (300), and one (400) whose stat was cut.
func tree(t testing.TB) Proc {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	process := func(s Stat, memory, soft, hard string, fds ...string) {
		t.Helper()
		dir := strconv.Itoa(s.PID)
		user := s.CPU/2/(10*time.Millisecond) + 1
		write(dir+"/stat", fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 4194304 100 0 0 0 %d %d 0 0 20 0 %d 0 %d 12345678 900 0 0\n",
			s.PID, s.Comm, s.State, s.PPID, s.PGRP, s.Session, user, s.CPU/(10*time.Millisecond)-user, s.Threads, s.Start))
		write(dir+"/status", "Name:\t"+dir+"\n"+memory+"Threads:\t1\n")
		write(dir+"/limits", "Limit   Soft Limit   Hard Limit   Units\nMax processes   1   2   processes\nMax open files            "+soft+"   "+hard+"   files\n")
		for i, target := range fds {
			fd := filepath.Join(root, dir, "fd", strconv.Itoa(i))
			if err := os.MkdirAll(filepath.Dir(fd), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, fd); err != nil {
				t.Fatal(err)
			}
		}
	}
	process(agent, "VmPeak:\t 1256236 kB\nVmRSS:\t   18432 kB\nRssAnon:\t    6144 kB\nVmSwap:\t     512 kB\n", "4096", "8192",
		"/dev/null", "pipe:[100]", "socket:[103]", "anon_inode:[eventpoll]", "/home/u/.hermes/notes (deleted)", "/dev/shm/x", "/memfd:x", "net:[1]")
	process(shell, "VmRSS:\t    1024 kB\nRssAnon:\t     256 kB\n", "1024", "524288", "/dev/null")
	process(sleep, "VmRSS:\t     512 kB\nRssAnon:\t     128 kB\n", "unlimited", "unlimited", "/dev/null", "/dev/null")
	process(zombie, "", "1024", "4096", "/dev/null")
	write("400/stat", "400 (cut")
	write("200/environ", "A=1\x00HERMES_WORKER=x-y/z/1\x00")
	write("loadavg", "0.89 0.80 0.61 5/125 16565\n")
	write("vmstat", "nr_free_pages 1\noom_kill 7\noom_kill_x 9\n")
	write("sys/kernel", "")
	return Proc(root)
}

var (
	agent  = Stat{PID: 100, Comm: "hermes-agent", State: 'S', PPID: 1, PGRP: 100, Session: 100, Threads: 9, CPU: 3 * time.Second, Start: 5000}
	shell  = Stat{PID: 200, Comm: "sh) (odd\nname", State: 'R', PPID: 100, PGRP: 100, Session: 100, Threads: 1, CPU: 30 * time.Millisecond, Start: 5100}
	sleep  = Stat{PID: 201, Comm: "sleep", State: 'S', PPID: 200, PGRP: 201, Session: 201, Threads: 1, CPU: 20 * time.Millisecond, Start: 5200}
	zombie = Stat{PID: 300, Comm: "zombie", State: 'Z', PPID: 1, PGRP: 300, Session: 300, Threads: 1, CPU: 20 * time.Millisecond, Start: 5300}
)

func TestProcess(t *testing.T) {
	p := tree(t)
	for _, want := range []Process{
		{Stat: agent, FDs: 8, FDLimit: 4096, RSS: 18 << 20, Anon: 6 << 20, Swap: 512 << 10},
		{Stat: shell, FDs: 1, FDLimit: 1024, RSS: 1 << 20, Anon: 256 << 10},
		{Stat: sleep, FDs: 2, FDLimit: Unlimited, RSS: 512 << 10, Anon: 128 << 10},
		{Stat: zombie, FDs: 1, FDLimit: 1024},
	} {
		got, err := p.Process(want.PID)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d: %s", want.PID, d)
		}
	}
	if s, _ := p.Stat(300); !s.Zombie() {
		t.Error("a zombie is none")
	}
	if _, hard, err := p.FDLimits(100); err != nil || hard != 8192 {
		t.Errorf("hard limit %d, %v", hard, err)
	}
}

func TestWhatIsGoneIsGone(t *testing.T) {
	p := tree(t)
	for name, read := range map[string]func(Proc, int) error{
		"process": func(p Proc, pid int) error { _, err := p.Process(pid); return err },
		"stat":    func(p Proc, pid int) error { _, err := p.Stat(pid); return err },
		"fds":     func(p Proc, pid int) error { _, err := p.FDs(pid); return err },
		"limits":  func(p Proc, pid int) error { _, err := p.FDLimit(pid); return err },
		"handles": func(p Proc, pid int) error { _, err := p.Handles(pid); return err },
		"environ": func(p Proc, pid int) error { _, err := p.Environ(pid); return err },
	} {
		if err := read(p, 999); !errors.Is(err, ErrGone) {
			t.Errorf("%s of a process that is not there: %v", name, err)
		}
		if err := read(System, 1<<22+1); !errors.Is(err, ErrGone) {
			t.Errorf("%s of a process that is not there, by the kernel: %v", name, err)
		}
	}
	if _, err := p.Process(400); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("a stat that was cut: %v", err)
	}
}

func TestTheStatesOfThreads(t *testing.T) {
	root := t.TempDir()
	const rest = " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5000"
	for path, text := range map[string]string{"200/task/1000": "1000 (t) D" + rest, "200/task/200": "200 (x) Z" + rest, "200/task/201": "201 (t) S" + rest, "200/task/202": "cut"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, path), 0o700), os.WriteFile(filepath.Join(root, path, "stat"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got := Proc(root).ThreadStates(200); string(got) != "ZDS" {
		t.Errorf("%q", got)
	}
	if got := Proc(root).ThreadStates(7); len(got) != 0 {
		t.Errorf("of nobody: %q", got)
	}
	if got := System.ThreadStates(os.Getpid()); len(got) < 2 {
		t.Errorf("of this process: %q", got)
	}
}

func TestDescendants(t *testing.T) {
	p := tree(t)
	for pid, want := range map[int][]int{100: {200, 201}, 200: {201}, 201: nil, 1: {100, 200, 201, 300}, 7: nil} {
		got, err := p.Descendants(pid)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("below %d: %v, %v", pid, got, err)
		}
	}
	table, _ := p.Table()
	if got := table.Children(1); !slices.Equal(got, []int{100, 300}) {
		t.Errorf("children of 1: %v", got)
	}
	circle := Table{1: {PID: 1, PPID: 2}, 2: {PID: 2, PPID: 1}}
	if got := circle.Descendants(1); !slices.Equal(got, []int{2}) {
		t.Errorf("in a circle: %v", got)
	}
}

func TestHandles(t *testing.T) {
	got, err := tree(t).Handles(100)
	if err != nil {
		t.Fatal(err)
	}
	want := []Handle{
		{0, "/dev/null", "device"}, {1, "pipe:[100]", "pipe"}, {2, "socket:[103]", "socket"}, {3, "anon_inode:[eventpoll]", "anon"},
		{4, "/home/u/.hermes/notes (deleted)", "file"}, {5, "/dev/shm/x", "file"}, {6, "/memfd:x", "anon"}, {7, "net:[1]", "anon"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestMachineWideReadings(t *testing.T) {
	p := tree(t)
	if n, ok := p.lastPID(); !ok || n != 16565 {
		t.Errorf("newest pid %d, %v", n, ok)
	}
	if n := p.OOMKills(); n != 7 {
		t.Errorf("%d kills for want of memory", n)
	}
	env, err := p.Environ(200)
	if err != nil || !slices.Equal(env, []string{"A=1", "HERMES_WORKER=x-y/z/1"}) {
		t.Errorf("environment %q, %v", env, err)
	}
	empty := Proc(t.TempDir())
	if _, ok := empty.lastPID(); ok || empty.OOMKills() != 0 {
		t.Error("readings of nothing")
	}
}

func TestFDsOfTheKernelAreExact(t *testing.T) {
	before, err := System.FDs(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if after, _ := System.FDs(os.Getpid()); after != before+100 {
		t.Errorf("%d before, %d after 100 more", before, after)
	}
}

func TestProcessOfTheKernel(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := System.Process(cmd.Process.Pid)
	if err != nil || p.PPID != os.Getpid() || p.FDs < 3 || p.Threads != 1 || p.Start == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	below, err := System.Descendants(os.Getpid())
	if err != nil || !slices.Contains(below, cmd.Process.Pid) {
		t.Errorf("below: %v, %v", below, err)
	}
	_ = cmd.Process.Kill()
	for {
		s, err := System.Stat(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if s.Zombie() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = cmd.Wait()
	if _, err := System.Stat(cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("after the end: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a) S 0 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5 0 0\n"))
	f.Add([]byte("1 (a) b) c) S 0"))
	f.Add([]byte(") ( 1"))
	f.Add([]byte("1 () "))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseStat(data, "")
		if err == nil && !strings.Contains(string(data), s.Comm) {
			t.Errorf("%q: name %q", data, s.Comm)
		}
	})
}
