package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
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
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// closeGrace is what running calls get to end when the process must go. No plugin outlives its supervisor by more
// than a second.
const closeGrace = 700 * time.Millisecond

// serve runs the plugin under a supervisor and returns when the process should end.
func serve(name, version string, tools []Tool) {
	// The logger keeps the process's own stderr: go-plugin replaces os.Stderr when it serves.
	words := ipc.NewLastWords(os.Stderr, os.Getenv(ipc.LastWordsEnv))
	log := hclog.New(&hclog.LoggerOptions{Name: name, JSONFormat: true, Output: words, Level: hclog.Debug})
	w := &worker{server: NewServer(name, version), version: version, tools: tools, log: log, stderr: os.Stderr, calls: map[uint64]time.Time{}}
	var once sync.Once
	leave := func() {
		once.Do(func() {
			w.server.Close()
			ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
			defer cancel()
			w.server.Drain(ctx)
			os.Exit(ipc.ExitOK)
		})
	}
	exit := func(why string) {
		log.Debug("ending", "reason", why)
		leave()
	}
	// A log line to a supervisor that is gone would end the process by SIGPIPE before its children are ended. Caught, the write
	// fails instead; unlike an ignored signal a caught one is not inherited by commands.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go endWithSupervisor(os.Getenv(ipc.LivenessFDEnv), func(why string) {
		words.SupervisorGone()
		log.Info("ending", "reason", why)
		leave()
	})
	go func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		exit("signal " + (<-c).String())
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  ipc.Handshake,
		VersionedPlugins: ipc.Versions(w.register),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, ipc.ServerOptions(nil, w.panicked)...)...)
		},
		Logger: log,
	})
	exit("connection closed")
}

// endWithSupervisor ends the process when the supervisor's end of the inherited pipe closes.
func endWithSupervisor(fd string, exit func(string)) {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return // started by another host than the supervisor, for example by plugintest
	}
	syscall.CloseOnExec(n)
	// Else the read would keep the one processor that a worker has, until the runtime's monitor takes it back after 20 ms: as
	// long as all the rest of a start.
	_ = syscall.SetNonblock(n, true)
	pipe := os.NewFile(uintptr(n), "liveness")
	_, _ = pipe.Read(make([]byte, 1))
	exit("supervisor is gone")
}

// worker serves the Worker service of a plugin process.
type worker struct {
	workerv1.UnimplementedWorkerServer
	server  *Server
	version string
	tools   []Tool
	log     hclog.Logger
	stderr  *os.File // the process's own
	broker  *plugin.GRPCBroker

	mu       sync.Mutex
	started  bool
	draining bool
	next     uint64
	calls    map[uint64]time.Time
	progress uint64
}

func (w *worker) register(s *grpc.Server, broker *plugin.GRPCBroker) error {
	w.broker = broker
	workerv1.RegisterWorkerServer(s, w)
	workerv1.RegisterProfilerServer(s, ipc.Profiler{})
	toolv1.RegisterToolServer(s, w.server)
	return nil
}

func (w *worker) panicked(method string, value any, stack []byte) {
	w.log.Error("panic in a call", "method", method, "panic", fmt.Sprint(value), "stack", string(stack))
}

// Init dials the host services and starts to answer. A plugin need not be of the supervisor's build: what both
// speak was agreed on in the handshake.
func (w *worker) Init(_ context.Context, req *workerv1.InitRequest) (*workerv1.InitResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return nil, fmt.Errorf("init: %w: already done", ipc.ErrRefused)
	}
	// What goes through go-plugin's pipes reaches the supervisor over the connection, and what a tool prints right before the
	// end of its process is lost with that. go-plugin has put them in place before it took the first call. stdout was for the
	// handshake.
	os.Stdout, os.Stderr = w.stderr, w.stderr
	var config ipc.PluginConfig
	if len(req.ConfigJson) > 0 {
		if err := json.Unmarshal(req.ConfigJson, &config); err != nil {
			return nil, fmt.Errorf("configuration of %s: %w: %w", req.Name, ipc.ErrInvalid, err)
		}
	}
	env := Env{
		Log: w.log, Begin: w.begin,
		ScratchDir: config.ScratchDir, SpillDir: config.SpillDir, MaxResult: config.MaxResultChars, Settings: config.Settings,
	}
	if req.HostBrokerId != 0 {
		conn, err := w.broker.DialWithOptions(req.HostBrokerId, ipc.DialOptions()...)
		if err != nil {
			return nil, fmt.Errorf("dial host services: %w", err)
		}
		secrets := hostv1.NewConfigClient(conn)
		env.Secret = func(ctx context.Context, name string) (string, error) {
			r, err := secrets.Secret(ctx, &hostv1.SecretRequest{Name: name})
			return r.GetValue(), err
		}
	}
	if err := w.server.Start(env, w.tools...); err != nil {
		return nil, err
	}
	w.started = true
	return &workerv1.InitResponse{Role: ipc.RolePlugin, Version: w.version}, nil
}

// begin counts a call for Health.
func (w *worker) begin() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.calls[id] = time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.calls, id)
		w.progress++
	}
}

func (w *worker) Health(context.Context, *workerv1.HealthRequest) (*workerv1.HealthResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.started {
		return nil, fmt.Errorf("health: %w: not initialised", ipc.ErrRefused)
	}
	r := &workerv1.HealthResponse{
		State: workerv1.HealthResponse_STATE_READY, Progress: w.progress, InFlight: uint32(len(w.calls)),
	}
	for _, since := range w.calls {
		r.OldestInFlightMs = max(r.OldestInFlightMs, time.Since(since).Milliseconds())
	}
	if degraded, detail := w.server.Report(); degraded {
		r.State, r.Detail = workerv1.HealthResponse_STATE_DEGRADED, detail
	}
	if w.draining {
		r.State = workerv1.HealthResponse_STATE_DRAINING
	}
	return r, nil
}

func (w *worker) Drain(ctx context.Context, req *workerv1.DrainRequest) (*workerv1.DrainResponse, error) {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.log.Debug("draining", "reason", req.Reason)
	return &workerv1.DrainResponse{Unfinished: uint32(w.server.Drain(ctx))}, nil
}

func (w *worker) Stats(context.Context, *workerv1.StatsRequest) (*workerv1.StatsResponse, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.mu.Lock()
	defer w.mu.Unlock()
	return &workerv1.StatsResponse{
		Goroutines: uint32(runtime.NumGoroutine()), HeapBytes: m.HeapAlloc,
		Progress: w.progress, InFlight: uint32(len(w.calls)),
	}, nil
}
