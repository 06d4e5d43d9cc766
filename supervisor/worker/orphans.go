package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

const (
	// strayLimit bounds how long the end of a worker's strays is waited for. A killed process is gone within a
	// millisecond unless the kernel holds it in an uninterruptible wait.
	strayLimit = 2 * time.Second
	strayPoll  = 2 * time.Millisecond
	// reapEvery is the safety net under SIGCHLD, which the kernel merges and never queues: each is followed by a look at all
	// children.
	reapEvery = time.Minute
)

// An identity is a pid with its start time, so that a reused pid is somebody else.
type identity struct {
	pid   int
	start uint64
}

func identityOf(s sample.Stat) identity { return identity{s.PID, s.Start} }

// Orphans looks after the processes that workers leave behind. The kernel gives them to the supervisor (Prepare made it a
// subreaper), where they are ended with the worker that they belong to and reaped.
//
// Whose an orphan is, is told by the mark in its environment; by having been seen below the worker; and for one that has
// wiped its environment within a second of its start, by elimination: it is ended with the last worker that was alive
// when it was found.
//
// Only processes that nobody in the supervisor waits for are reaped. A child that was started here is known by its
// registration or by the pidfd that os/exec holds on it until it is waited for, so that no exit code is ever stolen. On
// a kernel without pidfds (before 5.4) the children in the supervisor's own process group are left alone instead.
type Orphans struct {
	proc sample.Proc
	self int
	pids bool // os/exec holds pidfds
	home string
	run  string
	log  hclog.Logger

	mu       sync.Mutex
	direct   map[int]struct{}    // children that a runner waits for
	alive    map[mark]int        // workers with a process, which that is
	suspects map[identity][]mark // orphans without a mark, and who may have left them
}

// NewOrphans returns the keeper of one supervisor's orphans. runDir tells supervisors of different homes apart.
func NewOrphans(runDir string, log hclog.Logger) *Orphans {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return &Orphans{
		pids: err == nil,
		proc: sample.System, self: os.Getpid(), home: homeOf(runDir), run: newRun(), log: log,
		direct: map[int]struct{}{}, alive: map[mark]int{},
		suspects: map[identity][]mark{},
	}
}

// Run reaps until ctx ends, and then ends every orphan that is left. It is started before the first worker and ended
// after the last.
func (o *Orphans) Run(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	t := time.NewTicker(reapEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			o.sweep(func(sample.Stat) bool { return true })
			return
		case <-ended:
		case <-t.C:
		}
		o.reap()
	}
}

func (o *Orphans) mark(worker string, incarnation uint64) mark {
	return mark{home: o.home, run: o.run, worker: worker, incarnation: incarnation}
}

// begin registers a worker's process before anything can be left behind by it.
func (o *Orphans) begin(m mark, pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.direct[pid] = struct{}{}
	o.alive[m] = pid
}

// end is called when a worker's process has been waited for; seen are its descendants as they were last sampled. It kills
// what the worker left behind and returns how many processes that were, when they are gone or after strayLimit.
func (o *Orphans) end(m mark, pid int, seen []sample.Stat) int {
	o.mu.Lock()
	delete(o.direct, pid)
	o.mu.Unlock()
	below := make(map[identity]bool, len(seen))
	for _, s := range seen {
		below[identityOf(s)] = true
	}
	n := o.sweep(func(s sample.Stat) bool { return o.belongs(s, m, pid, below) })
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.alive, m)
	return n
}

// Owner returns the process of the worker that an orphan belongs to by its mark, 0 for none: what is no orphan, or has wiped its
// environment.
func (o *Orphans) Owner(s sample.Stat) (pid int) {
	if s.PPID != o.self || o.isDirect(s.PID) {
		return 0
	}
	env, err := o.proc.Environ(s.PID)
	if err != nil {
		return 0
	}
	m, marked := markOf(env)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !marked || o.alive[m] == s.PID {
		return 0
	}
	return o.alive[m]
}

// sweep kills and reaps the orphans that belong, with all below them, until there are none.
func (o *Orphans) sweep(belongs func(sample.Stat) bool) int {
	killed := map[identity]bool{}
	for deadline := time.Now().Add(strayLimit); ; {
		table, below, err := o.children()
		if err != nil {
			o.log.Error("cannot look for orphans", "error", err)
			return len(killed)
		}
		left := 0
		for _, child := range o.orphans(table) {
			if !belongs(table[child]) {
				continue
			}
			for _, s := range append(below(child), table[child]) {
				left++
				killed[identityOf(s)] = true
				o.kill(s)
			}
		}
		if left == 0 {
			return len(killed)
		}
		if time.Now().After(deadline) {
			o.log.Error("orphans do not end", "processes", left)
			return len(killed)
		}
		time.Sleep(strayPoll)
		o.reap()
	}
}

// children returns our children that are no worker's process, and how to find what is below one. A replacement waits for
// this, so it is the kernel's list of our own children where it keeps one, and not a picture of all processes.
func (o *Orphans) children() (ours sample.Table, below func(pid int) []sample.Stat, err error) {
	pids, ok := o.proc.Children(o.self)
	if !ok {
		all, err := o.proc.Table()
		return all, func(pid int) (list []sample.Stat) {
			for _, d := range all.Descendants(pid) {
				list = append(list, all[d])
			}
			return list
		}, err
	}
	ours = sample.Table{}
	for _, pid := range pids {
		if o.isDirect(pid) {
			continue
		}
		if s, err := o.proc.Stat(pid); err == nil {
			ours[pid] = s
		}
	}
	return ours, o.proc.Below, nil
}

