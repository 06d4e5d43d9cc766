package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// of fits the events of a kind about a worker.
func of(kind, worker string) func(store.Event) bool {
	return func(e store.Event) bool { return e.Kind == kind && e.Worker == worker }
}

// peak returns the most that a worker's process has held at a sample, of descriptors and of memory, until gone is closed.
func (r *rig) peak(m *member, gone <-chan struct{}) (fds, memory int64) {
	series := m.Series()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return fds, memory
		case <-tick.C:
			s := series.Last()
			fds, memory = max(fds, s.FDs), max(memory, s.Anon)
		}
	}
}

// until runs f and closes the channel that it gets when an event has come.
func (r *rig) until(fits func(store.Event) bool, f func(gone <-chan struct{})) {
	gone, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); f(gone) }()
	r.await("until", fits)
	close(gone)
	<-done
}

func TestALeakOfDescriptorsIsReplacedBeforeTheLimit(t *testing.T) {
	r := newRig(t)
	other := r.add(r.spec("other"))
	otherPID := other.PID()
	spec := r.spec("leaks", "leak-fds", "50")
	spec.Limits.FDs = 256
	m := r.add(spec)
	var fds int64
	r.until(of("worker_exited", "leaks"), func(gone <-chan struct{}) { fds, _ = r.peak(m, gone) })
	e := r.await("recycling", of(kindRecycling, "leaks"))
	if fds < 150 || fds >= 256 || !strings.Contains(e.Fields["top_handles"], "/dev/null") {
		t.Errorf("at most %d descriptors: %+v", fds, e)
	}
	if !strings.Contains(e.Message, "it holds "+e.Fields["top_handles"]+"; all of it is in "+e.Fields["evidence"]) {
		t.Errorf("it does not say what it held and where that is kept: %s", e.Message)
	}
	exit := r.await("exit", of("worker_exited", "leaks"))
	if exit.Fields["cause"] != "planned" || !strings.Contains(exit.Message, "replaced: ") {
		t.Errorf("exit %+v", exit)
	}
	for _, l := range r.book.Tail("leaks", 1000) {
		if strings.Contains(l.Message, "out of descriptors") {
			t.Error(l.Message)
		}
	}
	handles, err := os.ReadFile(filepath.Join(e.Fields["evidence"], "handles.txt"))
	if err != nil || !strings.Contains(string(handles), "/dev/null") {
		t.Errorf("handles: %v\n%s", err, handles)
	}
	if other.PID() != otherPID {
		t.Error("another worker was replaced as well")
	}
}

func TestALeakOfMemoryEndsLittleAboveTheLimit(t *testing.T) {
	r := newRig(t)
	spec := r.spec("leaks", "leak-memory", "20")
	spec.Limits.Memory = 64 << 20
	m := r.add(spec)
	var memory int64
	r.until(of("worker_exited", "leaks"), func(gone <-chan struct{}) { _, memory = r.peak(m, gone) })
	if memory > 84<<20 {
		t.Errorf("it held %d MiB", memory>>20)
	}
}

func TestAnExplosionOfMemoryEndsThatWorkerOnly(t *testing.T) {
	r := newRig(t)
	other := r.add(r.spec("other"))
	otherPID := other.PID()
	spec := r.spec("explodes", "leak-memory", "1000")
	spec.Limits.Memory = 128 << 20
	r.add(spec)
	exit := r.await("exit", of("worker_exited", "explodes"))
	// On a busy machine it may be seen on its way there.
	if c := exit.Fields["cause"]; c != "memory" && c != "planned" {
		t.Errorf("exit %+v", exit)
	}
	if other.PID() != otherPID {
		t.Error("another worker was replaced as well")
	}
}

func TestAWorkerOverItsMemoryIsEndedAtOnce(t *testing.T) {
	r := newRig(t)
	spec := r.spec("explodes")
	spec.Drain = time.Hour
	spec.Limits.Memory = 1 << 20
	r.add(spec)
	r.await("it is said", of(kindOverLimit, "explodes"))
	exit := r.await("exit", of("worker_exited", "explodes"))
	if c := exit.Fields["cause"]; c != "memory" || exit.Fields["signal"] != "SIGKILL" || !strings.Contains(exit.Message, "its limit is 1 MiB") {
		t.Errorf("exit %+v", exit)
	}
}

func TestACommandThatTakesAllMemoryIsEndedAndItsWorkerIsNot(t *testing.T) {
	r := newRig(t)
	spec := r.spec("tools", "leak-below")
	spec.Limits.Memory = 192 << 20
	m := r.add(spec)
	pid := m.PID()
	e := r.await("the end of the command", of(kindChildEnded, "tools"))
	if !strings.Contains(e.Message, "testworker, below tools, held ") || e.PID == pid {
		t.Errorf("%+v", e)
	}
	if m.PID() != pid {
		t.Error("the worker was replaced")
	}
}

