// Command raw is a tool plugin without the SDK: only the protocol, hashicorp/go-plugin and gRPC. It shows what a
// plugin in another language has to do; docs/plugins.md says it in words.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// The handshake: a variable that tells the plugin that a supervisor started it, and the version of the protocol.
const (
	cookieKey   = "HERMES_SUPERVISOR_WORKER"
	cookieValue = "b0f3a6c2-9a35-4d0e-8a53-1f3f0a1c7e55"
	version     = 1
)

const schema = `{"type":"object","properties":{"text":{"type":"string","description":"text to turn round"}},"required":["text"],"additionalProperties":false}`

// server is both services of a plugin.
type server struct {
	workerv1.UnimplementedWorkerServer
	toolv1.UnimplementedToolServer
	running, done atomic.Int64
}

// Init is the first call. The broker id in it leads to the host services; this plugin needs none.
func (s *server) Init(context.Context, *workerv1.InitRequest) (*workerv1.InitResponse, error) {
	return &workerv1.InitResponse{Role: "plugin", Version: "0.1.0"}, nil
}

func (s *server) Health(context.Context, *workerv1.HealthRequest) (*workerv1.HealthResponse, error) {
	return &workerv1.HealthResponse{State: workerv1.HealthResponse_STATE_READY, Progress: uint64(s.done.Load()), InFlight: uint32(s.running.Load())}, nil
}

func (s *server) Drain(context.Context, *workerv1.DrainRequest) (*workerv1.DrainResponse, error) {
	return &workerv1.DrainResponse{Unfinished: uint32(s.running.Load())}, nil
}

func (s *server) Stats(context.Context, *workerv1.StatsRequest) (*workerv1.StatsResponse, error) {
	return &workerv1.StatsResponse{}, nil
}

func (s *server) Describe(context.Context, *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	return &toolv1.DescribeResponse{Plugin: "raw", Version: "0.1.0", Tools: []*toolv1.ToolSpec{{
		Name: "reverse", Description: "Turn a text round.", InputSchemaJson: schema, ReadOnly: true, DefaultTimeoutMs: 1000, MaxTimeoutMs: 10_000,
	}}}, nil
}

func (s *server) Invoke(r *toolv1.InvokeRequest, stream grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
	s.running.Add(1)
	defer func() { s.running.Add(-1); s.done.Add(1) }()
	if r.Tool != "reverse" {
		return status.Errorf(codes.NotFound, "no tool %q", r.Tool)
	}
	result := &toolv1.Result{}
	if text, err := arguments(r.ArgumentsJson); err != nil {
		result.Error = &toolv1.ToolError{Kind: toolv1.ToolError_KIND_BAD_ARGUMENTS, Message: err.Error()}
	} else {
		result.Content = reverse(text)
	}
	return stream.Send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Result{Result: result}})
}

func arguments(text string) (string, error) {
	var a struct {
		Text *string `json:"text"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return "", err
	}
	if a.Text == nil {
		return "", fmt.Errorf(`"text" is missing`)
	}
	return *a.Text, nil
}

func reverse(s string) string {
	runes := []rune(s)
	for i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {
		runes[i], runes[j] = runes[j], runes[i]
	}
	return string(runes)
}

// worker joins the services to go-plugin.
type worker struct {
	plugin.NetRPCUnsupportedPlugin
}

func (worker) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	s := &server{}
	workerv1.RegisterWorkerServer(g, s)
	toolv1.RegisterToolServer(g, s)
	return nil
}

func (worker) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("this is the plugin's side")
}

func main() {
	if os.Getenv(cookieKey) != cookieValue {
		fmt.Fprintln(os.Stderr, "this is a tool plugin of hermes-supervisor")
		os.Exit(2)
	}
	// The supervisor holds the other end of this pipe: when it closes, the plugin must go.
	if os.Getenv("HERMES_LIVENESS_FD") == "3" {
		go func() {
			_, _ = os.NewFile(3, "liveness").Read(make([]byte, 1))
			os.Exit(0)
		}()
	}
	go func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
		os.Exit(0)
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{version: {"worker": worker{}}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}
