// Package worker keeps one worker process alive: it starts it, connects to it, watches its health, ends it by a ladder of
// ever firmer means, says why it died, and decides when it is started again.
//
// Rules: one goroutine owns a worker's life (Worker.Run) and never waits for a process, for go-plugin or for a call;
// what can block runs in goroutines that the end of the process sets free. Decisions are values without a clock (machine,
// Policy). After every exit, crash or not, descriptors and goroutines of the supervisor are back where they were.
// What is left behind by a worker ends with it.
package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// A Spec says what a worker is.
type Spec struct {
	Name     string // unique within the supervisor
	Role     string // ipc.Role…
	Platform string // of a gateway
	Path     string // its binary
	Args     []string
	Env      []string // beyond what every worker gets; wins
	Dir      string   // working directory, empty: the supervisor's
	Config   []byte   // JSON for Init
	Secrets  []string // names that it may ask for
	Limits   Limits
	Required bool          // the supervisor is ready only with it
	Drain    time.Duration // how long running work may take to end; 0: it is cut
	Policy   Policy
	Spares   int // 1: a process is kept warm that takes over at a death
	// HealthInterval is the time between health checks. A worker that misses three is frozen. 0: two seconds.
	HealthInterval time.Duration
	// Plain is for plugins in languages whose go-plugin has neither multiplexing nor mutual TLS. The folder of the
	// socket is then all that keeps other processes out.
	Plain bool
	// CgroupEnv is for a program that nobody vouches for: where the kernel allows it, it gets a cgroup of its own, so that
	// nothing that it starts can be missed at its end. The program at Path finds it in this variable and has to go in.
	CgroupEnv string
	// Lazy is for a worker that is started when it is needed (Wake) and may be put to rest meanwhile (Rest).
	Lazy bool
	// Files opens what a process inherits besides the standard streams and the liveness pipe, from descriptor 4 on. It is
	// called at each start; the files are closed here when the process has them. An error is a start that will fail again
	// until a person mends something.
	Files func() ([]*os.File, error)
	// SocketAlias is another name by which the worker may call the folder of its socket in the handshake.
	SocketAlias string
}

// Limits bound a process. 0 is no limit of our own.
type Limits struct {
	FDs uint64 // open files, soft and hard
	// Memory in bytes. The Go runtime of a worker is told to stay a tenth below; the kernel is not asked to enforce it, as
	// a limit on address space breaks Go programs at once.
	//
	// Where the worker has a cgroup of its own, the kernel enforces it as well, a little above.
	Memory int64
	// Processes and threads, of the worker and all below it. 0: any number.
	Processes int
}

// Hooks are where a worker meets the rest of the supervisor. They are called from goroutines of the worker and must not
// block.
type Hooks struct {
	// Register adds the host services to the server that one worker calls. The caller's identity is in the context.
	Register func(s *grpc.Server)
	// Up is called when Init has succeeded. It returns what is called once when the worker takes no more work: as soon as
	// it is to end, while calls that run may still end well, or when it is gone.
	Up func(id ipc.Identity, conn grpc.ClientConnInterface) (down func())
	// Leaving is called before down when the end of the process is planned: what it has in hand is cut by no fault of its
	// own. It may be nil.
	Leaving func(id ipc.Identity)
	// Event gets what belongs into the journal.
	Event func(store.Event)
}

// Env is what all workers of a supervisor share.
type Env struct {
	Log     *logs.Book
	Sampler *sample.Sampler
	Orphans *Orphans
	Busy    func(worker string) bool // whether it has something in hand; nil: it is not known, and taken for yes
	Starts  *Starts                  // nil: any number of workers starts at a time
	// Enforced is what Delegate has found.
	Enforced Enforced
	RunDir   string // where sockets are; CheckRunDir says whether it will do
	Version  string // of the supervisor; a built-in worker must be of the same
	// LastWords is a folder for the last lines of built-in workers whose supervisor is gone; empty: they are lost.
	// A plugin has a folder of its own (Spec.Env).
	LastWords string
	Timing    Timing

	dial []grpc.DialOption // more options of connections to workers; nil but in tests
}

