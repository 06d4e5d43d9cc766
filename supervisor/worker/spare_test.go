package worker

import (
	"context"
	"syscall"
	"testing"
)

// spareOf waits for a spare and returns its process.
func (l *living) spareOf() int {
	l.rig.t.Helper()
	pid := 0
	until(l.rig.t, "a spare is ready", func() bool {
		pid = int(l.Status().SparePid)
		return pid != 0
	})
	return pid
}

func TestASpareTakesOverAtADeath(t *testing.T) {
	r := newRig(t)
	s := spec()
	s.Spares = 1
	w := r.live(s)
	w.awaitReady()
	_, n := r.await(0, kindReady)
	for range 3 {
		spare, old := w.spareOf(), w.PID()
		if st := w.Status(); spare == old || st.SpareRssBytes == 0 || st.SpareAnonBytes == 0 {
			t.Fatalf("status of the spare: %v", st)
		}
		_ = syscall.Kill(old, syscall.SIGKILL)
		_, n = r.await(n, kindReady)
		if w.PID() != spare {
			t.Errorf("process %d took over, not the spare %d", w.PID(), spare)
		}
	}
	spare := w.spareOf()
	if err := w.Stop(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	until(t, "the spare of a stopped worker ends", func() bool { return syscall.Kill(spare, 0) != nil })
	if pid := w.Status().SparePid; pid != 0 {
		t.Errorf("a stopped worker has the spare %d", pid)
	}
	if err := w.Start(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	w.spareOf()
	w.end()
	if left := marked(t, r.runDir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func TestADeadSpareHurtsNobody(t *testing.T) {
	r := newRig(t)
	s := spec()
	s.Spares = 1
	w := r.live(s)
	w.awaitReady()
	spare, old := w.spareOf(), w.PID()
	_ = syscall.Kill(spare, syscall.SIGKILL)
	until(t, "the spare is gone", func() bool { return w.Status().SparePid == 0 })
	if w.PID() != old || w.State() != Ready {
		t.Fatalf("the worker: %v", w.Status())
	}
	_, n := r.await(0, kindReady)
	_ = syscall.Kill(old, syscall.SIGKILL)
	r.await(n, kindReady)
	w.spareOf()
}
