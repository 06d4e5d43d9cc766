package terminal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// topStatus has what a screen must cope with.
func topStatus() *controlv1.StatusResponse {
	r := &controlv1.StatusResponse{
		Supervisor: &controlv1.Supervisor{Version: "v1", State: "ready", Pid: 7, UptimeSeconds: 93784, RssBytes: 20 << 20, Fds: 79, FdLimit: 65535},
		Memory:     &controlv1.WorkersMemory{RssBytes: 4 << 30, Processes: 34, Spares: 1, SpareRssBytes: 14 << 20},
		Turns:      &controlv1.TurnCounts{Queued: 1, Running: 2}, Outbox: &controlv1.OutboxCounts{Pending: 3},
		Workers: []*controlv1.WorkerStatus{
			{Name: "tools", State: "ready", Pid: 8, Fds: 13, FdLimit: 4096, RssBytes: 20 << 20, Verdict: &controlv1.Verdict{Fds: "flat", Rss: "flat"}},
			{Name: "agent-1", State: "ready", Pid: 9, Fds: 999, FdLimit: 4096, RssBytes: 3 << 30, CpuPercent: 12.34, InFlight: 4, Restarts: 2, Verdict: &controlv1.Verdict{Fds: "leak", Rss: "burst"}, SparePid: 10},
			{Name: "cron", State: "ready", Pid: 11, Verdict: &controlv1.Verdict{Fds: "flat", Rss: "flat", Below: "leak"}},
			{Name: "gateway-telegram-with-a-long-name", State: "waiting", NextStartSeconds: 3.2, Restarts: 12, Verdict: &controlv1.Verdict{}},
			{Name: "gateway-\x1b[2Japi", State: "failed", Detail: "port 8642 is in use", Verdict: &controlv1.Verdict{}},
		},
	}
	for i := range 30 {
		r.Workers = append(r.Workers, &controlv1.WorkerStatus{Name: fmt.Sprintf("plugin-%d", i+1), State: "ready", Pid: int64(100 + i), Fds: 9, FdLimit: 4096, RssBytes: int64(10+i) << 20, Verdict: &controlv1.Verdict{Fds: "learning", Rss: "learning"}})
	}
	return r
}

func topOf(width, height int) *topModel {
	m := newTopModel(context.Background(), nil, nil)
	m.plain = true
	past := map[string][]float64{"tools": {20 << 20, 20 << 20}, "agent-1": {1 << 30, 2 << 30, 3 << 30, 1 << 30}}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(looked{status: topStatus(), past: past})
	return m
}

func press(m *topModel, keys ...string) tea.Cmd {
	var cmd tea.Cmd
	for _, k := range keys {
		cmd = m.key(k)
	}
	return cmd
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// What is owed and what is wrong is whole on every screen that is not tiny.
func TestNothingImportantIsCutOff(t *testing.T) {
	for _, size := range [][2]int{{120, 40}, {80, 24}, {60, 24}, {60, 12}} {
		m := topOf(size[0], size[1])
		m.status.Supervisor.Version = "v0.12.3-104-gd0254b5-dirty"
		m.status.Outbox = &controlv1.OutboxCounts{Pending: 1234, Unknown: 17}
		m.status.Turns = &controlv1.TurnCounts{Queued: 1024, Running: 16, Parked: 12}
		flat := strings.Join(strings.Fields(m.draw()), " ")
		for _, want := range []string{"v0.12.3-104-gd0254b5-dirty is ready", "pid 7, up 1d2h", "1024 queued, 16 running, 12 parked", "1234 pending, 17 unknown"} {
			if !strings.Contains(flat, want) {
				t.Errorf("%v: no %q in\n%s", size, want, m.draw())
			}
		}
		m.status.Stores = []*controlv1.StoreStatus{{Name: "kanban", State: "ok"}, {Name: "state", State: "degraded", Detail: "the disk is full", Advice: "make room"}}
		m.status.Adapters = []*controlv1.AdapterStatus{{Platform: "api", State: "connected"}, {Platform: "telegram", State: "conflict"}}
		m.status.Warnings = []string{"config.yaml: " + strings.Repeat("a long story ", 40)}
		flat = strings.Join(strings.Fields(m.draw()), " ")
		want := []string{"store state is degraded: the disk is full: make room", "adapter telegram is conflict"}
		if size[1] < tall {
			want = []string{"store state is degraded: the disk is full:… more: ctl status"}
		}
		for _, want := range append(want, "more: ctl status", "17 unknown") {
			if !strings.Contains(flat, want) {
				t.Errorf("%v: no %q in\n%s", size, want, m.draw())
			}
		}
	}
}

// The columns of 80 are too narrow for some; the chosen worker has a line.
func TestTheChosenWorkerIsToldInFull(t *testing.T) {
	m := topOf(80, 24)
	for _, want := range []string{
		"tools: descriptors flat; memory flat", "agent-1: descriptors leak; memory burst; a spare stands by",
		"cron: descriptors flat; memory flat; descriptors below it leak", "gateway-telegram-with-a-long-name: starts in 4s",
		"gateway-�[2Japi: port 8642 is in use",
	} {
		if screen := m.draw(); !strings.Contains(screen, want) {
			t.Errorf("no %q in\n%s", want, screen)
		}
		press(m, "down")
	}
}

func TestTopFitsTheScreen(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {60, 24}, {50, 10}} {
		m := topOf(size[0], size[1])
		press(m, "down")
		golden(t, fmt.Sprintf("top-%dx%d.txt", size[0], size[1]), m.draw()+"\n")
	}
	ascii := topOf(80, 24)
	ascii.ascii = true
	press(ascii, "down")
	golden(t, "top-80x24-ascii.txt", ascii.draw()+"\n")
	for width := 1; width < 200; width += 7 {
		for height := 1; height < 60; height += 11 {
			m := topOf(width, height)
			m.ascii = width%2 == 0
			lines := strings.Split(m.draw(), "\n")
			if len(lines) > height {
				t.Errorf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l); n > width {
					t.Errorf("%dx%d: a line of %d: %q", width, height, n, l)
				}
				if m.ascii && len(l) != utf8.RuneCountInString(l) {
					t.Errorf("%dx%d: not ASCII: %q", width, height, l)
				}
			}
		}
	}
}

