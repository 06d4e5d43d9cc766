package supervisor

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestAWorkerJoinsAndLeavesARunningFleet(t *testing.T) {
	r := newRig(t)
	stays, leaves := r.add(r.spec("stays")), r.add(r.spec("leaves"))
	if err := r.fleet.add(r.spec("leaves")); !errors.Is(err, ipc.ErrExists) {
		t.Errorf("a second worker of one name: %v", err)
	}
	if err := r.fleet.add(r.spec(supervisorName)); !errors.Is(err, ipc.ErrExists) {
		t.Errorf("a worker with the name of the supervisor: %v", err)
	}
	pid := leaves.PID()
	if err := r.fleet.remove(t.Context(), "leaves", "no need"); err != nil {
		t.Fatal(err)
	}
	if e := r.await("the end is told", of("worker_exited", "leaves")); !strings.HasPrefix(e.Message, "no need") || e.Fields["cause"] != "planned" {
		t.Errorf("its end is told as %+v", e)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process of the removed worker: %v", err)
	}
	if _, err := r.fleet.find("leaves"); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("the removed worker is still found: %v", err)
	}
	if list := r.fleet.Status(); len(list) != 1 || list[0].Name != "stays" || stays.PID() != int(list[0].Pid) {
		t.Errorf("status %v", list)
	}
	if err := r.fleet.remove(t.Context(), "leaves", "no need"); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	r.add(r.spec("leaves"))
}

func TestARemovalThatIsNotWaitedForGoesOn(t *testing.T) {
	r := newRig(t)
	m := r.add(r.spec("tools"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.fleet.remove(ended, "tools", "no need"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-m.gone
	if list := r.fleet.Status(); len(list) != 0 {
		t.Errorf("status %v", list)
	}
}

func TestAFleetThatStopsTakesNobody(t *testing.T) {
	r := newRig(t)
	r.add(r.spec("tools"))
	r.fleet.stop(time.Minute, ipc.RoleTools)
	if err := r.fleet.add(r.spec("late")); !errors.Is(err, ipc.ErrGone) {
		t.Errorf("error %v", err)
	}
	if s := r.fleet.Status()[0].State; s != "exited" {
		t.Errorf("state %s", s)
	}
}

// What is being removed when all are stopped is gone when they are, and is not waited for to the end of the budget.
func TestAStopRightAfterARemovalReturnsWhenAllAreGone(t *testing.T) {
	r := newRig(t)
	leaves, stays := r.add(r.spec("leaves")), r.add(r.spec("stays"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = r.fleet.remove(ended, "leaves", "no need")
	begin := time.Now()
	r.fleet.stop(time.Hour, ipc.RoleTools)
	for _, m := range []*member{leaves, stays} {
		select {
		case <-m.gone:
		default:
			t.Errorf("%s is still there after %v", m.Name(), time.Since(begin))
		}
	}
}

// A worker that will not end its work is cut, so that its ladder fits into the budget.
func TestAStopKeepsToItsBudget(t *testing.T) {
	r := newRig(t)
	spec := r.spec("tools", "slow-drain", "1h")
	spec.Drain = time.Hour
	m := r.add(spec)
	r.fleet.stop(ladderReserve+time.Second, ipc.RoleTools)
	select {
	case <-m.gone:
	default:
		t.Error("it is still there")
	}
}

func TestWhoAskedIsKept(t *testing.T) {
	r := newRig(t)
	r.add(r.spec("tools"))
	ctx := ipc.WithIdentity(t.Context(), ipc.Identity{Worker: "operator (pid 77)", Role: ipc.RoleOperator})
	st, err := r.fleet.Restart(ctx, "tools")
	if err != nil {
		t.Fatal(err)
	}
	if st.LastExit.Cause != "operator" || !strings.Contains(st.LastExit.Message, "restart by operator (pid 77)") {
		t.Errorf("%v", st.LastExit)
	}
}

// Settings that have changed are no reason to forget how a worker has been doing.
func TestAWorkerWithNewSettingsGoesOnWithItsRestarts(t *testing.T) {
	r := newRig(t)
	first := r.add(r.spec("tools"))
	for range 2 {
		if _, err := r.fleet.Restart(t.Context(), "tools"); err != nil {
			t.Fatal(err)
		}
	}
	pid := first.PID()
	spec := r.spec("tools")
	spec.Limits.Memory = 512 << 20
	if down, err := r.fleet.replace(t.Context(), spec, "its settings have changed"); down || err != nil {
		t.Fatal(down, err)
	}
	m, err := r.fleet.member("tools")
	if err != nil {
		t.Fatal(err)
	}
	<-m.Ready()
	st := r.fleet.Status()[0]
	if st.Restarts != 3 || st.LastExit.GetPid() != int64(pid) || !strings.Contains(st.LastExit.GetMessage(), "its settings have changed") {
		t.Errorf("%v", st)
	}
	if e := r.await("its start", func(e store.Event) bool { return e.Kind == "worker_started" && e.PID == m.PID() }); e.Fields["incarnation"] != "4" {
		t.Errorf("its process is number %s of its name", e.Fields["incarnation"])
	}
}

func TestAWorkerThatWasStoppedByHandStaysSoWithNewSettings(t *testing.T) {
	r := newRig(t)
	r.add(r.spec("tools"))
	if _, err := r.fleet.Stop(t.Context(), "tools"); err != nil {
		t.Fatal(err)
	}
	if down, err := r.fleet.replace(t.Context(), r.spec("tools"), "its settings have changed"); !down || err != nil {
		t.Fatal(down, err)
	}
	if st := r.fleet.Status()[0]; st.State != "disabled" || st.Pid != 0 {
		t.Errorf("%v", st)
	}
	if st, err := r.fleet.Start(t.Context(), "tools"); err != nil || st.State != "ready" || st.Restarts != 1 {
		t.Errorf("%v %v", st, err)
	}
}
