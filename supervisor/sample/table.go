package sample

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// A Table is a picture of all processes, by pid. The kernel gives no consistent one: processes come and go while it is
// taken, so what must be complete is looked for twice.
type Table map[int]Stat

// Table reads the stat of every process. It costs about 10 µs a process.
func (p Proc) Table() (Table, error) {
	names, err := entries(string(p))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	t := make(Table, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := p.Stat(pid); err == nil {
			t[pid] = s
		}
	}
	return t, nil
}

// Children returns the pids whose parent is pid, in order.
func (t Table) Children(pid int) []int {
	var out []int
	for _, s := range t {
		if s.PPID == pid {
			out = append(out, s.PID)
		}
	}
	slices.Sort(out)
	return out
}

// Descendants returns the children of pid, their children and so on, in order of pid.
func (t Table) Descendants(pid int) []int {
	return slices.Sorted(slices.Values(t.below(t.families(), pid)))
}

// families groups pids by parent.
func (t Table) families() map[int][]int {
	m := make(map[int][]int, len(t))
	for pid, s := range t {
		m[s.PPID] = append(m[s.PPID], pid)
	}
	return m
}

// below walks the tree under pid. A pid is its own parent in no sane table, but a picture taken while pids are reused
// may hold a circle: seen pids are not walked again.
func (t Table) below(families map[int][]int, pid int) []int {
	seen := map[int]bool{pid: true}
	queue, out := []int{pid}, []int(nil)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, child := range families[next] {
			if !seen[child] {
				seen[child] = true
				out = append(out, child)
				queue = append(queue, child)
			}
		}
	}
	return out
}

// Descendants returns the processes below pid.
func (p Proc) Descendants(pid int) ([]int, error) {
	t, err := p.Table()
	if err != nil {
		return nil, err
	}
	return t.Descendants(pid), nil
}

// lastPID reads the number of the newest process or thread of the machine. While it stands still there is no new process,
// so that an old Table is still good for finding descendants. ok is false if the kernel does not tell.
func (p Proc) lastPID() (n int, ok bool) {
	var buf [128]byte
	size, err := readInto(p.loadavg(), buf[:])
	if err != nil {
		return 0, false
	}
	return parseLastPID(buf[:size])
}

func (p Proc) loadavg() string { return filepath.Join(string(p), "loadavg") }

func parseLastPID(text []byte) (n int, ok bool) {
	fields := 0
	for f := range bytes.FieldsSeq(text) {
		if fields++; fields == 5 {
			return int(number(f)), true
		}
	}
	return 0, false
}
