package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

var update = flag.Bool("update", false, "rewrite the golden files and scripts")

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"hermes-supervisor": func() { os.Exit(Main(os.Args[1:])) },
	})
}

// leakChecked looks for goroutines after the tests, and not in the processes that scripts start.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	time.Local = time.UTC // tables show local times
	for name, value := range map[string]string{"LC_ALL": "C.UTF-8", "TERM": "xterm"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// TestScripts runs the command line where no supervisor is needed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"code": code, "mask": mask, "locked": locked, "unlocked": release, "held": held, "unheld": release},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_RUNTIME_DIR", e.WorkDir+"/run")
			e.Setenv("HERMES_HOME", "")
			e.Values[heldKey] = new(func())
			e.Setenv("TZ", "UTC")         // tables show local times
			e.Setenv("LC_ALL", "C.UTF-8") // they have signs
			fixtures, err := filepath.Abs("../../store/testdata")
			e.Setenv("FIXTURES", fixtures)
			return err
		},
	})
}

// code runs a command that must end with the given exit code: code 75 hermes-supervisor ctl status.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command …")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

// rig is a home with a control socket that answers what the test wants.
type rig struct {
	t       *testing.T
	home    string
	base    string
	control *fakeControl
	boards  *fakeBoards

	timeline   fakeTimeline
	operations *fakeOperations
	plugins    fakePlugins
}

func newRig(t *testing.T) *rig {
	t.Helper()
	base, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, home: filepath.Join(base, "home"), base: filepath.Join(base, "hermes-supervisor"), control: &fakeControl{}, boards: &fakeBoards{}, operations: &fakeOperations{}}
	dir, err := config.RunDirIn(r.base, r.home)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", config.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	controlv1.RegisterControlServer(s, r.control)
	controlv1.RegisterTimelineServer(s, &r.timeline)
	hostv1.RegisterBoardsServer(s, r.boards)
	controlv1.RegisterOperationsServer(s, r.operations)
	controlv1.RegisterPluginsServer(s, &r.plugins)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done; _ = os.RemoveAll(base) })
	return r
}

// run runs a command line and returns what it wrote.
func (r *rig) run(args ...string) (stdout, stderr string, code int) {
	r.t.Helper()
	var out, errOut bytes.Buffer
	flags := []string{"--home", r.home, "--run-dir", r.base}
	if args[0] == "__complete" { // as shells call it: the words of the line come after it
		args, flags = args[1:], append([]string{"__complete"}, flags...)
	}
	code = execute(r.t.Context(), append(flags, args...), streams{in: strings.NewReader(""), out: &out, err: &errOut})
	replace := strings.NewReplacer(r.home, "HOME", r.base, "RUN")
	return replace.Replace(out.String()), replace.Replace(errOut.String()), code
}

// must runs a command line that must work without a word on stderr.
func (r *rig) must(args ...string) string {
	r.t.Helper()
	out, errOut, code := r.run(args...)
	if code != 0 || errOut != "" {
		r.t.Fatalf("%v: exit %d, stderr %q", args, code, errOut)
	}
	return out
}

// golden compares with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run go test -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", path, diff)
	}
}

// fakeControl answers as its fields say.
type fakeControl struct {
	controlv1.UnimplementedControlServer
	mu     sync.Mutex // held over status, which programs of their own may ask for
	status *controlv1.StatusResponse
	lines  []*controlv1.LogLine
	events []*controlv1.Event
	fds    *controlv1.FdsResponse
	// lastExit is of the workers that verbs return.
	lastExit *controlv1.ExitStatus
	asked    []any
	err      error
	ends     []error // of streams, one a call; after them err
	down     func()
}

func (f *fakeControl) end() error {
	if len(f.ends) == 0 {
		return f.err
	}
	err := f.ends[0]
	f.ends = f.ends[1:]
	return err
}

// show sets the status for programs of their own: that they start after it, the race detector does not see.
func (f *fakeControl) show(status *controlv1.StatusResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = status
}

func (f *fakeControl) Status(context.Context, *controlv1.StatusRequest) (*controlv1.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, f.err
}

func (f *fakeControl) worker(name, state string) (*controlv1.WorkerStatus, error) {
	f.asked = append(f.asked, name)
	return &controlv1.WorkerStatus{Name: name, State: state, LastExit: f.lastExit}, f.err
}

func (f *fakeControl) RestartWorker(_ context.Context, r *controlv1.RestartWorkerRequest) (*controlv1.RestartWorkerResponse, error) {
	w, err := f.worker(r.Name, "ready")
	return &controlv1.RestartWorkerResponse{Worker: w}, err
}

func (f *fakeControl) StopWorker(_ context.Context, r *controlv1.StopWorkerRequest) (*controlv1.StopWorkerResponse, error) {
	w, err := f.worker(r.Name, "disabled")
	return &controlv1.StopWorkerResponse{Worker: w}, err
}

func (f *fakeControl) StartWorker(_ context.Context, r *controlv1.StartWorkerRequest) (*controlv1.StartWorkerResponse, error) {
	w, err := f.worker(r.Name, "ready")
	return &controlv1.StartWorkerResponse{Worker: w}, err
}

func (f *fakeControl) Shutdown(context.Context, *controlv1.ShutdownRequest) (*controlv1.ShutdownResponse, error) {
	f.down()
	return &controlv1.ShutdownResponse{}, f.err
}

func (f *fakeControl) Logs(r *controlv1.LogsRequest, out grpc.ServerStreamingServer[controlv1.LogLine]) error {
	f.asked = append(f.asked, r)
	for _, l := range f.lines {
		if err := out.Send(l); err != nil {
			return err
		}
	}
	return f.end()
}

