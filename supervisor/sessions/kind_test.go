package sessions

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Who asks for more than one read can give must not be told that the supervisor is frozen.
func TestAReadThatTookTooLongIsNoSilence(t *testing.T) {
	err := ipc.FromStatus("x", ipc.ToStatus(kind(fmt.Errorf("list: %w", store.ErrReadTooLong))))
	if !errors.Is(err, ipc.ErrBusy) || errors.Is(err, ipc.ErrTimeout) {
		t.Errorf("%v", err)
	}
}
