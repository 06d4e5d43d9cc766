package control

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
)

// Workers are the supervised processes, by name. Errors are of package ipc's kinds.
type Workers interface {
	Status() []*controlv1.WorkerStatus
	Restart(ctx context.Context, name string) (*controlv1.WorkerStatus, error)
	Stop(ctx context.Context, name string) (*controlv1.WorkerStatus, error)
	Start(ctx context.Context, name string) (*controlv1.WorkerStatus, error)
	Fds(name string) (*controlv1.FdsResponse, error)
}

// Journal is the record of events.
type Journal interface {
	Read(ctx context.Context, f store.EventFilter, follow bool, send func(store.Event) error) error
}

// Logs are the lines of workers and supervisor.
type Logs interface {
	// Voices are the names of those of whom lines are kept, in order.
	Voices() []string
	Read(ctx context.Context, worker string, tail int, follow bool, send func(*controlv1.LogLine) error) error
}

const defaultTail = 100

type controlService struct {
	controlv1.UnimplementedControlServer
	services Services
	life     context.Context
}

func (c *controlService) Status(ctx context.Context, _ *controlv1.StatusRequest) (*controlv1.StatusResponse, error) {
	s, err := c.services.Status(ctx)
	if err != nil {
		return nil, err
	}
	s.Workers = c.services.Workers.Status()
	s.Memory = together(s.Workers, s.Memory.GetLimitBytes())
	return s, nil
}

// together sums what workers hold.
func together(workers []*controlv1.WorkerStatus, limit int64) *controlv1.WorkersMemory {
	m := &controlv1.WorkersMemory{LimitBytes: limit}
	for _, w := range workers {
		m.RssBytes += w.RssBytes + w.BelowRssBytes + w.SpareRssBytes
		m.AnonBytes += w.AnonBytes + w.BelowAnonBytes + w.SpareAnonBytes
		m.Processes += w.BelowProcesses
		if w.Pid != 0 {
			m.Processes++
		}
		if w.SparePid != 0 {
			m.Processes++
			m.Spares++
			m.SpareRssBytes += w.SpareRssBytes
			m.SpareAnonBytes += w.SpareAnonBytes
		}
	}
	return m
}

func (c *controlService) RestartWorker(ctx context.Context, r *controlv1.RestartWorkerRequest) (*controlv1.RestartWorkerResponse, error) {
	w, err := c.services.Workers.Restart(ctx, r.Name)
	return &controlv1.RestartWorkerResponse{Worker: w}, err
}

func (c *controlService) StopWorker(ctx context.Context, r *controlv1.StopWorkerRequest) (*controlv1.StopWorkerResponse, error) {
	w, err := c.services.Workers.Stop(ctx, r.Name)
	return &controlv1.StopWorkerResponse{Worker: w}, err
}

func (c *controlService) StartWorker(ctx context.Context, r *controlv1.StartWorkerRequest) (*controlv1.StartWorkerResponse, error) {
	w, err := c.services.Workers.Start(ctx, r.Name)
	return &controlv1.StartWorkerResponse{Worker: w}, err
}

func (c *controlService) Shutdown(ctx context.Context, _ *controlv1.ShutdownRequest) (*controlv1.ShutdownResponse, error) {
	by := "an operator"
	if id, ok := ipc.IdentityFrom(ctx); ok {
		by = id.Worker
	}
	c.services.Shutdown(by)
	return &controlv1.ShutdownResponse{}, nil
}

func (c *controlService) Fds(_ context.Context, r *controlv1.FdsRequest) (*controlv1.FdsResponse, error) {
	return c.services.Workers.Fds(r.Worker)
}

func (c *controlService) Logs(r *controlv1.LogsRequest, out grpc.ServerStreamingServer[controlv1.LogLine]) error {
	ctx, cancel := bound(out.Context(), c.life)
	defer cancel()
	if err := c.source(r.Worker); err != nil {
		return err
	}
	tail := defaultTail
	switch {
	case r.NoTail:
		tail = 0
	case r.Tail > 0:
		tail = int(min(r.Tail, math.MaxInt32))
	}
	return ended(c.services.Logs.Read(ctx, r.Worker, tail, r.Follow, out.Send), c.life)
}

// source refuses the name of nobody, whose log would be followed for ever and stay empty. A worker that is no more (a plugin
// in quarantine, of which one wants to know why) is somebody as long as there are lines of it.
func (c *controlService) source(name string) error {
	if name == "" || name == logs.Supervisor {
		return nil
	}
	var names []string
	for _, w := range c.services.Workers.Status() {
		names = append(names, w.Name)
	}
	if slices.Contains(names, name) {
		return nil
	}
	for _, v := range c.services.Logs.Voices() {
		if v == name {
			return nil
		}
		if v != logs.Supervisor && !slices.Contains(names, v) {
			names = append(names, v)
		}
	}
	return ErrNoWorker(name, append(names, logs.Supervisor))
}

func (c *controlService) Events(r *controlv1.EventsRequest, out grpc.ServerStreamingServer[controlv1.Event]) error {
	ctx, cancel := bound(out.Context(), c.life)
	defer cancel()
	if err := c.known(ctx, r.Worker); err != nil {
		return err
	}
	filter := store.EventFilter{AfterID: r.AfterId, Worker: r.Worker, Limit: int(min(r.Limit, math.MaxInt32)), Since: unixTime(r.Since)}
	if r.NoneBefore {
		if !r.Follow {
			return nil
		}
		if err := c.toTheEnd(ctx, &filter); err != nil {
			return err
		}
	}
	err := c.services.Journal.Read(ctx, filter, r.Follow, func(e store.Event) error { return out.Send(eventMessage(e)) })
	return ended(err, c.life)
}

// known refuses the name of nobody. A worker that the configuration has no more is somebody as long as there are events of
// it.
func (c *controlService) known(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, w := range c.services.Workers.Status() {
		if w.Name == name {
			return nil
		}
		names = append(names, w.Name)
	}
	seen := false
	err := c.services.Journal.Read(ctx, store.EventFilter{Worker: name, Limit: 1}, false, func(store.Event) error {
		seen = true
		return nil
	})
	if err != nil || seen {
		return err
	}
	return ErrNoWorker(name, names)
}

// toTheEnd moves a filter behind the newest event of all.
func (c *controlService) toTheEnd(ctx context.Context, f *store.EventFilter) error {
	newest := store.EventFilter{Limit: 1}
	return c.services.Journal.Read(ctx, newest, false, func(e store.Event) error {
		f.AfterID = max(f.AfterID, e.ID)
		return nil
	})
}

func eventMessage(e store.Event) *controlv1.Event {
	return &controlv1.Event{
		Id: e.ID, At: unixSeconds(e.Time), Kind: e.Kind, Worker: e.Worker, Pid: int64(e.PID),
		TurnId: e.TurnID, Message: e.Message, Fields: e.Fields,
	}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// unixTime reads seconds as a time; 0 is the zero time.
func unixTime(seconds float64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// ErrNoWorker says that name is no worker, which one was probably meant, and which there are. A plugin is meant by its own
// name.
func ErrNoWorker(name string, names []string) error {
	hint := ";"
	near := config.PluginWorker(name)
	if !slices.Contains(names, near) {
		near = config.Suggest(name, names)
	}
	if near != "" {
		hint = ", did you mean " + near + "?"
	}
	return fmt.Errorf("worker %q: %w%s workers are %s", name, ipc.ErrNotFound, hint, strings.Join(names, ", "))
}
