package cli

import (
	"context"
	"sync"
	"time"
)

// A keeper starts a private supervisor again when it dies, as systemd would: in the foreground, too, killing it must
// not end the chat.
type keeper struct {
	start func(context.Context) (*private, error)

	cancel context.CancelFunc
	wait   sync.WaitGroup
	now    *private // owned by keep until it has ended
}

const (
	// keepDelay is between a death and the next start; the chat waits for it without noticing.
	keepDelay = 500 * time.Millisecond
	// keepAtMost deaths within keepWindow end the keeping: something is wrong that a restart does not mend.
	keepAtMost = 5
	keepWindow = time.Minute
)

// begin starts the first one and returns when it is ready.
func (k *keeper) begin(ctx context.Context) error {
	first, err := k.start(ctx)
	if err != nil {
		return err
	}
	k.now = first
	// The signal that ends ctx is for the chat; the supervisor ends after it, in end.
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.wait.Go(func() { k.keep(ctx) })
	return nil
}

func (k *keeper) keep(ctx context.Context) {
	var deaths []time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.now.done:
		}
		if !k.now.died() {
			return // ended in order, by ctl stop
		}
		deaths = append(deaths, time.Now())
		if n := len(deaths); n >= keepAtMost && deaths[n-1].Sub(deaths[n-keepAtMost]) < keepWindow {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keepDelay):
		}
		if next, err := k.start(ctx); err == nil {
			k.now = next
		}
	}
}

// end stops the one that runs.
func (k *keeper) end(drain time.Duration) {
	k.cancel()
	k.wait.Wait()
	k.now.stop(drain)
}
