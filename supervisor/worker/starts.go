package worker

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Starts bounds how many workers start at a time. Sixty of them at once would fight for the processors until all run into
// the limit of a start. A nil *Starts bounds nothing.
type Starts struct {
	places chan struct{}
}

// NewStarts returns a bound that fits this machine: one start a processor, at least four, as a start waits more than it
// works.
func NewStarts() *Starts {
	return &Starts{places: make(chan struct{}, max(4, runtime.NumCPU()))}
}

// hold is the longest that one start keeps others waiting. A worker starts in a tenth of a second; one that hangs must not
// hold back those that do not.
const hold = 2 * time.Second

// enter waits for a place. leave, which is never nil and may be called at any time, gives it back; so does hold.
func (s *Starts) enter(ctx context.Context) (leave func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return func() {}, context.Cause(ctx)
	}
	once := sync.OnceFunc(func() { <-s.places })
	limit := time.AfterFunc(hold, once)
	return func() {
		limit.Stop()
		once()
	}, nil
}
