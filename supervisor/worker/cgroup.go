package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A cgroup holds one process and all that it ever makes, whatever session, group or environment these take. The process puts
// itself into it before it becomes anything that is not trusted (Spec.CgroupEnv). A nil one holds nothing.
type cgroup struct{ dir string }

// crowdFactor times as many processes as a worker may have is where the kernel stops it, if it counts them for us: what is
// watched ends the worker and says so, and gets the second that it needs.
const crowdFactor = 2

// cgroupHome is the folder of the cgroup that this process is in, empty where the kernel has no version 2 of them.
func cgroupHome() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return cgroupPath(string(mounts), string(own))
}

// cgroupPath finds the folder in the texts of /proc/self/mountinfo and /proc/self/cgroup.
func cgroupPath(mounts, own string) string {
	path, ok := "", false
	for line := range strings.Lines(own) {
		if rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			path, ok = rest, true
		}
	}
	if !ok || strings.HasSuffix(path, " (deleted)") {
		return ""
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			return filepath.Join(fields[4], path)
		}
	}
	return ""
}

// cgroupName begins the names of all cgroups of a home.
func cgroupName(home string) string { return "hermes-" + home + "-" }

// makeCgroup makes the cgroup of a worker's process below ours. It returns nil where none can be had: another user's, a
// kernel before 5.14, a container. What is nil is left to the keeper of orphans alone.
func makeCgroup(m mark, processes int) *cgroup {
	home := cgroupHome()
	if home == "" {
		return nil
	}
	g := &cgroup{dir: filepath.Join(home, cgroupName(m.home)+m.run+"-"+m.worker+"-"+strconv.FormatUint(m.incarnation, 10))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(g.dir, "cgroup.kill")); err != nil {
		g.remove()
		return nil
	}
	if processes > 0 {
		// There only if our own cgroup hands the counting on; the watch is what there always is.
		_ = writeCgroup(g.dir, "pids.max", strconv.Itoa(crowdFactor*processes))
	}
	return g
}

// end kills what is in the cgroup, waits until it is gone, and removes it. It returns how many processes there were.
func (g *cgroup) end(reap func()) int {
	if g == nil {
		return 0
	}
	n := 0
	for deadline := time.Now().Add(strayLimit); ; time.Sleep(strayPoll) {
		procs, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		here := len(strings.Fields(string(procs)))
		n = max(n, here)
		if err != nil || here == 0 || time.Now().After(deadline) {
			break
		}
		_ = writeCgroup(g.dir, "cgroup.kill", "1")
		reap()
	}
	reap()
	g.remove()
	return n
}

// remove takes the empty cgroup away. One that is not empty yet stays until the next start of the supervisor.
func (g *cgroup) remove() {
	if g != nil {
		_ = syscall.Rmdir(g.dir)
	}
}

// endCgroups kills what is in cgroups of this home that earlier supervisors have left, and returns how many there were.
func endCgroups(home, run string) (n int) {
	ours := cgroupHome()
	if ours == "" {
		return 0
	}
	dirs, _ := filepath.Glob(filepath.Join(ours, cgroupName(home)+"*"))
	for _, dir := range dirs {
		if !strings.HasPrefix(filepath.Base(dir), cgroupName(home)+run+"-") {
			n += (&cgroup{dir: dir}).end(func() {})
		}
	}
	return n
}

func writeCgroup(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s of cgroup %s: %w", file, dir, err)
	}
	return nil
}
