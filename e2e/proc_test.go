package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// process is one entry of /proc that belongs to a system under test.
type process struct {
	pid, ppid int
	state     string
	command   string
}

// processes returns all processes of the machine.
func processes() []process {
	var all []process
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		open, shut := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
		fields := strings.Fields(string(b)[shut+1:])
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:open])))
		ppid, _ := strconv.Atoi(fields[1])
		all = append(all, process{pid: pid, ppid: ppid, state: fields[0], command: string(b[open+1 : shut])})
	}
	return all
}

// descendants returns the processes below pid.
func descendants(pid int) []process {
	all := processes()
	under := map[int]bool{pid: true}
	var found []process
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if under[p.ppid] && !under[p.pid] {
				under[p.pid], grown = true, true
				found = append(found, p)
			}
		}
	}
	return found
}

// ours returns the processes that run a binary of bin, wherever they hang in the tree.
func ours(dir string) []process {
	var found []process
	for _, p := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
		if err == nil && strings.HasPrefix(exe, dir+"/") {
			found = append(found, p)
		}
	}
	return found
}

// databaseHolders returns "pid target" for each process that holds a database file below home, except owner's.
func databaseHolders(home string, owner int) []string {
	var found []string
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(target, home) || !strings.Contains(filepath.Base(target), ".db") {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
		if pid != owner && pid != os.Getpid() {
			found = append(found, fmt.Sprintf("%d %s", pid, target))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestProcessesSeesItself(t *testing.T) {
	for _, p := range processes() {
		if p.pid == os.Getpid() && p.ppid == os.Getppid() {
			return
		}
	}
	t.Fatal("this process is not in the list")
}

// killPID sends SIGKILL. That the process is gone already is no failure.
func killPID(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	return p.Kill()
}
