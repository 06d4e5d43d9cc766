package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// A ghost is a process that is none, for tests of a worker's life in the time of a synctest bubble.
type ghost struct {
	mu        sync.Mutex
	answers   bool          // its health checks
	progress  uint64        // grows with each
	drains    time.Duration // how long its drain takes
	immortal  bool
	ends      chan struct{}
	once      sync.Once
	endedFrom []action
	tidied    bool
	planned   bool // its end was announced
	start     time.Time
}

func (g *ghost) die() { g.once.Do(func() { close(g.ends) }) }

func (g *ghost) id() int                { return 1 }
func (g *ghost) up(h Hooks) func()      { return h.Up(ipc.Identity{}, nil) }
func (g *ghost) reaped() bool           { return false }
func (g *ghost) done() <-chan struct{}  { return g.ends }
func (g *ghost) exit() Exit             { return Exit{PID: 1, Code: 1} }
func (g *ghost) unended() Exit          { return Exit{PID: 1, Code: -1, Message: "it was not gone"} }
func (g *ghost) series() *sample.Series { return nil }
func (g *ghost) limitKills() uint64     { return 0 }
func (g *ghost) began() time.Time       { return g.start }

func (g *ghost) profile(context.Context, *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	return nil, ipc.ErrRefused
}

func (g *ghost) leaving(Hooks) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.planned = true
}

func (g *ghost) tidy() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tidied = true
}

func (g *ghost) drain(ctx context.Context, _ string) (int, error) {
	select {
	case <-time.After(g.drains):
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-g.ends:
		return 0, ipc.ErrGone
	}
}

func (g *ghost) health(ctx context.Context) (health, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.answers {
		g.mu.Unlock()
		<-ctx.Done()
		g.mu.Lock()
		return health{}, ctx.Err()
	}
	g.progress++
	return health{progress: g.progress}, nil
}

func (g *ghost) end(from action) {
	g.mu.Lock()
	g.endedFrom = append(g.endedFrom, from)
	immortal := g.immortal
	g.mu.Unlock()
	if !immortal {
		g.die()
	}
}

// ghosts launches them: each start takes a tenth of a second, and fails while fails says so.
type ghosts struct {
	mu    sync.Mutex
	all   []*ghost
	began int  // how many starts there were
	few   bool // only the last one is remembered
	fails error
	takes time.Duration // to start, 0: a tenth of a second
	shape func(*ghost)
}

func (g *ghosts) launch(ctx context.Context, _ uint64, born func(int)) (body, Exit, error) {
	born(1)
	takes := g.takes
	if takes == 0 {
		takes = 100 * time.Millisecond
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return &ghost{}, Exit{PID: 1}, context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began++
	b := &ghost{answers: true, ends: make(chan struct{}), start: time.Now()}
	if g.fails != nil {
		return b, Exit{PID: 1, Message: g.fails.Error()}, g.fails
	}
	if g.shape != nil {
		g.shape(b)
	}
	if g.few {
		g.all = g.all[:0]
	}
	g.all = append(g.all, b)
	return b, Exit{}, nil
}

func (g *ghosts) warm(ctx context.Context, _ uint64) { <-ctx.Done() }

func (g *ghosts) standby() (int, sample.Sample) { return 0, sample.Sample{} }

func (g *ghosts) last() *ghost {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[len(g.all)-1]
}

func (g *ghosts) starts() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.began
}

// A stage is a worker with ghosts for processes.
type stage struct {
	*Worker
	ghosts *ghosts
	end    func()
	mu     sync.Mutex
	events map[string]int                     // by kind
	shown  map[string]*controlv1.WorkerStatus // when the newest of a kind was told
}

// play runs f with a worker in a bubble of virtual time.
func play(t *testing.T, s Spec, shape func(*ghost), f func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		st := &stage{ghosts: &ghosts{shape: shape}, events: map[string]int{}, shown: map[string]*controlv1.WorkerStatus{}}
		book := logs.NewBook(logs.Options{})
		defer book.Close()
		hooks := Hooks{
			Up: func(ipc.Identity, grpc.ClientConnInterface) func() { return func() {} },
			Event: func(e store.Event) {
				st.mu.Lock()
				st.events[e.Kind]++
				st.shown[e.Kind] = st.Status()
				st.mu.Unlock()
			},
		}
		st.Worker = New(s, hooks, Env{Log: book})
		st.launcher, st.jitter = st.ghosts, func() float64 { return 0.5 }
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() {
			defer close(over)
			st.Run(ctx)
		}()
		st.end = func() {
			cancel()
			<-over
		}
		defer st.end()
		time.Sleep(time.Second)
		synctest.Wait()
		f(t, st)
	})
}

