package supervisor

import (
	"context"
	"fmt"
	"sync"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// judgeEvery is how often verdicts are made anew: one costs 30 µs, and the slowest leak that matters within ten seconds
// is found by Pressing, which is asked at every sample.
const judgeEvery = 10 * time.Second

// kindLeak is the event of a worker whose descriptors or memory grow and are not given back.
const kindLeak = "leak_suspected"

// A leakWatch feeds the samples of each worker to detectors of its own and keeps their verdicts. A new process starts
// anew: what the last one held is gone.
type leakWatch struct {
	workers func() []*member
	busy    func(worker string) int
	record  func(store.Event)
	recycle *recycler
	total   int64 // bytes that all workers together may hold, 0 for no limit

	turn    sync.Mutex    // held by a round, and by a close look
	alive   map[int]bool  // of a round, kept for its memory
	all     []held        // of a round, kept for its memory
	pressed []*member     // of the last round: a limit may be reached before the next
	near    chan struct{} // tells run of them
	eased   time.Time     // when something was last done about total

	mu      sync.Mutex
	watched map[string]*watched
}

// watched is one process of a worker under watch.
type watched struct {
	pid      int
	progress uint64
	judged   time.Time
	series   [2]watchedSeries
	due      bool // a replacement is advised: ask again with each sample
	below    map[processID]*below
	kills    uint64 // as in reading, that were told
}

// A watchedSeries is one quantity of a process.
type watchedSeries struct {
	detector *leak.Detector
	kind     leak.Kind
	told     bool // a leak is put on the timeline once a process
}

var quantities = [2]leak.Quantity{leak.Descriptors, leak.AnonymousBytes}

func newWatched(pid int) *watched {
	w := &watched{pid: pid}
	for i, q := range quantities {
		w.series[i] = watchedSeries{detector: leak.NewDetector(q), kind: leak.Learning}
	}
	return w
}

// beat looks at every worker. It is called after each round of samples.
func (l *leakWatch) beat(now time.Time) {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.round(now)
	if len(l.pressed) > 0 {
		select {
		case l.near <- struct{}{}:
		default:
		}
	}
}

// run looks ten times as often at the workers that a limit is near to, until ctx ends.
func (l *leakWatch) run(ctx context.Context) {
	defer l.recycle.wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.near:
			l.stayClose(ctx)
		}
	}
}

// stayClose looks closely until no limit is near any more.
func (l *leakWatch) stayClose(ctx context.Context) {
	tick := time.NewTicker(closeInterval)
	defer tick.Stop()
	for near := true; near; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.turn.Lock()
			l.lookClosely(now)
			near = len(l.pressed) > 0
			l.turn.Unlock()
		}
	}
}

// round looks at every worker once.
func (l *leakWatch) round(now time.Time) {
	if l.alive == nil {
		l.alive = map[int]bool{}
	}
	clear(l.alive)
	var pressed []*member
	l.all = l.all[:0]
	for _, m := range l.workers() {
		r, ok := l.read(m)
		if !ok {
			l.forget(m.Name())
			continue
		}
		l.alive[r.pid] = true
		if r.busy || r.stopped {
			m.Attend()
		}
		l.all = append(l.all, held{member: m, pid: r.pid, memory: r.values[1] + r.spare, busy: r.busy})
		advice, why, hot := l.observe(now, r)
		if hot {
			pressed = append(pressed, m)
		}
		if limit := r.limits[1]; limit > 0 && r.values[1] > limit && !r.below {
			l.recycle.endOver(m, r.pid, worker.CauseMemory, overText(r.values[1], limit))
			continue
		}
		if r.crowd != "" {
			l.recycle.endOver(m, r.pid, worker.CauseProcesses, r.crowd)
			continue
		}
		l.recycle.consider(now, concern{worker: m, pid: r.pid, advice: advice, why: why, busy: r.busy, below: r.below})
	}
	l.recycle.forget(l.alive)
	l.pressed = pressed
	l.ceiling(now, l.all)
	clear(l.all) // of workers that may be gone by the next round
}

// read reads one worker; ok is false if it has no process that serves.
func (l *leakWatch) read(m *member) (r reading, ok bool) {
	series, pid := m.Series(), m.PID()
	if series == nil || pid == 0 {
		return r, false
	}
	s := series.Last()
	if s.Time.IsZero() {
		return r, false
	}
	return reading{
		worker: m.Name(), member: m, pid: pid, at: s.Time,
		// Descriptors of descendants do not count against the worker's limit, their memory does.
		values:   [2]int64{s.FDs, s.Anon + s.Family.Anon},
		limits:   [2]int64{series.FDLimit(), m.spec.Limits.Memory},
		busy:     l.busy(m.Name()) > 0,
		progress: m.Done(),
		spare:    m.SpareAnon(),
		below:    s.Family.Anon > s.Anon,
		stopped:  series.Stopped(),
		crowd:    crowd(s, m.spec.Limits.Processes),
		kills:    m.LimitKills(),
		children: longestLiving(series.Below()),
	}, true
}

