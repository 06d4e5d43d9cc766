package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

// This program starts itself for the processes that write.
const (
	commandAlone  = "write-alone"  // PATH SESSION
	commandHold   = "hold-lock"    // PATH DURATION
	commandWorker = "write-worker" // as a worker
)

// child runs this process as one of those that write, and says whether it is one.
func child(args []string) (is bool, err error) {
	switch {
	case len(args) == 3 && args[0] == commandAlone:
		return true, writeAlone(args[1], args[2])
	case len(args) == 3 && args[0] == commandHold:
		return true, holdLock(args[1], args[2])
	case len(args) > 1 && args[0] == commandRead:
		return true, readProcesses(args[1:])
	case len(args) == 1 && args[0] == commandWorker:
		workers.Main(ipc.RoleAgent, &writer{})
		return true, nil
	}
	return false, nil
}

const (
	writers    = 16
	inFlight   = 64
	roundTime  = 2 * time.Second
	startAfter = 3 * time.Second // in which all writers get their load, on a busy disk too
	// The lock is held for longer than Hermes' own VACUUM or optimize of an index does.
	heldFor   = 20 * time.Second
	heldPause = 500 * time.Millisecond // between the writes of each writer meanwhile
)

// measureWrites lets 16 processes write the existing way (each with its own connection, which waits for the lock and tries
// again) and 16 workers write through the supervisor, in rounds that alternate so that a neighbour's load meets both.
func measureWrites(r *report, o options) error {
	var alone, ours, lone, oursLone, many, inside reached
	for range o.rounds {
		for _, step := range []func() error{
			func() error { return alone.aloneRound(writers, roundTime) },
			func() error { return ours.workerRound(writers, 1, roundTime, nil) },
			func() error { return lone.aloneRound(1, roundTime) },
			func() error { return oursLone.workerRound(1, 1, roundTime, nil) },
			func() error { return many.workerRound(writers, inFlight/writers, roundTime, &inside) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
	r.writes("16 processes the existing way", alone)
	r.writes("16 workers", ours)
	r.writes("1 process the existing way", lone)
	r.writes("1 worker", oursLone)
	r.writes("64 at once in 16 workers", many)
	r.writes("64 at once in this process", inside)
	r.ratio("writes of 16, rate of workers to processes", median(ours.rates), median(alone.rates))
	r.ratio("writes of 16, p99 of workers to processes", quantile(ours.millis, 0.99), quantile(alone.millis, 0.99))
	r.ratio("writes of 16, worst of workers to processes", quantile(ours.millis, 1), quantile(alone.millis, 1))
	r.ratio("writes of 1, median of the worker to the process", quantile(oursLone.millis, 0.5), quantile(lone.millis, 0.5))
	r.ratio("writes of 64 at once, rate of workers to this process", median(many.rates), median(inside.rates))
	return measureHeldLock(r)
}

// measureHeldLock has both ways write while a foreign process holds the write lock for 20 s.
func measureHeldLock(r *report) error {
	l := load{For: heldAfter + heldFor + 4*time.Second, Pause: heldPause}
	var alone, ours reached
	path, sessions, remove, err := aloneHome(writers)
	if err != nil {
		return err
	}
	defer remove()
	if err := whileHeld(path, func() error { return alone.processes(path, sessions, l) }); err != nil {
		return err
	}
	w, err := newWorkshop(writers, 1)
	if err != nil {
		return err
	}
	defer w.close()
	if err := whileHeld(w.path(), func() error { return ours.workers(w, writers, l) }); err != nil {
		return err
	}
	r.writes("16 processes the existing way, lock held for 20 s", alone)
	r.writes("16 workers, lock held for 20 s", ours)
	return nil
}

// whileHeld runs f while another process has the write lock.
func whileHeld(path string, f func() error) error {
	p, err := startProcess(commandHold, path, heldFor.String())
	if err != nil {
		return err
	}
	defer p.end()
	return f()
}

// aloneRound lets n processes write to a new file.
func (r *reached) aloneRound(n int, d time.Duration) error {
	path, sessions, remove, err := aloneHome(n)
	if err != nil {
		return err
	}
	defer remove()
	return r.processes(path, sessions, load{For: d})
}

// aloneHome makes a store with n sessions, which has all its indices and nobody has open.
func aloneHome(n int) (path string, sessions []string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "hs-bench-")
	if err != nil {
		return "", nil, nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "state.db")
	ctx := context.Background()
	s, err := store.OpenState(ctx, path, store.Options{})
	for i := 0; i < n && err == nil; i++ {
		var a store.Accepted
		a, err = s.Accept(ctx, store.Inbound{Platform: "test", ChatID: strconv.Itoa(i), MessageID: "1"})
		sessions = append(sessions, a.SessionID)
	}
	if s != nil {
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		remove()
	}
	return path, sessions, remove, err
}

func (r *reached) processes(path string, sessions []string, l load) error {
	var list []*process
	defer func() {
		for _, p := range list {
			p.end()
		}
	}()
	for _, session := range sessions {
		p, err := startProcess(commandAlone, path, session)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	l.Start = time.Now().Add(startAfter).UnixNano()
	for _, p := range list {
		if err := json.NewEncoder(p.in).Encode(l); err != nil {
			return err
		}
	}
	all := make([]written, len(list))
	for i, p := range list {
		if err := json.NewDecoder(p.out).Decode(&all[i]); err != nil {
			return fmt.Errorf("a writing process: %w", err)
		}
	}
	r.round(all, l.For)
	return nil
}

// workerRound lets n workers write through a new workshop, and after them goroutines in this process if inside is given.
func (r *reached) workerRound(n, each int, d time.Duration, inside *reached) error {
	w, err := newWorkshop(n, each)
	if err != nil {
		return err
	}
	defer w.close()
	if err := r.workers(w, n*each, load{For: d}); err != nil || inside == nil {
		return err
	}
	l := load{For: d, Start: time.Now().Add(startAfter).UnixNano()}
	all, err := w.writeInside(n*each, l)
	inside.round(all, l.For)
	return err
}

func (r *reached) workers(w *workshop, n int, l load) error {
	l.Start = time.Now().Add(startAfter).UnixNano()
	all, err := w.write(n, l)
	if err == nil {
		r.round(all, l.For)
	}
	return err
}

// A process is this program once more, to write.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startProcess returns when the process says that it is ready.
func startProcess(args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, args...)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := p.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		p.end()
		return nil, fmt.Errorf("%s said %q: %w", args[0], line, err)
	}
	return p, nil
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// writes adds the figures of one way of writing.
func (r *report) writes(name string, m reached) {
	r.add("writes of "+name, "a second", m.rates...)
	r.add("writes of "+name+", one", "ms", m.millis...)
	if len(m.least) > 0 && name[:2] != "1 " {
		r.add("writes of "+name+", slowest writer to fastest", "ratio", m.least...)
	}
	r.add("writes of "+name+", failed", "count", float64(m.failed))
	if m.error != "" {
		fmt.Fprintf(os.Stderr, "writes of %s: %s\n", name, m.error)
	}
}

func (r *report) ratio(name string, a, b float64) { r.add(name, "ratio", a/b) }

func quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	if len(values) == 0 {
		return 0
	}
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

func median(values []float64) float64 { return quantile(values, 0.5) }
