package supervisor

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

func TestAStartGetsMoreTimeOnlyWhileItGetsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin, asked := time.Now(), []time.Duration{}
		// It works for a minute, reads for another, and then waits for ever.
		now := func() effort {
			at := time.Since(begin)
			return effort{cpu: min(at, time.Minute) / 10, bytes: uint64(max(0, min(at, 2*time.Minute)-time.Minute)/time.Second) << 20}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			extendStart(ctx, now, func(d time.Duration) error { asked = append(asked, time.Since(begin)+d); return nil })
		}()
		time.Sleep(10 * time.Minute)
		cancel()
		<-done
		if len(asked) == 0 {
			t.Fatal("it got no time")
		}
		if last := asked[len(asked)-1]; last < 2*time.Minute || last > 2*time.Minute+startExtend {
			t.Errorf("it has time until %v", last)
		}
		for i, until := range asked[1:] {
			if gap := until - asked[i]; gap > startLook {
				t.Errorf("between two requests are %v", gap)
			}
		}
	})
}

func TestAProcessThatWaitsMakesNoEffort(t *testing.T) {
	before := ownEffort()
	if before.cpu == 0 || before.bytes == 0 {
		t.Errorf("so far: %+v", before)
	}
	sum := 0
	for end := time.Now().Add(10 * time.Second); !ownEffort().since(before) && time.Now().Before(end); {
		for i := range 1_000_000 {
			sum += i
		}
	}
	if !ownEffort().since(before) {
		t.Errorf("work is not seen (%d)", sum)
	}
}

// A start that waits for another program says so where a person looks for it, and only as long as it is a start.
func TestAStartSaysWhatItWaitsFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	notify, err := systemd.NewNotifier()
	if err != nil {
		t.Fatal(err)
	}
	s := &supervisor{notify: notify, log: hclog.NewNullLogger()}
	s.state.Store(stateStarting)
	s.waitsFor("pid 7 (hermes) holds the lock")
	s.waitsFor("")
	s.state.Store(stateReady)
	s.waitsFor("pid 7 (hermes) holds the lock of a board")
	s.say(notify.Status("end"))
	for _, want := range []string{
		"STATUS=starting: pid 7 (hermes) holds the lock", "EXTEND_TIMEOUT_USEC=30000000", "STATUS=starting", "EXTEND_TIMEOUT_USEC=30000000", "STATUS=end",
	} {
		b := make([]byte, 1024)
		n, err := manager.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Errorf("the service manager got %q, %v, want %q", b[:n], err, want)
		}
	}
}
