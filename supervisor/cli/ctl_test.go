package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// someStatus has every state and every field that a table shows.
func someStatus() *controlv1.StatusResponse {
	return &controlv1.StatusResponse{
		Supervisor: &controlv1.Supervisor{
			Pid: 1000, Version: "v1.2.3", State: "ready", UptimeSeconds: 93784.5, Fds: 30, FdLimit: 65535, RssBytes: 20 << 20,
			Home: "/home/ada/.hermes", RunDir: "/run/user/1000/hermes-supervisor/0123456789", Goroutines: 42, AnonBytes: 5 << 20,
		},
		Model:  &controlv1.Model{Provider: "openai", Name: "tiny", Reason: "a local server answers"},
		Turns:  &controlv1.TurnCounts{Queued: 1, Running: 2, Parked: 3},
		Outbox: &controlv1.OutboxCounts{Pending: 4, Unknown: 5},
		Stores: []*controlv1.StoreStatus{{Name: "state", State: "ok"}, {
			Name: "kanban", State: "degraded", Detail: "writes are refused: disk is full (/h/kanban.db)", Condition: "disk_full", Advice: "make room",
		}},
		Memory: &controlv1.WorkersMemory{
			RssBytes: 127 << 20, AnonBytes: 77 << 20, LimitBytes: 12 << 30, Processes: 5, Spares: 1, SpareRssBytes: 14 << 20, SpareAnonBytes: 5 << 20,
		},
		Enforcement: &controlv1.Enforcement{Memory: "cgroup", Processes: "cgroup"},
		Warnings:    []string{"config.yaml:3: x: is not a key\x1b[2J"},
		Workers: []*controlv1.WorkerStatus{
			{
				Name: "agent-1", Role: "agent", State: "ready", Pid: 1001, Fds: 9, FdLimit: 4096, RssBytes: 33 << 20, AnonBytes: 12 << 20,
				Verdict: &controlv1.Verdict{Fds: "flat", Rss: "plateau"}, UptimeSeconds: 61, Threads: 8, CpuPercent: 1.25, Progress: 7, InFlight: 2,
				SparePid: 1010, SpareRssBytes: 14 << 20, SpareAnonBytes: 5 << 20,
			},
			{
				Name: "tools", Role: "tools", State: "waiting", Restarts: 3, NextStartSeconds: 1.5,
				LastExit: &controlv1.ExitStatus{Code: -1, Signal: "killed", Cause: "killed", At: 1764600000, Pid: 1002, Message: "by another process"},
			},
			{
				Name: "kanban", Role: "kanban", State: "ready", Pid: 1003, Fds: 300, FdLimit: 4096, RssBytes: 11 << 30,
				Verdict:        &controlv1.Verdict{Fds: "leak", Rss: "flat", Below: "leak", BelowDetail: "node (process 1020), which holds 900 of 1024"},
				BelowProcesses: 2, BelowFds: 912, BelowRssBytes: 80 << 20, BelowAnonBytes: 60 << 20, LogLinesDropped: 12,
				LastExit: &controlv1.ExitStatus{Code: 2, Cause: "crashed", At: 1764600000, Pid: 999},
			},
			{Name: "gateway-api", Role: "gateway", State: "failed", Detail: "port 8642 is in use"},
		},
	}
}

func TestStatus(t *testing.T) {
	r := newRig(t)
	r.control.status = someStatus()
	golden(t, "status.txt", r.must("ctl", "status"))
	golden(t, "status.json", r.must("ctl", "status", "-o", "json"))
	golden(t, "workers.txt", r.must("ctl", "workers"))
	golden(t, "workers.json", r.must("ctl", "workers", "-o", "json"))
}

