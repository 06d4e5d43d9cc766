package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
)

func TestAnInterruptedStartIsNotCalledSlow(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	s := &private{log: &tail{}, socket: t.TempDir() + "/control.sock", done: make(chan struct{})}
	if err := s.awaitReady(ctx); !errors.Is(err, ipc.ErrCancelled) || strings.Contains(err.Error(), "took too long") {
		t.Errorf("error %v", err)
	}
}
