package supervisor

import (
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
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
	need := neededDescriptors(workers)
	if limit == sample.Unlimited || limit >= need {
		return nil
	}
	return &descriptorError{limit: limit, need: need}
}

func neededDescriptors(workers int) int64 { return int64(ownDescriptors + workers*workerDescriptors) }

// spareDescriptors returns how many may be kept open only to spare work: half of what is not needed, so that workers can be added.
func spareDescriptors(limit int64, workers int) int {
	if limit == sample.Unlimited {
		return sample.KinDescriptors
	}
	return int(max(0, limit-neededDescriptors(workers)) / 2)
}

// leaveRoom returns what is told, before a worker starts, how many there are with it: no more is kept open from then on than they
// leave. Known are those of the start, of which some (plugins) join only when they are called.
func leaveRoom(limit int64, known int, spend func(descriptors int)) (joined func(workers int)) {
	return func(workers int) { spend(spareDescriptors(limit, max(workers, known))) }
}

// sayOpenFiles logs what this process may open, and warns of workers that are configured to open more: what is above the hard limit is only given by root.
func sayOpenFiles(log hclog.Logger, specs []worker.Spec) {
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		log.Warn("the limit of open files cannot be read", "error", err)
		return
	}
	log.Info("limit of open files", "soft", limit.Cur, "hard", limit.Max)
	for _, s := range specs {
		if s.Limits.FDs > limit.Max {
			log.Warn("the limit of open files is below what is configured; raise it with ulimit -Hn, or LimitNOFILE= in the service unit",
				"worker", s.Name, "configured", s.Limits.FDs, "limit", limit.Max)
			return // one says it for all
		}
	}
}

// ownLimit is the soft limit of this process.
func ownLimit() (int64, error) {
	limit, err := sample.System.FDLimit(os.Getpid())
	if err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return limit, nil
}