func (f *fakeControl) Events(r *controlv1.EventsRequest, out grpc.ServerStreamingServer[controlv1.Event]) error {
	f.asked = append(f.asked, r)
	for _, e := range f.events {
		if err := out.Send(e); err != nil {
			return err
		}
	}
	return f.end()
}

func (f *fakeControl) Fds(_ context.Context, r *controlv1.FdsRequest) (*controlv1.FdsResponse, error) {
	f.asked = append(f.asked, r.Worker)
	return f.fds, f.err
}

// fakeBoards keeps what it was asked and returns one task.
type fakeBoards struct {
	hostv1.UnimplementedBoardsServer
	asked []any
	task  *hostv1.Task
	err   error
}

func (f *fakeBoards) CreateTask(_ context.Context, r *hostv1.CreateTaskRequest) (*hostv1.Task, error) {
	f.asked = append(f.asked, r)
	return f.task, f.err
}

func (f *fakeBoards) ListTasks(_ context.Context, r *hostv1.ListTasksRequest) (*hostv1.ListTasksResponse, error) {
	f.asked = append(f.asked, r)
	if f.task == nil {
		return &hostv1.ListTasksResponse{}, f.err
	}
	return &hostv1.ListTasksResponse{Tasks: []*hostv1.Task{f.task}}, f.err
}

func (f *fakeBoards) GetTask(_ context.Context, r *hostv1.GetTaskRequest) (*hostv1.Task, error) {
	f.asked = append(f.asked, r)
	return f.task, f.err
}

func (f *fakeBoards) SetStatus(_ context.Context, r *hostv1.SetStatusRequest) (*hostv1.Task, error) {
	f.asked = append(f.asked, r)
	return &hostv1.Task{Id: r.Id, Status: r.Status}, f.err
}

func (f *fakeBoards) Subscribe(_ context.Context, r *hostv1.SubscribeRequest) (*hostv1.SubscribeResponse, error) {
	f.asked = append(f.asked, r)
	return &hostv1.SubscribeResponse{}, f.err
}

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		usageError{errors.New("x")}:                     ipc.ExitUsage,
		fmt.Errorf("worker: %w", config.ErrInvalid):     ipc.ExitConfig,
		fmt.Errorf("socket: %w", ipc.ErrGone):           ipc.ExitTryAgain,
		&os.PathError{Op: "write", Err: syscall.ENOSPC}: ipc.ExitTryAgain,
		&os.PathError{Op: "write", Err: syscall.EDQUOT}: ipc.ExitTryAgain,
		fmt.Errorf("copy: %w", store.ErrDiskFull):       ipc.ExitTryAgain,
		errors.New("x"): ipc.ExitFailed,
		silentError{7}:  7,
	} {
		if got := exitCode(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestAnErrorOfTheServerHasItsKindsExitCode(t *testing.T) {
	r := newRig(t)
	for want, err := range map[int]error{
		ipc.ExitFailed:   fmt.Errorf("worker x: %w", ipc.ErrNotFound),
		ipc.ExitTryAgain: fmt.Errorf("worker x: %w", ipc.ErrBusy),
		ipc.ExitUsage:    fmt.Errorf("worker x: %w", ipc.ErrInvalid),
	} {
		r.control.err = err
		_, stderr, code := r.run("ctl", "restart", "x")
		if code != want || stderr != "hermes-supervisor: restart x: "+err.Error()+"\n" {
			t.Errorf("%v: exit %d, stderr %q", err, code, stderr)
		}
	}
}

func TestASupervisorThatDoesNotAnswerIsToldFromOneThatIsNotThere(t *testing.T) {
	r := newRig(t)
	for want, err := range map[string]error{
		"is there but did not answer in time": context.DeadlineExceeded,
		"ended during the call; try again":    fmt.Errorf("stopping: %w", ipc.ErrGone),
	} {
		r.control.err = err
		if _, stderr, code := r.run("ctl", "status"); code != ipc.ExitTryAgain || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, stderr %q", err, code, stderr)
		}
	}
}

// TestTheRunDirectoryIsCheckedAsStrictlyAsByWorkers compares two limits that are kept apart, so that configuration does not
// depend on processes.
func TestTheRunDirectoryIsCheckedAsStrictlyAsByWorkers(t *testing.T) {
	base, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(base) }()
	accepted := ""
	for n := 1; n < 107; n++ {
		if dir, err := config.RunDirIn(filepath.Join(base, strings.Repeat("x", n)), "/h"); err == nil {
			accepted = dir
		}
	}
	if err := worker.CheckRunDir(accepted); err != nil {
		t.Error(err)
	}
	if err := worker.CheckRunDir(accepted + "x"); err == nil {
		t.Errorf("workers would take a longer one than %d bytes", len(accepted))
	}
}

// TestEveryCommandTeaches walks the tree: each command has a short text, an example that names it, and its -o.
func TestEveryCommandTeaches(t *testing.T) {
	p := &program{}
	root := p.root()
	seen := 0
	for stack := root.Commands(); len(stack) > 0; {
		c := stack[0]
		stack = append(stack[1:], c.Commands()...)
		seen++
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short text %q", c.CommandPath(), c.Short)
		}
		if !strings.Contains(c.Example, c.CommandPath()) && !strings.Contains(c.Example, strings.TrimPrefix(c.CommandPath(), "hermes-supervisor")) {
			t.Errorf("%s: its example does not show it: %q", c.CommandPath(), c.Example)
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if utf8.RuneCountInString(line) > 128 {
				t.Errorf("%s: a line of %d characters", c.CommandPath(), len(line))
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d commands", seen)
	}
}

// asJSON reads a document back; numbers must be numbers.
func asJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return doc
}
