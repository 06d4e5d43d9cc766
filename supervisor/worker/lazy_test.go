package worker

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestALazyWorkerIsStartedWhenItIsNeededAndRestsMeanwhile(t *testing.T) {
	r := newRig(t)
	s := spec()
	s.Lazy = true
	w := r.live(s)
	for w.State() != Idle {
		time.Sleep(time.Millisecond)
	}
	if kinds := r.kinds(); len(kinds) != 0 {
		t.Fatalf("before anybody needed it there was %v", kinds)
	}
	w.Wake()
	_, n := r.await(0, kindReady)
	w.Rest()
	e, n := r.await(n, KindExited)
	if e.Fields["cause"] != CausePlanned || !strings.HasPrefix(e.Message, "idle; ") {
		t.Errorf("its rest is told as %q, %q", e.Fields["cause"], e.Message)
	}
	w.Wake()
	if _, n = r.await(n, kindReady); n == 0 {
		t.Error("it does not serve again")
	}
}

func TestARestIsNoStopAndAWakeIsNoStart(t *testing.T) {
	now := time.Now()
	m, _ := machine{lazy: true}.step(now, 0, evBegin{})
	if m.state != Idle {
		t.Fatalf("begins as %s", m.state)
	}
	step := func(ev any) []action {
		var a []action
		m, a = m.step(now, 0, ev)
		return a
	}
	step(evAsk{what: rest})
	if m.state != Idle {
		t.Errorf("rest while idle: %s", m.state)
	}
	if a := step(evAsk{what: wakeUp}); m.state != Starting || len(a) != 1 || a[0] != doLaunch || m.restarts != 0 {
		t.Fatalf("wake: %s, %v, %d restarts", m.state, a, m.restarts)
	}
	step(evReady{})
	m.history.Failures = 3
	step(evAsk{what: rest})
	step(evAsk{what: wakeUp}) // somebody needs it while it drains
	if m.state != Draining || m.intent != wakeUp {
		t.Fatalf("woken while it drains: %s, %v", m.state, m.intent)
	}
	step(evDrain{})
	if a := step(evExit{}); m.state != Starting || len(a) != 1 || m.history.Failures != 3 {
		t.Errorf("after its end: %s, %v, failures %v: a rest gives no restarts back", m.state, a, m.history.Failures)
	}
	step(evReady{})
	step(evAsk{what: down})
	step(evDrain{})
	step(evExit{})
	if step(evAsk{what: wakeUp}); m.state != Disabled {
		t.Errorf("a call has started what an operator stopped: %s", m.state)
	}
	busy, _ := machine{}.step(now, 0, evBegin{})
	busy, _ = busy.step(now, 0, evReady{})
	if busy, _ = busy.step(now, 0, evAsk{what: rest}); busy.state != Ready {
		t.Errorf("a worker that is not lazy was put to rest: %s", busy.state)
	}
}

func TestFilesOfAWorkerAreInheritedAndClosedHere(t *testing.T) {
	r := newRig(t)
	s := spec()
	var handed *os.File
	s.Files = func() ([]*os.File, error) {
		f, err := os.Open("/dev/null")
		handed = f
		return []*os.File{f}, err
	}
	w := r.live(s)
	r.await(0, kindReady)
	if err := handed.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is still open here: %v", err)
	}
	fds, err := w.Fds()
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds.Fds {
		if fd.Fd == 4 && fd.Target == "/dev/null" {
			return
		}
	}
	t.Errorf("descriptor 4 is not there: %v", fds.Fds)
}

func TestAFileThatCannotBeOpenedIsAStartThatAPersonHasToMend(t *testing.T) {
	r := newRig(t)
	s := spec()
	s.Files = func() ([]*os.File, error) { return nil, errors.New("the program was changed") }
	r.live(s)
	e, n := r.await(0, KindFailed)
	if e.Message != "the program was changed" {
		t.Errorf("%q", e.Message)
	}
	if e, _ := r.await(n, kindRestarting); e.Message != CannotStart {
		t.Errorf("what follows: %q", e.Message)
	}
}
