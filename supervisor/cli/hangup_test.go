package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestAHangupEndsACommandAndReloadsASupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hangup
		signals := make(chan os.Signal)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go h.listen(ctx, signals, end)
		asked := h.reloads()
		h.had.Store(false) // a service has no terminal
		signals <- syscall.SIGHUP
		signals <- syscall.SIGHUP
		synctest.Wait()
		if len(asked) != 1 || ctx.Err() != nil {
			t.Errorf("%d requests, %v", len(asked), ctx.Err())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var h hangup
		signals := make(chan os.Signal)
		ctx, end := context.WithCancel(t.Context())
		go h.listen(ctx, signals, end)
		signals <- syscall.SIGHUP
		<-ctx.Done()
	})
}
