// Command hostile is a tool plugin that misbehaves in every way that somebody has thought of, for the tests. Each of its
// tools is one misbehaviour; the file "mode" in its folder makes it misbehave before it serves.
//
// What it takes of the machine is bounded by itself as well, so that a fault of the supervisor does not end the machine
// that the tests run on: processes end by themselves within a minute.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

// Set by the linker: one program makes several plugins.
var (
	name    = "hostile"
	schema  = "" // of one more tool, to be refused when the plugin is added
	version = "0.1.0"
	wants   = "" // the name of a secret
)

func main() {
	if os.Getenv(ipc.Handshake.MagicCookieKey) != ipc.Handshake.MagicCookieValue {
		fmt.Fprintln(os.Stderr, "this is a tool plugin of hermes-supervisor")
		os.Exit(2)
	}
	misbehaveFirst()
	go endWithSupervisor()
	s := &server{sdk: plugins.NewServer(name, version)}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: ipc.Handshake,
		VersionedPlugins: ipc.Versions(func(g *grpc.Server, _ *plugin.GRPCBroker) error {
			workerv1.RegisterWorkerServer(g, s)
			toolv1.RegisterToolServer(g, s)
			return nil
		}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			if os.Getenv("PLUGIN_CLIENT_CERT") == "" { // added with --plain
				opts = append(opts, grpc.Creds(tapped))
			}
			return grpc.NewServer(append(opts, grpc.ForceServerCodec(codec{}), grpc.MaxSendMsgSize(1<<30))...)
		},
	})
}

func endWithSupervisor() {
	_, _ = os.NewFile(3, "liveness").Read(make([]byte, 1))
	os.Exit(0)
}

// misbehaveFirst is what goes wrong before the handshake.
func misbehaveFirst() {
	mode, _ := os.ReadFile("mode")
	switch strings.TrimSpace(string(mode)) {
	case "exit":
		fmt.Fprintln(os.Stderr, "no licence for this machine")
		os.Exit(3)
	case "garbage":
		fmt.Print("Welcome!\n\x1b[31m{\"level\":7,\"@message\":[]}\n1|2|3\n|||||\n\xff\xfe\x00\n")
	case "babble":
		for range 100_000 {
			fmt.Println("all work and no play")
		}
		select {}
	case "version":
		fmt.Println("1|99|unix|/tmp/none|grpc|")
		select {}
	case "daemonise":
		if os.Getenv(daemonVariable) == "" {
			daemonise()
		}
	case "close_all":
		closeAll()
	case "elsewhere":
		fmt.Println("1|1|unix|/tmp/none|grpc|")
		select {}
	}
}

// server is a plugin whose tools are the SDK's, but for those that break the protocol, which the SDK does not let happen.
type server struct {
	workerv1.UnimplementedWorkerServer
	toolv1.UnimplementedToolServer
	sdk *plugins.Server
}

func (s *server) Init(_ context.Context, r *workerv1.InitRequest) (*workerv1.InitResponse, error) {
	var c ipc.PluginConfig
	if err := json.Unmarshal(r.ConfigJson, &c); err != nil {
		return nil, err
	}
	if err := s.sdk.Start(plugins.Env{Begin: begin, ScratchDir: c.ScratchDir, SpillDir: c.SpillDir}, tools()...); err != nil {
		return nil, err
	}
	return &workerv1.InitResponse{Role: ipc.RolePlugin, Version: "0.1.0"}, nil
}

func (s *server) Health(context.Context, *workerv1.HealthRequest) (*workerv1.HealthResponse, error) {
	r := &workerv1.HealthResponse{State: workerv1.HealthResponse_STATE_READY, InFlight: uint32(running.Load())}
	if degraded, detail := s.sdk.Report(); degraded {
		r.State, r.Detail = workerv1.HealthResponse_STATE_DEGRADED, detail
	}
	return r, nil
}

func (s *server) Drain(context.Context, *workerv1.DrainRequest) (*workerv1.DrainResponse, error) {
	return &workerv1.DrainResponse{}, nil
}

func (s *server) Stats(context.Context, *workerv1.StatsRequest) (*workerv1.StatsResponse, error) {
	return &workerv1.StatsResponse{}, nil
}

func (s *server) Describe(ctx context.Context, r *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	d, err := s.sdk.Describe(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, t := range d.Tools {
		if name != "hostile" {
			t.Name = name + "_" + t.Name // no two plugins have tools of one name
		}
	}
	if schema != "" {
		d.Tools = append(d.Tools, &toolv1.ToolSpec{Name: "odd", Description: "Odd.", InputSchemaJson: schema})
	}
	return d, nil
}

func (s *server) Invoke(r *toolv1.InvokeRequest, stream grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
	r.Tool = strings.TrimPrefix(r.Tool, name+"_")
	if f := raw[r.Tool]; f != nil {
		return f(stream)
	}
	return s.sdk.Invoke(r, stream)
}

// A wire is a message that is sent as it is, whatever protobuf says of it.
type wire []byte

// codec is protobuf's, but for wires.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) ([]byte, error) {
	if w, ok := v.(*wire); ok {
		return *w, nil
	}
	return proto.Marshal(v.(proto.Message))
}

func (codec) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }

// ignoreSignals makes the process deaf to what asks it to end.
func ignoreSignals() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
}

// settings are what a test wants of a call.
type settings struct {
	Path string `json:"path,omitempty"`
	N    int    `json:"n,omitempty"`
}

func said(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