func (s *stage) happened(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[kind]
}

// Who is told of something looks at the worker to know more, and must not see it as it was before.
func TestWhoIsToldOfAnEventSeesTheWorkerAfterIt(t *testing.T) {
	s := Spec{Name: "w", Policy: Policy{Burst: 1, MaxDelay: time.Millisecond}}
	play(t, s, nil, func(t *testing.T, s *stage) {
		s.ghosts.mu.Lock()
		s.ghosts.fails = errors.New("no luck")
		s.ghosts.mu.Unlock()
		if st := s.shown[kindReady]; st.State != string(Ready) {
			t.Errorf("when it serves it is %s", st.State)
		}
		s.ghosts.last().die()
		for s.happened(KindDegraded) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		for kind, want := range map[string]State{KindFailed: Degraded, kindRestarting: Degraded, KindDegraded: Degraded} {
			if st := s.shown[kind]; st.State != string(want) || !strings.HasPrefix(st.Detail, "no luck") {
				t.Errorf("at %s it is %s: %q", kind, st.State, st.Detail)
			}
		}
	})
}

func TestThreeMissedChecksMakeAWorkerFrozen(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		g := s.ghosts.last()
		g.mu.Lock()
		g.answers = false
		g.mu.Unlock()
		began := time.Now()
		for s.happened(kindHung) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		// The next check comes within 2 s, each is missed after 1 s, the second and third come at the next tick.
		if d := time.Since(began); d < 5*time.Second || d > 9*time.Second {
			t.Errorf("found after %s", d)
		}
		time.Sleep(time.Second)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.endedFrom[0] != doQuit || s.State() != Ready || s.ghosts.starts() != 2 || !g.tidied {
			t.Errorf("ended from %v, %s, %d starts, tidied %v", g.endedFrom, s.State(), s.ghosts.starts(), g.tidied)
		}
	})
}

func TestOneMissedCheckIsForgiven(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		g := s.ghosts.last()
		for range 10 {
			for _, answers := range []bool{false, true} {
				g.mu.Lock()
				g.answers = answers
				g.mu.Unlock()
				time.Sleep(4 * time.Second)
			}
		}
		if s.happened(kindHung) > 0 || s.ghosts.starts() != 1 {
			t.Error("a worker that answers every other time was ended")
		}
	})
}

func TestCrashLoopIsSlowedDownAndEarnsItsBudgetBack(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		for s.State() != Degraded {
			if s.State() == Ready {
				s.ghosts.last().die()
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := s.ghosts.starts(); n != 6 {
			t.Errorf("%d starts before the slow lane", n)
		}
		st := s.Status()
		if st.NextStartSeconds < 55 || st.NextStartSeconds > 66 || st.Detail == "" {
			t.Errorf("status: %v", st)
		}
		time.Sleep(70 * time.Second)
		if s.State() != Ready || s.Status().Detail == "" {
			t.Errorf("after the slow lane: %v", s.Status())
		}
		// It has work, so each minute halves what is held against it.
		time.Sleep(4 * time.Minute)
		if s.happened(kindRecovered) != 1 || s.Status().Detail != "" {
			t.Errorf("not recovered: %v", s.Status())
		}
		s.ghosts.last().die()
		time.Sleep(200 * time.Millisecond)
		if s.State() != Ready {
			t.Errorf("the first death after a stable run: %s", s.State())
		}
	})
}

