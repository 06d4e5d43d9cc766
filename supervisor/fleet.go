package supervisor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/control"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// A fleet is all workers of a supervisor. Its list never changes after it was made.
type fleet struct {
	workers []*worker.Worker
	proc    sample.Proc
	leaks   *leakWatch
	running sync.WaitGroup
}

// newFleet makes the workers of a list of specs. Nothing runs yet.
func (s *supervisor) newFleet(list []worker.Spec) *fleet {
	host := &hostServices{secrets: s.o.Config.Secrets, record: s.journal.Record}
	hooks := worker.Hooks{
		Register: func(g *grpc.Server) { s.hub.Register(g); host.register(g) },
		Up:       s.hub.Attach,
		Event:    s.journal.Record,
	}
	env := worker.Env{Log: s.book, Sampler: s.sampler, Orphans: s.orphans, RunDir: s.o.RunDir, Version: s.o.Version}
	f := &fleet{proc: s.sampler.Proc()}
	for _, spec := range list {
		f.workers = append(f.workers, worker.New(spec, hooks, env))
	}
	limits := map[string]int64{}
	for _, spec := range list {
		limits[spec.Name] = spec.Limits.Memory
	}
	f.leaks = &leakWatch{
		workers: f.workers, busy: s.hub.Busy, record: s.journal.Record, watched: map[string]*watched{},
		memory: func(name string) int64 { return limits[name] },
	}
	return f
}

// start runs every worker until ctx ends.
func (f *fleet) start(ctx context.Context) {
	for _, w := range f.workers {
		f.running.Go(func() { w.Run(ctx) })
	}
}

// stop ends the workers of the given roles side by side, each by its own ladder, and returns when they are gone.
func (f *fleet) stop(ctx context.Context, roles ...string) {
	var stopping sync.WaitGroup
	for _, w := range f.workers {
		if slices.Contains(roles, w.Role()) {
			stopping.Go(func() { _ = w.Stop(ctx) }) // what it did not reach is ended with Run
		}
	}
	stopping.Wait()
}

// wait returns when every Run has returned.
func (f *fleet) wait() { f.running.Wait() }

func (f *fleet) find(name string) (*worker.Worker, error) {
	names := make([]string, len(f.workers))
	for i, w := range f.workers {
		if names[i] = w.Name(); names[i] == name {
			return w, nil
		}
	}
	return nil, control.ErrNoWorker(name, names)
}

// Status, Restart, Stop, Start and Fds make the fleet a control.Workers.

func (f *fleet) Status() []*controlv1.WorkerStatus {
	list := make([]*controlv1.WorkerStatus, len(f.workers))
	for i, w := range f.workers {
		list[i] = w.Status()
		list[i].Verdict = f.leaks.verdict(w.Name())
	}
	return list
}

func (f *fleet) Restart(ctx context.Context, name string) (*controlv1.WorkerStatus, error) {
	return f.do(name, func(w *worker.Worker) error { return w.Restart(ctx) })
}

func (f *fleet) Stop(ctx context.Context, name string) (*controlv1.WorkerStatus, error) {
	return f.do(name, func(w *worker.Worker) error { return w.Stop(ctx) })
}

func (f *fleet) Start(ctx context.Context, name string) (*controlv1.WorkerStatus, error) {
	return f.do(name, func(w *worker.Worker) error { return w.Start(ctx) })
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
		w, err := f.find(name)
		if err != nil {
			return nil, err
		}
		return w.Fds()
	}
	r, err := worker.Fds(f.proc, name, os.Getpid())
	if err != nil {
		return nil, err
	}
	// The processes below the supervisor are its workers, which have lists of their own.
	r.Fds = slices.DeleteFunc(r.Fds, func(fd *controlv1.Fd) bool { return fd.Pid != r.Pid })
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
	for _, w := range f.workers {
		if !w.Required() {
			continue
		}
		select {
		case <-w.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	optional, cancel := context.WithTimeout(ctx, settleAfter)
	defer cancel()
	for _, w := range f.workers {
		if err := settle(optional, w); err != nil {
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
