package worker

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

// A day is 24 hours of workers side by side, in virtual time, under the policy, the life and the leak detector.
type day struct {
	t       *testing.T
	ctx     context.Context
	book    *logs.Book
	running sync.WaitGroup
	workers map[string]*stage
}

// worker lets one live. shape makes each of its processes what it is.
func (d *day) worker(name string, takes time.Duration, shape func(*ghost)) *stage {
	return d.workerUnder(Policy{}, name, takes, shape)
}

func (d *day) workerUnder(policy Policy, name string, takes time.Duration, shape func(*ghost)) *stage {
	st := &stage{ghosts: &ghosts{shape: shape, takes: takes, few: true}, events: map[string]int{}}
	st.Worker = New(Spec{Name: name, Drain: time.Minute, HealthInterval: 10 * time.Second, Policy: policy}, Hooks{
		Up: func(ipc.Identity, grpc.ClientConnInterface) func() { return func() {} },
		Event: func(e store.Event) {
			st.mu.Lock()
			st.events[e.Kind]++
			st.mu.Unlock()
		},
	}, Env{Log: d.book})
	st.launcher, st.jitter = st.ghosts, func() float64 { return 0.5 }
	d.workers[name] = st
	d.running.Go(func() { st.Run(d.ctx) })
	return st
}

// each runs f so often until the day ends.
func (d *day) each(every time.Duration, f func(now time.Time)) {
	d.running.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				f(now)
			case <-d.ctx.Done():
				return
			}
		}
	})
}

// leaks lets a worker take a descriptor every ten seconds, watched as the supervisor does. highest is the most it ever held.
func (d *day) leaks(st *stage, limit int64, highest *int64) {
	detector, last := leak.NewDetector(leak.Descriptors), (*ghost)(nil)
	held := int64(15)
	d.each(10*time.Second, func(now time.Time) {
		if st.State() != Ready {
			return
		}
		if g := st.ghosts.last(); g != last {
			detector, last, held = leak.NewDetector(leak.Descriptors), g, 15
		}
		held++
		*highest = max(*highest, held)
		detector.Add(leak.Point{Time: now, Value: held, Idle: true})
		if advice, why := leak.Action(detector.Verdict(limit), held, limit); advice != leak.Keep {
			_ = st.Recycle(d.ctx, why, advice == leak.RecycleNow)
		}
	})
}

// flood lets a worker print far more than anybody reads.
func (d *day) flood(name string) {
	source := d.book.Source(name, 1)
	// What the log keeps of the newest lines has a bound, and is full from the beginning.
	for n := range 10_000 {
		d.book.Add(logs.Line{Worker: name, Level: hclog.Info, Stream: logs.StreamStderr, Message: fmt.Sprintf("line %d that nobody reads", n)})
	}
	d.each(time.Minute, func(time.Time) {
		_ = source.Copy(logs.StreamStderr, logs.NewLineReader(strings.NewReader(strings.Repeat("a line that nobody reads\n", 5000))))
	})
}

// wear lets two workers be replaced thousands of times, by their own doing and by an operator: what is kept of each adds up.
func (d *day) wear(dies func(*ghost)) {
	quick := Policy{MaxDelay: 200 * time.Millisecond, SlowLane: []time.Duration{500 * time.Millisecond}, Recycles: 1 << 20}
	d.workerUnder(quick, "dying all day", 0, dies)
	restarted := d.worker("restarted all day", 0, nil)
	d.each(20*time.Second, func(time.Time) { _ = restarted.Restart(d.ctx, "a test") })
}

// held is what the supervising process itself holds at an hour, and how many starts there were until then.
type held struct{ fds, goroutines, objects, bytes, starts int64 }

// heldAt lets the day go on until an hour, and looks when all is at rest.
func (d *day) heldAt(began time.Time, hour time.Duration) held {
	d.t.Helper()
	time.Sleep(time.Until(began.Add(hour)))
	synctest.Wait()
	runtime.GC()
	runtime.GC() // what lies in a sync.Pool outlives the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := sample.System.FDs(os.Getpid())
	if err != nil {
		d.t.Fatal(err)
	}
	h := held{fds: fds, goroutines: int64(runtime.NumGoroutine()), objects: int64(m.HeapObjects), bytes: int64(m.HeapAlloc)}
	for _, st := range d.workers {
		h.starts += int64(st.ghosts.starts())
	}
	d.t.Logf("after %v: %+v", hour, h)
	return h
}

// bytesOfOne start are kept at most, as the log may still be filling up with its newest lines. An object, however small it is,
// is counted as well.
const bytesOfOne = 48

// flat says whether nothing was kept of the starts between two looks. Half an object for each is a leak; what the log still
// takes in after the first hour is a fifth of one, and what happens to be under way at a look a hundred in all.
func (d *day) flat(before, after held) {
	d.t.Helper()
	n := after.starts - before.starts
	if n < 2000 {
		d.t.Errorf("only %d starts: too few to see a leak", n)
	}
	if after.objects-before.objects > n/2 || after.bytes-before.bytes > bytesOfOne*n || after.goroutines > before.goroutines+20 || after.fds > before.fds+2 {
		d.t.Errorf("it held %+v and then, %d starts later, %+v", before, n, after)
	}
}

func TestADayOfBadNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		d := &day{t: t, ctx: ctx, book: logs.NewBook(logs.Options{}), workers: map[string]*stage{}}
		defer d.book.Close()
		dies := func(after time.Duration) func(*ghost) {
			return func(g *ghost) { time.AfterFunc(after, g.die) }
		}
		d.worker("well", 0, nil)
		d.worker("slow to start", 9*time.Second, nil)
		d.worker("crashing", 0, dies(time.Second))
		d.worker("dying now and then", 0, dies(3*time.Hour))
		d.worker("freezing", 0, func(g *ghost) {
			time.AfterFunc(time.Hour, func() {
				g.mu.Lock()
				g.answers = false
				g.mu.Unlock()
			})
		})
		d.worker("flooding", 0, nil)
		d.flood("flooding")
		highest := int64(0)
		d.leaks(d.worker("leaking", 0, nil), 256, &highest)
		d.wear(dies(10 * time.Second))
		began := time.Now()
		synctest.Wait()
		morning, noon := d.heldAt(began, time.Hour), d.heldAt(began, 12*time.Hour)
		night := d.heldAt(began, 24*time.Hour-time.Second)
		d.flat(morning, noon)
		d.flat(noon, night)
		d.running.Wait()

		for name, want := range map[string][2]int{
			"well": {1, 1}, "slow to start": {1, 1}, "flooding": {1, 1},
			"dying now and then": {8, 8},
			"freezing":           {23, 24},
			"leaking":            {100, 170},
			"crashing":           {280, 310},
		} {
			if n := d.workers[name].ghosts.starts(); n < want[0] || n > want[1] {
				t.Errorf("%s: %d starts, want %d to %d", name, n, want[0], want[1])
			}
			if n := d.workers[name].Status().Restarts; (n > 0) == (want == [2]int{1, 1}) {
				t.Errorf("%s: %d restarts", name, n)
			}
		}
		if highest >= 256 {
			t.Errorf("the leak reached its limit: %d", highest)
		}
		for name, kinds := range map[string][]string{"crashing": {KindDegraded}, "dying now and then": nil, "freezing": nil, "leaking": nil} {
			if got := d.workers[name].happened(KindDegraded); (got > 0) != (kinds != nil) {
				t.Errorf("%s was degraded %d times", name, got)
			}
		}
		if fmt.Sprint(d.book.Dropped("flooding")) == "0" {
			t.Error("the flood was kept whole")
		}
	})
}
