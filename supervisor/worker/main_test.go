package worker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

const testVersion = "v0.0.0-test"

var (
	testBinary  string // testworker of testVersion
	otherBinary string // of another version
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_SUPERVISOR"); dir != "" {
		superviseForEver(dir)
		return
	}
	if slices.Contains(os.Args, "-test.fuzzworker") {
		os.Exit(m.Run()) // it is killed at its end, and needs no binaries
	}
	if _, err := Prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "testworker")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testBinary, otherBinary = build(dir, testVersion), build(dir, "v9.9.9-other")
	code := m.Run()
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func build(dir, version string) string {
	path := filepath.Join(dir, "testworker-"+version)
	flag := "-X github.com/hermes-supervisor/hermes-supervisor/ipc.version=" + version
	cmd := exec.Command("go", "build", "-ldflags", flag, "-o", path, "./testworker")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build testworker: %v\n%s", err, out)
		os.Exit(1)
	}
	return path
}

// A rig is a supervisor without the rest: what workers share, and a record of what they did.
type rig struct {
	t       testing.TB
	env     Env
	book    *logs.Book
	orphans *Orphans
	runDir  string

	mu     sync.Mutex
	events []store.Event
	ups    int
	downs  int
	calls  []ipc.Identity
	change chan struct{} // closed and replaced at each event
}

// quick makes decisions fast, so that tests of them are.
var quick = Timing{
	Dial: 500 * time.Millisecond, Health: 2 * time.Second, Misses: 3, Term: 300 * time.Millisecond, Quit: 500 * time.Millisecond,
}

func newRig(t testing.TB) *rig {
	dir, err := os.MkdirTemp("", "rig")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, runDir: dir, change: make(chan struct{})}
	r.book = logs.NewBook(logs.Options{Level: 1})
	r.orphans = NewOrphans(dir, r.book.Logger())
	sampler := sample.NewSampler(sample.System, 50*time.Millisecond)
	r.env = Env{Log: r.book, Sampler: sampler, Orphans: r.orphans, RunDir: dir, Version: testVersion, Timing: quick}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { sampler.Run(ctx) })
	running.Go(func() { r.orphans.Run(ctx) })
	until(t, "the sampler has opened what it keeps open", func() bool { return sampler.Progress() > 0 })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			for _, l := range r.book.Tail("", 200) {
				t.Log(l.Worker, l.PID, l.Level, l.Stream, l.Message, l.Fields)
			}
		}
		r.book.Close()
		left, _ := os.ReadDir(dir)
		for _, e := range left {
			t.Errorf("left in the run directory: %s", e.Name())
		}
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *rig) hooks() Hooks {
	return Hooks{
		Register: func(s *grpc.Server) { hostv1.RegisterConfigServer(s, &configService{rig: r}) },
		Up: func(ipc.Identity, grpc.ClientConnInterface) func() {
			r.mu.Lock()
			r.ups++
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				r.downs++
				r.mu.Unlock()
			}
		},
		Event: func(e store.Event) {
			r.mu.Lock()
			r.events = append(r.events, e)
			close(r.change)
			r.change = make(chan struct{})
			r.mu.Unlock()
		},
	}
}

type configService struct {
	hostv1.UnimplementedConfigServer
	rig *rig
}

func (c *configService) Secret(ctx context.Context, _ *hostv1.SecretRequest) (*hostv1.SecretResponse, error) {
	id, _ := ipc.IdentityFrom(ctx)
	c.rig.mu.Lock()
	c.rig.calls = append(c.rig.calls, id)
	c.rig.mu.Unlock()
	return &hostv1.SecretResponse{}, nil
}

// spec returns a worker with a fault.
func spec(fault ...string) Spec {
	return Spec{
		Name: "worker-1", Role: ipc.RoleTools, Path: testBinary, Args: fault, Secrets: []string{"TEST_SECRET"},
		Limits: Limits{FDs: 512}, Drain: time.Second, HealthInterval: 100 * time.Millisecond,
	}
}