func TestAWorkerThatForksWithoutEndIsEndedAlone(t *testing.T) {
	r := newRig(t)
	other := r.add(r.spec("other"))
	otherPID := other.PID()
	spec := r.spec("forks", "crowd", "80")
	spec.Limits.Processes = 64
	r.add(spec)
	exit := r.await("exit", of("worker_exited", "forks"))
	if exit.Fields["cause"] != "processes" || !strings.Contains(exit.Message, "it may have 64") {
		t.Errorf("exit %+v", exit)
	}
	if other.PID() != otherPID {
		t.Error("another worker was replaced as well")
	}
}

// concernOf returns what a watch would say of a worker that should be replaced at the next boundary.
func concernOf(m *member, busy bool) concern {
	return concern{worker: m, pid: m.PID(), advice: leak.RecycleAtBoundary, why: "it holds 80 % of its limit", busy: busy}
}

func TestABusyWorkerIsReplacedWhenItsTurnHasEnded(t *testing.T) {
	r := newRig(t)
	m := r.add(r.spec("tools"))
	watch, now, pid := r.fleet.leaks.recycle, time.Now(), m.PID()
	watch.consider(now, concernOf(m, true))
	watch.consider(now.Add(boundaryPatience-time.Second), concernOf(m, true))
	due := r.await("due", of(kindRecycleDue, "tools"))
	if !strings.Contains(due.Message, "80 % of its limit") || due.Fields["top_handles"] == "" {
		t.Errorf("%+v", due)
	}
	detail := ""
	for range 2 { // the fleet's own round, once a second, may have come between and said that it may stay
		watch.consider(now.Add(boundaryPatience-time.Second), concernOf(m, true))
		if detail = r.fleet.Status()[0].Detail; strings.Contains(detail, "80 % of its limit") {
			break
		}
	}
	if !strings.Contains(detail, "80 % of its limit") {
		t.Errorf("status says %q", detail)
	}
	if m.PID() != pid {
		t.Fatal("it was replaced in its turn")
	}
	watch.consider(now.Add(boundaryPatience-time.Second), concernOf(m, false))
	r.await("its end", of("worker_exited", "tools"))
	heap := filepath.Join(r.await("recycling", of(kindRecycling, "tools")).Fields["evidence"], "heap.pprof")
	if st, err := os.Stat(heap); err != nil || st.Size() == 0 {
		t.Errorf("heap profile: %v", err)
	}
}

func TestAWorkerThatIsAlwaysBusyIsDrainedInTheEnd(t *testing.T) {
	r := newRig(t)
	m := r.add(r.spec("tools"))
	// Not the fleet's own, which its watch tells at each round that this worker may stay.
	own := r.fleet.leaks.recycle
	watch, now := newRecycler(own.proc, own.evidence, own.record), time.Now()
	defer watch.wait()
	watch.consider(now, concernOf(m, true))
	watch.consider(now.Add(boundaryPatience), concernOf(m, true))
	r.await("its end", of("worker_exited", "tools"))
}

func TestWhatWasGivenBackInTimeIsForgiven(t *testing.T) {
	r := newRig(t)
	m := r.add(r.spec("tools"))
	watch, now := r.fleet.leaks.recycle, time.Now()
	watch.consider(now, concernOf(m, true))
	calm := concernOf(m, false)
	calm.advice = leak.Keep
	watch.consider(now.Add(time.Second), calm)
	watch.consider(now.Add(boundaryPatience), concernOf(m, true))
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if len(watch.asked) > 0 {
		t.Error("it was replaced for what it held before")
	}
}

func TestOnlyTheNewestEvidenceIsKept(t *testing.T) {
	dir := t.TempDir()
	e := &evidence{dir: dir, now: time.Now}
	for n := range evidenceKept + 5 {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("20260101T0000%02dZ-tools-1", n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	e.prune()
	left, _ := os.ReadDir(dir)
	if len(left) != evidenceKept || left[0].Name() != "20260101T000005Z-tools-1" {
		t.Errorf("%d left, the oldest %s", len(left), left[0].Name())
	}
}

func TestTheCeilingChoosesTheLargestIdleWorkerThatIsNotRequired(t *testing.T) {
	r := newRig(t)
	required := r.spec("required")
	required.Required = true
	all := []held{
		{member: r.add(required), memory: 500},
		{member: r.add(r.spec("busy")), memory: 400, busy: true},
		{member: r.add(r.spec("small")), memory: 100},
		{member: r.add(r.spec("large")), memory: 200},
	}
	for i := range all {
		all[i].pid = all[i].member.PID()
	}
	l, now := &leakWatch{record: r.record, recycle: newRecycler(sample.System, nil, r.record), total: 1200}, time.Now()
	defer l.recycle.wait()
	l.ceiling(now, all)
	if !l.eased.IsZero() {
		t.Error("something was done at the ceiling")
	}
	l.total = 1199
	l.ceiling(now, all)
	l.ceiling(now.Add(time.Second), all)
	r.await("the ceiling", of(kindCeiling, "large"))
	r.await("its end", of("worker_exited", "large"))
	l.ceiling(now.Add(easeEvery), all[:2])
	if l.eased != now {
		t.Error("below the ceiling something was done")
	}
	l.ceiling(now.Add(easeEvery), append(all[:2:2], held{member: all[0].member, memory: 1000}))
	r.await("the ceiling, when none is idle", of(kindCeiling, "required"))
}