// A reading is one sample of a worker as the watch needs it; values and limits are in the order of quantities.
type reading struct {
	worker   string
	member   *member
	pid      int
	at       time.Time
	values   [2]int64
	limits   [2]int64 // 0 or less for none
	busy     bool
	progress uint64           // work ended so far
	spare    int64            // memory of the process that stands by, which counts for the sum over all workers alone
	below    bool             // most of the memory is held by processes below the worker
	stopped  bool             // it does not run
	crowd    string           // by how much it has more processes than it may, empty if it has not
	kills    uint64           // of processes below it, by the kernel, for its limit of memory
	children []sample.Process // processes below it, the oldest that are watched
}

func (l *leakWatch) forget(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watched, worker)
}

// observe takes a reading and returns what is to be done about the worker. hot says that a limit may be reached before
// the next one.
func (l *leakWatch) observe(now time.Time, r reading) (advice leak.Advice, why string, hot bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.watched[r.worker]
	if at == nil || at.pid != r.pid {
		at = newWatched(r.pid)
		l.watched[r.worker] = at
	}
	// Idle means that no work ran since the last sample, not only that none runs now.
	idle := !r.busy && r.progress == at.progress
	at.progress = r.progress
	due := now.Sub(at.judged) >= judgeEvery
	if due {
		at.judged = now
	}
	if len(r.children) > 0 || len(at.below) > 0 {
		l.lookBelow(due, r, at)
	}
	if r.kills > at.kills {
		at.kills = r.kills
		l.record(store.Event{Kind: kindChildEnded, Worker: r.worker, PID: r.pid, Message: fmt.Sprintf(
			"the kernel ended a process below %s, which took more memory than the worker may have (%d MiB, and a margin); the worker goes on", r.worker, r.limits[1]>>20)})
	}
	for i := range at.series {
		d := &at.series[i]
		d.detector.Add(leak.Point{Time: r.at, Value: r.values[i], Idle: idle})
		pressing := d.detector.Pressing(r.limits[i])
		hot = hot || pressing
		if !due && !pressing && !at.due {
			continue
		}
		if a, w := l.judge(r, d, i); a > advice {
			advice, why = a, w
		}
	}
	at.due = advice != leak.Keep
	return advice, why, hot
}

// judge makes a new verdict on one quantity.
func (l *leakWatch) judge(r reading, d *watchedSeries, i int) (leak.Advice, string) {
	v := d.detector.Verdict(r.limits[i])
	d.kind = v.Kind
	if v.Kind.Grows() && !d.told {
		d.told = true
		e := store.Event{Kind: kindLeak, Worker: r.worker, PID: r.pid, Message: v.Evidence, Fields: map[string]string{
			"quantity": v.Unit, "verdict": string(v.Kind), "confidence": fmt.Sprintf("%.2f", v.Confidence), "time_to_limit": v.TimeToLimit.Round(time.Second).String(),
		}}
		if i == 1 && r.below {
			e.Message += "; most of it is held below the worker" + l.nameBelow(r)
		}
		l.record(e)
	}
	advice, why := leak.Action(v, r.values[i], r.limits[i])
	if advice != leak.Keep && v.Kind.Grows() {
		why += "; " + v.Evidence
	}
	return advice, why
}

// nameBelow names the process that holds the most memory below a worker.
func (l *leakWatch) nameBelow(r reading) string {
	if r.member == nil {
		return ""
	}
	p, ok := l.recycle.largestBelow(r.member)
	if !ok {
		return ""
	}
	return fmt.Sprintf(", by %s (process %d, %d MiB)", p.Comm, p.PID, p.Anon>>20)
}

// verdict returns what is known of a worker's process, "learning" where it is too little.
func (l *leakWatch) verdict(name string) *controlv1.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.watched[name]
	if at == nil {
		return &controlv1.Verdict{Fds: string(leak.Learning), Rss: string(leak.Learning)}
	}
	below, detail := at.belowVerdict()
	return &controlv1.Verdict{Fds: string(at.series[0].kind), Rss: string(at.series[1].kind), Below: string(below), BelowDetail: detail}
}
