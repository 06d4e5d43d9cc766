package sessions

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// A full disk has an exit code of its own, whoever meets it.
func TestAFullDiskIsToldFromABusyStore(t *testing.T) {
	err := ipc.FromStatus("x", ipc.ToStatus(kind(fmt.Errorf("import: %w", store.ErrDiskFull))))
	if !errors.Is(err, ipc.ErrFull) {
		t.Errorf("%v", err)
	}
}

// Who asks for more than one read can give must not be told that the supervisor is frozen.
func TestAReadThatTookTooLongIsNoSilence(t *testing.T) {
	err := ipc.FromStatus("x", ipc.ToStatus(kind(fmt.Errorf("list: %w", store.ErrReadTooLong))))
	if !errors.Is(err, ipc.ErrBusy) || errors.Is(err, ipc.ErrTimeout) {
		t.Errorf("%v", err)
	}
}
