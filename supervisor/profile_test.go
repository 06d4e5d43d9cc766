package supervisor

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

func TestAWorkerShowsItsProfiles(t *testing.T) {
	r := newRig(t)
	r.add(r.spec("tools"))
	take := func(kind workerv1.ProfileRequest_Kind, seconds float64) (*workerv1.ProfileResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return r.fleet.Profile(ctx, "tools", &workerv1.ProfileRequest{Kind: kind, Seconds: seconds})
	}
	for _, kind := range []workerv1.ProfileRequest_Kind{workerv1.ProfileRequest_KIND_HEAP, workerv1.ProfileRequest_KIND_CPU} {
		p, err := take(kind, 0.1)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if _, err := gzip.NewReader(bytes.NewReader(p.Data)); err != nil || p.Format != "pprof" {
			t.Errorf("%s: format %s: %v", kind, p.Format, err)
		}
	}
	p, err := take(workerv1.ProfileRequest_KIND_GOROUTINE, 0)
	if err != nil || p.Format != "text" || !bytes.Contains(p.Data, []byte("workers.Main")) {
		t.Errorf("goroutines: %v, %v", p, err)
	}
	if _, err := take(workerv1.ProfileRequest_KIND_UNSPECIFIED, 0); !errors.Is(err, ipc.ErrInvalid) {
		t.Errorf("no kind: %v", err)
	}
	if _, err := r.fleet.Profile(t.Context(), "nobody", &workerv1.ProfileRequest{}); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
	r.fleet.stop(time.Minute, ipc.RoleTools)
	if _, err := take(workerv1.ProfileRequest_KIND_HEAP, 0); !errors.Is(err, ipc.ErrRefused) {
		t.Errorf("of a worker that is down: %v", err)
	}
}

// The death of a worker is not one of the supervisor, which ipc.ErrGone would be to a command.
func TestAWorkerThatDiesWhileItIsMeasuredIsToldFromASupervisorThatDoes(t *testing.T) {
	r := newRig(t)
	w := r.add(r.spec("tools"))
	failed := make(chan error, 1)
	go func() {
		_, err := r.fleet.Profile(t.Context(), "tools", &workerv1.ProfileRequest{Kind: workerv1.ProfileRequest_KIND_CPU, Seconds: 30})
		failed <- err
	}()
	_ = syscall.Kill(w.PID(), syscall.SIGKILL)
	if err := <-failed; err == nil || errors.Is(err, ipc.ErrGone) || !strings.Contains(err.Error(), "tools") {
		t.Error(err)
	}
}
