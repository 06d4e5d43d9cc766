package supervisor

import (
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// closeInterval is how often a worker is read whose growth would bring it to a limit before the next round. An idle
// machine never reads so often: what takes less than a second from nothing to its limit is found at the next round, and
// what takes longer is under close watch by then.
const closeInterval = 100 * time.Millisecond

const (
	// nearly is the part of the limit of descriptors at which a worker under close watch is replaced without waiting, and
	// filling the part from which on its pace counts. leadTime is what a replacement needs on a busy machine, from the
	// reading to the end of the process.
	nearly   = 0.95
	filling  = 0.80
	leadTime = time.Second
)

// runsOut says whether a process that holds fds at now reaches its limit of descriptors before a replacement that is
// begun later would end it. recent are its newest readings, oldest first: one jump has no pace.
func runsOut(recent []sample.Sample, now time.Time, fds, limit int64) bool {
	held, most := float64(fds), float64(limit)
	if held >= nearly*most {
		return true
	}
	if held < filling*most || len(recent) < 2 {
		return false
	}
	last, before := recent[len(recent)-1], recent[len(recent)-2]
	since := now.Sub(last.Time)
	if since < closeInterval/2 {
		return false
	}
	pace := min(
		float64(fds-last.FDs)/since.Seconds(),
		float64(last.FDs-before.FDs)/last.Time.Sub(before.Time).Seconds(),
	)
	return held+pace*leadTime.Seconds() >= most
}

func overText(holds, limit int64) string {
	return fmt.Sprintf("%d MiB of memory with the processes below it, its limit is %d MiB", holds>>20, limit>>20)
}

// crowd says by how much a worker has more processes and threads than it may, empty if it has not.
func crowd(s sample.Sample, limit int) string {
	have := s.Threads + s.Family.Threads
	if limit <= 0 || have <= limit {
		return ""
	}
	return fmt.Sprintf("%d processes and threads with those below it, it may have %d", have, limit)
}

// lookClosely reads the workers under close watch and acts only on what cannot wait for the next round.
func (l *leakWatch) lookClosely(now time.Time) {
	for _, m := range l.pressed {
		series, pid := m.Series(), m.PID()
		if series == nil || pid == 0 {
			continue
		}
		p, err := l.recycle.proc.Process(pid)
		if err != nil || p.Zombie() {
			continue
		}
		below := int64(0)
		for _, s := range series.Descendants() {
			if d, err := l.recycle.proc.Process(s.PID); err == nil && d.Start == s.Start {
				below += d.Anon
			}
		}
		c := concern{worker: m, pid: pid, advice: leak.RecycleNow, below: below > p.Anon}
		holds, limit := p.Anon+below, m.spec.Limits.Memory
		switch {
		case limit > 0 && holds > limit && c.below:
			c.why = overText(holds, limit)
			l.recycle.endLargestBelow(c)
		case limit > 0 && holds > limit:
			l.recycle.endOver(m, pid, worker.CauseMemory, overText(holds, limit))
		case p.FDLimit > 0 && runsOut(series.Seconds(2), now, p.FDs, p.FDLimit):
			c.below = false
			c.why = fmt.Sprintf("it holds %d of %d descriptors", p.FDs, p.FDLimit)
			l.recycle.consider(now, c)
		}
	}
}

// held is what a worker holds, for the sum over all.
type held struct {
	member *member
	pid    int
	memory int64
	busy   bool
}

// easeEvery is the time that a replacement gets to show in the sum before the next one.
const easeEvery = 30 * time.Second

// ceiling replaces a worker if all together hold more memory than they may: the largest one that is idle and not required,
// else the largest. The kernel would choose for itself, and not know who is idle.
func (l *leakWatch) ceiling(now time.Time, all []held) {
	sum := int64(0)
	var chosen *held
	for i := range all {
		h := &all[i]
		sum += h.memory
		if chosen == nil || better(h, chosen) {
			chosen = h
		}
	}
	if l.total <= 0 || sum <= l.total || chosen == nil || now.Sub(l.eased) < easeEvery {
		return
	}
	l.eased = now
	why := fmt.Sprintf("all workers together hold %d MiB, they may hold %d MiB; it holds %d MiB", sum>>20, l.total>>20, chosen.memory>>20)
	l.record(store.Event{Kind: kindCeiling, Worker: chosen.member.Name(), PID: chosen.pid, Message: why})
	l.recycle.once(chosen.pid, func() {
		l.recycle.replace(concern{worker: chosen.member, pid: chosen.pid, why: why}, false)
	})
}

// better says whether a is to be replaced rather than b.
func better(a, b *held) bool {
	spare := func(h *held) bool { return !h.busy && !h.member.Required() }
	if spare(a) != spare(b) {
		return spare(a)
	}
	return a.memory > b.memory
}
