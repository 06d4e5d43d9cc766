package gatewaytest

import (
	"sync"
	"testing"
	"time"
)

// A Keeper keeps one worker running: one that dies is followed by another, at once.
type Keeper struct {
	t        testing.TB
	h        *Host
	settings map[string]any
	dir      string
	quit     chan struct{}
	done     chan struct{}

	mu     sync.Mutex
	worker *Worker
	deaths int
	logs   []string
}

// Keep starts a worker and keeps it running until the test ends.
func (h *Host) Keep(t testing.TB, settings map[string]any) *Keeper {
	t.Helper()
	k := &Keeper{t: t, h: h, settings: settings, dir: t.TempDir(), quit: make(chan struct{}), done: make(chan struct{})}
	w, err := h.Start(t, settings, k.dir)
	if err != nil {
		t.Fatalf("adapter does not start: %v", err)
	}
	k.worker = w
	go k.keep(w)
	t.Cleanup(k.Close)
	return k
}

func (k *Keeper) keep(w *Worker) {
	defer close(k.done)
	for {
		select {
		case <-w.Dead():
		case <-k.quit:
			w.Kill()
			k.retire(w)
			return
		}
		w.end()
		k.retire(w)
		next, ok := k.restart()
		if !ok {
			return
		}
		w = next
	}
}

func (k *Keeper) retire(w *Worker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs = append(k.logs, w.Log())
	k.deaths++
}

func (k *Keeper) restart() (*Worker, bool) {
	for {
		w, err := k.h.Start(k.t, k.settings, k.dir)
		if err == nil {
			k.mu.Lock()
			k.worker = w
			k.mu.Unlock()
			return w, true
		}
		k.t.Logf("adapter does not start again: %v", err)
		select {
		case <-k.quit:
			return nil, false
		case <-time.After(50 * time.Millisecond): // as the supervisor's first backoff
		}
	}
}

// Worker returns the one that runs now, or ran last.
func (k *Keeper) Worker() *Worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.worker
}

// Kill kills the worker that runs now.
func (k *Keeper) Kill() { k.Worker().Kill() }

// Close ends the worker.
func (k *Keeper) Close() {
	k.mu.Lock()
	select {
	case <-k.quit:
	default:
		close(k.quit)
	}
	k.mu.Unlock()
	<-k.done
	if k.t.Failed() {
		for i, log := range k.logs {
			k.t.Logf("log of worker %d:\n%s", i+1, log)
		}
	}
}
