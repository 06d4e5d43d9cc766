package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	patience = 90 * time.Second // some look only every half minute
	// gone is how long a death may take to reach who hangs on the dead.
	gone = time.Second
)

// A start is one line that a worker wrote.
type start struct {
	at  time.Time
	pid int
}

func starts(dir, name string) (list []start) {
	text, _ := os.ReadFile(filepath.Join(dir, name+".starts"))
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		ns, _ := strconv.ParseInt(fields[0], 10, 64)
		pid, _ := strconv.Atoi(fields[1])
		list = append(list, start{time.Unix(0, ns), pid})
	}
	return list
}

// awaitStart waits for more than n starts of a worker.
func awaitStart(dir, name string, n int) (start, error) {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		if list := starts(dir, name); len(list) > n {
			return list[n], nil
		}
	}
	return start{}, fmt.Errorf("%s was not started", name)
}

// readyFile is when the host wrote that the newest worker had answered.
func readyFile(dir, name string, _ int) (time.Time, int, error) {
	want := len(starts(dir, name))
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dir, name+".ready"))
		if lines := strings.Fields(string(text)); len(lines) >= want {
			ns, _ := strconv.ParseInt(lines[want-1], 10, 64)
			return time.Unix(0, ns), starts(dir, name)[want-1].pid, nil
		}
	}
	return time.Time{}, 0, errors.New("it does not serve")
}

// A running is a supervisor that was started here.
type running struct {
	peer
	dir   string
	names []string
	cmd   *exec.Cmd
	ended chan struct{}
	below []identity // every process that was seen below it, parents first
}

// remember notes what is below the supervisor now: when it is killed nothing is any more.
func (r *running) remember() {
	for _, pid := range family(r.cmd.Process.Pid) {
		if id := identityOf(pid); id.start != "" {
			r.below = append(r.below, id)
		}
	}
}

func begin(p peer, o options, tuned bool, files ...string) (*running, error) {
	dir, err := os.MkdirTemp("", "peer-")
	if err != nil {
		return nil, err
	}
	r := &running{peer: p, dir: dir, ended: make(chan struct{})}
	for i := range o.workers {
		r.names = append(r.names, fmt.Sprintf("w%d", i+1))
	}
	for _, f := range files {
		if err := write(filepath.Join(dir, f), "", 0o600); err != nil {
			return nil, err
		}
	}
	if r.cmd, err = p.command(dir, r.names, tuned); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(r.ended); _ = r.cmd.Wait() }()
	return r, nil
}

// end ends the supervisor and everything that it or its workers started.
func (r *running) end() {
	r.remember()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(10 * time.Second):
	}
	for _, id := range r.below { // supervisors of single workers before their workers
		if identityOf(id.pid) == id {
			_ = syscall.Kill(id.pid, syscall.SIGKILL)
		}
	}
	_ = r.cmd.Process.Kill()
	<-r.ended
	for _, name := range r.names {
		for _, s := range starts(r.dir, name) {
			if r.ours(s.pid) {
				_ = syscall.Kill(s.pid, syscall.SIGKILL)
			}
		}
		for _, pid := range r.children(name, 0) {
			if alive(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if r.tidy != nil {
		r.tidy(r.dir)
	}
	_ = os.RemoveAll(r.dir)
}

// ours says that a pid is still that of a worker of this run.
func (r *running) ours(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Contains(string(text), r.dir)
}

// children are those of a worker's process, or of all of them for 0.
func (r *running) children(name string, of int) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(r.dir, name+".children"))
	for line := range strings.Lines(string(text)) {
		var numbers []int
		for _, f := range strings.Fields(line) {
			n, _ := strconv.Atoi(f)
			numbers = append(numbers, n)
		}
		if len(numbers) > 0 && (of == 0 || of == numbers[0]) {
			pids = append(pids, numbers[1:]...)
		}
	}
	return pids
}