func TestFailedStartsAreSlowedDownToo(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		s.ghosts.mu.Lock()
		s.ghosts.fails = errors.New("no bread")
		s.ghosts.mu.Unlock()
		s.ghosts.last().die()
		time.Sleep(time.Minute)
		if n := s.ghosts.starts(); n != 6 || s.State() != Degraded || s.happened(KindDegraded) != 1 {
			t.Errorf("%d starts, %s", n, s.State())
		}
		time.Sleep(time.Hour)
		if n := s.ghosts.starts(); n < 14 || n > 20 {
			t.Errorf("%d starts in an hour", n)
		}
		s.ghosts.mu.Lock()
		s.ghosts.fails = nil
		s.ghosts.mu.Unlock()
		if err := s.Start(context.Background(), "a test"); err != nil || s.State() != Ready {
			t.Errorf("start by hand: %v, %s", err, s.State())
		}
	})
}

func TestVerbsAnswerWhenTheStartFails(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		s.ghosts.mu.Lock()
		s.ghosts.fails = errHopeless
		s.ghosts.mu.Unlock()
		if err := s.Restart(context.Background(), "a test"); err == nil {
			t.Error("a restart that failed was reported as done")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := s.Restart(ctx, "a test"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("restart within a millisecond: %v", err)
		}
	})
}

func TestDrainIsCutAtItsBudget(t *testing.T) {
	slow := func(g *ghost) { g.drains = time.Hour }
	play(t, Spec{Name: "w", Drain: 7 * time.Second}, slow, func(t *testing.T, s *stage) {
		began := time.Now()
		if err := s.Stop(context.Background(), "a test"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 7*time.Second {
			t.Errorf("stopped after %s", d)
		}
		if g := s.ghosts.last(); g.endedFrom[0] != doTerm {
			t.Errorf("ended from %v", g.endedFrom)
		}
	})
}

func TestWithoutADrainBudgetWorkIsCut(t *testing.T) {
	slow := func(g *ghost) { g.drains = time.Hour }
	play(t, Spec{Name: "w"}, slow, func(t *testing.T, s *stage) {
		began := time.Now()
		if err := s.Stop(context.Background(), "a test"); err != nil || time.Since(began) != 0 {
			t.Errorf("stopped after %s: %v", time.Since(began), err)
		}
	})
}

func TestTwoRestartsAtOnceAreOne(t *testing.T) {
	slow := func(g *ghost) { g.drains = time.Second }
	play(t, Spec{Name: "w", Drain: time.Minute}, slow, func(t *testing.T, s *stage) {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := s.Restart(context.Background(), "a test"); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if n := s.ghosts.starts(); n != 2 {
			t.Errorf("%d starts", n)
		}
	})
}

func TestAStopDuringARestartWins(t *testing.T) {
	slow := func(g *ghost) { g.drains = 10 * time.Second }
	play(t, Spec{Name: "w", Drain: time.Minute}, slow, func(t *testing.T, s *stage) {
		restarted := make(chan error, 1)
		go func() { restarted <- s.Restart(context.Background(), "a test") }()
		time.Sleep(time.Second)
		if err := s.Stop(context.Background(), "a test"); err != nil || s.State() != Disabled {
			t.Errorf("stop: %v, %s", err, s.State())
		}
		if err := <-restarted; !errors.Is(err, ipc.ErrRefused) {
			t.Errorf("restart: %v", err)
		}
	})
}

func TestAProcessThatDoesNotEndHoldsNobodyUp(t *testing.T) {
	immortal := func(g *ghost) { g.immortal = true }
	play(t, Spec{Name: "w"}, immortal, func(t *testing.T, s *stage) {
		if err := s.Restart(context.Background(), "a test"); err != nil || s.ghosts.starts() != 2 {
			t.Errorf("restart: %v, %d starts", err, s.ghosts.starts())
		}
		s.end()
		for _, g := range s.ghosts.all {
			g.die()
		}
		// It was slow, not immortal: nothing of it is kept for ever.
		synctest.Wait()
		for i, g := range s.ghosts.all {
			if g.mu.Lock(); !g.tidied {
				t.Errorf("process %d ended after it was given up, and what belonged to it is kept", i+1)
			}
			g.mu.Unlock()
		}
	})
}

func TestEndWhileAStartIsUnderWay(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		s.ghosts.last().die()
		time.Sleep(50 * time.Millisecond)
		if s.State() != Starting {
			t.Fatalf("%s", s.State())
		}
		began := time.Now()
		s.end()
		if s.State() != Exited || time.Since(began) > time.Millisecond {
			t.Errorf("%s after %s", s.State(), time.Since(began))
		}
	})
}
