package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// fakeTimeline tells what the test wants.
type fakeTimeline struct {
	controlv1.UnimplementedTimelineServer
	told  *controlv1.TellResponse
	asked *controlv1.TellRequest
}

func (f *fakeTimeline) Tell(_ context.Context, r *controlv1.TellRequest) (*controlv1.TellResponse, error) {
	f.asked = r
	return f.told, nil
}

func someStories() *controlv1.TellResponse {
	at := func(clock string) float64 {
		v, err := time.ParseInLocation("2006-01-02 15:04:05", "2026-03-01 "+clock, time.Local)
		if err != nil {
			panic(err)
		}
		return float64(v.Unix())
	}
	return &controlv1.TellResponse{Cut: true, Stories: []*controlv1.Story{
		{At: at("21:00:00"), Kind: "supervisor_started", Message: "version v1.2.3, home /home/ada/.hermes", AwaySeconds: 663.2},
		{
			At: at("22:51:04"), Kind: "death", Worker: "agent-1", Pid: 1001, Cause: "crashed", Code: "2", Uptime: "1h51m4s",
			Message: "panic: assignment to entry in nil map", Next: "served again after 61ms",
			Samples: []string{"30s before: 14 descriptors, 21 MiB", "1s before: 14 descriptors, 21 MiB"},
			Log:     []string{"panic: assignment to entry in nil map", "goroutine 7 [running]:\x1b[2J"},
			Turns: []*controlv1.HeldTurn{
				{TurnId: "t-1", HeldBy: "agent-1", ResumedBy: "agent-2", Outcome: "completed", EndedAt: at("22:51:08"), Seen: "taken up by agent-2 after 3ms, answered after 4.1s",
					Platform: "telegram", Chat: "4711"},
				{TurnId: "turn_2", HeldBy: "agent-1", Seen: "it waits to be taken up"},
			},
		},
		{At: at("22:52:00"), Kind: "recycling", Worker: "tools", Message: "it holds 81 % of its limit of 256 descriptors"},
		{
			At: at("22:52:01"), Kind: "death", Worker: "tools", Pid: 1002, Cause: "planned", Code: "0", Uptime: "1h52m1s", By: "the supervisor",
			Message: "replaced: it holds 81 % of its limit of 256 descriptors; ended with code 0 after SIGTERM", Next: "served again after 55ms",
		},
		{At: at("22:53:00"), Kind: "death", Worker: "gateway-telegram", Cause: "killed", Signal: "SIGKILL", Message: "SIGKILL from outside the supervisor"},
	}}
}

func TestTimelineIsReadableAndADocument(t *testing.T) {
	r := newRig(t)
	r.timeline.told = someStories()
	golden(t, "timeline.txt", r.must("ctl", "timeline"))
	golden(t, "timeline-long.txt", r.must("ctl", "timeline", "--long"))
	doc := asJSON(t, r.must("ctl", "timeline", "-o", "json"))
	death := doc["stories"].([]any)[1].(map[string]any)
	if death["cause"] != "crashed" || death["next"] != "served again after 61ms" || len(death["turns"].([]any)) != 2 {
		t.Errorf("%v", death)
	}
}

func TestTimelineAsksForATimeAndAWorker(t *testing.T) {
	r := newRig(t)
	r.timeline.told = &controlv1.TellResponse{}
	if out := r.must("ctl", "timeline", "--since", "1h", "--worker", "agent-1"); !strings.HasPrefix(out, "nothing happened to agent-1 since ") {
		t.Errorf("%q", out)
	}
	ago := time.Since(moment(r.timeline.asked.Since))
	if r.timeline.asked.Worker != "agent-1" || ago < time.Hour || ago > time.Hour+time.Minute {
		t.Errorf("asked for %v", r.timeline.asked)
	}
	r.must("ctl", "timeline", "--since", "0")
	if r.timeline.asked.Since != 0 {
		t.Errorf("asked for %v", r.timeline.asked)
	}
}

// The start that says that no supervisor ran may come long after the time that is asked for.
func TestATimeWithoutASupervisorIsToldWhereItBegan(t *testing.T) {
	r := newRig(t)
	story := func(clock string, away float64) *controlv1.Story {
		at, err := time.ParseInLocation("2006-01-02 15:04", "2026-03-01 "+clock, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return &controlv1.Story{At: float64(at.Unix()), Kind: "supervisor_started", Message: clock, AwaySeconds: away}
	}
	r.timeline.told = &controlv1.TellResponse{Stories: []*controlv1.Story{story("23:10", 1800), story("23:20", 60)}}
	out := r.must("ctl", "timeline", "--since", "2026-03-01 22:51", "--until", "2026-03-01 23:02")
	if !strings.Contains(out, "started: 23:10") || strings.Contains(out, "started: 23:20") || !strings.Contains(out, "no supervisor for 30m") {
		t.Errorf("%s", out)
	}
}
