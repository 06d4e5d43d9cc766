package ipc

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"

	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

const (
	defaultProfileTime = 5 * time.Second
	longestProfileTime = 30 * time.Second
	// MaxProfile keeps a profile well inside of one message. A heap profile is some tens of KiB; only the stacks of many
	// thousand goroutines come near, and the first of them tell the story.
	MaxProfile = 2 << 20
)

// TakeProfile takes a profile of this process, of the kind that is asked for.
func TakeProfile(ctx context.Context, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	var out bytes.Buffer
	switch r.Kind {
	case workerv1.ProfileRequest_KIND_HEAP:
		// What a heap profile says is as of the last collection.
		runtime.GC()
		if err := pprof.Lookup("heap").WriteTo(&out, 0); err != nil {
			return nil, fmt.Errorf("heap profile: %w", err)
		}
	case workerv1.ProfileRequest_KIND_CPU:
		if err := cpuProfile(ctx, &out, r.Seconds); err != nil {
			return nil, fmt.Errorf("cpu profile: %w", err)
		}
	case workerv1.ProfileRequest_KIND_GOROUTINE:
		if err := pprof.Lookup("goroutine").WriteTo(&out, 2); err != nil {
			return nil, fmt.Errorf("goroutines: %w", err)
		}
		return &workerv1.ProfileResponse{Data: out.Bytes()[:min(out.Len(), MaxProfile)], Format: "text"}, nil
	default:
		return nil, fmt.Errorf("profile of kind %s: %w: heap, cpu and goroutine are there", r.Kind, ErrInvalid)
	}
	if out.Len() > MaxProfile {
		return nil, fmt.Errorf("profile: %w: %d bytes, at most %d are sent", ErrRefused, out.Len(), MaxProfile)
	}
	return &workerv1.ProfileResponse{Data: out.Bytes(), Format: "pprof"}, nil
}

// cpuProfile measures for some seconds, or until ctx ends. Only one can be under way in a process.
func cpuProfile(ctx context.Context, out *bytes.Buffer, seconds float64) error {
	d := defaultProfileTime
	if seconds > 0 {
		d = min(time.Duration(seconds*float64(time.Second)), longestProfileTime)
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	defer pprof.StopCPUProfile()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Profiler serves what the runtime knows of this process. It needs no initialised worker: one that hangs in its start is
// looked at the same way.
type Profiler struct {
	workerv1.UnimplementedProfilerServer
}

// Profile takes a profile of the kind that is asked for.
func (Profiler) Profile(ctx context.Context, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error) {
	return TakeProfile(ctx, r)
}
