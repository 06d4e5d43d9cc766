package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

func TestMain(m *testing.M) {
	if _, err := worker.Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if home := os.Getenv(freezeEnv); home != "" {
		os.Exit(frozenMain(home))
	}
	code := m.Run()
	if dir := buildFolder; dir != "" {
		_ = os.RemoveAll(dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var buildFolder string

// testWorker is the path of a worker with faults; its first argument names the fault.
var testWorker = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "testworker")
	if err != nil {
		return "", err
	}
	buildFolder = dir
	path := filepath.Join(dir, "testworker")
	out, err := exec.Command("go", "build", "-o", path, "./worker/testworker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build testworker: %w\n%s", err, out)
	}
	return path, nil
})

// A rig is a fleet of test workers without the rest of a supervisor, and a record of what was put into the journal.
type rig struct {
	t     *testing.T
	fleet *fleet
	book  *logs.Book

	mu     sync.Mutex
	events []store.Event
	busy   map[string]int
	change chan struct{} // closed and replaced at each event
}

// newRig returns a running fleet that is empty.
func newRig(t *testing.T) *rig {
	r := &rig{t: t, change: make(chan struct{}), busy: map[string]int{}}
	dir, err := os.MkdirTemp("", "rig")
	if err != nil {
		t.Fatal(err)
	}
	r.book = logs.NewBook(logs.Options{Level: 1})
	orphans := worker.NewOrphans(dir, r.book.Logger())
	sampler := sample.NewSampler(sample.System, 50*time.Millisecond)
	env := worker.Env{Log: r.book, Sampler: sampler, Orphans: orphans, RunDir: dir, Version: ipc.Version()}
	r.fleet = newFleet(fleetParts{
		proc:     sample.System,
		record:   r.record,
		joined:   func(int) {},
		busy:     r.inHand,
		evidence: &evidence{dir: t.TempDir(), now: time.Now},
		make:     func(spec worker.Spec) *worker.Worker { return worker.New(spec, worker.Hooks{Event: r.record}, env) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	background, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	sampler.After(r.fleet.leaks.beat)
	sampler.Adopt(orphans.Owner)
	running.Go(func() { sampler.Run(background) })
	running.Go(func() { orphans.Run(background) })
	running.Go(func() { r.fleet.leaks.run(background) })
	r.fleet.start(ctx)
	t.Cleanup(func() {
		cancel()
		r.fleet.wait()
		end()
		running.Wait()
		if t.Failed() {
			for _, l := range r.book.Tail("", 200) {
				t.Log(l.Worker, l.PID, l.Level, l.Stream, l.Message, l.Fields)
			}
		}
		r.book.Close()
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *rig) record(e store.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	close(r.change)
	r.change = make(chan struct{})
}

func (r *rig) inHand(worker string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy[worker]
}

// spec is a worker with a fault, "" for none.
func (r *rig) spec(name string, args ...string) worker.Spec {
	path, err := testWorker()
	if err != nil {
		r.t.Fatal(err)
	}
	return worker.Spec{Name: name, Role: ipc.RoleTools, Path: path, Args: args}
}

// add adds a worker and waits until it serves.
func (r *rig) add(spec worker.Spec) *member {
	r.t.Helper()
	if err := r.fleet.add(spec); err != nil {
		r.t.Fatal(err)
	}
	m, err := r.fleet.member(spec.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-m.Ready():
	case <-time.After(time.Minute):
		r.t.Fatalf("%s does not serve", spec.Name)
	}
	return m
}

// await returns the first event that fits.
func (r *rig) await(what string, fits func(store.Event) bool) store.Event {
	r.t.Helper()
	limit := time.After(time.Minute)
	for {
		r.mu.Lock()
		i, change := slices.IndexFunc(r.events, fits), r.change
		var found store.Event
		if i >= 0 {
			found = r.events[i]
		}
		r.mu.Unlock()
		if i >= 0 {
			return found
		}
		select {
		case <-change:
		case <-limit:
			r.t.Fatalf("no event: %s", what)
		}
	}
}
