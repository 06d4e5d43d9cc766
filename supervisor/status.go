package supervisor

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// status tells of the supervisor itself; the control socket adds the workers.
func (s *supervisor) status(ctx context.Context) (*controlv1.StatusResponse, error) {
	c := s.config()
	r := &controlv1.StatusResponse{
		Supervisor: &controlv1.Supervisor{
			Pid: int64(os.Getpid()), Version: s.o.Version, State: s.shownState(),
			UptimeSeconds: s.now().Sub(s.started).Seconds(),
			Home:          c.Home, RunDir: s.o.RunDir, Goroutines: int64(runtime.NumGoroutine()),
		},
		Model:    &controlv1.Model{Provider: c.Model.Provider, Name: c.Model.Default, Reason: c.Model.Reason},
		Warnings: append(slices.Clone(c.Warnings), s.misfits()...),
		Memory:   &controlv1.WorkersMemory{LimitBytes: s.fleet.leaks.total},
		Enforcement: &controlv1.Enforcement{
			Memory: keeper(s.enforced.Memory), Processes: keeper(s.enforced.Processes), Detail: s.enforced.Why,
		},
	}
	if p, err := s.sampler.Proc().Process(os.Getpid()); err == nil {
		r.Supervisor.Fds, r.Supervisor.FdLimit = p.FDs, p.FDLimit
		r.Supervisor.RssBytes, r.Supervisor.AnonBytes = p.RSS, p.Anon
	}
	r.Adapters = s.adapters.status(ctx)
	for _, h := range s.health() {
		r.Stores = append(r.Stores, storeStatus(h))
	}
	counts, err := s.store.Counts(ctx)
	if err != nil {
		// A store that cannot be read is what status is asked about: say so instead of failing.
		r.Warnings = append(r.Warnings, "turns and outbox cannot be counted: "+err.Error())
		return r, nil
	}
	r.Turns = &controlv1.TurnCounts{Queued: counts.Queued, Running: counts.Running, Parked: counts.Parked}
	r.Outbox = &controlv1.OutboxCounts{Pending: counts.OutboxPending, Unknown: counts.OutboxUnknown}
	return r, nil
}

// tell puts what a watch over the workers has found on the timeline and into the log.
func (s *supervisor) tell(e store.Event) {
	s.journal.Record(e)
	args := []any{"worker", e.Worker, "pid", e.PID, "message", e.Message}
	if top := e.Fields["top_handles"]; top != "" {
		args = append(args, "top_handles", top)
	}
	s.log.Warn(e.Kind, args...)
}

// keeper says who holds a limit of workers.
func keeper(kernel bool) string {
	if kernel {
		return "cgroup"
	}
	return "watch"
}

func storeStatus(h store.Health) *controlv1.StoreStatus {
	return &controlv1.StoreStatus{Name: h.Name, State: h.State, Detail: h.Detail, Condition: h.Condition, Advice: h.Advice, Refused: h.Refused}
}

func (s *supervisor) health() []store.Health {
	return append(append([]store.Health{s.store.Health()}, s.boards.health()...), s.telemetry.Health())
}

// statusLine is what `systemctl status` shows.
func (s *supervisor) statusLine() string {
	serving, total := 0, 0
	for _, m := range s.fleet.list() {
		state := m.State()
		if state == worker.Idle {
			continue // it serves when it is needed
		}
		total++
		if state == worker.Ready {
			serving++
		}
	}
	line := fmt.Sprintf("%s, %d of %d workers serve, model %s", s.shownState(), serving, total, s.config().Model.Provider)
	for _, h := range s.health() {
		if h.State != "ok" {
			line += fmt.Sprintf(", store %s is %s", h.Name, h.State)
		}
	}
	return line
}

// shownState is the state with what an operator has added to it.
func (s *supervisor) shownState() string {
	state := s.state.Load().(string)
	if state != stateReady || !s.hub.Paused() {
		return state
	}
	return stateDrained
}

func joined(names []string) string { return strings.Join(names, ", ") }
