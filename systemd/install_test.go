package systemd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded returns an installation into a folder of its own, and what it ran.
func recorded(t *testing.T) (*Installation, *[]string) {
	t.Helper()
	var ran []string
	return &Installation{Dir: filepath.Join(t.TempDir(), "units"), User: true, Run: func(_ context.Context, name string, args ...string) (string, error) {
		ran = append(ran, name+" "+strings.Join(args, " "))
		return "", nil
	}}, &ran
}

// failing is run, of which one verb fails.
func failing(run func(context.Context, string, ...string) (string, error), verb string, fault error) func(context.Context, string, ...string) (string, error) {
	return func(ctx context.Context, name string, args ...string) (string, error) {
		if slices.Contains(args, verb) {
			return "", fault
		}
		return run(ctx, name, args...)
	}
}

var unitFile = File{"a.service", []byte("[Service]\nExecStart=/bin/true\n")}

func TestInstallIsIdempotent(t *testing.T) {
	in, ran := recorded(t)
	changed, err := in.Install(t.Context(), []File{unitFile})
	if err != nil || len(changed.Wrote) != 1 {
		t.Fatal(changed, err)
	}
	if n := len(*ran); n != 2 || (*ran)[1] != "systemctl --user daemon-reload" || !strings.HasPrefix((*ran)[0], "systemd-analyze verify --recursive-errors=no --user ") {
		t.Errorf("ran %q", *ran)
	}
	if changed, err := in.Install(t.Context(), []File{unitFile}); err != nil || len(changed.Wrote) != 0 || len(*ran) != 3 {
		t.Errorf("again: %v %v, ran %q", changed, err, *ran)
	}
	newer := File{unitFile.Name, append([]byte("# newer\n"), unitFile.Text...)}
	if changed, err := in.Install(t.Context(), []File{newer}); err != nil || len(changed.Wrote) != 1 {
		t.Errorf("after an upgrade: %v %v", changed, err)
	}
	if removed, err := in.Uninstall(t.Context(), "a.socket", unitFile.Name); err != nil || len(removed) != 1 {
		t.Errorf("uninstall: %v %v", removed, err)
	}
	if removed, err := in.Uninstall(t.Context(), unitFile.Name); err != nil || len(removed) != 0 {
		t.Errorf("uninstall again: %v %v", removed, err)
	}
}

// A service that gets a watchdog while it runs is killed at once: the time of its last ping is that of its start.
func TestAServiceWhoseWatchdogHasChangedIsRestartedIfItRuns(t *testing.T) {
	with := func(more string) File { return File{unitFile.Name, append([]byte(more+"\n"), unitFile.Text...)} }
	for _, c := range []struct {
		name     string
		from, to File
		restarts bool
	}{
		{"a watchdog", unitFile, with("WatchdogSec=30"), true},
		{"another watchdog", with("WatchdogSec=30"), with("WatchdogSec=60"), true},
		{"another type", with("Type=simple"), with("Type=notify"), true},
		{"another folder of the sockets", with("RuntimeDirectory=a"), with("RuntimeDirectory=b"), true},
		{"another limit", with("WatchdogSec=30"), with("WatchdogSec=30\nLimitNOFILE=1"), false},
	} {
		in, ran := recorded(t)
		if _, err := in.Install(t.Context(), []File{c.from}); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(*ran, func(s string) bool { return strings.Contains(s, "try-restart") }) {
			t.Errorf("%s: restarted when it was installed", c.name)
		}
		if _, err := in.Install(t.Context(), []File{c.to}); err != nil {
			t.Fatal(err)
		}
		if got := (*ran)[len(*ran)-1] == "systemctl --user try-restart a.service"; got != c.restarts {
			t.Errorf("%s: ran %q", c.name, *ran)
		}
	}
}

