package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/control"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sessions"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// A fleet is all workers of a supervisor. Its list may change while it runs: plugins come and go. It is safe for
// concurrent use.
type fleet struct {
	proc    sample.Proc
	leaks   *leakWatch
	make    func(worker.Spec) *worker.Worker
	joined  func(workers int)
	running sync.WaitGroup

	mu      sync.Mutex
	members []*member       // in the order of their start
	life    context.Context // that of the workers; nil before start
	closed  bool            // nobody joins any more
}

// A member is one worker of a fleet.
type member struct {
	*worker.Worker
	spec  worker.Spec
	leave context.CancelCauseFunc // ends its Run; nil before start
	gone  chan struct{}           // closed when its Run has returned
}

// fleetParts are what a fleet needs of the rest of the supervisor.
type fleetParts struct {
	proc   sample.Proc
	make   func(worker.Spec) *worker.Worker
	busy   func(worker string) int // turns or calls that a worker has in hand
	record func(store.Event)       // does not block
	// joined is told how many workers there are when one joins, before it starts. It does not block.
	joined func(workers int)
	// evidence keeps what workers held before they were replaced, nil for nowhere.
	evidence *evidence
	total    int64 // bytes of memory that all workers together may hold, 0 for no limit
}

// newFleet returns an empty fleet that does not run yet.
func newFleet(p fleetParts) *fleet {
	f := &fleet{proc: p.proc, make: p.make, joined: p.joined}
	f.leaks = &leakWatch{
		workers: f.list, busy: p.busy, record: p.record, total: p.total, watched: map[string]*watched{}, near: make(chan struct{}, 1),
		recycle: newRecycler(p.proc, p.evidence, p.record),
	}
	return f
}

// makeFleet makes the workers of a list of specs. Nothing runs yet.
func (s *supervisor) makeFleet(list []worker.Spec) (*fleet, error) {
	host := &hostServices{
		secrets: func() config.Secrets { return s.config().Secrets }, record: s.journal.Record, heard: s.adapters.heard, now: s.now,
		// One of the environment is in no .env, from which the log knows its secrets.
		given: func(value string) { s.secrets.add([]string{value}) },
	}
	past := sessions.NewPast(s.store)
	hooks := worker.Hooks{
		Register: func(g *grpc.Server) {
			s.hub.Register(g)
			host.register(g)
			hostv1.RegisterSearchServer(g, past)
			hostv1.RegisterPairingServer(g, &pairingService{store: s.pairing})
			hostv1.RegisterLifecycleServer(g, &lifecycleService{supervisor: s})
		},
		Up: func(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
			leave, unwatch, unheard := s.hub.Attach(id, conn), s.adapters.attach(id, conn), s.written.attach(id, conn)
			return func() { unheard(); unwatch(); leave() }
		},
		Leaving: s.hub.Leaving,
		Event:   s.plugins.watch,
	}
	env := worker.Env{Log: s.book, Sampler: s.sampler, Orphans: s.orphans, Starts: worker.NewStarts(),
		Busy:   func(name string) bool { return s.hub.Busy(name) > 0 || s.plugins.suspects(name) },
		RunDir: s.o.RunDir, Version: s.o.Version, Enforced: s.enforced, LastWords: s.wordsLeft().folder()}
	total := s.o.Config.Supervisor.TotalMemory
	if total == 0 {
		total = sample.System.Memory() / 4 * 3
	}
	f := newFleet(fleetParts{
		proc: s.sampler.Proc(), busy: s.hub.Busy, record: s.tell, total: total, joined: s.joined,
		evidence: &evidence{dir: filepath.Join(s.o.Config.Home, filepath.FromSlash(evidenceFolder)), now: s.now},
		make:     func(spec worker.Spec) *worker.Worker { return worker.New(spec, hooks, env) },
	})
	for _, spec := range list {
		if err := f.add(spec); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add takes a worker into the fleet, which starts it at once if it runs itself. A name that is taken is ipc.ErrExists, also
// while its worker is being removed; a fleet that is being stopped is ipc.ErrGone.
func (f *fleet) add(spec worker.Spec) error { return f.addAfter(spec, worker.Past{}) }

// replace ends a worker, with a drain, and adds one of the same name that goes on with its restarts and its history. It says
// whether that stays down, as an operator had stopped it.
func (f *fleet) replace(ctx context.Context, spec worker.Spec, why string) (down bool, err error) {
	m, err := f.member(spec.Name)
	if err != nil {
		return false, err
	}
	state := m.State()
	if err := f.remove(ctx, spec.Name, why); err != nil {
		return false, err
	}
	return state == worker.Disabled, f.addAfter(spec, m.Past(state))
}

func (f *fleet) addAfter(spec worker.Spec, past worker.Past) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("add worker %s: the supervisor is stopping: %w", spec.Name, ipc.ErrGone)
	}
	if spec.Name == supervisorName || slices.ContainsFunc(f.members, func(m *member) bool { return m.Name() == spec.Name }) {
		return fmt.Errorf("add worker %s: %w", spec.Name, ipc.ErrExists)
	}
	m := &member{Worker: f.make(spec), spec: spec, gone: make(chan struct{})}
	m.Succeed(past)
	f.members = append(f.members, m)
	f.joined(len(f.members))
	if f.life != nil {
		f.run(m)
	}
	return nil
}

