package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// Events of an operator's drain.
const (
	kindDrained = "drained"
	kindResumed = "resumed"
)

// operations make the supervisor a control.Operations.
type operations struct{ s *supervisor }

func (o operations) Series(worker string, since time.Time) (*controlv1.SeriesResponse, error) {
	return o.s.history.Series(worker, since)
}

// Profile takes a profile of a worker or of this process.
func (o operations) Profile(ctx context.Context, name string, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	if name == supervisorName {
		return ipc.TakeProfile(ctx, r)
	}
	return o.s.fleet.Profile(ctx, name, r)
}

func (o operations) Pause() (running int) {
	running = o.s.hub.Pause()
	o.s.record(kindDrained, fmt.Sprintf("an operator holds turns back; %d still run", running))
	return running
}

func (o operations) Resume() (was bool) {
	if was = o.s.hub.Resume(); was {
		o.s.record(kindResumed, "turns are given out again")
	}
	return was
}

func (o operations) Reload(ctx context.Context) ([]*controlv1.Change, error) {
	if state := o.s.state.Load(); state != stateReady {
		return nil, fmt.Errorf("reload: the supervisor is %s: %w", state, ipc.ErrBusy)
	}
	return o.s.Reload(ctx)
}
