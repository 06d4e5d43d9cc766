package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
)

// errHopeless marks a failed start that will fail again until a person mends something.
var errHopeless = errors.New("cannot start as it is")

// An instance is one process of a worker with its connection.
type instance struct {
	identity ipc.Identity
	process  *process
	config   *plugin.ClientConfig
	client   *plugin.Client
	brokerID uint32 // where the host services are
	oomKills uint64 // of the machine, at the start
	timing   Timing
	log      hclog.Logger

	connected chan struct{} // closed when go-plugin has connected or given up; then the next two hold
	peer      *ipc.Peer
	dialErr   error

	mu     sync.Mutex
	conn   *grpc.ClientConn // go-plugin's, caught at its first call
	server *grpc.Server     // of the host services
}

// A launcher makes instances of one worker.
type launcher struct {
	spec  Spec
	hooks Hooks
	env   Env
	log   hclog.Logger

	mu    sync.Mutex
	spare *spare // nil: none
}

// launch makes a process, connects to it and initialises it. It returns when the worker serves, or when the process of the
// attempt is gone; what else is left of it is tidied by the caller. The end of ctx ends the attempt.
func (l *launcher) launch(ctx context.Context, incarnation uint64, born func(pid int)) (body, Exit, error) {
	inst := l.take(ctx, incarnation)
	var err error
	if inst != nil {
		inst.process.started = time.Now() // its life as the worker begins
		born(inst.id())
	} else {
		inst = l.instance(incarnation, incarnation)
		inst.process.onBorn = born
		err = l.prepare(ctx, inst)
	}
	if err == nil {
		err = l.initialise(ctx, inst)
	}
	if err == nil {
		if inst.process.series != nil {
			inst.process.series.Refresh()
		}
		if inst.process.clamped {
			l.log.Warn("the limit of open files is above what this user may set; the worker keeps the hard limit of the supervisor",
				"worker", l.spec.Name, "wanted", l.spec.Limits.FDs)
		}
		return inst, Exit{}, nil
	}
	closeAll(inst.process.takeFiles())
	inst.process.signal(syscall.SIGKILL)
	if !inst.overWithin(l.env.Timing.Kill) {
		l.log.Error("the process of a failed start is not over", "pid", inst.id(), "detail", inst.unended().Message)
	}
	err = inst.explain(err)
	exit := inst.exit()
	exit.Message = plain(err)
	return inst, exit, err
}