// systemd opens a socket at its new path only when its unit starts, refuses that while the service is active, and removes the old
// one only while it has the old unit.
func TestASocketThatMovesIsStoppedWithItsServiceUntilTheUnitsAreRead(t *testing.T) {
	const none = "inactive"
	const reload, again = "systemctl --user daemon-reload", "systemctl --user try-restart a.service"
	stop, open, start := "systemctl --user stop a.socket a.service", "systemctl --user start a.socket", "systemctl --user start a.socket a.service"
	for _, c := range []struct {
		socket, service string
		want            []string
	}{
		{"active", "active", []string{stop, reload, start}},
		{"active", "activating", []string{stop, reload, start}},
		{"active", none, []string{stop, reload, open}},
		{none, "active", []string{reload, again}},
		{none, none, []string{reload, again}},
		{"", "", []string{reload, again}}, // no manager runs
	} {
		service, socket := pair(t, "/srv/hermes")
		in, ran := recorded(t)
		in.Home, in.RunName = "/srv/hermes", "0123456789"
		put(t, in.Dir, "a.service", earlier(t, "service"))
		put(t, in.Dir, "a.socket", earlier(t, "socket"))
		run := in.Run
		in.Run = func(ctx context.Context, name string, args ...string) (string, error) {
			if !slices.Contains(args, "is-active") {
				return run(ctx, name, args...)
			}
			state := map[string]string{"a.socket": c.socket, "a.service": c.service}[args[len(args)-1]]
			if state != "active" {
				return state + "\n", errors.New("exit status 3")
			}
			return state + "\n", nil
		}
		if done, err := in.Install(t.Context(), []File{service, socket}); err != nil || len(done.Wrote) != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		if got := (*ran)[1:]; !slices.Equal(got, c.want) {
			t.Errorf("socket %s, service %s: ran %q, want %q", c.socket, c.service, got, c.want)
		}
		in.Run, *ran = run, nil
		if done, err := in.Install(t.Context(), []File{service, socket}); err != nil || len(done.Wrote) > 0 || len(*ran) != 1 {
			t.Errorf("again: %+v, %v, ran %q", done, err, *ran)
		}
	}
}

func TestWhatWasStoppedForAnInstallationIsStartedWhenThatFails(t *testing.T) {
	service, socket := pair(t, "/srv/hermes")
	in, ran := recorded(t)
	in.Home, in.RunName = "/srv/hermes", "0123456789"
	put(t, in.Dir, "a.service", earlier(t, "service"))
	put(t, in.Dir, "a.socket", earlier(t, "socket"))
	run := in.Run
	in.Run = failing(func(ctx context.Context, name string, args ...string) (string, error) {
		if slices.Contains(args, "is-active") {
			return "active\n", nil
		}
		return run(ctx, name, args...)
	}, "daemon-reload", ErrSlow)
	done, err := in.Install(t.Context(), []File{service, socket})
	if !errors.Is(err, ErrSlow) || len(done.Wrote) != 2 || (*ran)[len(*ran)-1] != "systemctl --user start a.socket a.service" {
		t.Errorf("%+v, %v, ran %q", done, err, *ran)
	}
}

// What was written by an installation that was killed before the manager read it, or that the manager did not answer, is read by
// the next one.
func TestAnInstallationThatCameNoFurtherThanTheFilesIsFinishedByTheNext(t *testing.T) {
	in, ran := recorded(t)
	run := in.Run
	in.Run = failing(run, "daemon-reload", ErrSlow)
	if _, err := in.Install(t.Context(), []File{unitFile}); !errors.Is(err, ErrSlow) {
		t.Fatal(err)
	}
	in.Run = run
	if changed, err := in.Install(t.Context(), []File{unitFile}); err != nil || len(changed.Wrote) != 0 || !slices.Contains(*ran, "systemctl --user daemon-reload") {
		t.Errorf("changed %v, %v, ran %q", changed, err, *ran)
	}
}

func TestAnInstallationThatIsInterruptedWritesNothing(t *testing.T) {
	in, _ := recorded(t)
	ctx, cancel := context.WithCancel(t.Context())
	in.Run = func(context.Context, string, ...string) (string, error) {
		cancel()
		return "", errors.New("signal: killed")
	}
	if _, err := in.Install(ctx, []File{unitFile}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(in.Dir, unitFile.Name)); !errors.Is(err, os.ErrNotExist) {
		t.Error("it was written")
	}
}

