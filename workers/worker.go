// Package workers is what every worker process does, whatever its role: the handshake, the connection to the
// supervisor's host services, progress counters for health, drain, and an end within a second when the supervisor
// is gone. What a role does is in the packages below; the mains are in cmd.
//
// Workers import ipc and plugins, never store or supervisor.
package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// A Role is the work of one kind of worker.
type Role interface {
	// Register adds the role's own service. It is called before Start.
	Register(*grpc.Server)
	// Start begins the work, once, and returns when it serves. ctx ends with the process; config is the role's
	// own type of package ipc as JSON.
	Start(ctx context.Context, host *Host, config json.RawMessage) error
	// Drain stops taking new work and waits for what runs, until ctx ends. It returns how much did not finish.
	Drain(ctx context.Context) int
	// Close ends everything the role started outside this process (shell children). It is called once, last, and
	// must return within closeBudget.
	Close()
}

// closeBudget is how long a role may take to end its children when the process must go. The promise is that no
// worker outlives its supervisor by more than a second.
const closeBudget = 700 * time.Millisecond

// A Host is the supervisor as a worker sees it. Its clients set deadlines and map errors (package ipc).
type Host struct {
	Name        string
	Incarnation uint64
	Log         hclog.Logger
	Work        *Work

	Inbox  hostv1.InboxClient
	Turns  hostv1.TurnsClient
	Tools  hostv1.ToolsClient
	Boards hostv1.BoardsClient
	Past   hostv1.SearchClient // conversations
	Events hostv1.EventsClient
	Config hostv1.ConfigClient

	// For gateways.
	Sessions      hostv1.SessionsClient
	Confirmations hostv1.ConfirmationsClient
	Pairing       hostv1.PairingClient
	Lifecycle     hostv1.LifecycleClient
}

// NewHost returns a Host over conn. Tests use it with a connection of their own.
func NewHost(conn grpc.ClientConnInterface, name string, incarnation uint64, log hclog.Logger) *Host {
	return &Host{
		Name: name, Incarnation: incarnation, Log: log, Work: NewWork(time.Now),
		Inbox:  hostv1.NewInboxClient(conn),
		Turns:  hostv1.NewTurnsClient(conn),
		Tools:  hostv1.NewToolsClient(conn),
		Boards: hostv1.NewBoardsClient(conn),
		Past:   hostv1.NewSearchClient(conn),
		Events: hostv1.NewEventsClient(conn),
		Config: hostv1.NewConfigClient(conn),

		Sessions: hostv1.NewSessionsClient(conn), Confirmations: hostv1.NewConfirmationsClient(conn),
		Pairing: hostv1.NewPairingClient(conn), Lifecycle: hostv1.NewLifecycleClient(conn),
	}
}

// Main serves a role and does not return before the process should end. It is all that a worker's main calls.
func Main(name string, role Role) {
	if len(os.Args) > 1 && (os.Args[1] == "--version" || os.Args[1] == "version") {
		fmt.Println(filepath.Base(os.Args[0]), ipc.Version())
		return
	}
	if os.Getenv(ipc.Handshake.MagicCookieKey) != ipc.Handshake.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "%s is a worker of hermes-supervisor and is started by it; run: hermes-supervisor run\n", filepath.Base(os.Args[0]))
		os.Exit(ipc.ExitUsage)
	}
	fewProcessors()
	// The logger keeps the process's own stderr: go-plugin replaces os.Stderr when it serves.
	words := ipc.NewLastWords(os.Stderr, os.Getenv(ipc.LastWordsEnv))
	log := hclog.New(&hclog.LoggerOptions{Name: name, JSONFormat: true, Output: words, Level: hclog.Debug})
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{ctx: ctx, role: role, roleName: name, log: log}
	leave := func(code int) {
		cancel()
		w.closeRole()
		os.Exit(code)
	}
	exit := func(why string) {
		log.Debug("ending", "reason", why)
		leave(ipc.ExitOK)
	}
	w.cutOff = func() {
		log.Error("the connection to the host services has ended while the supervisor lives; a worker without them is of no use")
		leave(ipc.ExitFailed)
	}
	// A log line to a supervisor that is gone would end the process by SIGPIPE before its children are ended. Caught,
	// the write fails instead; unlike an ignored signal a caught one is not inherited by commands.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go watchLiveness(os.Getenv(ipc.LivenessFDEnv), func(why string) {
		words.SupervisorGone()
		log.Info("ending", "reason", why)
		leave(ipc.ExitOK)
	})
	go exitOnSignal(exit)

	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  ipc.Handshake,
		VersionedPlugins: ipc.Versions(w.register),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, ipc.ServerOptions(nil, w.panicked)...)...)
		},
		TLSProvider: serverTLS,
		Logger:      log,
	})
	exit("connection closed")
}

// mostProcessors is what a worker uses at once on a large machine.
const mostProcessors = 4

// fewProcessors has this process run on half of the machine's processors. A worker waits for others nearly all the time,
// and a message on its way passes through six goroutines: with a processor to spare each of them is woken on another
// thread, which costs more than the work. What a tool executes is a process of its own and is not told.
func fewProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(max(runtime.NumCPU()/2, 1), mostProcessors))
	}
}

