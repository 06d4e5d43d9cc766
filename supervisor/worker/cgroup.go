package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A cgroup holds one process and all that it ever makes, whatever session, group or environment these take. A plugin's process
// puts itself into it before it becomes anything that is not trusted (Spec.CgroupEnv); any other is born in it. A nil one holds
// nothing.
type cgroup struct {
	dir    string
	events *os.File // memory.events, nil where the kernel holds no limit of memory
	memory int64    // bytes that the kernel lets it have, 0: any
	pids   bool     // the kernel holds a limit of processes
}

// The kernel counts what the watch does not: tables, buffers, files in memory. So its limit lies an eighth above that of the
// watch, and 16 MiB at least: what is watched is replaced in order or ended with a reason, and the kernel ends what was too quick.
const (
	memoryMargin = 8
	leastMargin  = 16 << 20
)

// crowdFactor times as many processes as a worker may have is where the kernel stops it, if it counts them for us: what is
// watched ends the worker and says so, and gets the second that it needs.
const crowdFactor = 2

// cgroupHome is the folder in which the cgroups of workers are made: that of the cgroup that this process is in, or was in
// before it went into one of its own (Delegate). It is empty where the kernel has no version 2 of them.
func cgroupHome() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	path := cgroupPath(string(mounts), string(own))
	if filepath.Base(path) == ownCgroup {
		return filepath.Dir(path)
	}
	return path
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

// makeCgroup makes the cgroup of a worker's process below home. It returns nil where none can be had: another user's, a
// kernel before 5.14, a container. What is nil is left to the keeper of orphans and to the watch alone.
func makeCgroup(home string, m mark, limits Limits) *cgroup {
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
	g.limit(limits)
	return g
}

// limit has the kernel hold the limits, as far as our own cgroup hands the counting on; the watch is what there always is.
func (g *cgroup) limit(l Limits) {
	if l.Processes > 0 {
		g.pids = writeCgroup(g.dir, "pids.max", strconv.Itoa(crowdFactor*l.Processes)) == nil
	}
	if l.Memory <= 0 {
		return
	}
	most := l.Memory + max(l.Memory/memoryMargin, leastMargin)
	if writeCgroup(g.dir, "memory.max", strconv.FormatInt(most, 10)) != nil {
		return
	}
	// Not there without swap. With it a leak would go on in there, and take the machine's time instead of its memory.
	_ = writeCgroup(g.dir, "memory.swap.max", "0")
	g.memory = most
	g.events, _ = os.Open(filepath.Join(g.dir, "memory.events"))
}

// open opens the folder for a process that is to be born in it, who calls closes it. Only a limit is worth it: what a worker of
// ours leaves behind is found without.
func (g *cgroup) open() *os.File {
	if g == nil || g.memory == 0 && !g.pids {
		return nil
	}
	dir, _ := os.OpenFile(g.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return dir
}

// kills returns how many processes in the cgroup the kernel has ended for its limit of memory.
func (g *cgroup) kills() uint64 {
	if g == nil || g.events == nil {
		return 0
	}
	var text [512]byte
	n, err := g.events.ReadAt(text[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	return oomKills(text[:n])
}

// oomKills finds the count in the text of memory.events.
func oomKills(text []byte) uint64 {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

// peak returns the most memory that the cgroup has held, 0 where the kernel (before 5.19) does not tell.
func (g *cgroup) peak() int64 {
	if g == nil || g.memory == 0 {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(g.dir, "memory.peak"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
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
	if g == nil {
		return
	}
	_ = g.events.Close() // nil only returns an error
	_ = syscall.Rmdir(g.dir)
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
