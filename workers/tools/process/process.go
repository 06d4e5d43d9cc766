// Package process runs commands so that nothing of them outlives the call that started them: not the children in
// their process group, not those that left it (setsid, double fork), and no zombies.
//
// Rules: each command gets a session of its own, so it has no terminal to ask for a password and can be signalled
// as a whole. This process is the subreaper of its descendants, so what a command leaves behind becomes its child
// and can be found: by the parent, the process group, or the mark in the environment. Orphans that nothing ties to
// a command are ended when no command runs any more. A command's first process stays unreaped until its group has
// been signalled, so that the number of the group cannot be another's.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MarkVariable is the variable in a command's environment that ties its descendants to it.
const MarkVariable = "HERMES_TOOL_CALL"

const (
	// killWait is how long after SIGKILL processes are waited for. Only one in an uninterruptible system call (a
	// dead network file system) takes longer, and nobody can help that.
	killWait = time.Second
	// firstPoll and lastPoll are how often it is looked whether processes are gone. There is no event for "all of
	// them", and a look reads the whole process table.
	firstPoll = 2 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
	// reapInterval is how often orphans that ended are reaped while commands run.
	reapInterval = time.Second
)

// ErrClosed is returned when a command is started after Close.
var ErrClosed = errors.New("no more commands are started")

// A Tree owns all commands of this process.
type Tree struct {
	// mu is held while a command is started, so that nobody takes its first process for an orphan.
	mu      sync.Mutex
	running map[int]*Command // by pid of the first process, until that is reaped
	closed  bool
	reaping chan struct{} // closed to end the reaper; nil while no command runs
	reaped  chan struct{} // closed when the reaper has ended
}

// NewTree makes this process the subreaper of its descendants and returns the tree of its commands.
func NewTree() (*Tree, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the subreaper of shell children: %w", err)
	}
	return &Tree{running: map[int]*Command{}}, nil
}

// A Command is a running command with all that it started.
type Command struct {
	tree   *Tree
	cmd    *exec.Cmd
	pid    int
	mark   string
	exited chan struct{}
	once   sync.Once
	state  *os.ProcessState
	left   int
}

// Start starts cmd, whose environment must carry mark under MarkVariable. The caller must call End, once its time
// is over or Exited is closed.
func (t *Tree) Start(cmd *exec.Cmd, mark string) (*Command, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startPunctual(cmd); err != nil {
		return nil, err
	}
	c := &Command{tree: t, cmd: cmd, pid: cmd.Process.Pid, mark: mark, exited: make(chan struct{})}
	t.running[c.pid] = c
	if t.reaping == nil {
		t.reaping, t.reaped = make(chan struct{}), make(chan struct{})
		go t.reap(t.reaping, t.reaped)
	}
	go c.watch()
	return c, nil
}

