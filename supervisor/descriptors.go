package supervisor

import (
	"fmt"
	"os"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

const (
	// ownDescriptors hold the three databases with their readers and guards, the control socket with some clients, the
	// lock and the runtime's own; measured 50 with an idle home.
	ownDescriptors = 80
	// workerDescriptors hold one worker: five while it lives, more while it is started and when its successor is
	// already there.
	workerDescriptors = 12
)

// A descriptorError says that the limit of open files is too low to run at all. It is a fault of the set-up.
type descriptorError struct{ limit, need int64 }

func (e *descriptorError) Error() string {
	return fmt.Sprintf("the limit of open files is %d, at least %d are needed; raise it with ulimit -n, or LimitNOFILE= in the service unit", e.limit, e.need)
}

// Unwrap makes commands exit with the code for configuration.
func (e *descriptorError) Unwrap() error { return config.ErrInvalid }

// enoughDescriptors refuses a limit under which workers would fail to start one after the other, each with an error
// that does not say why.
func enoughDescriptors(limit int64, workers int) error {
	need := int64(ownDescriptors + workers*workerDescriptors)
	if limit == sample.Unlimited || limit >= need {
		return nil
	}
	return &descriptorError{limit: limit, need: need}
}

// ownLimit is the soft limit of this process.
func ownLimit() (int64, error) {
	limit, err := sample.System.FDLimit(os.Getpid())
	if err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return limit, nil
}