// systemd refuses to make the socket of a service that is active.
func TestAServiceThatRunsWithoutItsSocketIsStoppedFirst(t *testing.T) {
	for _, active := range []bool{false, true} {
		in, ran := recorded(t)
		run := in.Run
		in.Run = func(ctx context.Context, name string, args ...string) (string, error) {
			out, err := run(ctx, name, args...)
			if !active && slices.Contains(args, "is-active") {
				err = errors.New("exit status 3")
			}
			return out, err
		}
		if err := in.MakeRoom(t.Context(), "a.socket", "a.service"); err != nil {
			t.Fatal(err)
		}
		if stopped := slices.Contains(*ran, "systemctl --user stop a.service"); stopped == active {
			t.Errorf("socket active %v: ran %q", active, *ran)
		}
	}
}

func TestAnEditedUnitIsOnlyTouchedByForce(t *testing.T) {
	in, _ := recorded(t)
	if _, err := in.Install(t.Context(), []File{unitFile}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(in.Dir, unitFile.Name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, edited := range []string{strings.Replace(string(text), "true", "false", 1), string(text) + "# mine\n", "[Service]\n"} {
		if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Install(t.Context(), []File{unitFile}); !errors.Is(err, ErrEdited) {
			t.Errorf("install over %q: %v", edited, err)
		}
		if _, err := in.Uninstall(t.Context(), unitFile.Name); !errors.Is(err, ErrEdited) {
			t.Errorf("uninstall of %q: %v", edited, err)
		}
	}
	in.Force = true
	if changed, err := in.Install(t.Context(), []File{unitFile}); err != nil || len(changed.Wrote) != 1 {
		t.Errorf("with force: %v %v", changed, err)
	}
}

func TestAUnitThatSystemdRefusesIsNotWritten(t *testing.T) {
	in, _ := recorded(t)
	in.Run = func(_ context.Context, name string, args ...string) (string, error) {
		return args[len(args)-1] + ":3: Unknown key name 'Exec'\nother.service: not ours", errors.New("exit status 1")
	}
	if _, err := in.Install(t.Context(), []File{unitFile}); err == nil || !strings.Contains(err.Error(), "Unknown key name") || strings.Contains(err.Error(), "not ours") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(in.Dir, unitFile.Name)); !errors.Is(err, os.ErrNotExist) {
		t.Error("it was written")
	}
}

func TestUnitsAreWrittenAndRemovedWhereNoManagerRuns(t *testing.T) {
	in, _ := recorded(t)
	for _, fault := range []error{exec.ErrNotFound, errors.New("exit 1: System has not been booted with systemd as init system")} {
		in.Run = func(context.Context, string, ...string) (string, error) { return "", fault }
		in.Dir = t.TempDir()
		if changed, err := in.Install(t.Context(), []File{unitFile}); err != nil || len(changed.Wrote) != 1 {
			t.Errorf("%v: %v %v", fault, changed, err)
		}
		if removed, err := in.Uninstall(t.Context(), unitFile.Name); err != nil || len(removed) != 1 {
			t.Errorf("%v: removed %v, %v", fault, removed, err)
		}
	}
}

func TestAManagerThatGivesNoAnswerIsWaitedForSoLongAndNoLonger(t *testing.T) {
	bin := t.TempDir()
	stuck := "#!/bin/sh\necho asked for $*\nexec sleep 1000\n"
	for _, name := range []string{"systemctl", "systemd-analyze"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(stuck), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	in := Installation{Dir: t.TempDir(), User: true, Limit: 100 * time.Millisecond}
	if err := in.Enable(t.Context(), "a.service"); !errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), "systemctl --user enable --now a.service: waited 100ms") {
		t.Errorf("enable: %v", err)
	}
	if _, err := in.Install(t.Context(), []File{unitFile}); !errors.Is(err, ErrSlow) {
		t.Errorf("install: %v", err)
	}
	if err := os.WriteFile(filepath.Join(in.Dir, unitFile.Name), sealed(unitFile.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	if removed, err := in.Uninstall(t.Context(), unitFile.Name); !errors.Is(err, ErrSlow) || len(removed) > 0 {
		t.Errorf("uninstall: removed %v, %v", removed, err)
	}
	for verb, want := range map[string]time.Duration{"enable": 10 * time.Minute, "disable": 10 * time.Minute, "daemon-reload": time.Minute} {
		if got := (Installation{}).limit([]string{"--user", verb}); got != want {
			t.Errorf("%s: %s", verb, got)
		}
	}
}
