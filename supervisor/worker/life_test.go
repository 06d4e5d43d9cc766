package worker

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

func TestWorkerServesAndStops(t *testing.T) {
	r := newRig(t)
	before := measure(t)
	w := r.live(spec())
	w.awaitReady()
	s := w.Status()
	if s.State != "ready" || s.Pid == 0 || s.Fds == 0 || s.FdLimit != 512 || s.RssBytes == 0 || s.LastExit != nil {
		t.Errorf("status of a worker that serves: %v", s)
	}
	r.mu.Lock()
	calls := r.calls
	r.mu.Unlock()
	if len(calls) != 1 || calls[0].Worker != "worker-1" || calls[0].Role != ipc.RoleTools || calls[0].Incarnation != 1 {
		t.Errorf("the worker called as %+v", calls)
	}
	if err := w.Stop(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	s = w.Status()
	if s.State != "disabled" || s.Pid != 0 || s.LastExit.GetCause() != CauseOperator {
		t.Errorf("status of a worker that was stopped: %v", s)
	}
	w.end()
	settles(t, before)
}

func TestOperatorVerbs(t *testing.T) {
	r := newRig(t)
	w := r.live(spec())
	w.awaitReady()
	ctx := context.Background()
	first := w.PID()
	if err := w.Start(ctx, "a test"); err != nil || w.PID() != first {
		t.Errorf("start of a worker that serves: %v, pid %d → %d", err, first, w.PID())
	}
	if err := w.Restart(ctx, "a test"); err != nil {
		t.Fatal(err)
	}
	second := w.PID()
	if second == first || second == 0 || w.Status().Restarts != 1 {
		t.Errorf("restart: pid %d → %d, status %v", first, second, w.Status())
	}
	if err := w.Stop(ctx, "a test"); err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(ctx, "a test"); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if err := w.Start(ctx, "a test"); err != nil || w.State() != Ready {
		t.Errorf("start after stop: %v, %v", err, w.State())
	}
	r.mu.Lock()
	ups, downs := r.ups, r.downs
	r.mu.Unlock()
	if ups != 3 || downs != 2 {
		t.Errorf("up was called %d times and down %d times", ups, downs)
	}
	w.end()
	if err := w.Restart(ctx, "a test"); !errors.Is(err, ipc.ErrGone) {
		t.Errorf("restart after the end: %v", err)
	}
}

func TestKilledWorkerIsReplacedAtOnce(t *testing.T) {
	r := newRig(t)
	w := r.live(spec())
	w.awaitReady()
	first := w.PID()
	_ = syscall.Kill(first, syscall.SIGKILL)
	exit, n := r.await(0, KindExited)
	if exit.Fields["cause"] != CauseKilled || exit.Fields["signal"] != "SIGKILL" || exit.PID != first || exit.Fields["rss_bytes"] == "0" {
		t.Errorf("exit: %+v", exit)
	}
	next, n := r.await(n, kindRestarting)
	if next.Fields["delay"] != "0s" {
		t.Errorf("restart: %+v", next)
	}
	r.await(n, kindReady)
	if w.PID() == first {
		t.Error("same pid after a restart")
	}
}

func TestDeathsHaveCauses(t *testing.T) {
	for _, c := range []struct {
		fault         string
		cause, saying string
	}{
		{"panic", CauseCrashed, "panic: the sky is falling"},
		{"exit-0", CauseCrashed, "ended with code 0"},
		{"cut-off", CauseCrashed, "the connection to the host services has ended while the supervisor lives"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			r := newRig(t)
			w := r.live(spec(c.fault))
			exit, _ := r.await(0, KindExited)
			if exit.Fields["cause"] != c.cause || !strings.Contains(exit.Message+"\n"+exit.Fields["log"], c.saying) {
				t.Errorf("exit: %+v", exit)
			}
			w.end()
		})
	}
}

