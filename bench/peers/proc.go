package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// family returns the processes below pid.
func family(pid int) (below []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		text, _ := os.ReadFile(path)
		for _, f := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(f)
			below = append(append(below, child), family(child)...)
		}
	}
	return below
}

// An identity is a pid with its start time, so that a reused pid is somebody else.
type identity struct {
	pid   int
	start string // empty: there is no such process
}

func identityOf(pid int) identity {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return identity{pid: pid}
	}
	return identity{pid, fields[19]}
}

// supervisors are the processes that keep the workers: all that are no workers.
func (r *running) supervisors() []int {
	list := []int{r.cmd.Process.Pid}
	if r.alone {
		return list
	}
	for _, pid := range family(list[0]) {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if filepath.Base(exe) != "worker" {
			list = append(list, pid)
		}
	}
	return list
}

// cost returns the nanoseconds that the supervisor's threads have run, and how often they went to sleep by themselves, which
// they do once for each time that they were woken.
func (r *running) cost() (spent, woken int64) {
	for _, pid := range r.supervisors() {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, t := range threads {
			text, _ := os.ReadFile(t + "/schedstat")
			first, _, _ := strings.Cut(string(text), " ")
			n, _ := strconv.ParseInt(first, 10, 64)
			spent += n
			text, _ = os.ReadFile(t + "/status")
			woken += field(string(text), "voluntary_ctxt_switches:")
		}
	}
	return spent, woken
}

// pss is the memory of a process in MiB, with its part of what it shares; 0 if there is none.
func pss(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	return float64(field(string(text), "Pss:")) / 1024
}

// field returns the number behind a key at the beginning of a line.
func field(text, key string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseInt(f[0], 10, 64)
				return n
			}
		}
	}
	return 0
}

// alive says that a process has not ended; a zombie has.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	return ok && !strings.HasPrefix(rest, "Z")
}