// TestStatusDocument holds what programs rely on: names, numbers that are numbers, null for no exit.
func TestStatusDocument(t *testing.T) {
	r := newRig(t)
	r.control.status = someStatus()
	doc := asJSON(t, r.must("ctl", "status", "-o", "json"))
	supervisor := doc["supervisor"].(map[string]any)
	for key, want := range map[string]any{
		"pid": 1000.0, "version": "v1.2.3", "state": "ready", "uptime_seconds": 93784.5, "fds": 30.0, "fd_limit": 65535.0, "rss_bytes": float64(20 << 20),
	} {
		if supervisor[key] != want {
			t.Errorf("supervisor.%s is %v, want %v", key, supervisor[key], want)
		}
	}
	workers := doc["workers"].([]any)
	agent := workers[0].(map[string]any)
	if v, there := agent["last_exit"]; v != nil || !there {
		t.Errorf("last_exit is %v, %v; want null", v, there)
	}
	if v := agent["verdict"].(map[string]any); v["fds"] != "flat" || v["rss"] != "plateau" {
		t.Errorf("verdict is %v", v)
	}
	for key, want := range map[string]any{"name": "agent-1", "role": "agent", "restarts": 0.0, "fds": 9.0, "progress": 7.0} {
		if agent[key] != want {
			t.Errorf("workers[0].%s is %v, want %v", key, agent[key], want)
		}
	}
	if want := map[string]any{"queued": 1.0, "running": 2.0, "parked": 3.0}; !cmp.Equal(doc["turns"], any(want)) {
		t.Errorf("turns is %v", doc["turns"])
	}
	if want := map[string]any{"pending": 4.0, "unknown": 5.0}; !cmp.Equal(doc["outbox"], any(want)) {
		t.Errorf("outbox is %v", doc["outbox"])
	}
}

func TestAnEmptyStatusIsShownToo(t *testing.T) {
	r := newRig(t)
	r.control.status = &controlv1.StatusResponse{}
	if out := r.must("ctl", "status"); !strings.Contains(out, "hermes-supervisor") {
		t.Errorf("table %q", out)
	}
	doc := asJSON(t, r.must("ctl", "status", "-o", "json"))
	if doc["supervisor"] != nil || doc["workers"] == nil {
		t.Errorf("document %v", doc)
	}
}

func TestVerbsNameTheWorkerAndWhatItIsNow(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ verb, want string }{{"restart", "tools is ready\n"}, {"start", "tools is ready\n"}, {"stop", "tools is disabled\n"}} {
		if out := r.must("ctl", tt.verb, "tools"); out != tt.want {
			t.Errorf("%s: %q", tt.verb, out)
		}
	}
	if doc := asJSON(t, r.must("ctl", "restart", "tools", "-o", "json")); doc["name"] != "tools" || doc["state"] != "ready" {
		t.Errorf("document %v", doc)
	}
	if want := []any{"tools", "tools", "tools", "tools"}; !cmp.Equal(r.control.asked, want) {
		t.Errorf("asked %v", r.control.asked)
	}
	r.control.lastExit = &controlv1.ExitStatus{Pid: 12, Code: -1, Signal: "SIGKILL", By: "operator (pid 7)", Message: "restart by operator (pid 7); ended by SIGKILL after SIGTERM, SIGQUIT, SIGKILL"}
	if out := r.must("ctl", "restart", "tools"); out != "tools is ready; process 12 had to be forced: restart by operator (pid 7); ended by SIGKILL after SIGTERM, SIGQUIT, SIGKILL\n" {
		t.Errorf("%q", out)
	}
}

