package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func TestAMomentIsAnAgeATimeOfDayOrADate(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	// The clocks went forward from 2:00 to 3:00 in the night before.
	now := time.Date(2026, 3, 29, 9, 30, 0, 0, berlin)
	for text, want := range map[string]string{
		"1h30m": "2026-03-29 08:00:00 +0200", "90s": "2026-03-29 09:28:30 +0200", "0": "2026-03-29 09:30:00 +0200",
		"24h": "2026-03-28 08:30:00 +0100", "2w": "2026-03-15 08:30:00 +0100", "1d": "2026-03-28 08:30:00 +0100", "1": "2026-03-28 08:30:00 +0100",
		"09:30": "2026-03-29 09:30:00 +0200", "9:29": "2026-03-29 09:29:00 +0200", "22:51": "2026-03-28 22:51:00 +0100", "22:51:04": "2026-03-28 22:51:04 +0100",
		"02:30":      "2026-03-29 03:30:00 +0200", // no clock showed it
		"2026-01-31": "2026-01-31 00:00:00 +0100", "2026-03-28 22:51": "2026-03-28 22:51:00 +0100", "2026-03-28T22:51:04": "2026-03-28 22:51:04 +0100",
		"2026-03-28T22:51:04Z": "2026-03-28 22:51:04 +0000",
		"":                     "", "yesterday": "", "-1h": "", "25:00": "", "1y": "", "NaN": "", "1e300d": "", "2026-02-30": "",
	} {
		got, err := parseWhen(text, now)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is read as %v", text, got)
		case want != "" && (err != nil || got.Format("2006-01-02 15:04:05 -0700") != want):
			t.Errorf("%q is %v (%v), want %s", text, got, err, want)
		}
	}
}

func FuzzAMomentIsNeverInTheFuture(f *testing.F) {
	for _, text := range []string{"1h", "22:51", "3d", "00:00"} {
		f.Add(text)
	}
	now := time.Date(2026, 3, 29, 9, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := parseWhen(text, now); err == nil && at.After(now) && !strings.Contains(text, "-") {
			t.Errorf("%q is %v", text, at)
		}
	})
}

func TestEventsSinceAMomentAreAllOfThem(t *testing.T) {
	r := newRig(t)
	newest := func() *controlv1.EventsRequest {
		return r.control.asked[len(r.control.asked)-1].(*controlv1.EventsRequest)
	}
	r.must("ctl", "events", "--since", "2d")
	if asked := newest(); asked.Limit != mostEvents || time.Since(moment(asked.Since)) < 47*time.Hour {
		t.Errorf("asked for %v", asked)
	}
	r.must("ctl", "events", "--since", "22:51", "-n", "5")
	if asked := newest(); asked.Limit != 5 || asked.Since == 0 {
		t.Errorf("asked for %v", asked)
	}
	r.must("ctl", "events")
	if asked := newest(); asked.Limit != 100 || asked.Since != 0 {
		t.Errorf("asked for %v", asked)
	}
	if _, stderr, code := r.run("ctl", "events", "--since", "tea-time"); code != ipc.ExitUsage || !strings.Contains(stderr, "22:51") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestTheTimelineEndsWhereItIsAskedTo(t *testing.T) {
	r := newRig(t)
	r.timeline.told = someStories()
	out := r.must("ctl", "timeline", "--since", "2026-03-01 22:51", "--until", "2026-03-01 22:52")
	if r.timeline.asked.Since != unixSeconds(time.Date(2026, 3, 1, 22, 51, 0, 0, time.Local)) {
		t.Errorf("asked for %v", r.timeline.asked)
	}
	if !strings.Contains(out, "22:51:04") || !strings.Contains(out, "22:52:00") || strings.Contains(out, "22:52:01") {
		t.Error(out)
	}
	if _, stderr, code := r.run("ctl", "timeline", "--since", "2026-03-02", "--until", "2026-03-01"); code != ipc.ExitUsage || !strings.Contains(stderr, "--until") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	r.timeline.told = &controlv1.TellResponse{}
	if out := r.must("ctl", "timeline", "--since", "2026-03-02", "--until", "2026-03-03 01:02", "--worker", "agent-1"); out != "nothing happened to agent-1 since 2026-03-02 00:00 until 2026-03-03 01:02\n" {
		t.Errorf("%q", out)
	}
}
