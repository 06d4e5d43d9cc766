package sample

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// freshMost is how many new pids a round looks at one by one. A machine that makes more within a second is asked for the
	// children of each watched process instead.
	freshMost = 256
	// walkEvery is after how many rounds the children are asked for in any case.
	walkEvery = 30
)

// A crowd finds the processes below watched ones, once a round. On an idle machine, where no process was made since the last
// round, that costs one read. Where some were made only those are looked at: what the kernel keeps of children is a list for
// each thread, and a worker has ten. It is not safe for concurrent use.
type crowd struct {
	proc  Proc
	lists bool // the kernel keeps lists of children

	load int // /proc/loadavg, kept open; 0 where each round opens it
	text [128]byte

	rounds        int
	newest, older int  // the newest pid at the last round, and at the one before
	stirred       bool // a process was made since
	walk          bool // the children are to be asked for
	fresh         []Stat
	owner         func(Stat) int // of an orphan that is ours now; nil: nobody
	adopted       map[int][]Stat // orphans found in this round, by their owners

	// Where the kernel keeps no lists: the last picture of all processes.
	table    Table
	families map[int][]int
}

// keep opens what each round reads; close must follow.
func (c *crowd) keep() {
	if !c.proc.kernel() {
		return
	}
	if fd, err := unix.Open(c.proc.loadavg(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		c.load = fd
	}
}

func (c *crowd) close() {
	if c.load != 0 {
		_ = unix.Close(c.load)
		c.load = 0
	}
}

func (c *crowd) lastPID() (n int, ok bool) {
	if c.load == 0 {
		return c.proc.lastPID()
	}
	text, err := readAgain(c.load, c.text[:])
	if err != nil {
		return 0, false
	}
	return parseLastPID(text)
}

// look begins a round. Ran says whether any watched process, or one below it, has run since the last round or in the one before:
// what sleeps makes no processes, whatever others on the machine do. New pids are looked at in two rounds: one that is given out
// and not yet there is found in the second.
func (c *crowd) look(ran bool) {
	newest, ok := c.lastPID()
	first := c.rounds == 0
	from := c.older
	c.stirred = !ok || first || newest != c.older && ran
	c.walk = !ok || first || ran && (newest < from || newest-from > freshMost) || c.rounds%walkEvery == 0
	c.rounds++
	c.older, c.newest = c.newest, newest
	c.fresh = c.fresh[:0]
	switch {
	case !c.lists && c.stirred:
		if table, err := c.proc.Table(); err == nil { // else the old one is better than none
			c.table, c.families = table, table.families()
		}
	case c.lists && c.stirred && !c.walk:
		for pid := from + 1; pid <= newest; pid++ {
			if s, err := c.proc.Stat(pid); err == nil {
				c.fresh = append(c.fresh, s)
			}
		}
	}
	c.adopt()
}

// adopt finds the orphans among the children of this process: the new ones, or all when the children are asked for.
func (c *crowd) adopt() {
	clear(c.adopted)
	if c.owner == nil || !c.stirred && !c.walk {
		return
	}
	self, list := os.Getpid(), c.fresh
	switch {
	case !c.lists:
		list = nil
		for _, pid := range c.table.Children(self) {
			list = append(list, c.table[pid])
		}
	case c.walk:
		list = nil
		for _, pid := range c.proc.children(self) {
			if s, err := c.proc.Stat(pid); err == nil {
				list = append(list, s)
			}
		}
	}
	for _, s := range list {
		if s.PPID != self || s.Zombie() || !c.proc.leads(s.PID) {
			continue // a thread of a worker looks like a child that has its mark
		}
		if pid := c.owner(s); pid != 0 {
			if c.adopted == nil {
				c.adopted = map[int][]Stat{}
			}
			c.adopted[pid] = append(c.adopted[pid], s)
		}
	}
}

// below returns the processes below pid; known are those of the last round that live. For a pid that is looked at for the first
// time all are searched for. Anew says whether they are read in this round, and not those of the last one.
func (c *crowd) below(pid int, known []Stat, first bool) (out []Stat, anew bool) {
	switch {
	case !c.lists:
		pids := c.table.below(c.families, pid)
		out = make([]Stat, 0, len(pids))
		for _, pid := range pids {
			out = append(out, c.table[pid])
		}
		for _, s := range c.adopted[pid] {
			out = append(out, s)
			for _, below := range c.table.below(c.families, s.PID) {
				out = append(out, c.table[below])
			}
		}
		return out, c.stirred
	case first || c.walk:
		return c.proc.offspring(pid, append(slices.Clip(known), c.adopted[pid]...)), true
	case !c.stirred:
		return known, false
	case len(c.fresh) == 0 && len(c.adopted[pid]) == 0:
		return known, true
	}
	inside := map[int]bool{pid: true}
	for _, k := range known {
		inside[k.PID] = true
	}
	out = slices.Clip(known)
	for _, s := range c.adopted[pid] {
		if !inside[s.PID] && c.proc.leads(s.PID) {
			inside[s.PID] = true
			out = append(out, s)
		}
	}
	for _, s := range c.fresh { // in the order of their making: parents come first
		if inside[s.PPID] && !inside[s.PID] && c.proc.leads(s.PID) {
			inside[s.PID] = true
			out = append(out, s)
		}
	}
	return out, true
}
