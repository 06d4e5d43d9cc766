package supervisor

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// soakTime is how long the bad neighbours live: seconds in tests, as long as HERMES_SOAK says in `make soak`.
func soakTime(t *testing.T) time.Duration {
	text := os.Getenv("HERMES_SOAK")
	if text == "" {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// own is what the supervising process itself holds.
type own struct{ fds, goroutines, heap int64 }

func ownNow(t *testing.T) own {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n, err := sample.System.FDs(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return own{n, int64(runtime.NumGoroutine()), int64(m.HeapAlloc)}
}

// live lets time pass and looks at this process twenty times: what it holds in the last quarter must be what it held in
// the half before. Workers come and go all the time, so that their descriptors are counted more or less often.
func (r *rig) live(t *testing.T, d time.Duration) {
	t.Helper()
	const looks, breath, slack = 20, 40, 16 << 20
	var first, last sample.Process
	for i := range looks {
		for range 10 {
			time.Sleep(d / looks / 10)
			r.forgetEvents()
		}
		p, err := sample.System.Process(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("after %v: %d descriptors, %d MiB anonymous", (d / looks * time.Duration(i+1)).Round(time.Second), p.FDs, p.Anon>>20)
		in := &first
		if i >= looks*3/4 {
			in = &last
		}
		if i >= looks/4 {
			in.FDs, in.Anon = max(in.FDs, p.FDs), max(in.Anon, p.Anon)
		}
	}
	if last.FDs > first.FDs+breath || last.Anon > first.Anon+slack {
		t.Errorf("it grew from %d descriptors and %d MiB to %d and %d MiB", first.FDs, first.Anon>>20, last.FDs, last.Anon>>20)
	}
}

// forgetEvents drops what the test itself keeps.
func (r *rig) forgetEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

func TestSoakWithBadNeighboursLeavesTheSupervisorFlat(t *testing.T) {
	r := newRig(t)
	before := ownNow(t)
	quick := worker.Policy{MaxDelay: 200 * time.Millisecond, SlowLane: []time.Duration{500 * time.Millisecond}, Recycles: 1 << 20}
	for name, fault := range map[string][]string{
		"well": nil, "leaks-fds": {"leak-fds", "100"}, "leaks-memory": {"leak-memory", "40"}, "crashes": {"panic"},
		"freezes": {"freeze", "500"}, "floods": {"flood", "100000"}, "starts-slowly": {"slow-start", "1500"}, "fails": {"exit"},
	} {
		spec := r.spec(name, fault...)
		spec.Policy, spec.HealthInterval = quick, 200*time.Millisecond
		spec.Limits = worker.Limits{FDs: 256, Memory: 96 << 20}
		if err := r.fleet.add(spec); err != nil {
			t.Fatal(err)
		}
	}
	r.live(t, soakTime(t))
	for _, st := range r.fleet.Status() {
		switch st.Name {
		case "well", "starts-slowly", "floods":
			if st.Restarts > 0 {
				t.Errorf("%s was restarted %d times: %v", st.Name, st.Restarts, st.LastExit)
			}
		case "crashes", "fails":
			if st.Restarts < 3 {
				t.Errorf("%s was restarted %d times", st.Name, st.Restarts)
			}
		}
		t.Logf("%-14s %-10s %4d restarts, last exit %v", st.Name, st.State, st.Restarts, st.LastExit.GetCause())
	}
	for _, m := range r.fleet.list() {
		if err := r.fleet.remove(t.Context(), m.Name(), "the end of the test"); err != nil {
			t.Error(err)
		}
	}
	r.forgetEvents()
	var after own
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if after = ownNow(t); after.fds <= before.fds+2 && after.goroutines <= before.goroutines+2 {
			break
		}
	}
	// The book keeps the last lines of everybody, 4 MiB at most for each.
	if after.fds > before.fds+2 || after.goroutines > before.goroutines+2 || after.heap > before.heap+48<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	t.Logf("before %+v, after %+v", before, after)
}
