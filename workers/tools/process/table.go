package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// An entry is one process as /proc shows it.
type entry struct {
	pid, parent, group int
	zombie             bool
}

// table reads the processes of the machine. Processes that end meanwhile are left out.
func table() []entry {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []entry
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if e, ok := parseStat(pid, stat); ok {
			all = append(all, e)
		}
	}
	return all
}

// parseStat reads the fields state, ppid and pgrp. The name before them is in brackets and may hold anything,
// brackets and spaces too, so they are looked for from the end.
func parseStat(pid int, stat []byte) (entry, bool) {
	k := bytes.LastIndexByte(stat, ')')
	if k < 0 {
		return entry{}, false
	}
	fields := strings.Fields(string(stat[k+1:]))
	if len(fields) < 3 {
		return entry{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	group, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil {
		return entry{}, false
	}
	return entry{pid: pid, parent: parent, group: group, zombie: fields[0] == "Z" || fields[0] == "X"}, true
}

// marked says whether a process has the variable with this value in its environment, which it has from the command
// that started it and its forebears, wherever it went since.
func marked(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	want := []byte(MarkVariable + "=" + mark)
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, want) {
			return true
		}
	}
	return false
}
