package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// fakeOperations answers as its fields say.
type fakeOperations struct {
	controlv1.UnimplementedOperationsServer
	series  *controlv1.SeriesResponse
	running []int64 // what each Drain tells, the last one again and again
	drained bool
	changes []*controlv1.Change
	err     error
}

func (f *fakeOperations) Series(_ context.Context, r *controlv1.SeriesRequest) (*controlv1.SeriesResponse, error) {
	if r.Worker != f.series.GetWorker() {
		return nil, fmt.Errorf("worker %q: %w", r.Worker, ipc.ErrNotFound)
	}
	return f.series, f.err
}

func (f *fakeOperations) Drain(context.Context, *controlv1.DrainRequest) (*controlv1.DrainResponse, error) {
	f.drained = true
	n := f.running[0]
	if len(f.running) > 1 {
		f.running = f.running[1:]
	}
	return &controlv1.DrainResponse{Running: n}, f.err
}

func (f *fakeOperations) Resume(context.Context, *controlv1.ResumeRequest) (*controlv1.ResumeResponse, error) {
	was := f.drained
	f.drained = false
	return &controlv1.ResumeResponse{WasDrained: was}, f.err
}

func (f *fakeOperations) Reload(context.Context, *controlv1.ReloadRequest) (*controlv1.ReloadResponse, error) {
	return &controlv1.ReloadResponse{Changes: f.changes}, f.err
}

func (f *fakeOperations) Profile(_ context.Context, r *controlv1.ProfileRequest) (*controlv1.ProfileResponse, error) {
	format := "pprof"
	if r.Kind == "goroutine" {
		format = "text"
	}
	return &controlv1.ProfileResponse{Data: fmt.Appendf(nil, "%s of %s, %gs", r.Kind, r.Worker, r.Seconds), Format: format}, f.err
}

