package sample

import (
	"os/exec"
	"testing"
)

// sleeper is a process that sleeps, and the eyes on it after a first reading.
func sleeper(t *testing.T) (pid int, e *eyes) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid = cmd.Process.Pid
	if e = System.open(pid); e == nil {
		t.Skip("the files of a process cannot be kept open")
	}
	t.Cleanup(e.close)
	rest(t, []int{pid})
	if _, err := e.look(pid); err != nil {
		t.Fatal(err)
	}
	return pid, e
}

func TestAProcessThatHasNotRunIsNotReadAgain(t *testing.T) {
	pid, e := sleeper(t)
	if _, err := e.look(pid); err != nil {
		t.Fatal(err)
	}
	for i := e.memo.slept; i < longestSleep-1; i++ {
		e.memo.seen.FDs = 12345 // shows where a reading comes from
		if p, err := e.look(pid); err != nil || p.FDs != 12345 {
			t.Fatalf("round %d: %+v, %v; it was read although it sleeps", i, p, err)
		}
	}
	if p, err := e.look(pid); err != nil || p.FDs == 12345 {
		t.Errorf("%+v, %v; what others do to it is seen after %d rounds at the latest", p, err, longestSleep)
	}
}

func TestAProcessThatHasRunIsReadAgain(t *testing.T) {
	pid, e := sleeper(t)
	e.memo.spent-- // a nanosecond is enough
	e.memo.seen.FDs = 12345
	if p, err := e.look(pid); err != nil || p.FDs == 12345 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestProcessorTimeOfAProcessThatIsGone(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if n := processorTime(cmd.Process.Pid); n != 0 {
		t.Errorf("%d ns", n)
	}
	var m memo
	if _, ok := m.asleep(cmd.Process.Pid); ok {
		t.Error("a process that is gone is taken for one that sleeps")
	}
}

// Whatever others on the machine do, a watched process that sleeps has made none.
func TestNewProcessesOfOthersAreNotLookedAtWhileAllSleep(t *testing.T) {
	c := crowd{proc: System, lists: true}
	c.look(true)
	c.look(true)
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	c.look(false)
	if c.stirred || len(c.fresh) > 0 {
		t.Errorf("%d processes were looked at", len(c.fresh))
	}
}
