package systemd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are what the service manager holds of a unit, as far as the supervisor depends on it.
type Settings struct {
	Unit         string
	User         bool // of the user's own manager
	FragmentPath string
	Type         string
	KillMode     string
	NotifyAccess string
	StopTimeout  time.Duration // 0: none, it waits for ever
	Watchdog     time.Duration // 0: none
	OpenFiles    uint64
	Delegate     bool // it may divide its control group among its workers
	SharedDir    bool // it removes the folder in which services of earlier releases have their sockets, whatever their homes
	Loaded       bool
}

// settingsTimeout bounds the question: systemctl answers in some ms, and a manager that hangs must not hold a start.
const settingsTimeout = 5 * time.Second

// ErrNoSystemctl says that this machine has no systemctl.
var ErrNoSystemctl = errors.New("systemctl is not here")

// OwnUnit returns the service that this process runs in, by its control group. ok is false if it runs in none.
func OwnUnit() (unit string, user, ok bool) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false, false
	}
	return unitOfCgroup(string(text))
}

// unitOfCgroup finds the service in the text of /proc/PID/cgroup: the last part of a path that ends with .service, or the one before
// it where a supervisor has gone into a control group of its own.
func unitOfCgroup(text string) (unit string, user, ok bool) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[0] != "0" && parts[1] != "name=systemd" {
			continue
		}
		name := path.Base(strings.TrimSuffix(parts[2], "/supervisor"))
		if strings.HasSuffix(name, ".service") {
			return name, strings.Contains(parts[2], "/user@") && !strings.HasPrefix(name, "user@"), true
		}
	}
	return "", false, false
}

// ReadSettings asks systemctl for a unit.
func ReadSettings(ctx context.Context, unit string, user bool) (Settings, error) {
	systemctl, err := exec.LookPath("systemctl")
	if err != nil {
		return Settings{}, ErrNoSystemctl
	}
	args := []string{"show", "--property=LoadState,FragmentPath,Type,KillMode,NotifyAccess,TimeoutStopUSec,WatchdogUSec,LimitNOFILE,Delegate,RuntimeDirectory", "--", unit}
	if user {
		args = append([]string{"--user"}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, systemctl, args...)
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return Settings{}, fmt.Errorf("systemctl show %s: %w: %s", unit, err, strings.TrimSpace(stderr.String()))
	}
	s := parseSettings(string(out))
	s.Unit, s.User = unit, user
	return s, nil
}

// parseSettings reads what `systemctl show` prints. What it does not know it leaves out.
func parseSettings(text string) Settings {
	var s Settings
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		switch key {
		case "LoadState":
			s.Loaded = value == "loaded"
		case "FragmentPath":
			s.FragmentPath = value
		case "Type":
			s.Type = value
		case "KillMode":
			s.KillMode = value
		case "NotifyAccess":
			s.NotifyAccess = value
		case "TimeoutStopUSec":
			s.StopTimeout = parseSpan(value)
		case "WatchdogUSec":
			s.Watchdog = parseSpan(value)
		case "LimitNOFILE":
			s.OpenFiles = parseLimit(value)
		case "Delegate":
			s.Delegate = value == "yes"
		case "RuntimeDirectory":
			s.SharedDir = slices.Contains(strings.Fields(value), "hermes-supervisor")
		}
	}
	return s
}

func parseLimit(value string) uint64 {
	if value == "infinity" {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// spanUnits are those in which systemd prints a time span.
var spanUnits = map[string]time.Duration{
	"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "month": 2629800 * time.Second, "y": 31557600 * time.Second,
}

// parseSpan reads "1min 30s", "500ms" or "infinity", which is 0, as is what it cannot read.
func parseSpan(text string) time.Duration {
	var sum float64
	for _, word := range strings.Fields(text) {
		digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyz")
		n, err := strconv.ParseFloat(digits, 64)
		unit, known := spanUnits[word[len(digits):]]
		if err != nil || !known || n < 0 {
			return 0
		}
		sum += n * float64(unit)
	}
	if sum > math.MaxInt64/2 {
		return 0
	}
	return time.Duration(sum)
}

// leastFiles is the limit of open files below which the limits of workers could not be set: docs/config.md gives each 4096.
const leastFiles = 4096

// Misfits says in sentences what of the unit does not go with a drain of the given length, and what to do. It is what the
// supervisor says at its start and doctor says later.
func (s Settings) Misfits(drain time.Duration) []string {
	again := "; write the unit again: hermes-supervisor systemd install"
	if s.User {
		again += " --user"
	}
	var list []string
	need := time.Duration(Unit{Drain: drain}.StopSeconds()) * time.Second
	if s.StopTimeout > 0 && s.StopTimeout < need {
		list = append(list, fmt.Sprintf("%s allows %v for a stop and supervisor.drain_timeout needs %v, so that running turns would be cut off%s", s.Unit, s.StopTimeout, need, again))
	}
	if s.Type != "notify" && s.Type != "notify-reload" {
		list = append(list, fmt.Sprintf("%s is of Type=%s, so that nobody waits until the supervisor serves%s", s.Unit, s.Type, again))
	}
	if s.NotifyAccess == "none" {
		list = append(list, fmt.Sprintf("%s has NotifyAccess=none, so that the supervisor is not heard%s", s.Unit, again))
	}
	if s.Watchdog == 0 {
		list = append(list, fmt.Sprintf("%s has no WatchdogSec, so that a supervisor that is stuck stays so%s", s.Unit, again))
	}
	if s.KillMode != "mixed" && s.KillMode != "control-group" {
		list = append(list, fmt.Sprintf("%s has KillMode=%s, so that workers outlive a supervisor that is killed%s", s.Unit, s.KillMode, again))
	} else if s.KillMode == "control-group" {
		list = append(list, fmt.Sprintf("%s has KillMode=control-group, so that a stop ends the workers under their turns%s", s.Unit, again))
	}
	if s.OpenFiles < leastFiles {
		list = append(list, fmt.Sprintf("%s has LimitNOFILE=%d, which is too few for the workers' own limits%s", s.Unit, s.OpenFiles, again))
	}
	if !s.Delegate {
		list = append(list, fmt.Sprintf("%s has no Delegate=memory pids, so that the kernel holds no worker to its limits and the supervisor alone watches them%s", s.Unit, again))
	}
	if s.SharedDir {
		list = append(list, fmt.Sprintf("%s has RuntimeDirectory=hermes-supervisor, so that its stop can take away the sockets of other homes%s", s.Unit, again))
	}
	return list
}
