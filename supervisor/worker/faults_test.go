package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// superviseForEver is the helper process of TestNoWorkerOutlivesItsSupervisor: a supervisor with three workers, one of
// them with a child.
func superviseForEver(dir string) {
	if _, err := Prepare(); err != nil {
		fmt.Println(err)
		return
	}
	book := logs.NewBook(logs.Options{})
	orphans := NewOrphans(dir, book.Logger())
	sampler := sample.NewSampler(sample.System, 0)
	ctx := context.Background()
	go sampler.Run(ctx)
	go orphans.Run(ctx)
	for i, fault := range []string{"", "grandchild", ""} {
		s := Spec{Name: "w" + strconv.Itoa(i), Role: "tools", Path: os.Getenv("TEST_BINARY"), Args: []string{fault}}
		w := New(s, Hooks{}, Env{Log: book, Sampler: sampler, Orphans: orphans, RunDir: dir, Version: testVersion})
		go w.Run(ctx)
		<-w.Ready()
	}
	fmt.Println("ready")
	select {}
}

func TestNoWorkerOutlivesItsSupervisor(t *testing.T) {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TEST_SUPERVISOR="+dir, "TEST_BINARY="+testBinary)
	// A session of its own, as a service has. Only then does the kernel end the frozen worker: it wakes a stopped group
	// that has lost its last parent within the session, with a SIGHUP in front.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, _ := out.Read(buf)
	if got := strings.TrimSpace(string(buf[:n])); got != "ready" {
		t.Fatalf("the helper says %q", got)
	}
	workers := slices.DeleteFunc(marked(t, dir), func(pid int) bool { return comm(pid) != "testworker-"+testVersion[:4] })
	if len(workers) != 3 {
		t.Fatalf("%d workers run: %v", len(workers), workers)
	}
	// One of them is frozen: it can do nothing about it.
	_ = syscall.Kill(workers[0], syscall.SIGSTOP)
	until(t, "all of its threads have stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", workers[0]))
		return !slices.ContainsFunc(threads, func(path string) bool {
			data, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(data), ") T ")
		})
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	killed := time.Now()
	until(t, "all workers end", func() bool {
		return !slices.ContainsFunc(marked(t, dir), func(pid int) bool { return slices.Contains(workers, pid) })
	})

	t.Logf("the last worker was gone %s after its supervisor", time.Since(killed).Round(time.Millisecond))

	// What the workers left behind is found by the next supervisor of the home, with the sockets.
	o := NewOrphans(dir, logs.NewBook(logs.Options{}).Logger())
	if _, err := o.EndLeftovers(); err != nil {
		t.Fatal(err)
	}
	until(t, "leftovers end", func() bool { o.reap(); return len(marked(t, dir)) == 0 })
	if n, err := CleanRunDir(dir); err != nil || n != 3 {
		t.Errorf("%d socket folders removed, %v", n, err)
	}
}

func comm(pid int) string {
	s, _ := sample.System.Stat(pid)
	return s.Comm
}

func TestWhatAWorkerLeavesBehindEndsWithIt(t *testing.T) {
	for _, fault := range []string{"grandchild", "setsid", "setsid-stderr", "unmarked", "stubborn-group"} {
		t.Run(fault, func(t *testing.T) {
			r := newRig(t)
			before := measure(t)
			w := r.live(spec(fault))
			w.awaitReady()
			worker := w.PID()
			var below []int
			until(t, "there is something below the worker", func() bool {
				below, _ = sample.System.Descendants(worker)
				return len(below) > 0
			})
			_ = syscall.Kill(worker, syscall.SIGKILL)
			exit, _ := r.await(0, KindExited)
			if exit.PID != worker {
				t.Fatalf("exit: %+v", exit)
			}
			for _, pid := range below {
				if _, err := sample.System.Stat(pid); err == nil {
					t.Errorf("%s (%d) lives on after its worker", comm(pid), pid)
				}
			}
			w.end()
			settles(t, before)
		})
	}
}

func TestOrphansAreReapedWhileTheirWorkerLives(t *testing.T) {
	r := newRig(t)
	w := r.live(spec("drip"))
	w.awaitReady()
	// A child of ours that is waited for late: its exit code must not be stolen.
	cmd := exec.Command("sh", "-c", "exit 5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "only our own child is left dead", func() bool {
		alive, zombies := children(t)
		return len(zombies) == 1 && zombies[0].PID == cmd.Process.Pid && len(alive) == 1
	})
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code of our own child: %d", code)
	}
}

// Whoever reaps orphans must not take the exit code of a child that somebody waits for.
func TestNoExitCodeIsLostWhileOrphansAreReaped(t *testing.T) {
	newRig(t)
	numbers := make(chan int)
	var waiting sync.WaitGroup
	for range 8 {
		waiting.Go(func() {
			for n := range numbers {
				cmd := exec.Command("sh", "-c", fmt.Sprintf("sleep 0.01 & exit %d", n%100))
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				err := cmd.Run()
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != n%100 {
					t.Errorf("child %d: %v", n, err)
				}
			}
		})
	}
	most := 1000
	if testing.Short() {
		most = 200
	}
	for n := range most {
		numbers <- n
	}
	close(numbers)
	waiting.Wait()
	until(t, "all orphans are reaped", func() bool { alive, zombies := children(t); return len(alive)+len(zombies) == 0 })
}

