package supervisor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// Descriptors below a worker have limits of their own: a shell child that leaks reaches EMFILE alone, and its worker is not
// replaced for it. But it is found, and named as what leaks, so that nobody looks for the fault in the worker.

const (
	// belowMost is how many processes below one worker are watched: a build makes thousands that live for a moment, and what
	// leaks is among the oldest.
	belowMost = 64
	// fullShare is the part of its own limit at which a process is named whatever its verdict.
	fullShare = 0.8
)

// A below is the watch over the descriptors of one process below a worker.
type below struct {
	stat     sample.Stat
	fds      int64
	most     int64 // that it has held
	limit    int64 // when it held them
	detector *leak.Detector
	kind     leak.Kind
	told     bool
}

// text names the process and what it holds.
func (b *below) text() string {
	return fmt.Sprintf("%s (process %d), which holds %d of %d", b.stat.Comm, b.stat.PID, b.fds, b.limit)
}

type processID struct {
	pid   int
	start uint64
}

// longestLiving returns the processes that were started first, at most belowMost.
func longestLiving(list []sample.Process) []sample.Process {
	if len(list) <= belowMost {
		return list
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b sample.Process) int { return cmp.Compare(a.Start, b.Start) })
	return list[:belowMost]
}

// lookBelow takes a reading of the processes below a worker. The lock is held.
func (l *leakWatch) lookBelow(due bool, r reading, at *watched) {
	alive := map[processID]*below{}
	for _, p := range r.children {
		id := processID{p.PID, p.Start}
		b := at.below[id]
		if b == nil {
			b = &below{detector: leak.NewDetector(leak.Descriptors), kind: leak.Learning}
		}
		alive[id] = b
		if b.stat = p.Stat; p.FDs == 0 {
			continue // not known: it was only just found, or is another user's
		}
		// A command sets limits of its own when it starts, or its shell does. They are of interest where it holds more than ever.
		if b.fds = p.FDs; b.fds > b.most {
			limit, err := l.recycle.proc.FDLimit(p.PID)
			if err != nil {
				continue // gone
			}
			b.most, b.limit = b.fds, limit
		}
		// What a command does is not known. What it holds at its quietest in a stretch of time stands for its idle moments.
		b.detector.Add(leak.Point{Time: r.at, Value: b.fds, Idle: true})
		full := b.limit > 0 && float64(b.fds) >= fullShare*float64(b.limit)
		if !due && !full && !b.detector.Pressing(b.limit) {
			continue
		}
		v := b.detector.Verdict(b.limit)
		b.kind = v.Kind
		if !b.told && (full || v.Kind.Grows()) {
			b.told = true
			l.tellBelow(r, b, v)
		}
	}
	at.below = alive
}

// tellBelow puts a leak below a worker on the timeline. The handles are listed by a goroutine, as that takes milliseconds.
func (l *leakWatch) tellBelow(r reading, b *below, v leak.Verdict) {
	e := store.Event{Kind: kindLeak, Worker: r.worker, PID: b.stat.PID, Fields: map[string]string{
		"quantity": v.Unit, "verdict": string(v.Kind), "confidence": fmt.Sprintf("%.2f", v.Confidence), "time_to_limit": v.TimeToLimit.Round(time.Second).String(),
		"command": b.stat.Comm, "below": "true",
	}}
	text := fmt.Sprintf("not %s itself but a process below it, %s descriptors: %s", r.worker, b.text(), v.Evidence)
	proc := l.recycle.proc
	l.recycle.beside(func() { // b is the watch's, whose lock is not held here
		if handles, err := proc.Handles(e.PID); err == nil {
			e.Fields["top_handles"] = topHandlesOf(handles)
			text += "; most of them are " + e.Fields["top_handles"]
		}
		e.Message = text
		l.record(e)
	})
}

// belowVerdict is the worst over the processes below, with its owner where it grows.
func (w *watched) belowVerdict() (kind leak.Kind, detail string) {
	var worst *below
	for _, b := range w.below {
		if worst == nil || badness(b.kind) > badness(worst.kind) || badness(b.kind) == badness(worst.kind) && b.fds > worst.fds {
			worst = b
		}
	}
	switch {
	case worst == nil:
		return "", ""
	case worst.kind.Grows() || worst.told:
		return worst.kind, worst.text()
	}
	return worst.kind, ""
}

// badness orders verdicts by how much a person should know of them.
func badness(k leak.Kind) int {
	switch k {
	case leak.Leak:
		return 4
	case leak.Staircase:
		return 3
	case leak.Burst:
		return 2
	case leak.Plateau:
		return 1
	}
	return 0
}

// topHandlesOf names the targets of which a process has the most handles.
func topHandlesOf(handles []sample.Handle) string {
	r := &controlv1.FdsResponse{}
	for _, h := range handles {
		r.Fds = append(r.Fds, &controlv1.Fd{Fd: int32(h.FD), Target: h.Target, Kind: h.Kind})
	}
	_, top := describeHandles(r)
	return top
}
