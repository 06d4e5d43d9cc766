// Package systemd is what the supervisor says to its service manager: that it is ready, what it is doing, that it
// stops and how long that may take, and that it makes progress.
//
// Rules: without a service manager every call does nothing. A message that cannot be sent is an error for the log and
// never a reason to stop serving.
package systemd

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// A Notifier sends state to the service manager that started this process. Its methods are safe for concurrent use.
type Notifier struct {
	send     func(state string) (sent bool, err error)
	watchdog time.Duration
	heard    bool
	clock    func() (time.Duration, error) // the kernel's monotonic clock, which the service manager compares with its own
}

func (n *Notifier) monotonic() (time.Duration, error) {
	if n.clock == nil {
		return kernelClock()
	}
	return n.clock()
}

func kernelClock() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano()), err
}

// NewNotifier reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. A process without them gets a Notifier that is
// silent. An unreadable watchdog setting is an error: silence would end the service.
func NewNotifier() (*Notifier, error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("watchdog setting WATCHDOG_USEC=%q: %w", os.Getenv("WATCHDOG_USEC"), err)
	}
	return &Notifier{watchdog: interval, heard: os.Getenv("NOTIFY_SOCKET") != "", send: func(state string) (bool, error) { return daemon.SdNotify(false, state) }}, nil
}

// Heard says whether there is a service manager that listens.
func (n *Notifier) Heard() bool { return n.heard }

// WatchdogInterval is how often the service manager wants to hear of progress; 0 if it does not.
func (n *Notifier) WatchdogInterval() time.Duration { return n.watchdog }

// Ready says that everything required serves.
func (n *Notifier) Ready(status string) error { return n.notify("READY=1", statusField(status)) }

// Reloading says that a new configuration is being applied. Reloaded must follow.
func (n *Notifier) Reloading(status string) error {
	now, err := n.monotonic()
	if err != nil {
		return fmt.Errorf("tell service manager RELOADING=1: %w", err)
	}
	return n.notify("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(now.Microseconds(), 10), statusField(status))
}

// Reloaded says that the reload has ended, well or not: what serves, serves.
func (n *Notifier) Reloaded(status string) error { return n.Ready(status) }

// Status says in one line what is going on.
func (n *Notifier) Status(status string) error { return n.notify(statusField(status)) }

// Stopping says that the process has begun to stop and that this may take up to budget.
func (n *Notifier) Stopping(budget time.Duration) error {
	return n.notify("STOPPING=1", extend(budget))
}

// ExtendTimeout asks for more time for what is being done now, counted from now.
func (n *Notifier) ExtendTimeout(by time.Duration) error { return n.notify(extend(by)) }

// Ping says that there was progress since the last ping.
func (n *Notifier) Ping() error { return n.notify("WATCHDOG=1") }

func extend(by time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(by.Microseconds(), 10)
}

// statusField keeps a status on its line: a line break in it would begin another field.
func statusField(status string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, status)
}

func (n *Notifier) notify(fields ...string) error {
	if _, err := n.send(strings.Join(fields, "\n")); err != nil {
		return fmt.Errorf("tell service manager %s: %w", fields[0], err)
	}
	return nil
}