func TestOutputCannotHurt(t *testing.T) {
	for fault, want := range map[string][]string{
		"bad-json":  {`{"@message":1}`, `{"@level":null,"@message":{}}`, "good"},
		"long-line": {"after the long line", "more bytes)"},
		"prints":    {"printed after the handshake"},
	} {
		t.Run(fault, func(t *testing.T) {
			r := newRig(t)
			w := r.live(spec(fault))
			w.awaitReady()
			for _, text := range want {
				until(t, "the log says "+text, func() bool { return strings.Contains(r.said("worker-1"), text) })
			}
			if s := w.Status(); s.Restarts != 0 {
				t.Errorf("status: %v", s)
			}
		})
	}
}

func TestFloodIsDroppedAndCounted(t *testing.T) {
	r := newRig(t)
	w := r.live(spec("flood"))
	w.awaitReady()
	until(t, "lines are dropped", func() bool { return w.Status().LogLinesDropped > 250_000 })
	until(t, "the loss is said", func() bool { return strings.Contains(r.said("worker-1"), "dropped ") })
	// It still answers.
	until(t, "a health check", func() bool { return w.look().health.progress == 0 && w.State() == Ready })
	if w.Status().Restarts != 0 {
		t.Error("restarted")
	}
}

// What a process prints last is why it died, however busy the machine is that reads it.
func TestTheLastWordsAreReadHoweverLongItTakes(t *testing.T) {
	r := newRig(t)
	r.env.Log = logs.NewBook(logs.Options{Redact: func(s string) string {
		if strings.HasPrefix(s, "a word") {
			time.Sleep(time.Millisecond) // a reader that gets a tenth of a processor
		}
		return s
	}})
	t.Cleanup(r.env.Log.Close)
	r.live(spec("talks-and-dies"))
	exit, _ := r.await(0, KindExited)
	if exit.Fields["cause"] != CauseCrashed || exit.Message != "panic: the sky is falling" {
		t.Errorf("it died by %s: %s; its last lines were\n%s", exit.Fields["cause"], exit.Message, exit.Fields["log"])
	}
}

// A terminal takes what its processes type for it: nothing that is not trusted may have one.
func TestAPluginHasASessionOfItsOwn(t *testing.T) {
	r := newRig(t)
	s := spec()
	s.Role = ipc.RolePlugin
	w := r.live(s)
	w.awaitReady()
	if st, err := sample.System.Stat(w.PID()); err != nil || st.Session != w.PID() || st.PGRP != w.PID() {
		t.Errorf("process %d is in session %d and group %d: %v", w.PID(), st.Session, st.PGRP, err)
	}
}

func TestWorkerSeesOnlyWhatItIsGiven(t *testing.T) {
	t.Setenv("HERMES_TEST_SECRET", "not for workers")
	t.Setenv("NOTIFY_SOCKET", "/run/nobody")
	t.Setenv("LC_TIME", "C")
	// A descriptor without close-on-exec, as an inherited one.
	f, err := os.CreateTemp(t.TempDir(), "supervisors-own")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Prepare(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	s := spec()
	s.Env = []string{"SPECIAL=yes", "TZ=Asia/Tokyo"}
	s.Limits = Limits{FDs: 256, Memory: 100 << 20}
	w := r.live(s)
	w.awaitReady()

	var fds, env, childLimits []string
	for key, into := range map[string]*[]string{"fds": &fds, "env": &env, "child_limits": &childLimits} {
		if err := json.Unmarshal([]byte(r.field("worker-1", "report", key)), into); err != nil {
			t.Fatal(err)
		}
	}
	for _, fd := range fds {
		number, target, _ := strings.Cut(fd, "=")
		n, _ := strconv.Atoi(number)
		own := strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "anon_inode:") ||
			strings.HasPrefix(target, "/sys/fs/cgroup/") || strings.HasPrefix(target, "/proc/")
		if n > livenessFD && !own || n == 0 && target != "/dev/null" || n > 0 && n <= livenessFD && !strings.HasPrefix(target, "pipe:") {
			t.Errorf("descriptor %s", fd)
		}
	}
	for _, v := range []string{"SPECIAL=yes", "LC_TIME=C", "GOMEMLIMIT=94371840", "HERMES_LIVENESS_FD=3"} {
		if !slices.Contains(env, v) {
			t.Errorf("environment lacks %s", v)
		}
	}
	for _, v := range env {
		if strings.Contains(v, "not for workers") || strings.HasPrefix(v, "NOTIFY_SOCKET") {
			t.Errorf("environment has %s", v)
		}
	}
	if soft, hard := r.field("worker-1", "report", "soft"), r.field("worker-1", "report", "hard"); soft != "256" || hard != "256" {
		t.Errorf("limits of open files: %s, %s", soft, hard)
	}
	if !slices.Equal(childLimits, []string{"256", "256"}) {
		t.Errorf("limits of a worker's child: %v", childLimits)
	}
}

