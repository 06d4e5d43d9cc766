package sample

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// ownFDs counts the descriptors of this process.
func ownFDs(t *testing.T) int64 {
	t.Helper()
	n, err := System.FDs(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// watchHousehold watches the parent of so many sleepers, which a first round has found.
func watchHousehold(t *testing.T, script string, most int) (s *Sampler, r *Series, below []int) {
	t.Helper()
	if !System.listsChildren() {
		t.Skip("this kernel keeps no lists of children")
	}
	pid, below := household(t, script)
	s = NewSampler(System, time.Hour)
	s.SpendBelow(3*most + 2)
	t.Cleanup(s.shut)
	t.Cleanup(s.clan.close)
	r, err := s.Watch(pid)
	if err != nil {
		t.Fatal(err)
	}
	rest(t, append(below, pid))
	s.tick(time.Now())
	if got := pids(r.Descendants()); !slices.Equal(got, slices.Sorted(slices.Values(below))) {
		t.Fatalf("%v below, want %v", got, below)
	}
	return s, r, below
}

// rest returns when all of them have become what they are to be, and sleep. One that is about to sleep is shown asleep while it
// still runs, so that its processor time has to stand still, too.
func rest(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		spent, still := int64(0), 0
		for n := 0; still < 3; n++ {
			s, err := System.Stat(pid)
			now := processorTime(pid)
			if still++; err != nil || s.Comm != "sleep" || s.State != 'S' || now != spent {
				spent, still = now, 0
			}
			if n == 5000 {
				t.Fatalf("%d does not come to rest", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// stir makes all kin look as if they had run since the last round.
func stir(s *Sampler) {
	for _, k := range s.clan.kin {
		k.memo.spent--
	}
}

const threeSleepers = `sleep 1000 & a=$!; sleep 1000 & b=$!; sleep 1000 & echo $a $b $!; exec sleep 1000`

func TestFilesOfWhatStaysBelowAreKeptOpenUntilItEnds(t *testing.T) {
	s, r, below := watchHousehold(t, threeSleepers, kinEyesMost)
	before := ownFDs(t)
	for range settledAfter {
		stir(s)
		s.tick(time.Now())
	}
	if n := ownFDs(t) - before; n != 9 {
		t.Fatalf("%d descriptors for three processes that work", n)
	}
	stir(s)
	s.tick(time.Now())
	want := Family{}
	for _, d := range r.Descendants() {
		p, err := System.use(d.PID)
		if err != nil || p.Start != d.Start || p.PPID != d.PPID || p.Session != d.Session {
			t.Fatalf("%+v, opened anew %+v, %v", d, p.Stat, err)
		}
		want.Processes, want.Threads, want.FDs = want.Processes+1, want.Threads+p.Threads, want.FDs+p.FDs
	}
	if got := r.Last().Family; got.Processes != 3 || got.Threads != want.Threads || got.FDs != want.FDs || got.RSS == 0 || got.Anon == 0 {
		t.Errorf("%+v, opened anew %+v", got, want)
	}
	for _, pid := range below {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		if s.tick(time.Now()); r.Last().Family.Processes == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if n := ownFDs(t) - before; n != 0 || len(s.clan.kin) != 0 || s.clan.seeing != 0 || len(r.Below()) != 0 {
		t.Errorf("%d descriptors more, %d kin, %d seen, below %v", n, len(s.clan.kin), s.clan.seeing, r.Below())
	}
}

func TestMoreProcessesBelowThanFilesMayBeOpen(t *testing.T) {
	s, r, below := watchHousehold(t, threeSleepers, 2)
	before := ownFDs(t)
	for range 3 * settledAfter {
		stir(s)
		s.tick(time.Now())
	}
	if n := ownFDs(t) - before; n != 6 || r.Last().Family.Processes != 3 {
		t.Errorf("%d descriptors, %+v", n, r.Last().Family)
	}
	// Who ends makes room for another.
	for id, k := range s.clan.kin {
		if k.eyes != nil {
			_ = syscall.Kill(id.pid, syscall.SIGKILL)
			break
		}
	}
	for range 1000 {
		stir(s)
		if s.tick(time.Now()); r.Last().Family.Processes == 2 && s.clan.seeing == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if n := ownFDs(t) - before; n != 6 || len(s.clan.kin) != 2 {
		t.Errorf("%d descriptors for %d of %v", n, len(s.clan.kin), below)
	}
}

func TestFilesOfWhatSleepsLongAreClosed(t *testing.T) {
	s, r, _ := watchHousehold(t, threeSleepers, kinEyesMost)
	before := ownFDs(t)
	for range settledAfter {
		stir(s)
		s.tick(time.Now())
	}
	for range 100 * longestSleep { // until the last of them has come to rest
		if s.tick(time.Now()); s.clan.seeing == 0 {
			break
		}
	}
	if n := ownFDs(t) - before; n != 0 || s.clan.seeing != 0 || r.Last().Family.Processes != 3 {
		t.Errorf("%d descriptors for three that sleep, %+v", n, r.Last().Family)
	}
}

func TestFilesBelowAreClosedWhenFewerMayBeSpent(t *testing.T) {
	s, r, _ := watchHousehold(t, threeSleepers, kinEyesMost)
	before := ownFDs(t)
	for range settledAfter {
		stir(s)
		s.tick(time.Now())
	}
	for _, may := range []int{2, 0} {
		s.SpendBelow(3 * may)
		for range settledAfter {
			stir(s)
			s.tick(time.Now())
		}
		if n := ownFDs(t) - before; n != int64(3*may) || s.clan.seeing != may || r.Last().Family.Processes != 3 {
			t.Errorf("%d descriptors where %d processes may have theirs, %+v", n, may, r.Last().Family)
		}
	}
}

func TestFilesBelowAreClosedWithTheSeries(t *testing.T) {
	s, r, _ := watchHousehold(t, threeSleepers, kinEyesMost)
	before := ownFDs(t) - 3 // those of the series
	for range settledAfter {
		stir(s)
		s.tick(time.Now())
	}
	r.Stop()
	s.tick(time.Now())
	if n := ownFDs(t) - before; n != 0 {
		t.Errorf("%d descriptors after the end of the series", n)
	}
}

func TestFilesBelowAreClosedWithTheSampler(t *testing.T) {
	s, _, _ := watchHousehold(t, threeSleepers, kinEyesMost)
	before := ownFDs(t) - 3
	for range settledAfter {
		stir(s)
		s.tick(time.Now())
	}
	s.clan.close()
	s.shut()
	if n := ownFDs(t) - before; n != 0 {
		t.Errorf("%d descriptors after the end of the sampler", n)
	}
}

// A pid that is used again is no kin: neither to files that are kept open, nor to what is remembered of it.
func TestAPIDThatIsUsedAgainBelowIsAnotherProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	now, err := System.Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("sleep", "1000")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	eyes := System.open(ended.Process.Pid)
	_ = ended.Process.Kill()
	_ = ended.Wait()
	c := newClan(System)
	defer c.close()
	// What had the pid before: one whose files were kept open, and one that was read by name.
	for _, k := range []*kin{{eyes: eyes}, {}} {
		if k.eyes != nil {
			c.seeing++
		}
		before := identity{now.PID, now.Start - 1}
		c.kin[before] = k
		c.begin()
		if _, ok := c.again(before); ok {
			t.Error("the process that has the pid now is taken for the one before")
		}
		if k, err := c.meet(now); err != nil || k.memo.seen.Start != now.Start {
			t.Errorf("%+v, %v", k, err)
		}
		c.sweep()
		if len(c.kin) != 1 || c.seeing != 0 {
			t.Errorf("%d kin, %d seen", len(c.kin), c.seeing)
		}
	}
}

// What a close look found between two rounds stays, although its pid is not new to the next one.
func TestWhatWasFoundBetweenRoundsStays(t *testing.T) {
	s, r, below := watchHousehold(t, threeSleepers, kinEyesMost)
	r.mu.Lock()
	r.below = nil
	r.mu.Unlock()
	r.LookBelow()
	s.tick(time.Now())
	s.tick(time.Now())
	if got := pids(r.Descendants()); !slices.Equal(got, slices.Sorted(slices.Values(below))) || r.Last().Family.FDs == 0 {
		t.Errorf("%v, %+v; want %v", got, r.Last().Family, below)
	}
}