func TestAProfileIsWrittenToAFileOrStdout(t *testing.T) {
	r := newRig(t)
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args []string
		file string
		want string
	}{
		{[]string{"agent-1", "heap"}, "agent-1-heap.pprof", "heap of agent-1, 5s"},
		{[]string{"supervisor", "goroutine"}, "supervisor-goroutine.txt", "goroutine of supervisor, 5s"},
		{[]string{"tools", "cpu", "--seconds", "2s", "--output", "x"}, "x", "cpu of tools, 2s"},
	} {
		out := r.must(append([]string{"ctl", "profile"}, tt.args...)...)
		text, err := os.ReadFile(tt.file)
		if err != nil || out != tt.file+"\n" || string(text) != tt.want {
			t.Errorf("%v: %q, %v, %q", tt.args, out, err, text)
		}
	}
	if out := r.must("ctl", "profile", "tools", "heap", "--output", "-"); out != "heap of tools, 5s" {
		t.Errorf("%q", out)
	}
	for _, args := range [][]string{{"tools", "stack"}, {"tools"}, {"tools", "cpu", "--seconds", "1h"}} {
		if _, _, code := r.run(append([]string{"ctl", "profile"}, args...)...); code != ipc.ExitUsage {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}

// grown is a worker that has grown for two minutes and was killed once.
func grown() *controlv1.SeriesResponse {
	s := &controlv1.SeriesResponse{Worker: "tools", Pid: 12, FdLimit: 4096, MemoryLimit: 1 << 30}
	for i := range 120 {
		r := &controlv1.Reading{At: 1764600000 + float64(i), Pid: 11, Fds: 12, RssBytes: int64(20+i/10) << 20, AnonBytes: 6 << 20, BelowProcesses: 1, BelowRssBytes: 1 << 20}
		if i >= 60 {
			r.Pid, r.RssBytes, r.Fds = 12, 18<<20, 9
		}
		s.Readings = append(s.Readings, r)
	}
	return s
}

func TestMemoryAndDescriptorsOfThePast(t *testing.T) {
	r := newRig(t)
	r.operations.series = grown()
	r.control.events = []*controlv1.Event{
		{Id: 1, At: 1764600060, Kind: "worker_exited", Worker: "tools", Message: "killed\x1b[2J by SIGKILL"},
		{Id: 2, At: 1764600061, Kind: "worker_ready", Worker: "tools"},
	}
	golden(t, "mem.txt", r.must("ctl", "mem", "tools"))
	t.Setenv("TERM", "xterm")
	for locale, suffix := range map[string]string{"C.UTF-8": "", "C": "-ascii"} {
		t.Setenv("LC_ALL", locale)
		golden(t, "mem-plot"+suffix+".txt", r.must("ctl", "mem", "tools", "--plot"))
		golden(t, "fds-plot"+suffix+".txt", r.must("ctl", "fds", "tools", "--plot"))
	}
	svg := filepath.Join(t.TempDir(), "a.svg")
	r.must("ctl", "mem", "tools", "--svg", svg)
	text, err := os.ReadFile(svg)
	if err != nil || !strings.HasPrefix(string(text), "<svg") || !strings.Contains(string(text), "restart 1") {
		t.Errorf("%v: %.200s", err, text)
	}
	if out := r.must("ctl", "mem", "tools", "--svg", "-"); out != string(text) {
		t.Error("on stdout it is another picture")
	}
	if doc := asJSON(t, r.must("ctl", "mem", "tools", "-o", "json")); len(doc["readings"].([]any)) != 120 || doc["memory_limit"] != float64(1<<30) {
		t.Errorf("document %v", doc)
	}
	for _, args := range [][]string{{"ctl", "mem", "nobody"}, {"ctl", "mem", "tools", "--svg", "/nowhere/x.svg"}} {
		if _, stderr, code := r.run(args...); code != ipc.ExitFailed || stderr == "" {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	if _, stderr, code := r.run("ctl", "mem", "tools", "--since", "48h"); code != ipc.ExitUsage || !strings.Contains(stderr, "kept for 24h") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	r.operations.series.Readings = nil
	if _, stderr, code := r.run("ctl", "mem", "tools", "--plot"); code != ipc.ExitFailed || !strings.Contains(stderr, "no readings yet") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestDrainWaitsUntilNothingRuns(t *testing.T) {
	r := newRig(t)
	r.operations.running = []int64{2, 1, 0}
	if out := r.must("ctl", "drain"); !strings.Contains(out, "2 still running") || !strings.Contains(out, "ctl resume") {
		t.Errorf("%q", out)
	}
	if doc := asJSON(t, r.must("ctl", "drain", "--wait", "-o", "json")); doc["running"] != 0.0 {
		t.Errorf("%v", doc)
	}
	if out := r.must("ctl", "resume"); out != "turns are given out again\n" {
		t.Errorf("%q", out)
	}
	if out := r.must("ctl", "resume"); out != "turns were not held back\n" {
		t.Errorf("%q", out)
	}
}

func TestReloadSaysWhatHasChanged(t *testing.T) {
	r := newRig(t)
	if err := os.MkdirAll(r.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if out := r.must("ctl", "reload"); out != "nothing has changed\n" {
		t.Errorf("%q", out)
	}
	r.operations.changes = []*controlv1.Change{
		{What: "supervisor.restart.burst", Detail: "5 → 7", Effect: "applied"}, {What: "worker agent-1", Effect: "worker_restarted"},
	}
	golden(t, "reload.txt", r.must("ctl", "reload"))
	r.operations.changes = append(r.operations.changes, &controlv1.Change{What: "worker gateway-api", Detail: "port 8642 is in use", Effect: "failed"})
	if _, stderr, code := r.run("ctl", "reload"); code != ipc.ExitFailed || !strings.Contains(stderr, "worker gateway-api: port 8642 is in use") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if err := os.WriteFile(filepath.Join(r.home, "config.yaml"), []byte("supervisor: {agent_instances: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := r.run("ctl", "reload"); code != ipc.ExitConfig || !strings.Contains(stderr, "config.yaml:1") || !strings.Contains(stderr, "goes on with its old") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