func TestCrashesLeaveNothingBehind(t *testing.T) {
	cycles := 200
	if testing.Short() {
		cycles = 30
	}
	r := newRig(t)
	s := spec()
	s.Policy = Policy{Base: time.Nanosecond, MaxDelay: time.Nanosecond, Burst: 1 << 30}
	w := r.live(s)
	w.awaitReady()
	before, heap := measure(t), heapInUse()
	var zombies atomic.Int64
	since := map[int]time.Time{}
	stop, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			// A leader whose threads still end looks like a zombie and cannot be waited for yet, for as long as a busy
			// machine lets them wait. One that stays was forgotten.
			_, dead := children(t)
			for _, z := range dead {
				if since[z.PID].IsZero() {
					since[z.PID] = time.Now()
				}
				if d := time.Since(since[z.PID]); d > time.Second {
					zombies.Add(1)
				}
			}
		}
	}()
	n := 0
	for range cycles {
		_ = syscall.Kill(w.PID(), syscall.SIGKILL)
		_, n = r.await(n, KindExited)
		_, n = r.await(n, kindReady)
	}
	close(stop)
	<-sampled
	if z := zombies.Load(); z > 0 {
		t.Errorf("zombies at %d samples", z)
	}
	settles(t, before)
	if grown := heapInUse() - heap; grown > 10<<20 {
		t.Errorf("the heap has grown by %d KiB", grown>>10)
	}
	if got := w.Status().Restarts; got < int64(cycles) {
		t.Errorf("%d restarts", got)
	}
	dirs, _ := filepath.Glob(r.runDir + "/*")
	if len(dirs) > 2 {
		t.Errorf("%d socket folders", len(dirs))
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestOrphansAreToldFromOurOwnWithoutPidfds(t *testing.T) {
	r := newRig(t)
	o := NewOrphans(r.runDir, r.book.Logger())
	o.pids = false
	cmd := exec.Command("sh", "-c", "exit 5") // in our group
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "our child has ended", func() bool { _, z := children(t); return len(z) == 1 })
	o.reap()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code of our own child: %v", err)
	}
}

func TestDeathBetweenHandshakeAndConnectionLeavesNothing(t *testing.T) {
	for _, after := range []string{"0s", "1ms", "3ms", "10ms"} {
		t.Run(after, func(t *testing.T) {
			r := newRig(t)
			before := measure(t)
			s := spec("dies-after-handshake", after)
			s.Policy = Policy{Base: time.Nanosecond, MaxDelay: time.Nanosecond, Burst: 10, SlowLane: []time.Duration{time.Hour}}
			w := r.live(s)
			until(t, "slow lane", func() bool { return w.State() == Failed })
			w.end()
			settles(t, before)
		})
	}
}

func TestDeathAtAnyMomentOfAStartLeavesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	cycles := 100
	if testing.Short() {
		cycles = 30
	}
	r := newRig(t)
	before := measure(t)
	s := spec()
	s.Policy = Policy{Base: time.Nanosecond, MaxDelay: time.Nanosecond, Burst: 1 << 30}
	w := r.live(s)
	n := 0
	for range cycles {
		var started store.Event
		started, n = r.await(n, kindStarted)
		time.Sleep(time.Duration(rnd.IntN(120)) * time.Millisecond)
		_ = syscall.Kill(started.PID, syscall.SIGKILL)
	}
	r.await(n, kindReady)
	w.end()
	settles(t, before)
}

func TestFailedStartsLeaveNothing(t *testing.T) {
	r := newRig(t)
	s := spec()
	path := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(path, []byte("\x7fELF"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.Path = path
	l := &launcher{spec: s, hooks: r.hooks(), env: r.env, log: r.book.Logger()}
	l.env.Timing = l.env.Timing.orDefault()
	before := measure(t)
	for i := range uint64(1000) {
		b, _, err := l.launch(context.Background(), i, func(int) {})
		if err == nil {
			t.Fatal("started")
		}
		b.tidy()
	}
	// The sampler may have one open at the moment that they are counted.
	until(t, "as many descriptors as before", func() bool { return measure(t).fds == before.fds })
	settles(t, before)
}

func TestStartCanBeBrokenOff(t *testing.T) {
	r := newRig(t)
	before := measure(t)
	for range 20 {
		w := r.live(spec("silent"))
		r.await(0, kindStarted)
		if err := w.Stop(context.Background(), "a test"); err != nil {
			t.Fatal(err)
		}
		w.end()
		w = r.live(spec())
		w.end() // at whatever point its start is
	}
	settles(t, before)
}

func TestPlainPluginIsServedWithoutMultiplexing(t *testing.T) {
	r := newRig(t)
	before := measure(t)
	s := spec()
	s.Plain = true
	w := r.live(s)
	w.awaitReady()
	n := 0
	for range 3 {
		_ = syscall.Kill(w.PID(), syscall.SIGKILL)
		_, n = r.await(n, KindExited)
		_, n = r.await(n, kindReady)
	}
	w.end()
	settles(t, before)
}
