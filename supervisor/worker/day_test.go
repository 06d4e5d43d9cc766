package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/leak"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
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
	st := &stage{ghosts: &ghosts{shape: shape, takes: takes}}
	st.Worker = New(Spec{Name: name, Drain: time.Minute, HealthInterval: 10 * time.Second}, Hooks{
		Up: func(ipc.Identity, grpc.ClientConnInterface) func() { return func() {} },
		Event: func(e store.Event) {
			st.mu.Lock()
			st.events = append(st.events, e.Kind)
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
		source := d.book.Source("flooding", 1)
		d.each(time.Minute, func(time.Time) {
			_ = source.Copy(logs.StreamStderr, logs.NewLineReader(strings.NewReader(strings.Repeat("a line that nobody reads\n", 5000))))
		})
		highest := int64(0)
		d.leaks(d.worker("leaking", 0, nil), 256, &highest)
		synctest.Wait()
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