func TestFailedStartsSayWhy(t *testing.T) {
	notExecutable := t.TempDir() + "/worker"
	if err := os.WriteFile(notExecutable, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	noProgram := t.TempDir() + "/worker"
	if err := os.WriteFile(noProgram, []byte("\x7fELF but not really"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change   func(*Spec)
		saying   []string
		hopeless bool
	}{
		"missing":        {func(s *Spec) { s.Path = "/nowhere/worker" }, []string{"/nowhere/worker is missing"}, true},
		"folder":         {func(s *Spec) { s.Path = "/usr" }, []string{"is a folder"}, true},
		"not executable": {func(s *Spec) { s.Path = notExecutable }, []string{"not executable", "chmod +x"}, true},
		"no program":     {func(s *Spec) { s.Path = noProgram }, []string{"exec format error"}, true},
		"no such folder": {func(s *Spec) { s.Dir = "/nowhere" }, []string{"/nowhere is not a folder"}, true},
		"other version":  {func(s *Spec) { s.Path = otherBinary }, []string{"v9.9.9-other", testVersion, "install both from one build"}, true},
		"other role":     {func(s *Spec) { s.Role = ipc.RoleAgent }, []string{`serves the role "tools", not "agent"`}, true},
		"other protocol": {func(s *Spec) { s.Args = []string{"old-protocol"} }, []string{"protocol 7", "speaks 1"}, true},
		"exits":          {func(s *Spec) { s.Args = []string{"exit"} }, []string{"ended before its handshake", "code 3", "cannot read the list of wishes"}, false},
		"babbles":        {func(s *Spec) { s.Args = []string{"babble"} }, []string{"no handshake in the first 64 lines", `"line 0"`}, false},
		"closes stdout":  {func(s *Spec) { s.Args = []string{"close-stdout"} }, []string{"it closed its stdout before its handshake"}, false},
		"lies":           {func(s *Spec) { s.Args = []string{"liar"} }, []string{"/run/somebody-elses-socket", "not in its own folder"}, false},
		"no mutual TLS":  {func(s *Spec) { s.Args = []string{"other-language"} }, []string{"names no certificate", "plain: true"}, true},
		"refuses":        {func(s *Spec) { s.Args, s.Config = []string{"refuse"}, []byte(`{"a":1}`) }, []string{"the door is shut", `{"a":1}`}, false},
		"other program":  {func(s *Spec) { s.Path, s.Args = "/bin/sh", []string{"-c", "exit 7"} }, []string{"ended before its handshake", "code 7"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			before := measure(t)
			s := spec()
			c.change(&s)
			s.Policy = Policy{Burst: 1, Window: time.Hour} // the second failure leads to the slow lane
			w := r.live(s)
			waits := map[bool]State{true: Failed, false: Degraded}[c.hopeless]
			until(t, "waits", func() bool { return w.State() == waits })
			st := w.Status()
			for _, text := range c.saying {
				if !strings.Contains(st.Detail, text) {
					t.Errorf("detail %q does not say %q", st.Detail, text)
				}
			}
			if st.LastExit.Cause != CauseStartFailed || st.NextStartSeconds < 50 || strings.Contains(st.LastExit.Message, errHopeless.Error()) {
				t.Errorf("status: %v", st)
			}
			if c.hopeless == slices.Contains(r.kinds(), KindDegraded) {
				t.Errorf("events %v of a worker that is %s", r.kinds(), st.State)
			}
			if want := map[bool]int64{true: 0, false: 1}[c.hopeless]; st.Restarts != want {
				t.Errorf("%d restarts, want %d", st.Restarts, want)
			}
			w.end()
			settles(t, before)
		})
	}
}

func TestSilentStartIsEndedAtItsLimit(t *testing.T) {
	r := newRig(t)
	r.env.Timing.Start = 300 * time.Millisecond
	s := spec("silent")
	s.Policy = Policy{Burst: 1, Window: time.Hour}
	w := r.live(s)
	until(t, "waits", func() bool { return w.State() == Failed || w.State() == Degraded })
	if d := w.Status().Detail; !strings.Contains(d, "printed no handshake") || !strings.Contains(d, "300ms") {
		t.Errorf("detail: %s", d)
	}
	// Where it hung is in the log.
	if !strings.Contains(r.said("worker-1"), "SIGQUIT: quit") {
		t.Error("no stacks of the worker that hung in its start")
	}
}

func TestHandshakeIsFoundBehindGarbage(t *testing.T) {
	r := newRig(t)
	w := r.live(spec("garbage"))
	w.awaitReady()
	if s := r.said("worker-1"); !strings.Contains(s, "Welcome to the library") || !strings.Contains(s, "1|one|two") {
		t.Errorf("garbage is not in the log: %s", s)
	}
}

func TestFrozenWorkerIsFoundAndReplaced(t *testing.T) {
	r := newRig(t)
	r.env.Timing.Health, r.env.Timing.Misses = 300*time.Millisecond, 3
	w := r.live(spec())
	w.awaitReady()
	first := w.PID()
	_ = syscall.Kill(first, syscall.SIGSTOP)
	_, n := r.await(0, kindHung)
	exit, n := r.await(n, KindExited)
	if exit.Fields["cause"] != CauseHung || exit.PID != first {
		t.Errorf("exit: %+v", exit)
	}
	r.await(n, kindReady)
	if !strings.Contains(r.said("worker-1"), "SIGQUIT: quit") || !strings.Contains(r.said("worker-1"), "goroutine ") {
		t.Error("no stacks of the frozen worker in the log")
	}
}

func TestLadderEndsWhoIgnoresSIGTERMWithItsGroup(t *testing.T) {
	r := newRig(t)
	before := measure(t)
	w := r.live(spec("ignore-term"))
	w.awaitReady()
	if err := w.Stop(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	if m := w.Status().LastExit.Message; !strings.Contains(m, "after SIGTERM, SIGQUIT") {
		t.Errorf("exit does not say what it took: %s", m)
	}
	w.end()

	g := r.live(spec("stubborn-group"))
	g.awaitReady()
	if err := g.Stop(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	if left := marked(t, r.runDir); len(left) > 0 {
		t.Errorf("processes left after a stop: %v", left)
	}
	g.end()
	settles(t, before)
}

func TestFrozenWorkerCanBeStopped(t *testing.T) {
	r := newRig(t)
	r.env.Timing.Misses = 1000 // health must not be what ends it
	s := spec()
	s.Drain = 200 * time.Millisecond
	w := r.live(s)
	w.awaitReady()
	_ = syscall.Kill(w.PID(), syscall.SIGSTOP)
	if err := w.Stop(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
}

func TestDrainHasItsBudget(t *testing.T) {
	r := newRig(t)
	s := spec("slow-drain", "1h")
	s.Drain = 200 * time.Millisecond
	w := r.live(s)
	w.awaitReady()
	if err := w.Restart(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	if e, _ := r.await(0, KindExited); e.Fields["cause"] != CauseOperator {
		t.Errorf("exit: %+v", e)
	}
	w.end()

	s.Args, s.Drain = []string{"slow-drain", "100ms"}, time.Minute
	w = r.live(s)
	w.awaitReady()
	w.end() // returns long before the budget
}
