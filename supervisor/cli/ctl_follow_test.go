package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

var errStopping = fmt.Errorf("supervisor is stopping: %w", ipc.ErrGone)

// later is a time after that of a test's start, which nothing of before is.
func later(seconds int) float64 {
	return unixSeconds(time.Now().Add(time.Duration(seconds) * time.Second).Truncate(time.Second))
}

func TestFollowingGoesOnWithTheNextSupervisor(t *testing.T) {
	r := newRig(t)
	at := later(10)
	r.control.events = []*controlv1.Event{{Id: 1, At: at, Kind: "worker_ready", Worker: "tools"}, {Id: 2, At: at, Kind: "worker_ready", Worker: "kanban"}}
	r.control.lines = []*controlv1.LogLine{{At: at, Worker: "tools", Level: "info", Message: "hello"}}
	for _, what := range []string{"events", "logs"} {
		r.control.asked, r.control.ends = nil, []error{errStopping, errStopping, nil}
		out, stderr, code := r.run("ctl", what, "-f")
		if lines := strings.Count(out, "\n"); code != 0 || lines != len(r.control.events) && what == "events" || lines != 1 && what == "logs" {
			t.Errorf("%s: exit %d, what was seen is shown again or not at all: %q", what, code, out)
		}
		if strings.Count(stderr, "(the supervisor is gone; waiting for it)\n") != 1 || len(r.control.asked) != 3 {
			t.Errorf("%s: asked %v, said %q", what, r.control.asked, stderr)
		}
		var want any = &controlv1.EventsRequest{Follow: true, Limit: mostEvents, Since: at}
		if what == "logs" {
			want = &controlv1.LogsRequest{Follow: true, Tail: mostLines}
		}
		if diff := cmp.Diff(want, r.control.asked[1], protocmp.Transform()); diff != "" {
			t.Errorf("%s: asked again (-want +got):\n%s", what, diff)
		}
	}
}

func TestFollowingEndsForAnotherReasonAndWhereNothingIsFollowed(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		args []string
		ends []error
		code int
	}{
		{[]string{"ctl", "events"}, []error{errStopping}, ipc.ExitTryAgain},
		{[]string{"ctl", "logs"}, []error{errStopping}, ipc.ExitTryAgain},
		{[]string{"ctl", "logs", "-f"}, []error{fmt.Errorf("worker x: %w", ipc.ErrNotFound)}, ipc.ExitFailed},
		{[]string{"ctl", "watch"}, []error{errStopping}, ipc.ExitTryAgain},
		{[]string{"--home", "/nowhere", "ctl", "events", "-f"}, nil, ipc.ExitTryAgain},
	} {
		r.control.status, r.control.ends = someStatus(), tt.ends
		if _, stderr, code := r.run(tt.args...); code != tt.code || strings.Contains(stderr, "waiting") {
			t.Errorf("%v: exit %d, %q", tt.args, code, stderr)
		}
	}
}

func TestWhatContradictsItselfIsSaid(t *testing.T) {
	r := newRig(t)
	r.operations.series, r.control.status = grown(), someStatus()
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"-o json writes readings", []string{"mem", "tools", "--plot", "-o", "json"}},
		{"-o json writes readings", []string{"fds", "tools", "--svg", "x.svg", "-o", "json"}},
		{"both write to stdout", []string{"mem", "tools", "--plot", "--svg", "-"}},
		{"--since is for a picture", []string{"fds", "tools", "--since", "10m"}},
		{"--output - writes the profile itself", []string{"profile", "tools", "heap", "--output", "-", "-o", "json"}},
		{"watch is for programs", []string{"watch", "-o", "table"}},
	} {
		if out, stderr, code := r.run(append([]string{"ctl"}, tt.args...)...); code != ipc.ExitUsage || out != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d, %q", tt.args, code, stderr)
		}
	}
}

func TestAWatcherMaySayThatItWantsJSON(t *testing.T) {
	r := newRig(t)
	r.control.status, r.control.ends = someStatus(), []error{errStopping}
	if out, _, _ := r.run("ctl", "watch", "-o", "json"); !strings.HasPrefix(out, `{"type":"status"`) {
		t.Errorf("%q", out)
	}
	if out := r.must("ctl", "status"); !strings.HasPrefix(out, "hermes-supervisor v1.2.3") {
		t.Errorf("the others write tables: %q", out)
	}
}

func TestAProfileIsDescribedForPrograms(t *testing.T) {
	r := newRig(t)
	t.Chdir(t.TempDir())
	doc := asJSON(t, r.must("ctl", "profile", "tools", "goroutine", "-o", "json"))
	want := map[string]any{"worker": "tools", "kind": "goroutine", "format": "text", "bytes": float64(len("goroutine of tools, 5s")), "file": "tools-goroutine.txt"}
	if diff := cmp.Diff(want, doc); diff != "" {
		t.Error(diff)
	}
}
