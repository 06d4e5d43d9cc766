package worker

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
)

func TestWhatIsSaidOfAProcessThatIsNotGone(t *testing.T) {
	for threads, want := range map[string]string{
		"":    "it was not gone 5s after SIGKILL",
		"R":   "it was not gone 5s after SIGKILL (state R), as on a very busy machine",
		"ZSS": "it was not gone 5s after SIGKILL (state Z), as on a very busy machine",
		"ZD":  "it was not gone 5s after SIGKILL, as it waits for a disk or another device (state D)",
	} {
		if got := notGone([]byte(threads), 5*time.Second); got != want {
			t.Errorf("%q: %q, want %q", threads, got, want)
		}
	}
}

// The supervisor may be what is slow: that is not said of the kernel.
func TestAProcessThatHasEndedIsNotSaidToLiveOn(t *testing.T) {
	r := newRig(t)
	ends := make(chan struct{})
	release := sync.OnceFunc(func() { close(ends) })
	defer release()
	r.env.Log = logs.NewBook(logs.Options{Redact: func(s string) string {
		if strings.HasPrefix(s, "panic: ") {
			<-ends
		}
		return s
	}})
	r.env.Timing.Term, r.env.Timing.Quit, r.env.Timing.Kill = 5*time.Second, 10*time.Millisecond, 10*time.Millisecond
	s := spec()
	s.Env = append(s.Env, "TESTWORKER_SAYS=panic: it takes a while to read this")
	w := r.live(s)
	w.awaitReady()
	pid := w.PID()
	if err := w.Stop(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	e, _ := r.await(0, KindExited)
	if e.PID != pid || e.Message != "its last output was not read, or what it left behind not ended, within 10ms; stop by a test; ended with code 0 after SIGTERM" {
		t.Errorf("%d: %q", e.PID, e.Message)
	}
	release()
	w.end()
	until(t, "its folder is gone", func() bool {
		left, err := os.ReadDir(r.runDir)
		return err == nil && len(left) == 0
	})
	r.env.Log.Close()
}
