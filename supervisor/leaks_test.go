package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// watchFor feeds a watch one reading a second for d; value gives descriptors and memory after n seconds.
func watchFor(l *leakWatch, pid int, from time.Time, d time.Duration, value func(n int64) [2]int64) time.Time {
	for n := range int64(d / time.Second) {
		now := from.Add(time.Duration(n) * time.Second)
		l.observe(now, reading{worker: "tools", pid: pid, at: now, values: value(n), limits: [2]int64{1024, 1 << 30}})
	}
	return from.Add(d)
}

func newTestWatch() (*leakWatch, *[]store.Event) {
	var events []store.Event
	return &leakWatch{watched: map[string]*watched{}, record: func(e store.Event) { events = append(events, e) }}, &events
}

func TestALeakIsNamedOnceWithItsEvidence(t *testing.T) {
	l, events := newTestWatch()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	next := watchFor(l, 7, start, 5*time.Minute, func(int64) [2]int64 { return [2]int64{14, 20 << 20} })
	if v := l.verdict("tools"); v.Fds == "leak" || v.Rss == "leak" {
		t.Fatalf("a flat worker leaks: %v", v)
	}
	watchFor(l, 7, next, 10*time.Minute, func(n int64) [2]int64 { return [2]int64{14 + n, 20 << 20} })
	if v := l.verdict("tools"); v.Fds != "leak" {
		t.Errorf("one descriptor a second: %v", v)
	}
	if len(*events) != 1 {
		t.Fatalf("%d events: %v", len(*events), *events)
	}
	e := (*events)[0]
	if e.Kind != kindLeak || e.Worker != "tools" || e.PID != 7 || !strings.Contains(e.Message, "descriptors") {
		t.Errorf("event %+v", e)
	}
}

func TestANewProcessStartsWithoutTheLastOnesVerdict(t *testing.T) {
	l, events := newTestWatch()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	growing := func(n int64) [2]int64 { return [2]int64{14 + n, 20 << 20} }
	next := watchFor(l, 7, start, 10*time.Minute, growing)
	watchFor(l, 8, next, 30*time.Second, func(int64) [2]int64 { return [2]int64{14, 20 << 20} })
	if v := l.verdict("tools"); v.Fds == "leak" {
		t.Errorf("verdict of the new process: %v", v)
	}
	l.forget("tools")
	if v := l.verdict("tools"); v.Fds != "learning" || v.Rss != "learning" {
		t.Errorf("verdict of no process: %v", v)
	}
	if len(*events) != 1 {
		t.Errorf("events %v", *events)
	}
}

func TestWorkThatEndedSinceTheLastSampleMakesItBusy(t *testing.T) {
	l, events := newTestWatch()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// Descriptors that are there only while turns run: many, and given back in between.
	for n := range int64(1200) {
		now = now.Add(time.Second)
		r := reading{worker: "tools", pid: 7, at: now, values: [2]int64{14, 20 << 20}, limits: [2]int64{1024, 1 << 30}, progress: uint64(n / 60)}
		if n%60 == 0 {
			r.values[0] = 400 + n%7
		}
		l.observe(now, r)
	}
	if v := l.verdict("tools"); v.Fds == "leak" || v.Fds == "staircase" {
		t.Errorf("verdict %v", v)
	}
	if len(*events) != 0 {
		t.Errorf("events %v", *events)
	}
}

// A command that leaks is no fault of the worker that was told to run it, wherever it has gone.
func TestALeakBelowAWorkerIsNamedAsSuch(t *testing.T) {
	for _, fault := range []string{"leak-fds-below", "leak-fds-astray"} {
		t.Run(fault, func(t *testing.T) {
			r := newRig(t)
			spec := r.spec("tools", fault, "50")
			spec.Limits.FDs = 512
			m := r.add(spec)
			pid := m.PID()
			e := r.await("the leak", of(kindLeak, "tools"))
			if e.PID == pid || e.Fields["below"] != "true" || e.Fields["command"] != "testworker" || !strings.Contains(e.Fields["top_handles"], "/dev/null") ||
				!strings.HasPrefix(e.Message, fmt.Sprintf("not tools itself but a process below it, testworker (process %d)", e.PID)) {
				t.Errorf("%+v", e)
			}
			v := r.fleet.Status()[0].Verdict
			if v.Fds == "leak" || !strings.HasPrefix(v.BelowDetail, fmt.Sprintf("testworker (process %d), which holds", e.PID)) {
				t.Errorf("verdict %v", v)
			}
			handles, err := m.Fds()
			if err != nil || len(handles.Processes) != 2 || handles.Processes[1].Pid != int64(e.PID) || !handles.Processes[1].Detached {
				t.Errorf("handles: %v, %v", handles.GetProcesses(), err)
			}
			if m.PID() != pid {
				t.Error("the worker was replaced for it")
			}
		})
	}
}

// A shell sets the limit of what it runs, or a program its own, a moment after it was seen first.
func TestALimitThatAProcessBelowSetsLaterIsTheOneThatCounts(t *testing.T) {
	dir := t.TempDir()
	limit := func(n int) {
		text := fmt.Sprintf("Limit                     Soft Limit           Hard Limit           Units     \nMax open files            %d                 4096                 files     \n", n)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "9"), 0o700), os.WriteFile(filepath.Join(dir, "9", "limits"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	l, events := newTestWatch()
	l.recycle = &recycler{proc: sample.Proc(dir)}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limit(4096)
	for n := range int64(20) {
		child := sample.Process{Stat: sample.Stat{PID: 9, Comm: "python3", Start: 1}, FDs: 14 + 50*n}
		at := from.Add(time.Duration(n) * time.Second)
		l.observe(at, reading{
			worker: "tools", pid: 7, at: at, values: [2]int64{14, 20 << 20}, limits: [2]int64{1024, 1 << 30},
			children: []sample.Process{child, {Stat: sample.Stat{PID: 10, Start: 1}}}, // the second is not read yet
		})
		limit(1024)
	}
	l.recycle.wait()
	if len(*events) != 1 || (*events)[0].PID != 9 || !strings.Contains((*events)[0].Message, "python3 (process 9), which holds") || !strings.Contains((*events)[0].Message, "of 1024 descriptors") {
		t.Errorf("events %+v", *events)
	}
	if v := l.verdict("tools"); !strings.HasPrefix(v.BelowDetail, "python3 (process 9), which holds 964 of 1024") {
		t.Errorf("verdict %v", v)
	}
}
