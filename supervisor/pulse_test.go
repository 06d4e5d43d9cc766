package supervisor

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestAHomeNotesOnceAMinuteThatItsSupervisorLives(t *testing.T) {
	noted := make(chan time.Time)
	p := newPulse(func(at time.Time) { noted <- at })
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	defer running.Wait()
	defer stop()
	start := time.Date(2026, 3, 1, 22, 51, 0, 0, time.UTC)
	for s := range 121 {
		now := start.Add(time.Duration(s) * time.Second)
		p.beat(now)
		if s%60 == 0 {
			if at := <-noted; at != now {
				t.Errorf("noted %v at %v", at, now)
			}
		} else if len(p.due) > 0 {
			t.Errorf("a note is due after %d s", s)
		}
	}
}

// A frozen disk is the store's trouble: the sampler, which beats, goes on, so that it is the writer that is named as stuck.
func TestADiskThatHangsHoldsUpNoBeat(t *testing.T) {
	thawed, writing := make(chan struct{}), make(chan struct{}, 10)
	p := newPulse(func(time.Time) { writing <- struct{}{}; <-thawed })
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	defer running.Wait()
	defer stop()
	defer close(thawed)
	now := time.Unix(1000, 0)
	p.beat(now)
	<-writing
	for range 5 {
		now = now.Add(pulseEvery)
		p.beat(now)
	}
}
