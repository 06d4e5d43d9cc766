package supervisor

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

// lookAtUnit learns what the service manager holds of this service, if it runs as one, and says what does not fit. It runs
// beside the start: the answer is needed at the stop at the earliest.
func (s *supervisor) lookAtUnit(ctx context.Context) {
	unit, user, ok := systemd.OwnUnit()
	if !ok || !s.notify.Heard() {
		return
	}
	settings, err := systemd.ReadSettings(ctx, unit, user)
	if err != nil {
		if !errors.Is(err, systemd.ErrNoSystemctl) && ctx.Err() == nil {
			s.log.Debug("unit not looked at", "error", err)
		}
		return
	}
	s.unit.Store(&settings)
	for _, misfit := range s.misfits() {
		s.log.Warn(misfit)
	}
}

// misfits says what of the unit does not go with the configuration in force.
func (s *supervisor) misfits() []string {
	settings := s.unit.Load()
	if settings == nil {
		return nil
	}
	return settings.Misfits(s.config().Supervisor.DrainTimeout)
}

// toJournal is where log lines go if stderr is the journal, nil if it is not.
func (s *supervisor) toJournal() func(logs.JournalEntry) error {
	if !s.o.Journal {
		return nil
	}
	return func(e logs.JournalEntry) error { return systemd.SendToJournal(e.Message, priority(e.Level), e.Fields) }
}

func priority(l hclog.Level) systemd.Priority {
	switch {
	case l >= hclog.Error:
		return systemd.PriorityError
	case l == hclog.Warn:
		return systemd.PriorityWarning
	case l <= hclog.Debug:
		return systemd.PriorityDebug
	}
	return systemd.PriorityInfo
}
