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

// pace is how many descriptors a second a process takes that holds fds at now: the least of its newest two steps, as one
// jump is no pace. recent are its newest readings, oldest first.
func pace(recent []sample.Sample, now time.Time, fds int64) float64 {
	if len(recent) < 2 {
		return 0
	}
	last, before := recent[len(recent)-1], recent[len(recent)-2]
	since := now.Sub(last.Time)
	if since < closeInterval/2 {
		return 0 // too short a time to tell
	}
	return max(0, min(
		float64(fds-last.FDs)/since.Seconds(),
		float64(last.FDs-before.FDs)/last.Time.Sub(before.Time).Seconds(),
	))
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
		default:
			v := leak.Verdict{Unit: "descriptors", Pace: pace(series.Seconds(2), now, p.FDs)}
			var advice leak.Advice
			if advice, c.why = leak.Action(v, p.FDs, p.FDLimit); advice == leak.RecycleNow {
				c.below = false
				l.recycle.consider(now, c)
			}
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