func measure(p peer, o options) (row, error) {
	r := row{Name: p.name}
	for _, step := range []struct {
		name string
		run  func(peer, options, *row) error
	}{{"latency", latency}, {"idle", idleCost}, {"left", left}, {"crash", crashLoop}} {
		if o.steps != "" && !slices.Contains(strings.Split(o.steps, ","), step.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s: %s …\n", p.name, step.name)
		if err := step.run(p, o, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// latency kills one worker again and again. A supervisor that lets a worker wait longer for each death in a row is started anew
// for each, so that the first is measured and not the wait.
func latency(p peer, o options, r *row) error {
	var first, serving []float64
	var s *running
	defer func() {
		if s != nil {
			s.end()
		}
	}()
	for range o.kills {
		if s != nil && p.fresh {
			s.end()
			s = nil
		}
		if s == nil {
			var err error
			if s, err = begin(p, o, true); err != nil {
				return err
			}
			if _, err := awaitStart(s.dir, s.names[0], 0); err != nil {
				return err
			}
		}
		replaced, served, err := s.killOnce()
		if err != nil {
			return err
		}
		if !p.spare {
			first = append(first, replaced)
		}
		if p.serves != nil {
			serving = append(serving, served)
		}
	}
	if p.spare {
		r.SparePSS = pss(s.awaitSpare())
	}
	r.FirstP50, r.FirstP99 = quantiles(first)
	r.ReadyP50, r.ReadyP99 = quantiles(serving)
	return nil
}

// killOnce kills the measured worker and returns after how many milliseconds the next one began and served.
func (r *running) killOnce() (replaced, served float64, err error) {
	name, pid := r.names[0], 0
	if r.serves != nil {
		if _, pid, err = r.serves(r.dir, name, 0); err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(1200 * time.Millisecond) // several take what dies in its first second for a failed start
	if r.peer.spare {
		r.awaitSpare()
	}
	list := starts(r.dir, name)
	if pid == 0 {
		pid = list[len(list)-1].pid
	}
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	if !r.peer.spare { // a spare has begun long before
		again, err := awaitStart(r.dir, name, len(list))
		if err != nil {
			return 0, 0, err
		}
		replaced = milliseconds(again.at.Sub(killed))
	}
	if r.serves == nil {
		return replaced, 0, nil
	}
	time.Sleep(300 * time.Millisecond) // whoever looks takes time from who is measured
	at, _, err := r.serves(r.dir, name, pid)
	return replaced, milliseconds(at.Sub(killed)), err
}

// awaitSpare waits for the process that is to take over.
func (r *running) awaitSpare() (pid int) {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		if pid = r.spareOf(r.dir); pid != 0 {
			break
		}
	}
	return pid
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func quantiles(values []float64) (p50, p99 float64) {
	if len(values) == 0 {
		return -1, -1
	}
	slices.Sort(values)
	return values[len(values)/2], values[min(len(values)-1, len(values)*99/100)]
}

// idleCost measures a supervisor whose workers do nothing.
func idleCost(p peer, o options, r *row) error {
	s, err := begin(p, o, false)
	if err != nil {
		return err
	}
	defer s.end()
	if _, err := awaitStart(s.dir, s.names[0], 0); err != nil {
		return err
	}
	time.Sleep(max(p.settle, 5*time.Second))
	spent, woken := s.cost()
	begun := time.Now()
	time.Sleep(o.idle)
	spentAfter, wokenAfter := s.cost()
	took := time.Since(begun)
	for _, pid := range s.supervisors() {
		r.PSS += pss(pid)
	}
	r.CPU = float64(spentAfter-spent) / float64(took) * 100
	r.Wakeups = float64(wokenAfter-woken) / took.Seconds()
	return nil
}

// left says what is left of a worker's children when it is killed, and of a worker when its supervisor is.
func left(p peer, o options, r *row) error {
	s, err := begin(p, o, false, "w1.family")
	if err != nil {
		return err
	}
	defer s.end()
	name := s.names[0]
	first, err := awaitStart(s.dir, name, 0)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	children := s.children(name, first.pid)
	if len(children) != 2 {
		return fmt.Errorf("%d children of a worker", len(children))
	}
	if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
		return err
	}
	time.Sleep(gone)
	word := map[bool]string{true: "alive", false: "gone"}
	r.Child, r.Setsid = word[alive(children[0])], word[alive(children[1])]
	for _, pid := range children {
		if alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if _, err := awaitStart(s.dir, name, 1); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	list := starts(s.dir, name)
	last := list[len(list)-1].pid
	s.remember()
	_ = s.cmd.Process.Kill()
	<-s.ended
	time.Sleep(gone)
	r.Left = word[alive(last)]
	return nil
}

// crashLoop counts how often a worker is started that ends at once.
func crashLoop(p peer, o options, r *row) error {
	s, err := begin(p, o, false, "w1.crash")
	if err != nil {
		return err
	}
	defer s.end()
	time.Sleep(o.crash)
	r.CrashStarts = len(starts(s.dir, s.names[0]))
	return nil
}
