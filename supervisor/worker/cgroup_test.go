package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCgroupPathIsFoundWhereverItIsMounted(t *testing.T) {
	const unified = "31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const hybrid = "30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n" +
		"31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n" +
		"32 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	for _, c := range []struct{ name, mounts, own, want string }{
		{"a service", unified, "0::/system.slice/hermes.service\n", "/sys/fs/cgroup/system.slice/hermes.service"},
		{"the root of a container", unified, "0::/\n", "/sys/fs/cgroup"},
		{"both versions side by side", hybrid, "8:pids:/a\n0::/b\n", "/sys/fs/cgroup/unified/b"},
		{"the first version only", "32 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", "8:pids:/a\n", ""},
		{"one that was removed", unified, "0::/gone (deleted)\n", ""},
		{"nothing", "", "", ""},
		{"garbage", "a - cgroup2 x\n- cgroup2 y\n", "0::/b\n", ""},
	} {
		if got := cgroupPath(c.mounts, c.own); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNothingLeavesACgroup(t *testing.T) {
	m := mark{home: "test" + strconv.Itoa(os.Getpid()), run: "run", worker: "plugin-x", incarnation: 1}
	g := makeCgroup(cgroupHome(), m, Limits{Processes: 8})
	if g == nil {
		t.Skip("no cgroup can be had here")
	}
	// It joins, and leaves a child in a session of its own, without the environment.
	cmd := exec.Command("sh", "-c", `echo 0 > "$0/cgroup.procs"; setsid env -i sleep 60 & wait`, g.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inIt := 0
	for end := time.Now().Add(10 * time.Second); inIt < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		inIt = len(strings.Fields(string(b)))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if n := endCgroups(m.home, "another run"); n < 2 {
		t.Errorf("%d processes were ended", n)
	}
	<-ended
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("the cgroup is still there: %v", err)
	}
}