func TestTheChosenWorkerStaysInSight(t *testing.T) {
	m := topOf(80, 24)
	for range 100 {
		press(m, "down")
	}
	if m.chosen != "plugin-30" || !strings.Contains(m.draw(), "› plugin-30") {
		t.Errorf("chosen %q in\n%s", m.chosen, m.draw())
	}
	press(m, "k", "up")
	if m.chosen != "plugin-28" {
		t.Errorf("chosen %q", m.chosen)
	}
}

func TestSortingPutsTheMostFirstAndKeepsTheChoice(t *testing.T) {
	m := topOf(80, 24)
	for _, want := range []string{"agent-1", "agent-1", "agent-1", "agent-1", "gateway-telegram-with-a-long-name", "tools"} {
		press(m, "s")
		if got := m.rows()[0].Name; got != want || m.chosen != "tools" {
			t.Errorf("by %s: %s is first, %s chosen", sortings[m.sort].name, got, m.chosen)
		}
	}
	press(m, "S")
	if sortings[m.sort].name != "restarts" {
		t.Errorf("back: %s", sortings[m.sort].name)
	}
}

func TestARestartNeedsAYes(t *testing.T) {
	m := topOf(80, 24)
	if cmd := press(m, "r", "n"); cmd != nil || m.asking != "" {
		t.Error("a no was taken for a yes")
	}
	if cmd := press(m, "r", "enter"); cmd != nil {
		t.Error("Enter was taken for a yes")
	}
	press(m, "r")
	if !strings.Contains(m.draw(), "restart tools?") {
		t.Errorf("nothing is asked in\n%s", m.draw())
	}
	if cmd := press(m, "y"); cmd == nil {
		t.Error("nothing was done at a yes")
	}
	m.Update(restarted{name: "tools", err: errors.New("it does not start")})
	if !strings.Contains(m.draw(), "tools was not restarted: it does not start") {
		t.Errorf("\n%s", m.draw())
	}
}

func TestALostSupervisorIsSaidAndTheOldPictureStays(t *testing.T) {
	m := topOf(80, 24)
	m.Update(looked{err: fmt.Errorf("socket: %w", ipc.ErrGone), absent: true})
	_, again := m.Update(lookAgain{})
	if screen := m.draw(); again == nil || !strings.Contains(screen, "what is shown is old") || !strings.Contains(screen, "agent-1") {
		t.Errorf("\n%s", screen)
	}
}

func TestSparklines(t *testing.T) {
	for want, values := range map[string][]float64{
		"": nil, "▁▁▁": {100, 100, 101}, "▁▄█": {0, 1, 2}, "▁▂▃▄▅▆▇█": {9, 9, 0, 1, 2, 3, 4, 5, 6, 7},
	} {
		if got := sparkline(values, 8); !strings.HasSuffix(got, want) || utf8.RuneCountInString(got) > 8 {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
}

func (s *chatServer) RestartWorker(_ context.Context, r *controlv1.RestartWorkerRequest) (*controlv1.RestartWorkerResponse, error) {
	s.changes(func() { s.restarts = append(s.restarts, r.Name) })
	return &controlv1.RestartWorkerResponse{}, nil
}

// pastServer knows of every worker that it has grown.
type pastServer struct {
	controlv1.UnimplementedOperationsServer
}

func (pastServer) Series(_ context.Context, r *controlv1.SeriesRequest) (*controlv1.SeriesResponse, error) {
	return &controlv1.SeriesResponse{Worker: r.Worker, Readings: []*controlv1.Reading{{RssBytes: 1 << 20}, {RssBytes: 9 << 20}}}, nil
}

func TestAPersonLooksAndRestartsAWorker(t *testing.T) {
	s := newServer(t, nil)
	p := s.person("--top")
	p.sees("hermes-supervisor v1 is ready")
	p.sees("agent-1")
	p.types("r")
	p.sees("agent-1?") // unchanged blanks are skipped, so only a word is sure to be whole
	p.types("y")
	if err := s.until(t.Context(), func() bool { return len(s.restarts) == 1 && s.restarts[0] == "agent-1" }); err != nil {
		t.Fatal(err)
	}
	p.types("q")
	if code := p.ends(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestTopWithoutATerminalNamesWhatToUse(t *testing.T) {
	s := newServer(t, nil)
	if out, errOut, code := s.output("", "--top"); code != ipc.ExitUsage || out != "" || !strings.Contains(errOut, "ctl status") || !strings.Contains(errOut, "ctl watch") {
		t.Errorf("stdout %q, stderr %q, exit %d", out, errOut, code)
	}
	s.term = "dumb"
	p := s.person("--top")
	p.sees(`TERM="dumb"`)
	if code := p.ends(); code != ipc.ExitUsage {
		t.Errorf("exit %d", code)
	}
}
