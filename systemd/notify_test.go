package systemd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMessagesReachTheSocketInTheProtocolsForm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000000")
	n, err := NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	if now, err := n.monotonic(); err != nil || now <= 0 || !n.Heard() {
		t.Errorf("monotonic clock %v, %v; heard %v", now, err, n.Heard())
	}
	n.clock = func() (time.Duration, error) { return 12 * time.Second, nil }
	if n.WatchdogInterval() != 3*time.Second {
		t.Errorf("watchdog interval %v", n.WatchdogInterval())
	}
	for _, c := range []struct {
		send func() error
		want string
	}{
		{func() error { return n.Ready("6 of 6 workers serve") }, "READY=1\nSTATUS=6 of 6 workers serve"},
		{func() error { return n.Status("two\nlines\tand a tab") }, "STATUS=two lines and a tab"},
		{func() error { return n.Stopping(90 * time.Second) }, "STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000"},
		{func() error { return n.ExtendTimeout(time.Millisecond) }, "EXTEND_TIMEOUT_USEC=1000"},
		{n.Ping, "WATCHDOG=1"},
		{func() error { return n.Reloading("reloading") }, "RELOADING=1\nMONOTONIC_USEC=12000000\nSTATUS=reloading"},
		{func() error { return n.Reloaded("ready") }, "READY=1\nSTATUS=ready"},
	} {
		if err := c.send(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		k, err := l.Read(buf)
		if err != nil || string(buf[:k]) != c.want {
			t.Errorf("got %q %v, want %q", buf[:k], err, c.want)
		}
	}
}

func TestWithoutAServiceManagerNothingHappens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	n, err := NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ready("x"); err != nil || n.WatchdogInterval() != 0 {
		t.Errorf("%v, interval %v", err, n.WatchdogInterval())
	}
	(&Watchdog{Notifier: n}).Run(context.Background()) // returns
}

func TestAMessageThatIsLostIsAnErrorThatNamesIt(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	t.Setenv("WATCHDOG_USEC", "")
	n, err := NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ready("x"); err == nil || !strings.Contains(err.Error(), "READY=1") {
		t.Errorf("got %v", err)
	}
}

func TestPingsStopWhileOneSourceStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		pings, stuckNames := 0, []string(nil)
		moves, frozen := uint64(0), false
		w := &Watchdog{
			Notifier: &Notifier{watchdog: 10 * time.Second, send: func(string) (bool, error) { pings++; return true, nil }},
			Sources: []Source{
				{Name: "queue", Progress: func() uint64 { moves++; return moves }},
				{Name: "writer", Progress: func() uint64 {
					mu.Lock()
					defer mu.Unlock()
					if frozen {
						return 0
					}
					return moves
				}},
			},
			Stuck: func(names []string) { stuckNames = append(stuckNames, names...) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		setFrozen := func(f bool) { mu.Lock(); frozen = f; mu.Unlock() }
		pass(21 * time.Second)
		if pings != 4 {
			t.Errorf("%d pings in two intervals, want 4", pings)
		}
		setFrozen(true)
		pass(30 * time.Second)
		if pings > 5 || !slices.Equal(stuckNames, []string{"writer"}) {
			t.Errorf("%d pings while the writer stood still, told of %v", pings, stuckNames)
		}
		setFrozen(false)
		before := pings
		pass(10 * time.Second)
		if pings <= before {
			t.Error("pings did not come back with progress")
		}
		cancel()
		<-done
	})
}

func TestAFailedPingIsToldAndNotFatal(t *testing.T) {
	var told error
	w := &Watchdog{
		Notifier: &Notifier{send: func(string) (bool, error) { return false, errors.New("socket is gone") }},
		Failed:   func(err error) { told = err },
	}
	w.check()
	if told == nil || !strings.Contains(told.Error(), "socket is gone") {
		t.Errorf("told %v", told)
	}
}
