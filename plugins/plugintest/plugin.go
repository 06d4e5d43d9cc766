// Package plugintest starts a tool plugin as the supervisor does and runs the suite that every plugin should pass:
//
//	func TestPlugin(t *testing.T) {
//		path := plugintest.Build(t, ".")
//		plugintest.Run(t, path, plugintest.Options{},
//			plugintest.Example{Tool: "forecast", Arguments: `{"city":"Oslo"}`, Want: "sunny"})
//	}
//
// Start gives a running plugin for tests of the author's own. Nothing here is specific to plugins that are written
// in Go: path may be any program that speaks the protocol.
package plugintest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

const (
	// startTimeout is how long a plugin may take to its handshake, as under the supervisor.
	startTimeout = 30 * time.Second
	// tidyTimeout bounds the end of a plugin that is in the way of its own end.
	tidyTimeout = 15 * time.Second
)

// Options say how a plugin is started. The zero value is right for most.
type Options struct {
	// Secrets are those that the plugin has been granted, by name.
	Secrets map[string]string
	// Settings are the plugin's own, as they would stand in the configuration.
	Settings any
	// Plain starts it without TLS and without multiplexing, for a plugin that is not written in Go.
	Plain bool
	// NoCommandLine is for a plugin that does not answer describe and invoke by itself.
	NoCommandLine bool
}

// Build builds the Go plugin in dir and returns the path of the binary, which is removed with the test. Tests that
// share it are best made subtests of one.
func Build(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, ".") // half the time without symbols
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", dir, err, out)
	}
	return path
}

// A Plugin is a started plugin.
type Plugin struct {
	t        testing.TB
	cmd      *exec.Cmd
	client   *plugin.Client
	tool     toolv1.ToolClient
	worker   workerv1.WorkerClient
	tools    *toolv1.DescribeResponse
	liveness *os.File // its end is the end of the supervisor, to the plugin
	stderr   *lines
}

// Start starts the plugin at path and initialises it. It is ended with the test.
func Start(t testing.TB, path string, o Options) *Plugin {
	t.Helper()
	dir := t.TempDir()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p := &Plugin{t: t, cmd: exec.Command(path), liveness: write, stderr: &lines{}}
	p.cmd.Dir = dir
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, ipc.LivenessFDEnv + "=3"}
	p.cmd.ExtraFiles = []*os.File{read}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: ipc.Handshake, VersionedPlugins: ipc.Versions(nil), AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Cmd: p.cmd, SkipHostEnv: true, AutoMTLS: !o.Plain, GRPCBrokerMultiplex: !o.Plain, StartTimeout: startTimeout,
		GRPCDialOptions: ipc.DialOptions(), Stderr: p.stderr, SyncStdout: p.stderr, SyncStderr: p.stderr,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	})
	t.Cleanup(p.tidy)
	if err := p.connect(o); err != nil {
		t.Fatalf("start %s: %v\nit printed:\n%s", path, err, p.stderr)
	}
	return p
}

func (p *Plugin) connect(o Options) error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(ipc.PluginName)
	if err != nil {
		return err
	}
	peer := raw.(*ipc.Peer)
	id, err := serveHost(peer.Broker, o.Secrets)
	if err != nil {
		return err
	}
	settings, err := json.Marshal(o.Settings)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	config, err := json.Marshal(ipc.PluginConfig{ScratchDir: p.cmd.Dir, SpillDir: filepath.Join(p.cmd.Dir, "outputs"), Settings: settings})
	if err != nil {
		return err
	}
	p.tool, p.worker = toolv1.NewToolClient(peer.Conn), workerv1.NewWorkerClient(peer.Conn)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if _, err := p.worker.Init(ctx, &workerv1.InitRequest{
		Name: "plugin", Incarnation: 1, HostBrokerId: id, SupervisorVersion: ipc.Version(), ConfigJson: config,
	}); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if p.tools, err = p.tool.Describe(ctx, &toolv1.DescribeRequest{}); err != nil {
		return fmt.Errorf("describe: %w", err)
	}
	return nil
}

