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
	clan  *clan
	round []*Series // what the round reads, kept for its memory
}

// NewSampler returns a sampler of proc. An interval of 0 is Interval.
func NewSampler(proc Proc, every time.Duration) *Sampler {
	if every <= 0 {
		every = Interval
	}
	return &Sampler{
		proc: proc, every: every, series: map[*Series]struct{}{},
		crowd: crowd{proc: proc, lists: proc.listsChildren()}, clan: newClan(proc),
	}
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

// SpendBelow sets how many descriptors may be kept open for processes below the watched ones, KinDescriptors at most and if it is
// not called. Those that are too many are closed in the next round. It is safe for concurrent use.
func (s *Sampler) SpendBelow(descriptors int) {
	s.clan.most.Store(int64(min(descriptors/3, kinEyesMost)))
}

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	r := newRhythm(ctx, s.proc, s.every)
	defer r.close()
	s.crowd.keep()
	defer s.crowd.close()
	defer s.shut()
	defer s.clan.close()
	for {
		now, ok := r.next()
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
// three descriptors open until Stop or the end of Run, and as many for each of the processes below that work, KinDescriptors for
// all of them at most, until the round after.
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
	s.round = s.watched(s.round[:0])
	defer clear(s.round) // they may have been stopped
	watched, ran := s.round, false
	s.clan.begin()
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
		r.stirs = r.stirs<<1 | s.stirring(r)
		ran = ran || !r.alone && r.stirs&3 != 0
	}
	s.crowd.look(ran)
	for _, r := range watched {
		switch {
		case !r.read:
		case r.alone:
			r.add(now, r.now, Family{}, nil)
		default:
			below, anew := s.crowd.below(r.pid, r.kin, !r.looked)
			r.looked = true
			f, kin := s.family(below, anew)
			r.add(now, r.now, f, kin)
		}
	}
	s.clan.sweep()
	s.ticks.Add(1)
}

// watched appends the series that have not been stopped.
func (s *Sampler) watched(out []*Series) []*Series {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// stirring reads again what was below a process in the last round, which leaves those that live. It is 1 if any of them has run
// since, or the process itself.
func (s *Sampler) stirring(r *Series) (ran uint8) {
	if r.eyes == nil || r.eyes.awake() {
		ran = 1
	}
	r.kin = r.kin[:0]
	for _, d := range r.Below() {
		if !s.proc.kernel() {
			r.kin = append(r.kin, d.Stat)
			continue
		}
		k, ok := s.clan.again(identity{d.PID, d.Start})
		if ok {
			r.kin = append(r.kin, k.memo.seen.Stat)
		}
		if ok && k.memo.slept != 0 {
			continue
		}
		ran = 1 // one that has ended may have left others behind
		if ok {
			continue
		}
		if now, err := s.proc.Stat(d.PID); err == nil && now.Start == d.Start && !now.Zombie() {
			r.kin = append(r.kin, now) // its descriptors are kept from us, or it was found between the rounds
		}
	}
	return ran
}

// family reads what is below a process and adds it up. The stats were read in this round if anew says so.
func (s *Sampler) family(below []Stat, anew bool) (f Family, out []Process) {
	if len(below) > 0 {
		out = make([]Process, 0, len(below))
	}
	for _, d := range below {
		p, err := s.relative(d, anew)
		switch {
		case err != nil && !errors.Is(err, ErrGone):
			out = append(out, Process{Stat: d}) // it lives, whatever can be read of it
			continue
		case err != nil || p.Start != d.Start || p.Zombie():
			continue
		}
		f.Processes++
		f.Threads += p.Threads
		f.FDs += p.FDs
		f.RSS += p.RSS
		f.Anon += p.Anon
		out = append(out, p)
	}
	return f, out
}

// relative reads one process below another, or remembers what it read.
func (s *Sampler) relative(d Stat, anew bool) (Process, error) {
	if !s.proc.kernel() {
		return s.proc.use(d.PID)
	}
	if k, ok := s.clan.again(identity{d.PID, d.Start}); ok {
		return k.memo.seen, nil
	}
	if !anew {
		now, err := s.proc.Stat(d.PID)
		if err != nil {
			return Process{}, err
		}
		d = now
	}
	k, err := s.clan.meet(d)
	if err != nil {
		return Process{}, err
	}
	return k.memo.seen, nil
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
	kin   []Stat // what was below it in the last round and lives
	stirs uint8  // a bit for each of the last rounds, the newest lowest: whether anything of it may have run

	mu         sync.Mutex
	seconds    ring
	minutes    ring
	lastMinute time.Time
	last, prev Sample
	state      byte
	below      []Process // never written to, only replaced
}

func (r *Series) add(now time.Time, p Process, f Family, below []Process) {
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
	r.add(time.Now(), p, r.Last().Family, r.Below())
}

// LookBelow looks for the descendants at once: what was made since the newest reading is unknown otherwise.
func (r *Series) LookBelow() {
	table, err := r.sampler.proc.Table()
	if err != nil {
		return
	}
	var below []Process
	for _, pid := range table.Descendants(r.pid) {
		below = append(below, Process{Stat: table[pid]})
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
	below := r.Below()
	if len(below) == 0 {
		return nil
	}
	out := make([]Stat, 0, len(below))
	for _, p := range below {
		out = append(out, p.Stat)
	}
	return out
}

// Below returns the processes that were below this one at the newest reading, with what they held, but not their limits. It
// must not be written to.
func (r *Series) Below() []Process {
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
	for _, r := range s.watched(nil) {
		r.eyes.close()
	}
}
