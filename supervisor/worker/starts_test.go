package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestStartsAreStaggered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Starts{places: make(chan struct{}, 2)}
		first, _ := s.enter(t.Context())
		second, _ := s.enter(t.Context())
		entered := make(chan func())
		go func() {
			third, err := s.enter(t.Context())
			if err != nil {
				t.Error(err)
			}
			entered <- third
		}()
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("three start at a time")
		default:
		}
		first()
		first()
		third := <-entered
		// One that hangs gives its place up.
		began := time.Now()
		fourth, err := s.enter(t.Context())
		if err != nil || time.Since(began) != hold {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		for _, leave := range []func(){second, third, fourth} {
			leave()
		}
		if len(s.places) != 0 {
			t.Errorf("%d places are taken for ever", len(s.places))
		}
	})
}

func TestAStartThatWaitsCanBeBrokenOff(t *testing.T) {
	s := &Starts{places: make(chan struct{}, 1)}
	leave, _ := s.enter(t.Context())
	defer leave()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errAborted)
	if _, err := s.enter(ctx); !errors.Is(err, errAborted) {
		t.Errorf("%v", err)
	}
}

func TestNoBoundBoundsNothing(t *testing.T) {
	leave, err := (*Starts)(nil).enter(t.Context())
	leave()
	if err != nil {
		t.Error(err)
	}
}
