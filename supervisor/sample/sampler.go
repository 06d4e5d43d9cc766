package sample

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is the time between readings. A leak of 50 descriptors a second is seen ten times before a limit of 512.
const Interval = time.Second

// A Sampler reads all watched processes once an interval, from one goroutine (one timer for all of them, so that an
// idle supervisor wakes once a second and not once a worker).
type Sampler struct {
	proc  Proc
	every time.Duration
	ticks atomic.Uint64
	after []func(time.Time)

	mu     sync.Mutex
	series map[*Series]struct{}

	// Only the goroutine of Run uses these.
	crowd crowd
}

// NewSampler returns a sampler of proc. An interval of 0 is Interval.
func NewSampler(proc Proc, every time.Duration) *Sampler {
	if every <= 0 {
		every = Interval
	}
	return &Sampler{proc: proc, every: every, series: map[*Series]struct{}{}, crowd: crowd{proc: proc, lists: proc.listsChildren()}}
}

// Proc is what the sampler reads.
func (s *Sampler) Proc() Proc { return s.proc }

// After has f called in the goroutine of Run after each round of readings, with its time. What must happen once a second
// hangs on it, so that an idle supervisor is woken once for all. f must not block. It is called before Run.
func (s *Sampler) After(f func(now time.Time)) { s.after = append(s.after, f) }

// Adopt names what says to which watched process an orphan belongs that the kernel has given to this process, 0 for none: a
// command that goes into the background loses its parent within a moment. It is called before Run, and the function from the
// goroutine of Run.
func (s *Sampler) Adopt(owner func(Stat) (pid int)) { s.crowd.owner = owner }

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	r := newRhythm(s.proc, s.every)
	defer r.close()
	s.crowd.keep()
	defer s.crowd.close()
	defer s.shut()
	for {
		now, ok := r.next(ctx)
		if !ok {
			return
		}
		s.tick(now)
		for _, f := range s.after {
			f(now)
		}
	}
}

// Progress grows with every round of readings, for the watchdog.
func (s *Sampler) Progress() uint64 { return s.ticks.Load() }

// Watch begins a series of pid with a reading. The process must not have been waited for, so that pid is its own. It keeps
// three descriptors open until Stop or the end of Run.
func (s *Sampler) Watch(pid int) (*Series, error) { return s.watch(pid, false) }

// WatchAlone is Watch without what is below the process.
func (s *Sampler) WatchAlone(pid int) (*Series, error) { return s.watch(pid, true) }

func (s *Sampler) watch(pid int, alone bool) (*Series, error) {
	first, err := s.proc.Process(pid)
	if err != nil {
		return nil, err
	}
	r := &Series{
		pid: pid, start: first.Start, limit: first.FDLimit, began: time.Now(), sampler: s, alone: alone, eyes: s.proc.open(pid),
		seconds: ring{size: secondsKept}, minutes: ring{size: minutesKept},
	}
	r.add(time.Now(), first, Family{}, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.series[r] = struct{}{}
	return r, nil
}

func (s *Sampler) tick(now time.Time) {
	watched := s.watched()
	ran := false
	for _, r := range watched {
		p, err := s.reading(r)
		if err == nil && p.Start != r.start {
			err = ErrGone
		}
		if errors.Is(err, ErrGone) {
			r.Stop()
		}
		// What it held a moment before its end is the better evidence.
		r.now, r.read = p, err == nil && !p.Zombie() && p.RSS != 0
		r.stirs = r.stirs<<1 | r.stirring()
		ran = ran || !r.alone && r.stirs&3 != 0
	}
	s.crowd.look(ran)
	for _, r := range watched {
		switch {
		case !r.read:
		case r.alone:
			r.add(now, r.now, Family{}, nil)
		default:
			below, anew := s.crowd.below(r.pid, r.Descendants(), !r.looked)
			r.looked = true
			r.add(now, r.now, s.family(r, below, anew), below)
		}
	}
	s.ticks.Add(1)
}

func (s *Sampler) watched() []*Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Series, 0, len(s.series))
	for r := range s.series {
		out = append(out, r)
	}
	return out
}

// limitEvery is how many rounds a reading of the limits is good for. Only a person with prlimit changes them.
const limitEvery = 30

// reading reads one process, its limits only now and then.
func (s *Sampler) reading(r *Series) (Process, error) {
	p, err := r.use()
	if err != nil {
		return p, err
	}
	p.FDLimit = r.FDLimit()
	if s.ticks.Load()%limitEvery == 0 {
		p.FDLimit, err = s.proc.FDLimit(r.pid)
	}
	return p, err
}

// use reads the process of the series, but not its limit.
func (r *Series) use() (Process, error) {
	if r.eyes == nil {
		return r.sampler.proc.use(r.pid)
	}
	p, err := r.eyes.look(r.pid)
	if err == nil && p.FDs == 0 {
		p.FDs, err = r.sampler.proc.FDs(r.pid)
	}
	return p, err
}

// family adds up what is below a process, whose stats were read in this round if anew says so. What sleeps there is not read
// again.
func (s *Sampler) family(r *Series, below []Stat, anew bool) Family {
	var f Family
	known := r.kin
	r.kin = nil
	if len(below) > 0 {
		r.kin = make(map[int]memo, len(below))
	}
	for _, d := range below {
		p, err := s.relative(r, known[d.PID], d, anew)
		if err != nil || p.Start != d.Start || p.Zombie() {
			continue
		}
		f.Processes++
		f.Threads += p.Threads
		f.FDs += p.FDs
		f.RSS += p.RSS
		f.Anon += p.Anon
	}
	return f
}

