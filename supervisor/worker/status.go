package worker

import (
	"fmt"
	"strings"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// A view is what the goroutine of Run lets others see. It is never changed: each second several parts look at each worker.
type view struct {
	m      machine
	pid    int
	body   body // nil unless it serves or ends
	series *sample.Series
	began  time.Time
	health health
	last   *Exit
}

func (l *life) publish() {
	v := &view{m: l.m, pid: l.pid, body: l.body, health: l.health, last: l.last}
	if l.body != nil {
		v.series, v.began = l.body.series(), l.body.began()
	}
	l.w.view.Store(v)
}

var unseen = &view{}

func (w *Worker) look() *view {
	if v := w.view.Load(); v != nil {
		return v
	}
	return unseen
}

// State returns where the worker is in its life, Disabled before Run.
func (w *Worker) State() State {
	if s := w.look().m.state; s != "" {
		return s
	}
	return Disabled
}

// PID returns the worker's process, 0 if there is none.
func (w *Worker) PID() int { return w.look().pid }

// Done returns how much work the current process has ended, as it said last. It is asked each second, and is cheap.
func (w *Worker) Done() uint64 { return w.look().health.progress }

// SpareAnon returns the anonymous memory of the process that stands by, 0 if there is none.
func (w *Worker) SpareAnon() int64 {
	_, last := w.launcher.standby()
	return last.Anon
}

// Status returns the worker as `ctl status` shows it.
func (w *Worker) Status() *controlv1.WorkerStatus {
	v := w.look()
	s := &controlv1.WorkerStatus{
		Name: w.spec.Name, Role: w.spec.Role, State: string(w.State()), Pid: int64(v.pid), Restarts: v.m.restarts,
		Verdict: &controlv1.Verdict{}, LastExit: v.last.proto(), Detail: v.detail(),
		Progress: v.health.progress, InFlight: v.health.inFlight,
		LogLinesDropped: w.env.Log.Dropped(w.spec.Name),
	}
	if pid, last := w.launcher.standby(); pid != 0 {
		s.SparePid, s.SpareRssBytes, s.SpareAnonBytes = int64(pid), last.RSS, last.Anon
	}
	if v.m.waits() {
		s.NextStartSeconds = max(0, time.Until(v.m.next).Seconds())
	}
	if v.series != nil {
		last := v.series.Last()
		s.Fds, s.FdLimit = last.FDs, v.series.FDLimit()
		s.RssBytes, s.AnonBytes, s.Threads = last.RSS, last.Anon, int64(last.Threads)
		s.BelowProcesses, s.BelowFds = int64(last.Family.Processes), last.Family.FDs
		s.BelowRssBytes, s.BelowAnonBytes = last.Family.RSS, last.Family.Anon
		s.CpuPercent = v.series.CPUPercent()
	}
	if !v.began.IsZero() {
		s.UptimeSeconds = time.Since(v.began).Seconds()
	}
	return s
}

// detail says what is not as it should be.
func (v *view) detail() string {
	switch {
	case v.m.waits():
		d := v.last.Message
		if v.last.Cause == CauseStartFailed && len(v.last.Lines) > 0 {
			d += "; it last said: " + strings.Join(v.last.Lines[max(0, len(v.last.Lines)-linesInDetail):], " | ")
		}
		return fmt.Sprintf("%s (%s)", d, v.m.reason)
	case v.m.state == Idle:
		return "started when it is needed"
	case v.m.state == Ready && v.health.detail != "":
		return v.health.detail
	case v.m.state == Ready && v.m.history.Slow > 0:
		return "on probation: its next death leads back to the slow lane until it has been stable"
	}
	return ""
}

// linesInDetail of the log are enough to see why a start failed; `ctl logs` has the rest.
const linesInDetail = 3

// LimitKills returns how many processes below the current one the kernel has ended for the worker's limit of memory.
func (w *Worker) LimitKills() uint64 {
	v := w.look()
	if v.body == nil {
		return 0
	}
	return v.body.limitKills()
}

// Series returns the readings of the current process, nil if none serves.
func (w *Worker) Series() *sample.Series { return w.look().series }