// watchLiveness ends the process when the supervisor's end of the inherited pipe closes.
func watchLiveness(fd string, exit func(string)) {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return // started without a supervisor of ours, for example under a debugger
	}
	// Children must not inherit it, or they would read where we should.
	syscall.CloseOnExec(n)
	// Else the read would keep the one processor that a worker has, until the runtime's monitor takes it back after 20 ms: as
	// long as all the rest of a start.
	_ = syscall.SetNonblock(n, true)
	pipe := os.NewFile(uintptr(n), "liveness")
	_, _ = pipe.Read(make([]byte, 1))
	exit("supervisor is gone")
}

func exitOnSignal(exit func(string)) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	exit("signal " + (<-c).String())
}

// worker serves the Worker service around a role.
type worker struct {
	workerv1.UnimplementedWorkerServer
	ctx      context.Context
	role     Role
	roleName string
	log      hclog.Logger
	broker   *plugin.GRPCBroker
	cutOff   func() // ends the process

	mu       sync.Mutex
	host     *Host
	draining bool

	closeOnce sync.Once
}

func (w *worker) register(s *grpc.Server, broker *plugin.GRPCBroker) error {
	w.broker = broker
	workerv1.RegisterWorkerServer(s, w)
	workerv1.RegisterProfilerServer(s, ipc.Profiler{})
	w.role.Register(s)
	return nil
}

func (w *worker) panicked(method string, value any, stack []byte) {
	w.log.Error("panic in a call", "method", method, "panic", fmt.Sprint(value), "stack", string(stack))
}

func (w *worker) closeRole() {
	w.closeOnce.Do(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.mu.Lock() // a start that goes on ends first: its context is over
			defer w.mu.Unlock()
			w.role.Close()
		}()
		select {
		case <-done:
		case <-time.After(closeBudget):
		}
	})
}

// Init dials the host services and starts the role.
func (w *worker) Init(_ context.Context, req *workerv1.InitRequest) (*workerv1.InitResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.host != nil {
		return nil, fmt.Errorf("init: %w: already done", ipc.ErrRefused)
	}
	if v := ipc.Version(); req.SupervisorVersion != v {
		return nil, fmt.Errorf("this %s is version %s, the supervisor is %s: %w; install both from one build", w.roleName, v, req.SupervisorVersion, ipc.ErrRefused)
	}
	conn, err := w.dialHost(req.HostBrokerId)
	if err != nil {
		return nil, fmt.Errorf("dial host services: %w", err)
	}
	host := NewHost(conn, req.Name, req.Incarnation, w.log)
	if err := w.role.Start(w.ctx, host, req.ConfigJson); err != nil {
		_ = conn.Close()
		return nil, startError(req.Name, err)
	}
	w.host = host
	return &workerv1.InitResponse{Role: w.roleName, Version: ipc.Version()}, nil
}

// startError marks what another try will not mend, as errno does not cross the wire: a port that is taken or may not be
// used, a folder that may not be written.
func startError(name string, err error) error {
	for _, errno := range []syscall.Errno{syscall.EADDRINUSE, syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		if errors.Is(err, errno) {
			return fmt.Errorf("start %s: %w: %w", name, err, ipc.ErrRefused)
		}
	}
	return fmt.Errorf("start %s: %w", name, err)
}

func (w *worker) state() (*Host, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.host, w.draining
}

// Health reports the counters of Work, and what a role that is a Reporter says of itself.
func (w *worker) Health(context.Context, *workerv1.HealthRequest) (*workerv1.HealthResponse, error) {
	host, draining := w.state()
	if host == nil {
		return nil, fmt.Errorf("health: %w: not initialised", ipc.ErrRefused)
	}
	progress, inFlight, oldest := host.Work.Counts()
	r := &workerv1.HealthResponse{
		State: workerv1.HealthResponse_STATE_READY, Progress: progress,
		InFlight: uint32(inFlight), OldestInFlightMs: oldest.Milliseconds(),
	}
	if rep, ok := w.role.(Reporter); ok {
		if degraded, detail := rep.Report(); degraded {
			r.State, r.Detail = workerv1.HealthResponse_STATE_DEGRADED, detail
		} else {
			r.Detail = detail
		}
	}
	if draining {
		r.State = workerv1.HealthResponse_STATE_DRAINING
	}
	return r, nil
}

// A Reporter is a role that has more to say about its health than its counters.
type Reporter interface {
	// Report says whether the role serves less than it should, and what, for a person.
	Report() (degraded bool, detail string)
}

func (w *worker) Drain(ctx context.Context, req *workerv1.DrainRequest) (*workerv1.DrainResponse, error) {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.log.Debug("draining", "reason", req.Reason)
	return &workerv1.DrainResponse{Unfinished: uint32(w.role.Drain(ctx))}, nil
}

func (w *worker) Stats(context.Context, *workerv1.StatsRequest) (*workerv1.StatsResponse, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := &workerv1.StatsResponse{Goroutines: uint32(runtime.NumGoroutine()), HeapBytes: m.HeapAlloc}
	if host, _ := w.state(); host != nil {
		progress, inFlight, _ := host.Work.Counts()
		s.Progress, s.InFlight = progress, uint32(inFlight)
	}
	return s, nil
}
