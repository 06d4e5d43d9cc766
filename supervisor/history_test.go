package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// watchSleep returns the series of a process that sleeps until the test ends, and its pid.
func watchSleep(t *testing.T, sampler *sample.Sampler) *sample.Series {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	series, err := sampler.Watch(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return series
}

func TestAPictureShowsWhatWasBeforeTheRestart(t *testing.T) {
	sampler := sample.NewSampler(sample.System, time.Second)
	first, second := watchSleep(t, sampler), watchSleep(t, sampler)
	self, err := sampler.Watch(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	now := seen{name: "tools", series: first, memory: 1 << 30}
	h := &historian{self: self, list: func() []seen { return []seen{now, {name: "waiting"}} }}
	h.look(time.Now())
	h.look(time.Now())
	now.series = second
	r, err := h.Series("tools", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Readings); n != 2 || r.Readings[0].Pid != int64(first.PID()) || r.Readings[1].Pid != int64(second.PID()) || r.Pid != int64(second.PID()) {
		t.Errorf("%v", r)
	}
	if r.MemoryLimit != 1<<30 || r.FdLimit <= 0 || r.Readings[0].Fds <= 0 {
		t.Errorf("%v", r)
	}
	if r, err := h.Series(supervisorName, time.Time{}); err != nil || len(r.Readings) != 1 || r.Readings[0].BelowProcesses != 0 {
		t.Errorf("the supervisor itself: %v %v", r, err)
	}
	if r, err := h.Series("waiting", time.Time{}); err != nil || len(r.Readings) != 0 {
		t.Errorf("one that has no process yet: %v %v", r, err)
	}
	if _, err := h.Series("nobody", time.Time{}); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
	if r, err := h.Series("tools", time.Now().Add(time.Minute)); err != nil || len(r.Readings) != 0 {
		t.Errorf("of the future: %v %v", r, err)
	}
}

func TestOldProcessesAreForgottenAndTheNewestNever(t *testing.T) {
	sampler := sample.NewSampler(sample.System, time.Second)
	h := history{}
	for range 3 {
		h.series = append(h.series, watchSleep(t, sampler))
	}
	newest := h.series[2]
	h.forget(time.Now())
	if len(h.series) != 3 {
		t.Errorf("%d of 3 are left at once", len(h.series))
	}
	h.forget(time.Now().Add(oldest + time.Hour))
	if len(h.series) != 1 || h.series[0] != newest {
		t.Errorf("%d are left after a day", len(h.series))
	}
}