// Timing bounds each step in a worker's life. Zero fields take the value of DefaultTiming.
type Timing struct {
	Start  time.Duration // from exec to a connection
	Dial   time.Duration // of it, from the handshake to a connection
	Init   time.Duration // of the first call
	Health time.Duration // of one health check
	Misses int           // missed checks in a row that make a worker frozen
	Term   time.Duration // from SIGTERM to the end
	Quit   time.Duration // from SIGQUIT, which makes a Go program print its stacks, to the end
	Kill   time.Duration // from SIGKILL until it is not waited for any more
	Tidy   time.Duration // for go-plugin to let go of a process that is gone
}

// DefaultTiming: a worker starts in 60 ms on a quiet machine, and ten seconds are a machine in great distress. Two seconds
// after SIGTERM hold the 0.7 s that a worker may take to end its children; the stacks of a thousand goroutines are written
// in well under a second.
var DefaultTiming = Timing{
	Start: 10 * time.Second, Dial: 5 * time.Second, Init: 10 * time.Second, Health: time.Second, Misses: 3,
	Term: 2 * time.Second, Quit: time.Second, Kill: 5 * time.Second, Tidy: 5 * time.Second,
}

// idleChecks is how many intervals lie between two checks of a worker that has nothing in hand: nobody waits for it, and on an
// idle machine each check wakes all of them and the supervisor. One that is given something, or that the kernel shows as
// stopped, is asked at once (Attend).
const idleChecks = 10

// defaultHealthInterval finds a frozen worker after three checks, in 7 to 9 s.
const defaultHealthInterval = 2 * time.Second

func (t Timing) orDefault() Timing {
	or := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	or(&t.Start, DefaultTiming.Start)
	or(&t.Dial, DefaultTiming.Dial)
	or(&t.Init, DefaultTiming.Init)
	or(&t.Health, DefaultTiming.Health)
	or(&t.Term, DefaultTiming.Term)
	or(&t.Quit, DefaultTiming.Quit)
	or(&t.Kill, DefaultTiming.Kill)
	or(&t.Tidy, DefaultTiming.Tidy)
	if t.Misses <= 0 {
		t.Misses = DefaultTiming.Misses
	}
	return t
}

// A Worker is one supervised process over all its restarts. Its methods are safe for concurrent use.
type Worker struct {
	spec     Spec
	hooks    Hooks
	env      Env
	log      hclog.Logger
	launcher launches

	events chan happening // to the goroutine of Run
	asks   chan ask
	nudges chan intent   // rest and wakeUp, which nobody waits for
	begins chan struct{} // it has something in hand
	gone   chan struct{} // closed when Run has returned
	ready  chan struct{} // closed at the first ready
	once   sync.Once

	jitter func() float64
	past   Past // of the worker whose place it takes

	view atomic.Pointer[view] // what Status shows; nil before Run

	mu     sync.Mutex
	tuning Tuning
}

// launches makes processes; *launcher does, and tests of the life itself have one without processes.
type launches interface {
	// launch returns a process that serves, or one that is gone with the reason. It calls born when there is a process.
	launch(ctx context.Context, incarnation uint64, born func(pid int)) (body, Exit, error)
	// warm keeps a process ready for an incarnation until launch takes it or ctx ends; standby tells of it.
	warm(ctx context.Context, incarnation uint64)
	standby() (pid int, last sample.Sample)
}

// A body is one process of a worker, as the life of a worker sees it.
type body interface {
	id() int
	up(Hooks) (down func())
	drain(ctx context.Context, reason string) (unfinished int, err error)
	health(ctx context.Context) (health, error)
	profile(ctx context.Context, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error)
	end(from action)       // climb the stop ladder; returns when the process is gone or cannot be ended
	done() <-chan struct{} // closed when it is gone
	reaped() bool          // there is no process any more, though its output may still be read: done comes
	exit() Exit            // after done
	unended() Exit         // instead, when it is not waited for any more
	limitKills() uint64    // processes below it that the kernel has ended for its limit of memory
	leaving(Hooks)         // its end is planned; before down
	tidy()                 // let go of everything that belonged to it; after done
	series() *sample.Series
	began() time.Time
}

// health is what a worker says of itself.
type health struct {
	progress uint64
	inFlight uint32
	detail   string
}

// New returns a worker that is not yet alive: Run makes it so.
func New(spec Spec, hooks Hooks, env Env) *Worker {
	env.Timing = env.Timing.orDefault()
	if hooks.Event == nil {
		hooks.Event = func(store.Event) {}
	}
	log := env.Log.Logger().With("worker", spec.Name)
	w := &Worker{
		spec: spec, hooks: hooks, env: env, log: log,
		launcher: &launcher{spec: spec, hooks: hooks, env: env, log: log},
		events:   make(chan happening), asks: make(chan ask), nudges: make(chan intent, nudgesKept), begins: make(chan struct{}, 1),
		gone: make(chan struct{}), ready: make(chan struct{}),
		jitter: rand.Float64,
	}
	w.Tune(spec.Tuning())
	return w
}

