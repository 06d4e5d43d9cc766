package sample

import "sync/atomic"

const (
	// kinEyesMost is how many processes below watched ones have their files kept open, three descriptors each. The others are
	// read by name, which costs three times as much and misses nothing.
	kinEyesMost = 64
	// settledAfter is after how many readings, each because it had run, a process is taken for one that stays. Most commands
	// end before.
	settledAfter = 3
)

// KinDescriptors is how many descriptors a Sampler keeps open at most for what runs below the watched processes.
const KinDescriptors = 3 * kinEyesMost

// A kin is a process below a watched one.
type kin struct {
	memo memo
	eyes *eyes // nil: its files are opened for each reading
	read int   // how often it had run since it was last found asleep for long
	used uint64
	err  error // of the round used
}

type identity struct {
	pid   int
	start uint64
}

// A clan is what runs below all watched processes, by identity: a pid that another process has by now is another kin. It is
// not safe for concurrent use, but for most.
type clan struct {
	proc   Proc
	kin    map[identity]*kin
	most   atomic.Int64 // may have their files kept open
	seeing int          // have them
	round  uint64
}

func newClan(proc Proc) *clan {
	c := &clan{proc: proc, kin: map[identity]*kin{}}
	c.most.Store(kinEyesMost)
	return c
}

// begin starts a round; sweep ends it.
func (c *clan) begin() { c.round++ }

// again reads a kin that is known, once a round. Ok is false for one that has ended, or of which nothing is known.
func (c *clan) again(id identity) (k *kin, ok bool) {
	k = c.kin[id]
	if k == nil {
		return nil, false
	}
	if k.used != c.round {
		k.used = c.round
		k.err = c.look(k, id)
	}
	return k, k.err == nil
}

// meet reads a process whose stat was read in this round.
func (c *clan) meet(s Stat) (*kin, error) {
	id := identity{s.PID, s.Start}
	if k := c.kin[id]; k != nil {
		_, _ = c.again(id)
		return k, k.err
	}
	spent := processorTime(s.PID)
	p, err := c.proc.useOf(s)
	if err != nil {
		return nil, err
	}
	k := &kin{memo: memo{spent: spent, seen: p}, used: c.round}
	c.kin[id] = k
	return k, nil
}

// look brings a kin up to date. One that sleeps is not read.
func (c *clan) look(k *kin, id identity) error {
	spent, known := k.memo.asleep(id.pid)
	if known {
		return nil
	}
	if k.memo.slept >= longestSleep {
		c.blind(k) // what sleeps needs no eyes
	}
	p, err := c.see(k, id)
	if err == nil && (p.Start != id.start || p.Zombie()) {
		err = gone(id.pid, ErrGone)
	}
	if err != nil {
		return err
	}
	k.memo = memo{spent: spent, seen: p}
	return nil
}

// see reads a kin, by its open files if it has some or is due for them.
func (c *clan) see(k *kin, id identity) (Process, error) {
	if k.read++; k.eyes == nil && k.read >= settledAfter && c.seeing < int(c.most.Load()) {
		k.read = 0 // where they cannot be opened it is tried again, but not each second
		if k.eyes = c.proc.open(id.pid); k.eyes != nil {
			c.seeing++
		}
	}
	if k.eyes == nil {
		s, err := c.proc.Stat(id.pid)
		if err != nil {
			return Process{}, err
		}
		return c.proc.useOf(s)
	}
	p, err := k.eyes.readAll(id.pid)
	if err == nil && p.FDs == 0 {
		p.FDs, err = c.proc.FDs(id.pid)
	}
	return p, err
}

func (c *clan) blind(k *kin) {
	if k.eyes != nil {
		k.eyes.close()
		k.eyes = nil
		c.seeing--
	}
	k.read = 0
}

// sweep forgets who was not met in this round, or had ended, and closes the files of those that are too many by now.
func (c *clan) sweep() {
	most := int(c.most.Load())
	for id, k := range c.kin {
		if c.seeing > most {
			c.blind(k)
		}
		if k.used != c.round || k.err != nil {
			c.blind(k)
			delete(c.kin, id)
		}
	}
}

// close closes all files.
func (c *clan) close() {
	c.begin()
	c.sweep()
}