// stirring is 1 if the process has run since the last round, or what is below it in the round before.
func (r *Series) stirring() uint8 {
	if r.eyes == nil || r.eyes.awake() {
		return 1
	}
	for _, m := range r.kin {
		if m.slept == 0 {
			return 1
		}
	}
	return 0
}

// relative reads one process below another, or remembers what it read.
func (s *Sampler) relative(r *Series, m memo, d Stat, anew bool) (Process, error) {
	if !s.proc.kernel() {
		return s.proc.use(d.PID)
	}
	spent, known := m.asleep(d.PID)
	if !known || m.seen.Start != d.Start {
		if !anew {
			now, err := s.proc.Stat(d.PID)
			if err != nil {
				return Process{}, err
			}
			d = now
		}
		p, err := s.proc.useOf(d)
		if err != nil {
			return p, err
		}
		m = memo{spent: spent, seen: p}
	}
	r.kin[d.PID] = m
	return m.seen, nil
}

// A Series is the readings of one process. It is safe for concurrent use.
type Series struct {
	pid     int
	start   uint64
	limit   int64
	began   time.Time
	sampler *Sampler
	eyes    *eyes // nil: its files are opened for each reading
	alone   bool  // what is below it is not read
	looked  bool  // for descendants, by the goroutine of Sampler.Run

	// For the goroutine of Sampler.Run alone:
	now   Process // the reading of this round, if read says so
	read  bool
	kin   map[int]memo // what is below, by pid
	stirs uint8        // a bit for each of the last rounds, the newest lowest: whether anything of it may have run

	mu         sync.Mutex
	seconds    ring
	minutes    ring
	lastMinute time.Time
	last, prev Sample
	state      byte
	below      []Stat
}

func (r *Series) add(now time.Time, p Process, f Family, below []Stat) {
	s := Sample{Time: now, FDs: p.FDs, Threads: p.Threads, RSS: p.RSS, Anon: p.Anon, CPU: p.CPU, Family: f}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit, r.state = p.FDLimit, p.State
	r.prev, r.last, r.below = r.last, s, below
	small := pack(r.began, s)
	r.seconds.add(small)
	if now.Sub(r.lastMinute) >= time.Minute {
		r.lastMinute = now
		r.minutes.add(small)
	}
}

// Refresh takes a reading at once: the first one, of a process that has just been made, says little.
func (r *Series) Refresh() {
	p, err := r.use()
	if err != nil || p.Start != r.start || p.Zombie() || p.RSS == 0 {
		return
	}
	p.FDLimit = r.FDLimit()
	r.add(time.Now(), p, r.Last().Family, r.Descendants())
}

// LookBelow looks for the descendants at once: what was made since the newest reading is unknown otherwise.
func (r *Series) LookBelow() {
	table, err := r.sampler.proc.Table()
	if err != nil {
		return
	}
	var below []Stat
	for _, pid := range table.Descendants(r.pid) {
		below = append(below, table[pid])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.below = below
}

// Last returns the newest reading.
func (r *Series) Last() Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Stopped says that the process was stopped at the newest reading, by a signal or a debugger.
func (r *Series) Stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == 'T' || r.state == 't'
}

// FDLimit returns the soft limit of the newest reading.
func (r *Series) FDLimit() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit
}

// CPUPercent returns the use of one processor between the two newest readings, in percent.
func (r *Series) CPUPercent() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	wall := r.last.Time.Sub(r.prev.Time)
	if r.prev.Time.IsZero() || wall <= 0 {
		return 0
	}
	return float64(r.last.CPU-r.prev.CPU) / float64(wall) * 100
}

// Descendants returns the processes that were below this one at the newest reading.
func (r *Series) Descendants() []Stat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.below
}

// Seconds returns up to n of the newest readings, oldest first.
func (r *Series) Seconds(n int) []Sample { return r.newest(&r.seconds, n) }

// Minutes returns up to n readings at one a minute, oldest first.
func (r *Series) Minutes(n int) []Sample { return r.newest(&r.minutes, n) }

// History returns the readings after since, oldest first: one a second as far as they are kept, before that one a minute.
func (r *Series) History(since time.Time) []Sample {
	seconds := r.Seconds(secondsKept)
	first := time.Now()
	if len(seconds) > 0 {
		first = seconds[0].Time
	}
	var out []Sample
	for _, s := range r.Minutes(minutesKept) {
		if s.Time.After(since) && s.Time.Before(first) {
			out = append(out, s)
		}
	}
	for _, s := range seconds {
		if s.Time.After(since) {
			out = append(out, s)
		}
	}
	return out
}

// Len returns how many readings are kept, which is what the series costs: 40 bytes each.
func (r *Series) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seconds.values) + len(r.minutes.values)
}

// PID returns the process of the series.
func (r *Series) PID() int { return r.pid }

func (r *Series) newest(from *ring, n int) []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Sample
	for _, p := range from.newest(n) {
		out = append(out, p.unpack(r.began))
	}
	return out
}

// Stop ends the series. What was read stays readable.
func (r *Series) Stop() {
	r.sampler.mu.Lock()
	delete(r.sampler.series, r)
	r.sampler.mu.Unlock()
	r.eyes.close()
}

// shut closes what the series keep open, as nothing will be read any more.
func (s *Sampler) shut() {
	for _, r := range s.watched() {
		r.eyes.close()
	}
}
