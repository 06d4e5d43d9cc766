package worker

import (
	"fmt"
	"strconv"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// Fds lists the open descriptors of the worker and of the processes below it, those among them that have lost their parent.
func (w *Worker) Fds() (*controlv1.FdsResponse, error) {
	v := w.look()
	if v.pid == 0 {
		return nil, fmt.Errorf("worker %s has no process: %w", w.spec.Name, ipc.ErrRefused)
	}
	var known []sample.Stat
	if v.series != nil {
		known = v.series.Descendants()
	}
	return Fds(w.env.Sampler.Proc(), w.spec.Name, v.pid, known)
}

// Fds lists the open descriptors of a process and of all below it, under a name; known are processes that belong to it
// wherever they are now.
func Fds(proc sample.Proc, name string, pid int, known []sample.Stat) (*controlv1.FdsResponse, error) {
	limit, err := proc.FDLimit(pid)
	if err != nil {
		return nil, fmt.Errorf("descriptors of %s: %w", name, err)
	}
	table, err := proc.Table()
	if err != nil {
		return nil, fmt.Errorf("descriptors of %s: %w", name, err)
	}
	out := &controlv1.FdsResponse{Worker: name, Pid: int64(pid), Limit: limit}
	below := table.Descendants(pid)
	all, seen := append([]int{pid}, below...), map[int]bool{pid: true}
	for _, p := range below {
		seen[p] = true
	}
	lost := map[int]bool{}
	for _, k := range known {
		if s, there := table[k.PID]; there && s.Start == k.Start && !seen[k.PID] {
			seen[k.PID], lost[k.PID] = true, true
			all = append(all, k.PID)
		}
	}
	for _, p := range all {
		handles, err := proc.Handles(p)
		if err != nil {
			continue // ended since
		}
		own, _ := proc.FDLimit(p)
		s := table[p]
		called := s.Comm
		if _, err := strconv.Atoi(called); err == nil && p == pid {
			called = name // a program that is run from a descriptor, as plugins are, is called by its number
		}
		out.Processes = append(out.Processes, &controlv1.FdProcess{
			Pid: int64(p), Name: called, Fds: int64(len(handles)), FdLimit: own, Detached: lost[p] || s.Session != table[pid].Session,
		})
		for _, h := range handles {
			out.Fds = append(out.Fds, &controlv1.Fd{Fd: int32(h.FD), Target: h.Target, Kind: h.Kind, Pid: int64(p)})
		}
	}
	return out, nil
}
