package sample

import "time"

// A Sample is one reading of a watched process and of everything below it.
type Sample struct {
	Time    time.Time
	FDs     int64
	Threads int
	RSS     int64
	Anon    int64
	CPU     time.Duration // since the start
	Family  Family        // its descendants
}

// A Family is the sum over the descendants of a process.
type Family struct {
	Processes int
	Threads   int // of the newest reading only
	FDs       int64
	RSS       int64
	Anon      int64
}

const (
	// secondsKept and minutesKept make an hour at full resolution and a day at one a minute: 160 KiB a process.
	secondsKept = 3600
	minutesKept = 1440
)

// packed is a Sample in 40 bytes. Sizes are in KiB, times in milliseconds after the series began.
type packed struct {
	at, cpu              uint32
	fds, familyFDs       uint32
	rss, anon            uint32
	familyRSS, familyMem uint32
	threads, processes   uint32
}

// A ring keeps the newest values. It grows to its size and not at once: most workers live for days, some for seconds.
type ring struct {
	size   int
	values []packed
	next   int
}

func (r *ring) add(p packed) {
	if len(r.values) < r.size {
		r.values = append(r.values, p)
		return
	}
	r.values[r.next] = p
	r.next = (r.next + 1) % r.size
}

// newest returns the last n values, oldest first.
func (r *ring) newest(n int) []packed {
	n = min(n, len(r.values))
	out := make([]packed, 0, n)
	for i := len(r.values) - n; i < len(r.values); i++ {
		out = append(out, r.values[(r.next+i)%len(r.values)])
	}
	return out
}

func pack(began time.Time, s Sample) packed {
	return packed{
		at: uint32(s.Time.Sub(began).Milliseconds()), cpu: uint32(s.CPU.Milliseconds()),
		fds: uint32(s.FDs), familyFDs: uint32(s.Family.FDs),
		rss: kib(s.RSS), anon: kib(s.Anon), familyRSS: kib(s.Family.RSS), familyMem: kib(s.Family.Anon),
		threads: uint32(s.Threads), processes: uint32(s.Family.Processes),
	}
}

func kib(n int64) uint32 { return uint32(min(n>>10, 1<<32-1)) }

func (p packed) unpack(began time.Time) Sample {
	return Sample{
		Time: began.Add(time.Duration(p.at) * time.Millisecond), CPU: time.Duration(p.cpu) * time.Millisecond,
		FDs: int64(p.fds), RSS: int64(p.rss) << 10, Anon: int64(p.anon) << 10, Threads: int(p.threads),
		Family: Family{
			Processes: int(p.processes), FDs: int64(p.familyFDs),
			RSS: int64(p.familyRSS) << 10, Anon: int64(p.familyMem) << 10,
		},
	}
}