// watch waits for the first process without reaping it.
func (c *Command) watch() {
	defer close(c.exited)
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

// Exited is closed when the command's first process has ended. What it started may still run.
func (c *Command) Exited() <-chan struct{} { return c.exited }

// End ends whatever of the command still runs: SIGTERM, after grace SIGKILL. It returns how the first process
// ended, and how many processes could not be ended.
func (c *Command) End(grace time.Duration) (state *os.ProcessState, left int) {
	c.once.Do(func() { c.end(grace) })
	return c.state, c.left
}

func (c *Command) end(grace time.Duration) {
	t := c.tree
	if c.alive() > 0 {
		if grace > 0 {
			c.signal(unix.SIGTERM)
			t.wait(grace, func() bool { return c.alive() == 0 })
		}
		t.wait(killWait, func() bool {
			c.signal(unix.SIGKILL) // again each time: one may have forked meanwhile
			return c.alive() == 0
		})
	}
	c.left = c.alive()
	select {
	case <-c.exited:
		_ = c.cmd.Wait()
		c.state = c.cmd.ProcessState
	default: // cannot be ended; reaped whenever it does
		go func() {
			<-c.exited
			_ = c.cmd.Wait()
		}()
	}
	t.remove(c)
}

// wait looks again and again whether done holds, at most for limit.
func (t *Tree) wait(limit time.Duration, done func() bool) {
	deadline := time.Now().Add(limit)
	for pause := firstPoll; !done() && time.Now().Before(deadline); pause = min(2*pause, lastPoll) {
		t.mu.Lock()
		t.reapOrphans(table())
		t.mu.Unlock()
		time.Sleep(pause)
	}
}

// signal sends sig to the command's process group and to each of its processes outside of it.
func (c *Command) signal(sig unix.Signal) {
	_ = unix.Kill(-c.pid, sig)
	for _, e := range c.processes() {
		if e.group != c.pid {
			_ = unix.Kill(e.pid, sig)
		}
	}
}

// alive counts the processes of the command that have not ended.
func (c *Command) alive() int {
	n := 0
	for _, e := range c.processes() {
		if !e.zombie {
			n++
		}
	}
	return n
}

// processes lists what belongs to the command.
func (c *Command) processes() []entry {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	return c.tree.owned(table(), c)
}

// owned lists the processes of a command, or with nil those of no command. The caller holds mu.
func (t *Tree) owned(all []entry, c *Command) []entry {
	children := map[int][]entry{}
	for _, e := range all {
		children[e.parent] = append(children[e.parent], e)
	}
	var found []entry
	var take func(entry)
	take = func(e entry) {
		found = append(found, e)
		for _, child := range children[e.pid] {
			take(child)
		}
	}
	for _, e := range children[os.Getpid()] {
		if t.owner(e) == c {
			take(e)
		}
	}
	return found
}

// owner says to which command a child of this process belongs, nil if to none.
func (t *Tree) owner(e entry) *Command {
	if c := t.running[e.pid]; c != nil {
		return c
	}
	if c := t.running[e.group]; c != nil {
		return c
	}
	for _, c := range t.running {
		if !e.zombie && marked(e.pid, c.mark) {
			return c
		}
	}
	return nil
}

// remove takes a command out of the tree. With the last one, what is left of any is ended.
func (t *Tree) remove(c *Command) {
	t.mu.Lock()
	delete(t.running, c.pid)
	last := len(t.running) == 0
	stopped, ended := t.reaping, t.reaped
	if last {
		t.reaping, t.reaped = nil, nil
	} else {
		t.reapOrphans(table())
	}
	t.mu.Unlock()
	if !last {
		return
	}
	close(stopped)
	<-ended
	t.endOrphans(killWait)
}

// endOrphans kills and reaps what belongs to no command, unless one has been started meanwhile.
func (t *Tree) endOrphans(limit time.Duration) {
	deadline := time.Now().Add(limit)
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		t.mu.Lock()
		if len(t.running) > 0 && !t.closed {
			t.mu.Unlock()
			return
		}
		all := table()
		orphans := t.owned(all, nil)
		for _, e := range orphans {
			if !e.zombie {
				_ = unix.Kill(e.pid, unix.SIGKILL)
			}
		}
		t.reapOrphans(all)
		t.mu.Unlock()
		if len(orphans) == 0 || time.Now().After(deadline) {
			return
		}
		time.Sleep(pause)
	}
}

// reap takes away orphans that have ended, so that a command that leaves many does not fill the process table.
func (t *Tree) reap(stop, ended chan struct{}) {
	defer close(ended)
	tick := time.NewTicker(reapInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			t.mu.Lock()
			t.reapOrphans(table())
			t.mu.Unlock()
		}
	}
}

// reapOrphans reaps children that have ended and are no command's first process: those are waited for by name. The
// caller holds mu.
func (t *Tree) reapOrphans(all []entry) {
	self := os.Getpid()
	for _, e := range all {
		if e.parent == self && e.zombie && t.running[e.pid] == nil {
			var status unix.WaitStatus
			_, _ = unix.Wait4(e.pid, &status, unix.WNOHANG, nil)
		}
	}
}

// Close ends every command with all that it started, and refuses new ones: SIGTERM, after a quarter of limit
// SIGKILL. It takes no longer than limit.
func (t *Tree) Close(limit time.Duration) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	begin := time.Now()
	sig := unix.SIGTERM // once; then 0, which only looks
	for pause := firstPoll; t.signalAll(sig) > 0 && time.Since(begin) < limit; pause = min(2*pause, lastPoll) {
		if sig = 0; time.Since(begin) >= limit/4 {
			sig = unix.SIGKILL
		}
		time.Sleep(pause)
	}
}

// signalAll signals every process below this one and returns how many there were.
func (t *Tree) signalAll(sig unix.Signal) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := table()
	alive := 0
	for _, e := range t.descendants(all) {
		if !e.zombie {
			alive++
			_ = unix.Kill(e.pid, sig)
		}
	}
	t.reapOrphans(all)
	return alive
}

// descendants lists every process below this one.
func (t *Tree) descendants(all []entry) []entry {
	found := t.owned(all, nil)
	for _, c := range t.running {
		found = append(found, t.owned(all, c)...)
	}
	return found
}
