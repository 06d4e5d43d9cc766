package supervisor

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/control"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// A historian keeps the readings of processes that have ended, so that a picture of a worker shows what came before its
// restart: that is when one looks.
type historian struct {
	list func() []seen // what lives now
	self *sample.Series

	mu      sync.Mutex
	workers map[string]*history
}

// newHistorian returns one that also watches this process.
func newHistorian(list func() []seen, sampler *sample.Sampler) (*historian, error) {
	self, err := sampler.WatchAlone(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("watch this process: %w", err)
	}
	return &historian{list: list, self: self}, nil
}

// seen is a worker with its process of this moment.
type seen struct {
	name   string
	series *sample.Series // nil if there is none
	memory int64          // its limit, 0 for none
}

// A history is the processes of one worker, the newest last.
type history struct {
	series []*sample.Series
	memory int64
}

const (
	// pastKept bounds the readings of ended processes of one worker, 40 bytes each: 200 KiB, as much as one that lives.
	pastKept = 5040
	// oldest is how far back a picture goes.
	oldest = 24 * time.Hour
)

// look looks for new processes. It is called after each round of samples.
func (h *historian) look(now time.Time) {
	list := h.list()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.workers == nil {
		h.workers = map[string]*history{}
	}
	for _, s := range list {
		at := h.workers[s.name]
		if at == nil {
			at = &history{}
			h.workers[s.name] = at
		}
		at.memory = s.memory
		if n := len(at.series); s.series != nil && (n == 0 || at.series[n-1] != s.series) {
			at.series = append(at.series, s.series)
			at.forget(now)
		}
	}
}

// forget drops what is too old or too much, the oldest first. The newest always stays.
func (h *history) forget(now time.Time) {
	total := 0
	for i := len(h.series) - 2; i >= 0; i-- {
		total += h.series[i].Len()
		if total > pastKept || now.Sub(h.series[i].Last().Time) > oldest {
			h.series = append([]*sample.Series(nil), h.series[i+1:]...)
			return
		}
	}
}

// Series returns the readings of a worker after since.
func (h *historian) Series(name string, since time.Time) (*controlv1.SeriesResponse, error) {
	if earliest := time.Now().Add(-oldest); since.Before(earliest) {
		since = earliest
	}
	out := &controlv1.SeriesResponse{Worker: name}
	if name == supervisorName {
		out.Pid, out.FdLimit = int64(os.Getpid()), h.self.FDLimit()
		out.Readings = readings(nil, h.self, since, true)
		return out, nil
	}
	h.look(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.workers[name]
	if at == nil {
		return nil, control.ErrNoWorker(name, append(slices.Sorted(maps.Keys(h.workers)), supervisorName))
	}
	out.MemoryLimit = at.memory
	for _, s := range at.series {
		out.Readings = readings(out.Readings, s, since, false)
		out.Pid, out.FdLimit = int64(s.PID()), s.FDLimit()
	}
	return out, nil
}

// readings appends those of one process. alone leaves out what is below it: the processes below the supervisor are its
// workers, which have series of their own.
func readings(to []*controlv1.Reading, s *sample.Series, since time.Time, alone bool) []*controlv1.Reading {
	for _, r := range s.History(since) {
		m := &controlv1.Reading{
			At: float64(r.Time.UnixMicro()) / 1e6, Pid: int64(s.PID()), Fds: r.FDs, RssBytes: r.RSS, AnonBytes: r.Anon,
			Threads: int64(r.Threads), CpuSeconds: r.CPU.Seconds(),
		}
		if !alone {
			m.BelowProcesses, m.BelowFds = int64(r.Family.Processes), r.Family.FDs
			m.BelowRssBytes, m.BelowAnonBytes = r.Family.RSS, r.Family.Anon
		}
		to = append(to, m)
	}
	return to
}

// seen lists the members with their processes of this moment.
func (f *fleet) seen() []seen {
	var list []seen
	for _, m := range f.list() {
		list = append(list, seen{name: m.Name(), series: m.Series(), memory: m.spec.Limits.Memory})
	}
	return list
}
