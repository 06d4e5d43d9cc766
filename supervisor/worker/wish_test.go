package worker

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestAReplacementAheadOfALimitDrainsAndIsNoFailure(t *testing.T) {
	slow := func(g *ghost) { g.drains = 7 * time.Second }
	play(t, Spec{Name: "w", Drain: time.Minute}, slow, func(t *testing.T, s *stage) {
		time.Sleep(2 * time.Minute)
		old := s.ghosts.last()
		if err := s.Recycle(t.Context(), "it holds 80 % of its limit", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if s.State() != Draining {
			t.Errorf("while it drains: %s", s.State())
		}
		time.Sleep(2 * time.Second)
		st := s.Status()
		if s.State() != Ready || s.ghosts.starts() != 2 || !old.planned || s.happened(kindRestarting) != 1 {
			t.Errorf("%s, %d starts, announced %v", s.State(), s.ghosts.starts(), old.planned)
		}
		if st.LastExit.Cause != CausePlanned || !strings.Contains(st.LastExit.Message, "80 %") || st.Detail != "" {
			t.Errorf("status %v", st)
		}
	})
}

func TestAnUrgentReplacementDoesNotDrain(t *testing.T) {
	slow := func(g *ghost) { g.drains = time.Hour }
	play(t, Spec{Name: "w", Drain: time.Hour}, slow, func(t *testing.T, s *stage) {
		if err := s.Recycle(t.Context(), "first without haste", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := s.Recycle(t.Context(), "95 %", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s.State() != Ready || s.ghosts.starts() != 2 {
			t.Errorf("%s, %d starts", s.State(), s.ghosts.starts())
		}
	})
}

func TestAWorkerThatIsReplacedAllTheTimeGoesToTheSlowLaneAndSaysSo(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		for range 12 {
			time.Sleep(2 * time.Minute)
			_ = s.Recycle(t.Context(), "it leaks", false)
			time.Sleep(time.Second)
			if s.State() != Ready {
				t.Fatalf("%s after %d starts", s.State(), s.ghosts.starts())
			}
		}
		time.Sleep(2 * time.Minute)
		_ = s.Recycle(t.Context(), "it leaks", false)
		time.Sleep(time.Second)
		if s.State() != Degraded || s.happened(KindDegraded) != 1 || !strings.Contains(s.Status().Detail, "13 times within 1h") {
			t.Errorf("%s: %s", s.State(), s.Status().Detail)
		}
	})
}

func TestAWorkerOverItsMemoryIsKilledAndThatIsAFailure(t *testing.T) {
	play(t, Spec{Name: "w", Drain: time.Hour}, nil, func(t *testing.T, s *stage) {
		old := s.ghosts.last()
		if err := s.EndOver(t.Context(), CauseMemory, "70 MiB, its limit is 64 MiB"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		st := s.Status()
		if s.State() != Ready || st.LastExit.Cause != CauseMemory || !strings.Contains(st.LastExit.Message, "70 MiB") {
			t.Errorf("%s, %v", s.State(), st.LastExit)
		}
		if old.endedFrom[0] != doKill || old.planned {
			t.Errorf("ended from %v, planned %v", old.endedFrom, old.planned)
		}
	})
}

func TestAnOperatorNeverWaitsButKeepsTheBudget(t *testing.T) {
	play(t, Spec{Name: "w"}, nil, func(t *testing.T, s *stage) {
		for range 8 {
			before := time.Now()
			if err := s.Restart(context.Background(), "somebody"); err != nil || time.Since(before) > time.Second {
				t.Fatalf("a restart by hand took %s: %v", time.Since(before), err)
			}
		}
		if e := s.Status().LastExit; e.Cause != CauseOperator || !strings.Contains(e.Message, "restart by somebody") {
			t.Errorf("exit %v", e)
		}
		s.ghosts.last().die()
		time.Sleep(time.Second)
		if s.State() != Degraded {
			t.Errorf("a death after eight restarts within seconds: %s", s.State())
		}
		if err := s.Start(context.Background(), "somebody"); err != nil || s.State() != Ready {
			t.Errorf("a start by hand: %v, %s", err, s.State())
		}
	})
}

func TestAnEndForGoodIsHastened(t *testing.T) {
	slow := func(g *ghost) { g.drains = time.Hour }
	play(t, Spec{Name: "w", Drain: time.Hour}, slow, func(t *testing.T, s *stage) {
		over := make(chan struct{})
		go func() {
			s.end()
			close(over)
		}()
		time.Sleep(time.Minute)
		if s.State() != Draining {
			t.Fatalf("%s", s.State())
		}
		if err := s.Hasten(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		<-over
		if s.State() != Exited {
			t.Errorf("%s", s.State())
		}
	})
}
