package systemd

import (
	"strings"
	"testing"
	"time"
)

func TestTheOwnUnitIsFoundInTheControlGroup(t *testing.T) {
	for text, want := range map[string]struct {
		unit     string
		user, ok bool
	}{
		"0::/system.slice/hermes-supervisor.service\n":                                           {"hermes-supervisor.service", false, true},
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/hermes-supervisor.service\n": {"hermes-supervisor.service", true, true},
		"0::/system.slice/hermes-supervisor.service/supervisor\n":                                {"hermes-supervisor.service", false, true},
		"0::/user.slice/user-1000.slice/user@1000.service\n":                                     {"user@1000.service", false, true},
		"0::/user.slice/user-1000.slice/session-3.scope\n":                                       {},
		"2:cpu:/x.service\n1:name=systemd:/system.slice/a.service\n0::/\n":                       {"a.service", false, true},
		"":        {},
		"garbage": {},
	} {
		unit, user, ok := unitOfCgroup(text)
		if unit != want.unit || user != want.user || ok != want.ok {
			t.Errorf("%q: %q %v %v", text, unit, user, ok)
		}
	}
}

func TestTimeSpansOfSystemctlAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1min 30s": 90 * time.Second, "500ms": 500 * time.Millisecond, "2h": 2 * time.Hour, "infinity": 0, "": 0, "0": 0, "x": 0, "-3s": 0,
		"1d 2h 3min 4.5s": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond, "9999999999999y": 0,
	} {
		if got := parseSpan(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("LoadState=loaded\nTimeoutStopUSec=1min 30s\nLimitNOFILE=infinity\n", "0::/system.slice/a.service")
	f.Fuzz(func(t *testing.T, text, cgroup string) {
		s := parseSettings(text)
		if s.StopTimeout < 0 || s.Watchdog < 0 {
			t.Errorf("%q: %+v", text, s)
		}
		s.Misfits(time.Minute)
		unitOfCgroup(cgroup)
	})
}

// fitting is what `systemctl show` prints of the unit that this package renders for a drain of a minute.
const fitting = `Type=notify
NotifyAccess=main
TimeoutStopUSec=1min 30s
WatchdogUSec=30s
KillMode=mixed
LoadState=loaded
FragmentPath=/etc/systemd/system/hermes-supervisor.service
LimitNOFILE=65535
Delegate=yes
`

func TestAUnitThatDoesNotFitIsSaidInWords(t *testing.T) {
	if list := parseSettings(fitting).Misfits(time.Minute); len(list) != 0 {
		t.Errorf("the rendered unit: %v", list)
	}
	for change, want := range map[string]string{
		"TimeoutStopUSec=1min 29s": "allows 1m29s for a stop and supervisor.drain_timeout needs 1m30s",
		"TimeoutStopUSec=infinity": "",
		"Type=simple":              "nobody waits until the supervisor serves",
		"Type=notify-reload":       "",
		"NotifyAccess=none":        "is not heard",
		"WatchdogUSec=0":           "stays so",
		"KillMode=process":         "workers outlive a supervisor",
		"KillMode=control-group":   "a stop ends the workers under their turns",
		"LimitNOFILE=1024":         "LimitNOFILE=1024",
		"Delegate=no":              "no Delegate=memory pids",

		"RuntimeDirectory=hermes-supervisor":            "the sockets of other homes",
		"RuntimeDirectory=hermes-supervisor-0123456789": "",
	} {
		s := parseSettings(fitting + change + "\n")
		s.Unit, s.User = "u.service", true
		got := strings.Join(s.Misfits(time.Minute), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "systemd install --user") {
			t.Errorf("%s: %q", change, got)
		}
	}
}
