package sample

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// run lets a sampler run in a bubble until the returned function is called.
func run(s *Sampler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Run(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}

func TestSamplerReadsAWorkerAndWhatIsBelowIt(t *testing.T) {
	p := tree(t)
	synctest.Test(t, func(t *testing.T) {
		s := NewSampler(p, 0)
		defer run(s)()
		r, err := s.Watch(100)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Last(); got.FDs != 8 || got.RSS != 18<<20 || got.Anon != 6<<20 || got.Threads != 9 {
			t.Errorf("first reading: %+v", got)
		}
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		if got := r.Last().Family; got != (Family{Processes: 2, Threads: 2, FDs: 3, RSS: 1536 << 10, Anon: 384 << 10}) {
			t.Errorf("family: %+v", got)
		}
		if n := len(r.Seconds(100)); n != 4 || s.Progress() != 3 || r.FDLimit() != 4096 {
			t.Errorf("%d readings, progress %d, limit %d", n, s.Progress(), r.FDLimit())
		}
		if d := r.Descendants(); len(d) != 2 {
			t.Errorf("descendants: %v", d)
		}
	})
}

func TestSamplerSeesProcessorTime(t *testing.T) {
	p := tree(t)
	synctest.Test(t, func(t *testing.T) {
		s := NewSampler(p, 0)
		defer run(s)()
		r, err := s.Watch(100)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second + time.Millisecond)
		stat := "100 (hermes-agent) S 1 100 100 0 -1 0 0 0 0 0 300 25 0 0 20 0 9 0 5000 0 0\n" // 3.25 s
		if err := os.WriteFile(p.path(100, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.CPUPercent(); got < 24 || got > 26 {
			t.Errorf("%.1f %%", got)
		}
	})
}

func TestSamplerLetsGoOfWhatIsGoneOrAnother(t *testing.T) {
	for name, change := range map[string]func(p Proc) error{
		"gone": func(p Proc) error { return os.RemoveAll(filepath.Join(string(p), "100")) },
		"pid used": func(p Proc) error {
			return os.WriteFile(p.path(100, "stat"), []byte("100 (other) S 1 100 100 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 9999 0 0\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := tree(t)
			synctest.Test(t, func(t *testing.T) {
				s := NewSampler(p, 0)
				defer run(s)()
				r, err := s.Watch(100)
				if err != nil {
					t.Fatal(err)
				}
				if err := change(p); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if n := len(r.Seconds(100)); n != 1 || len(s.watched(nil)) != 0 {
					t.Errorf("%d readings, %d watched", n, len(s.watched(nil)))
				}
				if r.Last().FDs != 8 {
					t.Error("what was read is not readable any more")
				}
			})
		})
	}
}

func TestSamplerKeepsTheLastReadingOfOneThatEnds(t *testing.T) {
	p := tree(t)
	synctest.Test(t, func(t *testing.T) {
		s := NewSampler(p, 0)
		defer run(s)()
		r, err := s.Watch(100)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.path(100, "status"), []byte("Name:\tx\nThreads:\t1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.Last().RSS != 18<<20 {
			t.Errorf("last reading: %+v", r.Last())
		}
	})
}

// The table of processes is read again only when there is a new process.
func TestSamplerSavesTheTable(t *testing.T) {
	p := tree(t)
	s := NewSampler(p, 0)
	list := func() []Stat {
		s.crowd.look(true)
		below, _ := s.crowd.below(100, nil, false)
		return below
	}
	below := func() int { return len(list()) }
	below() // two rounds look at each new process
	if n := below(); n != 2 {
		t.Fatalf("%d below", n)
	}
	if err := os.RemoveAll(filepath.Join(string(p), "201")); err != nil {
		t.Fatal(err)
	}
	if n := below(); n != 2 {
		t.Errorf("%d below although no process was made", n)
	}
	if f, _ := s.family(list(), false); f.Processes != 1 {
		t.Errorf("a process that is gone counts: %+v", f)
	}
	if err := os.WriteFile(filepath.Join(string(p), "loadavg"), []byte("0 0 0 1/1 16566\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := below(); n != 1 {
		t.Errorf("%d below after a new process", n)
	}
}

func TestRingsHoldAnHourAndADay(t *testing.T) {
	r := &Series{began: time.Unix(0, 0), seconds: ring{size: secondsKept}, minutes: ring{size: minutesKept}}
	for i := range 2 * 86_400 {
		r.add(time.Unix(int64(i), 0), Process{FDs: int64(i), RSS: int64(i) << 10}, Family{}, nil)
	}
	seconds, minutes := r.Seconds(1<<20), r.Minutes(1<<20)
	if len(seconds) != 3600 || len(minutes) != 1440 {
		t.Fatalf("%d seconds, %d minutes", len(seconds), len(minutes))
	}
	last := int64(2*86_400 - 1)
	if s := seconds[3599]; s.FDs != last || s.Time.Unix() != last || s.RSS != last<<10 {
		t.Errorf("newest: %+v", s)
	}
	if s := seconds[0]; s.FDs != last-3599 {
		t.Errorf("oldest second: %+v", s)
	}
	if s := minutes[0]; s.FDs != 2*86_400-1440*60 {
		t.Errorf("oldest minute: %+v", s)
	}
	if got := r.Seconds(2); len(got) != 2 || got[1].FDs != last {
		t.Errorf("newest two: %+v", got)
	}
}