// serveHost offers the one host service that a plugin may use.
func serveHost(broker *plugin.GRPCBroker, secrets map[string]string) (uint32, error) {
	id := broker.NextId()
	serving := make(chan struct{})
	go broker.AcceptAndServe(id, func(opts []grpc.ServerOption) *grpc.Server {
		s := grpc.NewServer(append(opts, ipc.ServerOptions(nil, nil)...)...)
		hostv1.RegisterConfigServer(s, &config{secrets: secrets})
		close(serving)
		return s
	})
	select {
	case <-serving:
		return id, nil
	case <-time.After(startTimeout):
		return 0, fmt.Errorf("its connection for host services could not be made")
	}
}

type config struct {
	hostv1.UnimplementedConfigServer
	secrets map[string]string
}

func (c *config) Secret(_ context.Context, r *hostv1.SecretRequest) (*hostv1.SecretResponse, error) {
	v, ok := c.secrets[r.Name]
	if !ok {
		return nil, fmt.Errorf("secret %s is not granted to this plugin: %w", r.Name, ipc.ErrDenied)
	}
	return &hostv1.SecretResponse{Value: v}, nil
}

// tidy ends the plugin, whatever state it is in.
func (p *Plugin) tidy() {
	_ = p.liveness.Close()
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.client.Kill()
	}()
	select {
	case <-done:
	case <-time.After(tidyTimeout):
		p.t.Errorf("the plugin cannot be tidied away; a process that it started may hold its output")
	}
}

// Describe is what the plugin says of itself.
func (p *Plugin) Describe() *toolv1.DescribeResponse { return p.tools }

// PID is the plugin's process.
func (p *Plugin) PID() int { return p.cmd.Process.Pid }

// Output is what the plugin has printed and logged so far.
func (p *Plugin) Output() string { return p.stderr.String() }

// An Outcome is all that came of one call.
type Outcome struct {
	Content  string                // what the model reads
	Kind     toolv1.ToolError_Kind // why it failed, unspecified if it did not
	Message  string                // what is said about that
	Spill    string                // file with the whole output where Content was cut
	Progress []string
	Chunks   []byte
	Err      error // of the connection: the call has no result
}

// Call makes a call and waits for its end. arguments is JSON.
func (p *Plugin) Call(ctx context.Context, tool, arguments string) (o Outcome) {
	// A stream that is not read to its end lives as long as its context.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.tool.Invoke(ctx, &toolv1.InvokeRequest{
		Tool: tool, ArgumentsJson: arguments, CallId: "call", Attempt: 1,
		Origin: &toolv1.Origin{TurnId: "turn", SessionId: "session", Platform: "terminal", ChatId: "chat"},
	})
	if err != nil {
		o.Err = err
		return o
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			o.Err = err
			return o
		}
		switch e := e.Event.(type) {
		case *toolv1.InvokeEvent_Progress:
			o.Progress = append(o.Progress, e.Progress)
		case *toolv1.InvokeEvent_Chunk:
			o.Chunks = append(o.Chunks, e.Chunk...)
		case *toolv1.InvokeEvent_Result:
			o.Content, o.Spill = e.Result.Content, e.Result.SpillPath
			o.Kind, o.Message = e.Result.Error.GetKind(), e.Result.Error.GetMessage()
			return o
		}
	}
}

// Check asks for the judgement of a call.
func (p *Plugin) Check(ctx context.Context, tool, arguments string) (*toolv1.CheckResponse, error) {
	return p.tool.Check(ctx, &toolv1.CheckRequest{Tool: tool, ArgumentsJson: arguments})
}

// maxLines bounds what is kept of a plugin that floods.
const maxLines = 1 << 20

// lines keeps what a plugin prints.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := maxLines - l.text.Len(); room > 0 {
		l.text.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
