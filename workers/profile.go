package workers

import (
	"context"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// A profiler serves what the runtime knows of this process. It needs no initialised worker: one that hangs in its start is
// looked at the same way.
type profiler struct {
	workerv1.UnimplementedProfilerServer
}

// Profile takes a profile of the kind that is asked for.
func (profiler) Profile(ctx context.Context, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	return ipc.TakeProfile(ctx, r)
}
