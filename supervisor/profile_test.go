package supervisor

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
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

// What a plugin holds is saved before it is replaced, as of any worker. The evidence is whole without a profile if it has none.
func TestAPluginOfTheSDKShowsItsProfilesAndAnotherSaysWhyItHasNone(t *testing.T) {
	h := newHostRig(t, "")
	kept := &evidence{dir: t.TempDir(), now: time.Now}
	save := func(m *member) (heap string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		folder, _, err := kept.save(ctx, m, m.PID(), "it leaks")
		if err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(folder, "handles.txt")); err != nil || len(text) == 0 {
			t.Errorf("handles: %q, %v", text, err)
		}
		return filepath.Join(folder, "heap.pprof")
	}
	ask := &workerv1.ProfileRequest{Kind: workerv1.ProfileRequest_KIND_GOROUTINE}

	h.added("1") // serves the protocol by hand
	m := h.wake()
	_, err := h.pluginHost.fleet.Profile(t.Context(), m.Name(), ask)
	if !errors.Is(err, ipc.ErrNotServed) || errors.Is(err, ipc.ErrGone) || !strings.Contains(err.Error(), "plugin-guest: profiles are not served by its program: ") {
		t.Errorf("by hand: %v", err)
	}
	if _, err := os.Stat(save(m)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a profile of what has none: %v", err)
	}

	e := h.stage("2")
	staged, err := h.cat.Stage(plugintest.Build(t, "../plugins/examples/hello"))
	if err != nil {
		t.Fatal(err)
	}
	e.SHA256, e.Size = staged.SHA256, staged.Size
	if err := h.put(e); err != nil {
		t.Fatal(err)
	}
	m = h.wake()
	p, err := h.pluginHost.fleet.Profile(t.Context(), m.Name(), ask)
	if err != nil || p.Format != "text" || !bytes.Contains(p.Data, []byte("plugins.Main")) {
		t.Errorf("by the SDK: %.200s, %v", p.GetData(), err)
	}
	heap, err := os.Open(save(m))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = heap.Close() }()
	if _, err := gzip.NewReader(heap); err != nil {
		t.Errorf("its heap: %v", err)
	}
}