// orphans returns our children that nobody here started.
func (o *Orphans) orphans(table sample.Table) []int {
	var out []int
	var held func(sample.Stat) bool
	for _, pid := range table.Children(o.self) {
		if o.isDirect(pid) {
			continue
		}
		if held == nil {
			held = o.held()
		}
		if !held(table[pid]) {
			out = append(out, pid)
		}
	}
	return out
}

// held returns what says whether somebody in this process waits for a child, as of now.
func (o *Orphans) held() func(sample.Stat) bool {
	if !o.pids {
		group := unix.Getpgrp()
		return func(s sample.Stat) bool { return s.PGRP == group }
	}
	pids := heldByPidfd()
	return func(s sample.Stat) bool { return pids[s.PID] }
}

func (o *Orphans) isDirect(pid int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.direct[pid]
	return ok
}

// belongs says whether an orphan was left by m, whose process had the given pid.
func (o *Orphans) belongs(s sample.Stat, m mark, pid int, below map[identity]bool) bool {
	if s.PGRP == pid || s.Session == pid || below[identityOf(s)] {
		return true
	}
	if s.Zombie() {
		return false // it is reaped, whoever left it
	}
	env, err := o.proc.Environ(s.PID)
	got, marked := markOf(env)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil && marked && got.home == o.home && got.run == o.run {
		_, alive := o.alive[got]
		return got == m || !alive
	}
	return o.eliminated(identityOf(s), m)
}

// eliminated takes m off the list of those who may have left an orphan and says whether it was the last.
func (o *Orphans) eliminated(id identity, m mark) bool {
	who, known := o.suspects[id]
	if !known {
		for a := range o.alive {
			who = append(who, a)
		}
	}
	var left []mark
	for _, w := range who {
		if _, alive := o.alive[w]; alive && w != m {
			left = append(left, w)
		}
	}
	if len(left) == 0 {
		delete(o.suspects, id)
		return true
	}
	o.suspects[id] = left
	return false
}

// kill ends exactly the process of the table, not one that has got its pid since.
func (o *Orphans) kill(s sample.Stat) {
	if s.Zombie() {
		return
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if now, err := o.proc.Stat(s.PID); err != nil || now.Start != s.Start {
		return
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		o.log.Warn("cannot end an orphan", "pid", s.PID, "command", s.Comm, "error", err)
	}
}

// reap waits for the orphans that have ended. It asks the kernel for one ended child at a time without taking it, which
// costs a microsecond; only when that child is somebody else's is the table of processes searched for more behind it.
func (o *Orphans) reap() {
	for {
		pid := endedChild()
		if pid == 0 {
			return
		}
		s, err := o.proc.Stat(pid)
		if err != nil {
			return
		}
		if o.isDirect(pid) || o.held()(s) {
			o.reapBehind()
			return
		}
		if !take(pid) {
			return
		}
	}
}

func (o *Orphans) reapBehind() {
	table, _, err := o.children()
	if err != nil {
		return
	}
	for _, pid := range o.orphans(table) {
		if table[pid].Zombie() {
			take(pid)
		}
	}
}

// endedChild returns the pid of a child that has ended and was not waited for, 0 if there is none.
func endedChild() int {
	var info childInfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, info.siginfo(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0
		}
		return info.pid()
	}
}

// take reaps one child and says whether it did.
func take(pid int) bool {
	for {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		return err == nil && got == pid
	}
}

// heldByPidfd returns the pids that a pidfd of this process refers to. os/exec holds one on each child from its making
// until it has been waited for.
func heldByPidfd() map[int]bool {
	const dir = "/proc/self/fdinfo"
	held := map[int]bool{}
	d, err := os.Open(dir)
	if err != nil {
		return held
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		data, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				if pid, err := strconv.Atoi(string(bytes.TrimSpace(rest))); err == nil && pid > 0 {
					held[pid] = true
				}
			}
		}
	}
	return held
}

// EndLeftovers ends the processes that earlier supervisors of the same run directory have left behind: a supervisor that
// was killed could not. It is called at start, when the home is locked, and returns how many there were.
func (o *Orphans) EndLeftovers() (int, error) {
	table, err := o.proc.Table()
	if err != nil {
		return 0, fmt.Errorf("look for leftovers: %w", err)
	}
	n := endCgroups(o.home, o.run)
	for pid, s := range table {
		env, err := o.proc.Environ(pid)
		if err != nil {
			continue // another user's, or gone
		}
		if m, ok := markOf(env); ok && m.home == o.home && m.run != o.run && pid != o.self {
			o.log.Warn("ending a process that an earlier supervisor left behind", "pid", pid, "command", s.Comm, "worker", m.worker)
			for _, below := range table.Descendants(pid) {
				o.kill(table[below])
			}
			o.kill(s)
			n++
		}
	}
	return n, nil
}
