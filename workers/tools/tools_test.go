package tools

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a started worker with a home, a working directory and a connection to it.
type fixture struct {
	t      *testing.T
	worker *Worker
	client toolv1.ToolClient
	home   string
	work   string
	spill  string
	boards *boards
	past   *past
}

// dial serves what register adds over a Unix socket.
func dial(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	register(g)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = g.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); <-ended })
	return conn
}

func started(t *testing.T, change func(*ipc.ToolsConfig)) *fixture {
	t.Helper()
	root := t.TempDir()
	f := &fixture{t: t, worker: New(), home: filepath.Join(root, "home"), work: filepath.Join(root, "work"), spill: filepath.Join(root, "spill"), boards: &boards{}, past: &past{}}
	t.Setenv("HOME", filepath.Join(root, "user"))
	for _, dir := range []string{f.home, f.work, filepath.Join(root, "user")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := ipc.ToolsConfig{Home: f.home, WorkDir: f.work, SpillDir: f.spill}
	if change != nil {
		change(&c)
	}
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	host := workers.NewHost(dial(t, func(s *grpc.Server) {
		hostv1.RegisterBoardsServer(s, f.boards)
		hostv1.RegisterSearchServer(s, f.past)
	}), "tools-1", 1, hclog.NewNullLogger())
	f.client = toolv1.NewToolClient(dial(t, f.worker.Register))
	if err := f.worker.Start(t.Context(), host, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.worker.Close)
	return f
}

// outcome is all that came of one call.
type outcome struct {
	progress []string
	result   *toolv1.Result
	err      error
}

func (f *fixture) call(ctx context.Context, tool string, arguments any) outcome {
	f.t.Helper()
	return f.callAs(ctx, tool, arguments, &toolv1.Origin{TurnId: "t1", SessionId: "s1", Platform: "terminal", ChatId: "here"})
}

func (f *fixture) callAs(ctx context.Context, tool string, arguments any, origin *toolv1.Origin) outcome {
	f.t.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx) // a stream that is not read to its end lives as long as its context
	defer cancel()
	stream, err := f.client.Invoke(ctx, &toolv1.InvokeRequest{Tool: tool, ArgumentsJson: string(text), CallId: "c1", Attempt: 1, Origin: origin})
	if err != nil {
		return outcome{err: err}
	}
	var o outcome
	for o.result == nil {
		e, err := stream.Recv()
		if err != nil {
			o.err = err
			return o
		}
		switch e := e.Event.(type) {
		case *toolv1.InvokeEvent_Progress:
			o.progress = append(o.progress, e.Progress)
		case *toolv1.InvokeEvent_Result:
			o.result = e.Result
		}
	}
	return o
}

type args = map[string]any

// ok makes a call that must work and decodes its result, if into is given.
func (f *fixture) ok(tool string, arguments args, into any) *toolv1.Result {
	f.t.Helper()
	o := f.call(f.t.Context(), tool, arguments)
	if o.err != nil || o.result.Error != nil {
		f.t.Fatalf("%s %v: %v, %v", tool, arguments, o.err, o.result.GetError())
	}
	if into != nil {
		if err := json.Unmarshal([]byte(o.result.Content), into); err != nil {
			f.t.Fatalf("%s %v: %q: %v", tool, arguments, o.result.Content, err)
		}
	}
	return o.result
}

// fails makes a call that must fail with a message that holds want.
func (f *fixture) fails(tool string, arguments args, kind toolv1.ToolError_Kind, want string) {
	f.t.Helper()
	o := f.call(f.t.Context(), tool, arguments)
	if o.err != nil {
		f.t.Fatalf("%s %v: %v", tool, arguments, o.err)
	}
	if o.result.Error.GetKind() != kind || !strings.Contains(o.result.Error.GetMessage(), want) {
		f.t.Errorf("%s %v: %v %q %q, want %v with %q", tool, arguments, o.result.Error.GetKind(), o.result.Error.GetMessage(), o.result.Content, kind, want)
	}
}