// Attend says that the worker has something in hand, or does not run: its health is looked at with the next interval of its
// Spec, and not as seldom as that of an idle one.
func (w *Worker) Attend() {
	select {
	case w.begins <- struct{}{}:
	default:
	}
}

// Tuning is what of a Spec may change while the process runs.
type Tuning struct {
	Policy         Policy
	Drain          time.Duration
	HealthInterval time.Duration
}

// Tuning returns the part of a Spec that Tune takes.
func (s Spec) Tuning() Tuning {
	return Tuning{Policy: s.Policy, Drain: s.Drain, HealthInterval: s.HealthInterval}
}

// Tune changes the restart policy, the drain and the health interval, each from its next use on.
func (w *Worker) Tune(t Tuning) {
	if t.HealthInterval <= 0 {
		t.HealthInterval = defaultHealthInterval
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tuning = t
}

func (w *Worker) tuned() Tuning {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tuning
}

// Name returns the worker's name.
func (w *Worker) Name() string { return w.spec.Name }

// Role returns the worker's role.
func (w *Worker) Role() string { return w.spec.Role }

// Required says whether the supervisor is ready only with this worker.
func (w *Worker) Required() bool { return w.spec.Required }

// Ready is closed when the worker serves for the first time.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Restart ends the worker's process after a drain and returns when a new one serves. A worker that is down is started. by
// says who asks.
func (w *Worker) Restart(ctx context.Context, by string) error {
	return w.ask(ctx, ask{evAsk: evAsk{what: again, by: by}})
}

// Start brings a worker back that is down or waits for its next start, and returns when it serves. It does nothing to one
// that serves.
func (w *Worker) Start(ctx context.Context, by string) error {
	return w.ask(ctx, ask{evAsk: evAsk{what: again, by: by}, onlyDown: true})
}

// Stop ends the worker's process after a drain, keeps it down until Start, and returns when it is gone.
func (w *Worker) Stop(ctx context.Context, by string) error {
	return w.ask(ctx, ask{evAsk: evAsk{what: down, by: by}})
}

// Recycle replaces the process of a worker that serves, for a reason of the supervisor's own: it nears a limit. It drains
// as in a restart, unless that is urgent. It returns when the wish is taken; a worker that does not serve is left alone.
func (w *Worker) Recycle(ctx context.Context, why string, urgent bool) error {
	return w.ask(ctx, ask{evAsk: evAsk{what: recycle, by: BySupervisor, why: why, urgent: urgent}})
}

// BySupervisor is who asks for what no person wanted.
const BySupervisor = "the supervisor"

// EndOver kills the worker's process at once, as it holds more than it may: of memory, or of processes, as cause says. held
// says how much. It returns when the wish is taken.
func (w *Worker) EndOver(ctx context.Context, cause, held string) error {
	return w.ask(ctx, ask{over: evOver{cause, held}})
}

// Hasten cuts the drain of a worker that is ending for good. It returns when the wish is taken.
func (w *Worker) Hasten(ctx context.Context) error {
	return w.ask(ctx, ask{evAsk: evAsk{what: closing, by: BySupervisor, urgent: true}})
}

// An ask is a wish, with the way to answer.
type ask struct {
	evAsk
	over     evOver // not empty: instead
	onlyDown bool   // leave a worker alone that serves or is about to
	answer   chan error
}

func (w *Worker) ask(ctx context.Context, a ask) error {
	a.answer = make(chan error, 1)
	select {
	case w.asks <- a:
	case <-w.gone:
		return w.stopping()
	case <-ctx.Done():
		return fmt.Errorf("worker %s: %w", w.spec.Name, ctx.Err())
	}
	select {
	case err := <-a.answer:
		return err
	case <-w.gone:
		return w.stopping()
	case <-ctx.Done():
		return fmt.Errorf("worker %s: still on its way: %w", w.spec.Name, ctx.Err())
	}
}

func (w *Worker) stopping() error {
	return fmt.Errorf("worker %s is ending for good: %w", w.spec.Name, ipc.ErrGone)
}
