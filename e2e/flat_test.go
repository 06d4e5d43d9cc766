package e2e

import (
	"fmt"
	"testing"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// flatTolerance is how far counts of a busy process may differ between two looks: a health check or a sample may be
// under way in either.
const flatTolerance = 4

// settled returns the supervisor's status when its counts have come down to at most the given ones, or the last status.
func (s *system) settled(fds, goroutines int64) *controlv1.Supervisor {
	s.t.Helper()
	var last *controlv1.Supervisor
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		st, err := s.status()
		if err != nil {
			s.t.Fatal(err)
		}
		last = st.Supervisor
		if last.Fds <= fds && last.Goroutines <= goroutines {
			break
		}
	}
	return last
}

// flat runs load between two looks at the supervisor and compares its descriptors and goroutines.
func (s *system) flat(load func()) {
	s.t.Helper()
	time.Sleep(2 * time.Second) // every loop has turned once
	before := s.settled(0, 0)
	load()
	after := s.settled(before.Fds+flatTolerance, before.Goroutines+flatTolerance)
	s.t.Logf("descriptors %d → %d, goroutines %d → %d", before.Fds, after.Fds, before.Goroutines, after.Goroutines)
	if after.Fds > before.Fds+flatTolerance || after.Goroutines > before.Goroutines+flatTolerance {
		s.t.Error("the supervisor keeps something of what is over")
	}
}

func TestCrashCyclesLeaveNothingBehindInTheSupervisor(t *testing.T) {
	cycles := numberFromEnv("HERMES_E2E_CYCLES", 20)
	s := newSystem(t, quickRestarts)
	s.start()
	s.flat(func() {
		for range cycles {
			before := s.worker("kanban")
			if err := killPID(int(before.Pid)); err != nil {
				t.Fatal(err)
			}
			s.eventually(limit, "the worker is replaced", func() error {
				w := s.worker("kanban")
				if w.State != "ready" || w.Pid == before.Pid {
					return fmt.Errorf("pid %d, state %s", w.Pid, w.State)
				}
				return nil
			})
			for _, p := range descendants(s.pid()) {
				if p.state == "Z" {
					t.Errorf("zombie %d %s", p.pid, p.command)
				}
			}
		}
	})
}

func TestNotifierTicksLeaveNothingBehind(t *testing.T) {
	s := newSystem(t, quickRestarts+"  notify_interval: 100ms\n")
	s.start()
	ctx, client := s.session()
	sent := s.send(ctx, client, "m-1", "task: one to follow")
	if _, err := follow(ctx, client, sent.TurnId, nil); err != nil {
		t.Fatal(err)
	}
	boards, done := s.boards()
	defer done()
	worker := int64(0)
	s.flat(func() {
		worker = s.worker("kanban").Fds // by now a sample of the running worker, not of the starting one
		// Each look of the notifier is at the store, through the supervisor; these are more of them.
		for range numberFromEnv("HERMES_E2E_TICKS", 200) {
			if _, err := boards.ListTasks(ctx, &hostv1.ListTasksRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
	})
	if now := s.worker("kanban").Fds; now > worker+flatTolerance {
		t.Errorf("descriptors of the notifier: %d → %d", worker, now)
	}
}
