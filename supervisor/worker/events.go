package worker

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Kinds of journal entries.
const (
	kindStarted    = "worker_started"    // there is a process
	kindReady      = "worker_ready"      // it serves
	kindDraining   = "worker_draining"   // it takes no more work
	kindHung       = "worker_hung"       // it does not answer
	kindRestarting = "worker_restarting" // it will be started again, when is in the fields
	// KindExited says that its process is gone.
	KindExited = "worker_exited"
	// KindFailed says that a start did not succeed.
	KindFailed = "worker_failed"
	// KindDegraded says that a worker is out of restarts: it is in the slow lane.
	KindDegraded  = "worker_degraded"
	kindRecovered = "worker_recovered" // a stable run has earned its restarts back
	kindDisabled  = "worker_disabled"  // an operator keeps it down
)

type fields = map[string]string

func (w *Worker) event(kind string, pid int, message string, f fields) {
	w.hooks.Event(store.Event{Time: time.Now(), Kind: kind, Worker: w.spec.Name, PID: pid, Message: message, Fields: f})
	level := hclog.Info
	switch kind {
	case kindHung, KindFailed, KindDegraded:
		level = hclog.Error
	case KindExited:
		level = hclog.Warn
		if f["cause"] == CausePlanned || f["cause"] == CauseOperator {
			level = hclog.Info
		}
	case kindStarted:
		level = hclog.Debug
	}
	args := []any{"pid", pid}
	for _, k := range []string{"cause", "code", "signal", "uptime", "strays", "delay", "incarnation"} {
		if v, ok := f[k]; ok {
			args = append(args, k, v)
		}
	}
	if message != "" {
		args = append(args, "message", message)
	}
	w.log.Log(level, kind, args...)
}

func failures(h History) string { return strconv.FormatFloat(h.Failures, 'f', 1, 64) }

// report writes what a step of the machine means into the journal.
func (l *life) report(before machine, ev any) {
	w, now := l.w, l.m
	if _, ok := ev.(evExit); ok && before.alive() {
		w.event(KindExited, l.last.PID, l.last.Message, l.last.fields())
		l.reportNext(before)
	}
	if before.state == now.state {
		return
	}
	switch now.state {
	case Ready:
		w.event(kindReady, l.pid, "", fields{
			"incarnation": fmt.Sprint(now.incarnation), "took": time.Since(l.body.began()).Round(time.Millisecond).String(),
		})
	case Draining:
		w.event(kindDraining, l.pid, now.wish(), nil)
	case Stopping:
		if now.hung {
			w.event(kindHung, l.pid, fmt.Sprintf("%d health checks missed", w.env.Timing.Misses), nil)
		}
	case Disabled:
		w.event(kindDisabled, 0, strings.TrimSpace("stopped "+byWhom(now.by)), nil)
	}
}

// reportNext says what follows from an exit.
func (l *life) reportNext(before machine) {
	w, now := l.w, l.m
	if l.last.Cause == CauseStartFailed {
		w.event(KindFailed, l.last.PID, l.last.Message, fields{"incarnation": fmt.Sprint(before.incarnation)})
	}
	switch {
	case now.state == Starting:
		w.event(kindRestarting, 0, "at once", fields{"delay": "0s", "failures": failures(now.history)})
	case now.waits():
		f := fields{"delay": time.Until(now.next).Round(time.Millisecond).String(), "failures": failures(now.history)}
		w.event(kindRestarting, 0, now.reason, f)
		if now.state == Degraded {
			w.event(KindDegraded, 0, now.reason, f)
		}
	}
}

// wish says who wanted the end of the process, and what for.
func (m machine) wish() string {
	what := map[intent]string{again: "restart", down: "stop", closing: cmp.Or(m.why, "end of the supervisor"), recycle: "replaced: " + m.why, rest: "idle", wakeUp: "idle"}[m.intent]
	return strings.TrimSpace(what + " " + byWhom(m.by))
}

// byWhom names a person. What the supervisor wants by itself needs no name.
func byWhom(by string) string {
	if by == "" || by == BySupervisor {
		return ""
	}
	return "by " + by
}