// A living worker is one whose Run runs.
type living struct {
	*Worker
	rig  *rig
	stop context.CancelFunc
	over chan struct{}
}

// live lets a worker live until the test's end.
func (r *rig) live(s Spec) *living {
	ctx, cancel := context.WithCancel(context.Background())
	l := &living{Worker: New(s, r.hooks(), r.env), rig: r, stop: cancel, over: make(chan struct{})}
	go func() {
		defer close(l.over)
		l.Run(ctx)
	}()
	r.t.Cleanup(l.end)
	return l
}

func (l *living) end() {
	l.stop()
	<-l.over
}

// patience bounds waits for what must come; only a broken test runs into it.
const patience = 60 * time.Second

// await waits for an event of a kind after the first n and returns it with the count to go on from.
func (r *rig) await(n int, kind string) (store.Event, int) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		for i := n; i < len(r.events); i++ {
			if r.events[i].Kind == kind {
				e := r.events[i]
				r.mu.Unlock()
				return e, i + 1
			}
		}
		change := r.change
		r.mu.Unlock()
		select {
		case <-change:
		case <-deadline:
			r.t.Fatalf("no event %s; there were %v", kind, r.kinds())
		}
	}
}

func (r *rig) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.events {
		out = append(out, e.Kind)
	}
	return out
}

// awaitReady waits for the first ready.
func (l *living) awaitReady() {
	l.rig.t.Helper()
	select {
	case <-l.Ready():
	case <-time.After(patience):
		l.rig.t.Fatalf("not ready: %v", l.Status())
	}
}

// until polls, for what no event tells.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// counts are what must be the same after as before.
type counts struct{ fds, goroutines int }

func measure(t testing.TB) counts {
	t.Helper()
	n, err := sample.System.FDs(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return counts{int(n), runtime.NumGoroutine()}
}

// settles waits until the counts are within two of before: goroutines that end need a moment to be gone.
func settles(t *testing.T, before counts) {
	t.Helper()
	var now counts
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		now = measure(t)
		if now.fds <= before.fds+2 && now.goroutines <= before.goroutines+2 {
			return
		}
	}
	buf := make([]byte, 1<<20)
	t.Fatalf("before %+v, after %+v\n%s", before, now, buf[:runtime.Stack(buf, true)])
}

// children returns the live and the dead children of this process.
func children(t testing.TB) (alive, zombies []sample.Stat) {
	t.Helper()
	table, err := sample.System.Table()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range table.Children(os.Getpid()) {
		if table[pid].Zombie() {
			zombies = append(zombies, table[pid])
		} else {
			alive = append(alive, table[pid])
		}
	}
	return alive, zombies
}

// marked returns the processes that bear the mark of a run directory.
func marked(t testing.TB, runDir string) []int {
	t.Helper()
	table, err := sample.System.Table()
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for pid := range table {
		env, err := sample.System.Environ(pid)
		if m, ok := markOf(env); err == nil && ok && m.home == homeOf(runDir) {
			out = append(out, pid)
		}
	}
	return out
}

// said returns the messages of a worker.
func (r *rig) said(worker string) string {
	var b strings.Builder
	for _, l := range r.book.Tail(worker, 5000) {
		b.WriteString(l.Message)
		for _, f := range l.Fields {
			b.WriteString(" " + f.Key + "=" + f.Value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// field returns a field of the first line with a message.
func (r *rig) field(worker, message, key string) string {
	r.t.Helper()
	var value string
	until(r.t, "line "+message, func() bool {
		for _, l := range r.book.Tail(worker, 5000) {
			if i := slices.IndexFunc(l.Fields, func(f logs.Field) bool { return f.Key == key }); l.Message == message && i >= 0 {
				value = l.Fields[i].Value
				return true
			}
		}
		return false
	})
	return value
}
