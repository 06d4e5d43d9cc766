package turn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

var errClosing = fmt.Errorf("the supervisor is stopping: %w", ipc.ErrGone)

// storeKinds maps what the store says to what a caller decides on.
var storeKinds = []struct{ from, to error }{
	{store.ErrNotFound, ipc.ErrNotFound},
	{store.ErrExists, ipc.ErrExists},
	{store.ErrLeaseLost, ipc.ErrLeaseLost},
	{store.ErrInvalid, ipc.ErrInvalid},
	{store.ErrTurnOpen, ipc.ErrRefused},
	{store.ErrNotAsked, ipc.ErrDenied},
	{store.ErrQueueFull, ipc.ErrBusy},
	{store.ErrBusy, ipc.ErrBusy},
	{store.ErrDiskFull, ipc.ErrFull}, // space may come back; nothing was stored
	{store.ErrReadOnly, ipc.ErrRefused},
	{store.ErrSuspended, ipc.ErrBusy}, // it may be healed within seconds; the outcome of a write under way is not known
	{store.ErrFailed, ipc.ErrRefused},
	{store.ErrClosed, ipc.ErrGone},
}

// wrap says what was being done and gives err its ipc kind.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return kinded(fmt.Errorf(format+": %w", append(args, err)...))
}

// kinded gives err its ipc kind. What the store says of a task has its name already.
func kinded(err error) error {
	for _, k := range storeKinds {
		if errors.Is(err, k.from) {
			return ipc.WithKind(err, k.to)
		}
	}
	return err
}

// definite says that repeating a write with the same arguments cannot change its result.
func definite(err error) bool {
	for _, e := range []error{store.ErrNotFound, store.ErrExists, store.ErrLeaseLost, store.ErrInvalid, store.ErrFailed, store.ErrClosed,
		store.ErrTurnOpen, store.ErrNotAsked} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// mayPass says that the store refuses by a state that ends, by itself or when a person has done something.
func mayPass(err error) bool {
	for _, e := range []error{store.ErrReadOnly, store.ErrDiskFull, store.ErrSuspended, store.ErrFailed, store.ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

const (
	storeTimeout  = 30 * time.Second // a foreign process may hold the write lock for 20 s
	firstRetry    = 50 * time.Millisecond
	longestRetry  = 5 * time.Second
	storeRetryLog = 10 * time.Second // a store that refuses for long is said once in this time
)

// persist repeats a write of the hub until it is stored, can never be, or ctx ends. The hub's own writes are not
// anybody's request, so there is nobody to hand an error to.
func (h *Hub) persist(ctx context.Context, what string, write func(context.Context) error) error {
	wait, quiet := firstRetry, time.Duration(0)
	for {
		wctx, cancel := context.WithTimeout(ctx, storeTimeout)
		err := write(wctx)
		cancel()
		if err == nil || ctx.Err() != nil || definite(err) {
			return err
		}
		if quiet <= 0 {
			h.log.Warn("store refuses, will repeat", "write", what, "error", err)
			quiet = storeRetryLog
		}
		if !sleep(ctx, wait) {
			return err
		}
		quiet -= wait
		wait = min(2*wait, longestRetry)
	}
}

// sleep waits for d and says whether it did so undisturbed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// detached returns a context that a caller's end does not cancel: a write that was begun is finished, so that the hub
// knows its outcome.
func (h *Hub) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.ctx, storeTimeout)
}
