package sample

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A /proc that does not answer is what the watchdog must see: the sampler hangs in a read, and its count stands still.
func TestAHungProcStopsTheSamplersProgress(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "loadavg")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewSampler(Proc(dir), 10*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	// Opening for writing returns when the sampler has opened for reading: it is in its first round now and waits for a text.
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Progress(); n != 0 {
		t.Errorf("%d rounds while the first hangs", n)
	}
	cancel()
	_ = w.Close()
	<-done
}