// lasting says whether a worker refuses to start for a reason that time alone will not mend: another version, a taken
// port, a setting that will not do, a secret that is not there. What a network or a busy machine may cause is none of them.
func lasting(err error) bool {
	for _, kind := range []error{ipc.ErrRefused, ipc.ErrInvalid, ipc.ErrDenied, ipc.ErrNotFound} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// plain is the text of an error without the marks that only programs need.
func plain(err error) string {
	text := strings.TrimSuffix(err.Error(), " ("+errHopeless.Error()+")")
	return strings.ReplaceAll(text, ": "+ipc.ErrRefused.Error(), "")
}

// instance returns what a process of an incarnation needs. marked tells it from another process of the same one.
func (l *launcher) instance(incarnation, marked uint64) *instance {
	inst := &instance{
		identity: ipc.Identity{
			Worker: l.spec.Name, Role: l.spec.Role, Platform: l.spec.Platform,
			Incarnation: incarnation, Secrets: l.spec.Secrets,
		},
		oomKills: l.env.Sampler.Proc().OOMKills(),
		timing:   l.env.Timing,
		log:      l.log,
	}
	inst.process = newProcess(l.spec, l.env.Orphans.mark(l.spec.Name, marked), l.env)
	return inst
}

// preflight finds what go-plugin and the kernel would report in words that help nobody.
func (l *launcher) preflight(inst *instance) error {
	if err := CheckRunDir(l.env.RunDir); err != nil {
		return fmt.Errorf("%w (%w)", err, errHopeless)
	}
	st, err := os.Stat(l.spec.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("its binary %s is missing: install all binaries of one build side by side (%w)", l.spec.Path, errHopeless)
	case err != nil:
		return fmt.Errorf("its binary: %w (%w)", err, errHopeless)
	case st.IsDir():
		return fmt.Errorf("its binary %s is a folder (%w)", l.spec.Path, errHopeless)
	case st.Mode()&0o111 == 0:
		return fmt.Errorf("its binary %s is not executable: chmod +x it (%w)", l.spec.Path, errHopeless)
	}
	if l.spec.Files != nil {
		if inst.process.files, err = l.spec.Files(); err != nil {
			return fmt.Errorf("%w (%w)", err, errHopeless)
		}
	}
	if l.spec.Dir != "" {
		// exec would blame the binary.
		if st, err := os.Stat(l.spec.Dir); err != nil || !st.IsDir() {
			return fmt.Errorf("its working directory %s is not a folder that is there (%w)", l.spec.Dir, errHopeless)
		}
	}
	return nil
}

// connect starts the process and go-plugin's connection to it. go-plugin blocks where it likes, so it runs in a goroutine
// of its own, which the end of the process and the limit of a dial set free (tidy waits for it).
func (l *launcher) connect(ctx context.Context, inst *instance) error {
	var err error
	if inst.config, err = l.clientConfig(inst); err != nil {
		return err
	}
	inst.client = plugin.NewClient(inst.config)
	inst.connected = make(chan struct{})
	go func() {
		defer close(inst.connected)
		inst.peer, inst.dialErr = dispense(inst.client)
	}()
	limit := time.NewTimer(l.env.Timing.Start)
	defer limit.Stop()
	select {
	case <-inst.connected:
		return inst.dialErr
	case <-inst.process.done:
		return errEarly
	case <-limit.C:
		// Its stacks say where it hangs.
		inst.process.signalLeader(syscall.SIGQUIT, syscall.SIGCONT)
		inst.endsWithin(l.env.Timing.Quit)
		return fmt.Errorf("no connection within %s", l.env.Timing.Start)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errEarly = errors.New("it ended while it was connected to")

func dispense(client *plugin.Client) (*ipc.Peer, error) {
	protocol, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(ipc.PluginName)
	if err != nil {
		return nil, err
	}
	return raw.(*ipc.Peer), nil
}

// clientConfig returns a configuration for one start: go-plugin writes into it.
func (l *launcher) clientConfig(inst *instance) (*plugin.ClientConfig, error) {
	var security *tls.Config
	var variables []string
	if !l.spec.Plain {
		config, cert, err := mutualTLS()
		if err != nil {
			return nil, err
		}
		security, variables = config, []string{ipc.ClientCertEnv + "=" + cert}
	}
	if l.env.LastWords != "" && l.spec.ownSocket() { // a plugin has no business in the home
		variables = append(variables, ipc.LastWordsEnv+"="+filepath.Join(l.env.LastWords, l.spec.Name))
	}
	return &plugin.ClientConfig{
		HandshakeConfig:     ipc.Handshake,
		VersionedPlugins:    ipc.Versions(nil),
		AllowedProtocols:    []plugin.Protocol{plugin.ProtocolGRPC},
		TLSConfig:           security,
		GRPCBrokerMultiplex: !l.spec.Plain && !l.spec.ownSocket(), // its sessions ask each other twice a minute whether they live
		SkipHostEnv:         true,
		// Ours comes first, so that the worker's stacks are seen.
		StartTimeout:     l.env.Timing.Start + l.env.Timing.Quit + time.Second,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: l.env.RunDir},
		GRPCDialOptions:  l.dialOptions(inst),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (runner.Runner, error) {
			inst.process.adopt(append(cmd.Env, variables...), socketDir)
			return inst.process, nil
		},
		// What a worker prints through os.Stdout and os.Stderr after its handshake comes over the connection.
		SyncStdout: &lateWriter{process: inst.process, stream: logs.StreamStdout},
		SyncStderr: &lateWriter{process: inst.process, stream: logs.StreamStderr},
		// Off is the one level at which go-plugin does not parse lines; a null logger is not off.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
		// It waits at an empty stderr for as long as the worker lives, and would hold 64 KiB for it.
		PluginLogBufferSize: 16,
	}, nil
}

// dialOptions make go-plugin's dial wait for the connection, so that a worker that dies meanwhile is an error there, where
// gRPC cleans up after itself; go-plugin would forget a connection that is not made yet. It also forgets one when its own
// first stream fails, so the connection is caught at the first call, to be closed with the instance.
func (l *launcher) dialOptions(inst *instance) []grpc.DialOption {
	catch := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		inst.mu.Lock()
		inst.conn = cc
		inst.mu.Unlock()
		return open(ctx, desc, cc, method, opts...)
	}
	return append(append(ipc.DialOptions(),
		grpc.WithChainStreamInterceptor(catch),
		grpc.WithBlock(),                    //nolint:staticcheck // deprecated for good reasons that are not ours
		grpc.WithTimeout(l.env.Timing.Dial), //nolint:staticcheck // only with WithBlock
		grpc.WithReturnConnectionError(),    //nolint:staticcheck // only with WithBlock
	), l.env.dial...)
}

// serveHost offers the host services to the worker. It returns when the worker can dial them.
func (l *launcher) serveHost(inst *instance) error {
	if conn := inst.process.takeHost(); conn != nil {
		server := l.hostServer(inst, nil)
		go func() { _ = server.Serve(listenOnce(conn)) }() // until tidy stops it
		return nil
	}
	id := inst.peer.Broker.NextId()
	inst.brokerID = id
	serving := make(chan struct{})
	go inst.peer.Broker.AcceptAndServe(id, func(opts []grpc.ServerOption) *grpc.Server {
		defer close(serving)
		return l.hostServer(inst, opts)
	})
	select {
	case <-serving:
		return nil
	case <-inst.process.done:
		return errors.New("it ended before its first call")
	case <-time.After(l.env.Timing.Start):
		return errors.New("its connection for host services could not be made")
	}
}

// hostServer makes the server of the host services of one process.
func (l *launcher) hostServer(inst *instance, opts []grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(opts, ipc.ServerOptions(inst.identify, inst.panicked)...)...)
	if l.hooks.Register != nil {
		l.hooks.Register(s)
	}
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.server = s
	return s
}

// initialise makes the first call, which starts the worker's own work.
func (l *launcher) initialise(ctx context.Context, inst *instance) error {
	ctx, cancel := context.WithTimeout(ctx, l.env.Timing.Init)
	defer cancel()
	stop := context.AfterFunc(inst.peer.Gone, cancel)
	defer stop()
	r, err := workerv1.NewWorkerClient(inst.peer.Conn).Init(ctx, &workerv1.InitRequest{
		Name: l.spec.Name, Incarnation: inst.identity.Incarnation, HostBrokerId: inst.brokerID,
		SupervisorVersion: l.env.Version, ConfigJson: l.spec.Config,
	})
	if lasting(err) {
		return fmt.Errorf("%w (%w)", err, errHopeless)
	}
	if err != nil {
		return err
	}
	if l.spec.Role == ipc.RolePlugin {
		return nil
	}
	if r.Role != l.spec.Role {
		return fmt.Errorf("%s serves the role %q, not %q (%w)", l.spec.Path, r.Role, l.spec.Role, errHopeless)
	}
	if r.Version != l.env.Version {
		return fmt.Errorf("%s is version %s, the supervisor is %s: install both from one build (%w)", l.spec.Path, r.Version, l.env.Version, errHopeless)
	}
	return nil
}