// remove ends a worker, with a drain, and takes it out of the fleet; why is told of the end of its process. It returns when
// the process is gone. If ctx ends before, the removal goes on.
func (f *fleet) remove(ctx context.Context, name, why string) error {
	m, err := f.member(name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	if m.leave == nil {
		f.forget(m) // it never ran
		f.mu.Unlock()
		return nil
	}
	m.leave(worker.Leaving(why))
	f.mu.Unlock()
	select {
	case <-m.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("remove worker %s: it is still ending: %w", name, ctx.Err())
	}
}

// tune gives a running worker what of its spec needs no new process.
func (f *fleet) tune(spec worker.Spec) {
	if m, err := f.member(spec.Name); err == nil {
		m.Tune(spec.Tuning())
	}
}

// specs returns what the members are.
func (f *fleet) specs() []worker.Spec {
	var list []worker.Spec
	for _, m := range f.list() {
		list = append(list, m.spec)
	}
	return list
}

// start runs every worker until ctx ends.
func (f *fleet) start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life = ctx
	for _, m := range f.members {
		f.run(m)
	}
}

// run begins the life of a member. The lock is held.
func (f *fleet) run(m *member) {
	ctx, leave := context.WithCancelCause(f.life)
	m.leave = leave
	f.running.Go(func() {
		defer close(m.gone)
		defer leave(nil)
		m.Run(ctx)
		f.leaks.forget(m.Name())
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.closed { // what ends with the supervisor stays on the list to the last
			f.forget(m)
		}
	})
}

// forget takes a member off the list. The lock is held.
func (f *fleet) forget(m *member) {
	f.members = slices.DeleteFunc(slices.Clone(f.members), func(o *member) bool { return o == m })
}

// list returns the members of this moment, in the order of their start. The slice is not changed later.
func (f *fleet) list() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[:len(f.members):len(f.members)]
}

// ladderReserve is what a worker's stop ladder takes of the budget of a stop: SIGTERM, SIGQUIT and SIGKILL.
const ladderReserve = 5 * time.Second

