package systemd

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// kept returns the lines of a unit file that a running unit must not be given, or does not take, by a reload of the manager alone: a
// service that gets a watchdog while it runs is killed within a second, as its last ping is old, and sockets stay where they were.
func kept(text []byte) (lines string) {
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, "=")
		if slices.Contains([]string{"Type", "WatchdogSec", "RuntimeDirectory", "ListenStream"}, key) {
			lines += line
		}
	}
	return lines
}

// pause stops a socket that the manager holds, if it is among the units, and its service. It returns those that were running, to be
// started when the files are written: the manager refuses to open a socket while its service is active, and only by the old file does
// it know which socket to remove. Both are stopped at once, so that no command starts the service between.
func (in Installation) pause(ctx context.Context, units []string) (paused []string, err error) {
	i := slices.IndexFunc(units, func(unit string) bool { return strings.HasSuffix(unit, ".socket") })
	if i < 0 {
		return nil, nil
	}
	socket, service := units[i], strings.TrimSuffix(units[i], ".socket")+".service"
	for _, unit := range []string{socket, service} {
		runs, err := in.runs(ctx, unit)
		if err != nil {
			return nil, err
		}
		if runs {
			paused = append(paused, unit)
		}
	}
	if !slices.Contains(paused, socket) {
		return nil, nil
	}
	return paused, in.systemctl(ctx, "stop", socket, service)
}

// resume starts what was paused.
func (in Installation) resume(ctx context.Context, paused []string) error {
	if len(paused) == 0 {
		return nil
	}
	return in.systemctl(ctx, append([]string{"start"}, paused...)...)
}

// restart starts those services anew that run.
func (in Installation) restart(ctx context.Context, units []string) error {
	for _, unit := range units {
		if strings.HasSuffix(unit, ".socket") {
			continue // nobody holds it
		}
		if err := in.systemctl(ctx, "try-restart", unit); err != nil && !notRunning(err) {
			return err
		}
	}
	return nil
}

// runs says whether a unit runs or is about to. Without a manager none does.
func (in Installation) runs(ctx context.Context, unit string) (bool, error) {
	out, err := in.run(ctx, "systemctl", in.scoped("is-active", unit)...)
	if errors.Is(err, ErrSlow) || ctx.Err() != nil {
		return false, err
	}
	return slices.Contains([]string{"active", "activating", "reloading"}, strings.TrimSpace(out)), nil
}
