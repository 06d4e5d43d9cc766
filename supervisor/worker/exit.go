package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// Causes of an exit.
const (
	CausePlanned     = "planned"      // the end of the supervisor, or a replacement ahead of a limit
	CauseOperator    = "operator"     // a person wanted it
	CauseHung        = "hung"         // it did not answer its health checks
	CauseStartFailed = "start_failed" // it never served
	CauseMemory      = "memory"       // it held more memory than it may, and was ended by us or by the kernel for its own limit
	CauseProcesses   = "processes"    // we ended it, as it had more processes and threads than it may
	CauseOOM         = "oom"          // the kernel ended it for want of memory
	CauseKilled      = "killed"       // a signal from outside the supervisor
	CauseCrashed     = "crashed"      // its own doing
)

// An Exit says how a process ended and why.
type Exit struct {
	PID     int
	At      time.Time
	Uptime  time.Duration
	Code    int    // -1 if a signal ended it
	Signal  string // SIGKILL, …
	Cause   string
	By      string // who wanted it, empty if nobody did
	Message string // for a person
	Strays  int    // processes that it left behind, ended with it
	Last    sample.Sample
	Before  []sample.Sample // some of the last minute, oldest first
	FDLimit int64
	Peak    int64    // the most memory that its cgroup has held, 0: not known
	Lines   []string // its last log lines

	sent      []syscall.Signal // by us
	lastWords string           // a panic's first line
	memory    int64            // bytes that it might have, 0: any
	oom       bool             // the kernel has ended some process for want of memory during its life
	atLimit   bool             // the kernel has ended some process of its own cgroup, at the limit of that
}

// judge finds cause and message, given the machine before the exit.
func (e *Exit) judge(m machine) {
	told := e.Message // by a failed start, or by what could not end it
	switch {
	case m.hung:
		e.Cause, e.Message = CauseHung, "did not answer its health checks; "+e.how()
	case m.over != "":
		e.Cause, e.Message = m.overCause, "held "+m.over+"; "+e.how()
	case m.intent != keep:
		e.planned(m)
	case m.state == Starting:
		e.Cause = CauseStartFailed
		if e.Signal == "SIGKILL" && e.atLimit {
			e.Message = e.byKernel()
		}
	case e.Signal == "SIGKILL" && e.atLimit:
		e.Cause, e.Message = CauseMemory, e.byKernel()
	case e.Signal == "SIGKILL" && e.oom:
		e.Cause, e.Message = CauseOOM, fmt.Sprintf("the kernel ended it for want of memory; it last held %d MiB", e.Last.RSS>>20)
	case slices.Contains([]string{"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGSTOP"}, e.Signal):
		e.Cause, e.Message = CauseKilled, e.Signal+" from outside the supervisor"
	default:
		e.Cause, e.Message = CauseCrashed, e.how()
		if e.lastWords != "" {
			e.Message = e.lastWords
		}
		if e.memory > 0 && wantsMemory(e.lastWords) {
			e.Message += fmt.Sprintf("; it may have %d MiB of memory", e.memory>>20)
		}
	}
	if told != "" && e.Message != told {
		e.Message = told + "; " + e.Message
	}
}

// byKernel says that the kernel has ended it at its own limit.
func (e *Exit) byKernel() string {
	text := fmt.Sprintf("the kernel ended it, as it took more memory than it may (%d MiB, and a margin); it last held %d MiB", e.memory>>20, e.Last.Anon>>20)
	if e.Peak > 0 {
		text += fmt.Sprintf(" and at most %d MiB", e.Peak>>20)
	}
	return text
}

// wantsMemory says whether the last words are those of a runtime that got no memory from the kernel, which does not call
// it by that name if it is the stack of a thread.
func wantsMemory(words string) bool {
	return slices.ContainsFunc([]string{"out of memory", "annot allocate memory", "pthread_create failed", "MemoryError"},
		func(s string) bool { return strings.Contains(words, s) })
}

