package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

const (
	// usualSilence is how long a supervisor may not answer the shortest of questions, which touches no store. A machine that
	// is short of memory can make it wait for some seconds.
	usualSilence = 10 * time.Second
	// lifeEvery is how long a command waits from one answer to the next question.
	lifeEvery = 5 * time.Second
)

// listenFor asks the supervisor again and again whether it lives, while a call runs. Calls may take minutes and streams have no
// end, so only this tells one that works from one that is frozen. After the silence it closes the connection, which ends
// whatever waits on it. The function that is returned ends the asking, and returns how long the silence was if it came to that.
func (p *program) listenFor(ctx context.Context, conn *grpc.ClientConn) func() time.Duration {
	limit := p.silence
	if limit == 0 {
		limit = usualSilence
	}
	ctx, cancel := context.WithCancel(ctx)
	var waited time.Duration
	var asking sync.WaitGroup
	asking.Go(func() {
		client := controlv1.NewOperationsClient(conn)
		for ctx.Err() == nil {
			if waited = silence(ctx, client, limit); waited > 0 {
				_ = conn.Close()
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(lifeEvery):
			}
		}
	})
	return func() time.Duration {
		cancel()
		asking.Wait()
		return waited
	}
}

// silence asks until limit has passed and returns how long that was, or 0 as soon as there is an answer, of whatever kind.
func silence(ctx context.Context, client controlv1.OperationsClient, limit time.Duration) time.Duration {
	for began := time.Now(); ; {
		asked, cancel := context.WithTimeout(ctx, min(limit, time.Second))
		_, err := client.Ping(asked, &controlv1.PingRequest{})
		cancel()
		if ctx.Err() != nil || !errors.Is(err, ipc.ErrTimeout) {
			return 0
		}
		if passed := time.Since(began); passed >= limit {
			return passed
		}
	}
}