func TestStopReturnsWhenTheProcessHasEnded(t *testing.T) {
	r := newRig(t)
	// The "supervisor" is a process that ends some time after it was asked.
	process := exec.Command("sleep", "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	r.control.status = &controlv1.StatusResponse{Supervisor: &controlv1.Supervisor{Pid: int64(process.Process.Pid)}}
	r.control.down = func() { _ = process.Process.Signal(os.Interrupt) }
	out := r.must("ctl", "stop")
	// It is still a zombie: ended, and its number not yet used again.
	if err := process.Wait(); err == nil || out != "stopped\n" {
		t.Errorf("wait %v, stdout %q", err, out)
	}
}

func TestLogs(t *testing.T) {
	r := newRig(t)
	r.control.lines = []*controlv1.LogLine{
		{At: 1764600000.25, Worker: "agent-1", Pid: 1001, Level: "info", Message: "serving", Fields: map[string]string{"b": "two words", "a": "1", "c": ""}, Stream: "log"},
		{At: 1764600001, Worker: "tools", Pid: 1002, Level: "error", Message: "panic \x1b]0;title\x07", Stream: "stderr"},
		{At: 1764600002, Worker: "supervisor", Level: "warn", Message: "slow"},
	}
	golden(t, "logs.txt", r.must("ctl", "logs"))
	golden(t, "logs.jsonl", r.must("ctl", "logs", "-o", "json", "-f", "-n", "5", "tools"))
	want := []any{&controlv1.LogsRequest{Tail: 100}, &controlv1.LogsRequest{Worker: "tools", Tail: 5, Follow: true}}
	if diff := cmp.Diff(want, r.control.asked, protocmp.Transform()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	r.control.events = []*controlv1.Event{
		{Id: 1, At: 1764600000.25, Kind: "worker_exited", Worker: "agent-1", Pid: 1001, TurnId: "t1", Message: "killed", Fields: map[string]string{"signal": "killed"}},
		{Id: 2, At: 1764600001, Kind: "supervisor_ready"},
	}
	golden(t, "events.txt", r.must("ctl", "events"))
	golden(t, "events.jsonl", r.must("ctl", "events", "-o", "json", "--worker", "agent-1", "-n", "7"))
	want := []any{&controlv1.EventsRequest{Limit: 100}, &controlv1.EventsRequest{Limit: 7, Worker: "agent-1"}}
	if diff := cmp.Diff(want, r.control.asked, protocmp.Transform()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestFds(t *testing.T) {
	r := newRig(t)
	r.control.fds = &controlv1.FdsResponse{Worker: "tools", Pid: 10, Limit: 4096, Processes: []*controlv1.FdProcess{
		{Pid: 10, Name: "hermes-tools", Fds: 3, FdLimit: 4096}, {Pid: 11, Name: "no\x1b[2Jde", Fds: 1, FdLimit: 1024, Detached: true},
	}, Fds: []*controlv1.Fd{
		{Fd: 0, Target: "/dev/null", Kind: "device", Pid: 10}, {Fd: 3, Target: "socket:[123]", Kind: "socket", Pid: 10},
		{Fd: 4, Target: "socket:[124]", Kind: "socket", Pid: 10}, {Fd: 1, Target: "/tmp/a\nb", Kind: "file", Pid: 11},
	}}
	golden(t, "fds.txt", r.must("ctl", "fds", "tools"))
	golden(t, "fds-summary.txt", r.must("ctl", "fds", "tools", "--summary"))
	sum := asJSON(t, r.must("ctl", "fds", "tools", "--summary", "-o", "json"))
	if first := sum["groups"].([]any)[0].(map[string]any); first["count"] != 2.0 || first["kind"] != "socket" || sum["pid"] != 10.0 {
		t.Errorf("summary %v", sum)
	}
	doc := asJSON(t, r.must("ctl", "fds", "tools", "-o", "json"))
	if n := len(doc["fds"].([]any)); n != 4 || doc["limit"] != 4096.0 {
		t.Errorf("document %v", doc)
	}
}

func TestNamesOfWorkersComplete(t *testing.T) {
	r := newRig(t)
	r.control.status = someStatus()
	out, _, code := r.run("__complete", "ctl", "restart", "")
	if code != 0 || !strings.HasPrefix(out, "agent-1\ntools\nkanban\ngateway-api\n") {
		t.Errorf("exit %d, %q", code, out)
	}
}