// planned fills in an end that somebody wanted.
func (e *Exit) planned(m machine) {
	e.Cause, e.By = CausePlanned, m.by
	if m.intent == again || m.intent == down {
		e.Cause = CauseOperator
	}
	e.Message = m.wish() + "; " + e.how()
}

// how says how the process ended and what it took.
func (e *Exit) how() string {
	s := fmt.Sprintf("ended with code %d", e.Code)
	if e.Code < 0 {
		s = "ended by " + e.Signal
	}
	if e.Signal == "" && e.Code < 0 {
		s = "not ended"
	}
	if len(e.sent) == 0 {
		return s
	}
	var names []string
	for _, sig := range e.sent {
		if sig != syscall.SIGCONT {
			names = append(names, unix.SignalName(sig))
		}
	}
	return s + " after " + strings.Join(names, ", ")
}

// setState takes over how the kernel says that a process ended.
func (e *Exit) setState(state *os.ProcessState) {
	e.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Code, e.Signal = -1, unix.SignalName(ws.Signal())
	}
}

// linesInStatus of its log come with an exit: why a start failed is in them.
const linesInStatus = 20

// proto returns the exit as the control socket sends it.
func (e *Exit) proto() *controlv1.ExitStatus {
	if e == nil {
		return nil
	}
	return &controlv1.ExitStatus{
		Code: int32(e.Code), Signal: e.Signal, Cause: e.Cause, Message: e.Message,
		At: float64(e.At.UnixNano()) / 1e9, Pid: int64(e.PID), By: e.By, Log: e.Lines[max(0, len(e.Lines)-linesInStatus):],
	}
}

// fields returns the evidence for the journal.
func (e *Exit) fields() fields {
	f := fields{
		"cause": e.Cause, "code": strconv.Itoa(e.Code), "uptime": e.Uptime.Round(time.Millisecond).String(),
		"fds": strconv.FormatInt(e.Last.FDs, 10), "fd_limit": strconv.FormatInt(e.FDLimit, 10),
		"rss_bytes": strconv.FormatInt(e.Last.RSS, 10), "anon_bytes": strconv.FormatInt(e.Last.Anon, 10),
		"threads": strconv.Itoa(e.Last.Threads),
	}
	if e.Signal != "" {
		f["signal"] = e.Signal
	}
	if e.By != "" {
		f["by"] = e.By
	}
	if e.Peak > 0 {
		f["peak_bytes"] = strconv.FormatInt(e.Peak, 10)
	}
	if e.Strays > 0 {
		f["strays"] = strconv.Itoa(e.Strays)
	}
	if len(e.Before) > 0 {
		f["samples"] = e.before()
	}
	if len(e.Lines) > 0 {
		f["log"] = strings.Join(e.Lines, "\n")
	}
	return f
}

// spawnHopeless says whether an error of starting a process is one that time alone will not mend.
func spawnHopeless(err error) bool {
	for _, e := range []error{syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC, syscall.EPERM, syscall.ENOTDIR, syscall.ELOOP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// before writes the readings before the end, with their age at it.
func (e *Exit) before() string {
	var out []string
	for _, s := range e.Before {
		text := fmt.Sprintf("%s before: %s, %d MiB", e.At.Sub(s.Time).Round(100*time.Millisecond), wording.Count(s.FDs, "descriptor", "descriptors"), s.Anon>>20)
		if s.Family.Processes > 0 {
			text += fmt.Sprintf(" and %d MiB in %s below", s.Family.Anon>>20, wording.Count(s.Family.Processes, "process", "processes"))
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// lastReadings picks those of the last minute that show how it went: the newest, and others ever farther apart.
func lastReadings(seconds []sample.Sample) []sample.Sample {
	var out []sample.Sample
	for _, ago := range []int{60, 30, 10, 3, 1} {
		if len(seconds) > ago {
			out = append(out, seconds[len(seconds)-1-ago])
		}
	}
	if n := len(seconds); n > 0 {
		out = append(out, seconds[n-1])
	}
	return out
}
