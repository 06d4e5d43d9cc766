package sample

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestFilesKeptOpenShowWhatTheyShowWhenOpenedAnew(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	rest(t, []int{pid})
	e := System.open(pid)
	if e == nil {
		t.Fatal("nothing was opened")
	}
	defer e.close()
	for range 2 {
		got, err := e.look(pid)
		if err != nil {
			t.Fatal(err)
		}
		want, err := System.use(pid)
		if err != nil {
			t.Fatal(err)
		}
		if got.PID != want.PID || got.Start != want.Start || got.Threads != want.Threads || got.Comm != want.Comm || got.Anon > got.RSS {
			t.Errorf("%+v, opened anew %+v", got, want)
		}
		if got.FDs != 0 && got.FDs != want.FDs { // 0: before Linux 6.2
			t.Errorf("%d descriptors, opened anew %d", got.FDs, want.FDs)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := e.look(pid); !errors.Is(err, ErrGone) {
		t.Errorf("of a process that has ended: %v", err)
	}
	e.close()
	if _, err := e.look(pid); !errors.Is(err, ErrGone) {
		t.Errorf("after the end: %v", err)
	}
}

func TestResidentAndAnonymousBytes(t *testing.T) {
	for text, want := range map[string][2]int64{
		"447846 4639 3734 1604 0 34165 0\n": {4639 * pageSize, 905 * pageSize},
		"0 0 0 0 0 0 0\n":                   {0, 0},
		"12":                                {0, 0},
		"":                                  {0, 0},
	} {
		if rss, anon := parseStatm([]byte(text)); rss != want[0] || anon != want[1] {
			t.Errorf("%q: %d, %d", text, rss, anon)
		}
	}
}

func TestASeriesGivesItsDescriptorsBack(t *testing.T) {
	self := os.Getpid()
	s := NewSampler(System, time.Hour)
	count := func() int64 { n, _ := System.FDs(self); return n }
	before := count()
	for range 10 {
		r, err := s.WatchAlone(self)
		if err != nil {
			t.Fatal(err)
		}
		r.Stop()
		r.Stop()
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

func TestTheKernelsTimerBeatsUntilItIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := newKernelRhythm(ctx, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for range 3 {
		if now, ok := r.next(); !ok || now.IsZero() {
			t.Fatal("no beat")
		}
	}
	cancel()
	if _, ok := r.next(); ok {
		t.Error("it beats after the end")
	}
	slow, err := newKernelRhythm(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.close()
	if _, ok := slow.next(); ok {
		t.Error("it beats after the end")
	}
}
