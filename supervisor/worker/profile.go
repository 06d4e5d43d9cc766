package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// Profile asks the worker's process for a profile. It takes as long as the profile is asked to take, at most the deadline of
// the call.
func (w *Worker) Profile(ctx context.Context, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	b := w.look().body
	if b == nil {
		return nil, fmt.Errorf("worker %s does not serve: %w", w.spec.Name, ipc.ErrRefused)
	}
	p, err := b.profile(ctx, r)
	if errors.Is(err, ipc.ErrGone) {
		// Without its kind, which would tell the caller of the supervisor's end.
		return nil, fmt.Errorf("worker %s ended before its profile was taken", w.spec.Name)
	}
	if errors.Is(err, ipc.ErrNotServed) {
		return nil, fmt.Errorf("worker %s: profiles are %w: a plugin in Go has them when it is built anew with today's SDK; in another "+
			"language look at process %d with what its runtime has for that", w.spec.Name, ipc.ErrNotServed, w.PID())
	}
	if err != nil {
		return nil, fmt.Errorf("profile of worker %s: %w", w.spec.Name, err)
	}
	if n := len(p.Data); n > ipc.MaxProfile { // a plugin may send what it likes, and it is kept
		return nil, fmt.Errorf("profile of worker %s: %w: it has %d bytes, at most %d are taken", w.spec.Name, ipc.ErrRefused, n, ipc.MaxProfile)
	}
	return p, nil
}

func (i *instance) profile(ctx context.Context, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	return workerv1.NewProfilerClient(i.peer.Conn).Profile(ctx, r)
}
