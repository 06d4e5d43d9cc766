package supervisor

import (
	"context"
	"fmt"
	"sync"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
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

	mu      sync.Mutex
	watched map[string]*watched
}

// watched is one process of a worker under watch.
type watched struct {
	pid      int
	progress uint64
	judged   time.Time
	series   [2]watchedSeries
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

// run looks at every worker once a sample until ctx ends.
func (l *leakWatch) run(ctx context.Context) {
	tick := time.NewTimer(untilWhole(sampleInterval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, m := range l.workers() {
				l.look(now, m)
			}
			tick.Reset(untilWhole(sampleInterval))
		}
	}
}

// look reads one worker and observes it.
func (l *leakWatch) look(now time.Time, w *member) {
	series, pid := w.Series(), w.PID()
	if series == nil || pid == 0 {
		l.forget(w.Name())
		return
	}
	s := series.Last()
	if s.Time.IsZero() {
		return
	}
	l.observe(now, reading{
		worker: w.Name(), pid: pid, at: s.Time,
		// Descriptors of descendants do not count against the worker's limit, their memory does.
		values:   [2]int64{s.FDs, s.Anon + s.Family.Anon},
		limits:   [2]int64{series.FDLimit(), w.spec.Limits.Memory},
		busy:     l.busy(w.Name()) > 0,
		progress: w.Status().Progress,
	})
}

// A reading is one sample of a worker as the watch needs it; values and limits are in the order of quantities.
type reading struct {
	worker   string
	pid      int
	at       time.Time
	values   [2]int64
	limits   [2]int64 // 0 or less for none
	busy     bool
	progress uint64 // work ended so far
}

func (l *leakWatch) forget(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watched, worker)
}

func (l *leakWatch) observe(now time.Time, r reading) {
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
	for i := range at.series {
		d := &at.series[i]
		d.detector.Add(leak.Point{Time: r.at, Value: r.values[i], Idle: idle})
		if due || d.detector.Pressing(r.limits[i]) {
			l.judge(r.worker, r.pid, d, r.limits[i])
		}
	}
}

func (l *leakWatch) judge(name string, pid int, d *watchedSeries, limit int64) {
	v := d.detector.Verdict(limit)
	d.kind = v.Kind
	if v.Kind.Grows() && !d.told {
		d.told = true
		l.record(store.Event{Kind: kindLeak, Worker: name, PID: pid, Message: v.Evidence, Fields: map[string]string{
			"quantity": v.Unit, "verdict": string(v.Kind), "confidence": fmt.Sprintf("%.2f", v.Confidence), "time_to_limit": v.TimeToLimit.String(),
		}})
	}
}

// verdict returns what is known of a worker's process, "learning" where it is too little.
func (l *leakWatch) verdict(name string) *controlv1.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.watched[name]
	if at == nil {
		return &controlv1.Verdict{Fds: string(leak.Learning), Rss: string(leak.Learning)}
	}
	return &controlv1.Verdict{Fds: string(at.series[0].kind), Rss: string(at.series[1].kind)}
}