func (f *fixture) verdict(tool string, arguments args) *toolv1.CheckResponse {
	f.t.Helper()
	text, err := json.Marshal(arguments)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := f.client.Check(f.t.Context(), &toolv1.CheckRequest{Tool: tool, ArgumentsJson: string(text)})
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// file writes a file below dir and returns its path.
func file(t *testing.T, dir, name, content string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// until waits for what only the kernel or a child can bring about.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestToolsAreDescribed(t *testing.T) {
	f := started(t, nil)
	d, err := f.client.Describe(t.Context(), &toolv1.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct{ readOnly, checked bool }{
		"terminal": {false, true}, "read_file": {true, true}, "write_file": {false, true}, "search_files": {true, false}, "memory": {false, false},
		"session_search": {true, false}, "kanban_create": {false, false}, "kanban_list": {true, false}, "kanban_show": {true, false}, "kanban_complete": {false, false}, "kanban_block": {false, false},
	}
	if d.Plugin != "builtin" || d.Version != ipc.Version() || len(d.Tools) != len(want) {
		t.Errorf("%s %s with %d tools", d.Plugin, d.Version, len(d.Tools))
	}
	for _, tool := range d.Tools {
		w, ok := want[tool.Name]
		if !ok || tool.ReadOnly != w.readOnly || tool.Checked != w.checked || len(tool.Description) < 50 || !json.Valid([]byte(tool.InputSchemaJson)) {
			t.Errorf("described as %v", tool)
		}
	}
	var names []string
	for _, tool := range d.Tools {
		names = append(names, tool.Name)
	}
	if slices.Sort(names); !slices.Equal(names, catalogue.BuiltInTools()) {
		t.Errorf("plugins are kept from the names %v, the tools are %v", catalogue.BuiltInTools(), names)
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	host := workers.NewHost(nil, "tools-1", 1, hclog.NewNullLogger())
	for config, want := range map[string]string{
		`{`:                               "unexpected end of JSON",
		`{}`:                              "no home",
		`{"home":"x"}`:                    "must be absolute",
		`{"home":"/x","work_dir":"y"}`:    "must be absolute",
		`{"home":"/x","work_dir":["/y"]}`: "cannot unmarshal",
	} {
		if err := New().Start(t.Context(), host, json.RawMessage(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestCallsLeaveNothingBehind makes 200 calls of each tool and looks for descriptors, goroutines and processes.
func TestCallsLeaveNothingBehind(t *testing.T) {
	f := started(t, nil)
	text := file(t, f.work, "a.txt", strings.Repeat("some text\n", 100))
	file(t, f.work, "sub/b.go", "package b\n")
	calls := []struct {
		tool string
		args args
	}{
		{"terminal", args{"command": "echo hi; (setsid sleep 100 &) ; ls nowhere"}},
		{"terminal", args{"command": "exit 3", "workdir": "/nowhere"}},
		{"read_file", args{"path": "a.txt"}},
		{"read_file", args{"path": "none"}},
		{"write_file", args{"path": "c.txt", "content": "x"}},
		{"write_file", args{"path": text + "/d", "content": "x"}},
		{"search_files", args{"pattern": "text"}},
		{"search_files", args{"pattern": "*.go", "target": "files"}},
		{"memory", args{"target": "memory", "action": "add", "content": "likes tea"}},
		{"memory", args{"target": "user", "action": "remove", "old_text": "none"}},
		{"kanban_create", args{"title": "x"}},
		{"kanban_list", args{}},
		{"kanban_show", args{"task_id": "t_1"}},
		{"kanban_complete", args{"task_id": "t_1", "summary": "done"}},
		{"kanban_block", args{"task_id": "none", "reason": "x"}},
	}
	round := func() {
		for _, c := range calls {
			if o := f.call(t.Context(), c.tool, c.args); o.err != nil {
				t.Fatalf("%s: %v", c.tool, o.err)
			}
		}
	}
	round()
	descriptors, goroutines := open(t), runtime.NumGoroutine()
	n := 200
	if testing.Short() {
		n = 20
	}
	for range n {
		round()
	}
	until(t, "descriptors are back", func() bool { return open(t) <= descriptors })
	until(t, "goroutines are back", func() bool { return runtime.NumGoroutine() <= goroutines })
	if left := children(t); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

func open(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// children lists the processes, zombies too, whose parent is this one.
func children(t *testing.T) (found []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		stat := string(b)
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && fields[1] == strings.TrimSpace(itoa(os.Getpid())) {
			found = append(found, stat[:strings.LastIndexByte(stat, ')')+1]+" "+fields[0])
		}
	}
	return found
}

func TestDrainWaitsAndRefuses(t *testing.T) {
	f := started(t, nil)
	fifo := filepath.Join(f.work, "go")
	f.ok("terminal", args{"command": "mkfifo go"}, nil)
	results := make(chan outcome, 1)
	go func() { results <- f.call(t.Context(), "terminal", args{"command": "cat go; echo done"}) }()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // opens once the command reads
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if n := f.worker.Drain(ended); n != 1 {
		t.Errorf("%d calls run, want 1", n)
	}
	if o := f.call(t.Context(), "read_file", args{"path": "x"}); o.err == nil || !strings.Contains(o.err.Error(), "draining") {
		t.Errorf("a call while draining: %v", o.err)
	}
	_ = w.Close()
	if n := f.worker.Drain(t.Context()); n != 0 {
		t.Errorf("%d calls run, want none", n)
	}
	if o := <-results; o.result == nil || !strings.Contains(o.result.Content, "done") {
		t.Errorf("the call that ran: %v, %v", o.result, o.err)
	}
}