// stop ends the workers of the given roles for good, side by side, each by its own ladder, and returns when they are gone or
// the budget is spent. What does not end its work in time is cut, so that the ladder fits into the budget. From the first
// call on nobody joins the fleet.
func (f *fleet) stop(budget time.Duration, roles ...string) {
	f.mu.Lock()
	f.closed = true
	var leaving []*member
	for _, m := range f.members {
		if slices.Contains(roles, m.Role()) && m.leave != nil {
			m.leave(nil)
			leaving = append(leaving, m)
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	var stopping sync.WaitGroup
	for _, m := range leaving {
		stopping.Go(func() {
			patience := time.NewTimer(max(0, budget-ladderReserve))
			defer patience.Stop()
			select {
			case <-m.gone:
				return
			case <-patience.C:
				_ = m.Hasten(ctx)
			}
			select {
			case <-m.gone:
			case <-ctx.Done():
			}
		})
	}
	stopping.Wait()
}

// wait returns when every Run has returned. The life that was given to start has ended, and so has stop.
func (f *fleet) wait() { f.running.Wait() }

func (f *fleet) member(name string, others ...string) (*member, error) {
	list := f.list()
	names := make([]string, len(list))
	for i, m := range list {
		if names[i] = m.Name(); names[i] == name {
			return m, nil
		}
	}
	return nil, control.ErrNoWorker(name, append(names, others...))
}

// find returns the worker of a name. An unknown one is ipc.ErrNotFound, with the names that there are.
func (f *fleet) find(name string) (*worker.Worker, error) { return f.findOr(name) }

// findOr is find where other names mean something as well.
func (f *fleet) findOr(name string, others ...string) (*worker.Worker, error) {
	m, err := f.member(name, others...)
	if err != nil {
		return nil, err
	}
	return m.Worker, nil
}

// Status, Restart, Stop, Start and Fds make the fleet a control.Workers.

func (f *fleet) Status() []*controlv1.WorkerStatus {
	var list []*controlv1.WorkerStatus
	for _, m := range f.list() {
		list = append(list, f.status(m))
	}
	return list
}

// status is a worker's own, with what the watch over it has to say.
func (f *fleet) status(m *member) *controlv1.WorkerStatus {
	st := m.Status()
	st.Verdict = f.leaks.verdict(m.Name())
	if st.Detail == "" && st.Pid != 0 {
		st.Detail = f.leaks.recycle.waiting(int(st.Pid))
	}
	return st
}

func (f *fleet) Restart(ctx context.Context, name string) (*controlv1.WorkerStatus, error) {
	return f.do(name, func(w *worker.Worker) error { return w.Restart(ctx, asker(ctx)) })
}

func (f *fleet) Stop(ctx context.Context, name string) (*controlv1.WorkerStatus, error) {
	return f.do(name, func(w *worker.Worker) error { return w.Stop(ctx, asker(ctx)) })
}

func (f *fleet) Start(ctx context.Context, name string) (*controlv1.WorkerStatus, error) {
	return f.do(name, func(w *worker.Worker) error { return w.Start(ctx, asker(ctx)) })
}

// asker names who asks for something, for the timeline.
func asker(ctx context.Context) string {
	if id, ok := ipc.IdentityFrom(ctx); ok {
		return id.Worker
	}
	return "an operator"
}

// Profile takes a profile of a worker: what its own runtime knows of its heap, its processor time or its goroutines.
func (f *fleet) Profile(ctx context.Context, name string, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	w, err := f.findOr(name, supervisorName)
	if err != nil {
		return nil, err
	}
	return w.Profile(ctx, r)
}

func (f *fleet) do(name string, verb func(*worker.Worker) error) (*controlv1.WorkerStatus, error) {
	w, err := f.find(name)
	if err != nil {
		return nil, err
	}
	if err := verb(w); err != nil {
		return nil, fmt.Errorf("worker %s: %w", name, err)
	}
	st := w.Status()
	st.Verdict = f.leaks.verdict(name)
	return st, nil
}

// supervisorName is what commands call the supervisor itself.
const supervisorName = "supervisor"

func (f *fleet) Fds(name string) (*controlv1.FdsResponse, error) {
	if name != supervisorName {
		w, err := f.findOr(name, supervisorName)
		if err != nil {
			return nil, err
		}
		return w.Fds()
	}
	r, err := worker.Fds(f.proc, name, os.Getpid(), nil)
	if err != nil {
		return nil, err
	}
	// The processes below the supervisor are its workers, which have lists of their own.
	r.Fds = slices.DeleteFunc(r.Fds, func(fd *controlv1.Fd) bool { return fd.Pid != r.Pid })
	r.Processes = slices.DeleteFunc(r.Processes, func(p *controlv1.FdProcess) bool { return p.Pid != r.Pid })
	return r, nil
}

const (
	// settleAfter is how long a worker that is not required may be starting before the supervisor is ready without it.
	settleAfter = 10 * time.Second
	settlePoll  = 20 * time.Millisecond
)

// awaitReady returns when every required worker serves and every other one has got so far that waiting for it is no
// use, or when ctx ends.
func (f *fleet) awaitReady(ctx context.Context) error {
	list := f.list()
	for _, m := range list {
		if !m.Required() {
			continue
		}
		select {
		case <-m.Ready():
		case <-m.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	optional, cancel := context.WithTimeout(ctx, settleAfter)
	defer cancel()
	for _, m := range list {
		if err := settle(optional, m.Worker); err != nil {
			break
		}
	}
	return ctx.Err()
}

// settle returns when a worker is in any state but starting.
func settle(ctx context.Context, w *worker.Worker) error {
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	for w.State() == worker.Starting {
		select {
		case <-poll.C:
		case <-w.Ready():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
