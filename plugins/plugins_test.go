package plugins

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served starts a server of tools and returns a client of it over a Unix socket.
func served(t *testing.T, env Env, tools ...Tool) (*Server, toolv1.ToolClient) {
	t.Helper()
	if env.Log == nil {
		env.Log = hclog.NewNullLogger()
	}
	s := NewServer("test", "1.2.3")
	if err := s.Start(env, tools...); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	toolv1.RegisterToolServer(g, s)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = g.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Close()
		g.Stop()
		<-ended
	})
	return s, toolv1.NewToolClient(conn)
}

// outcome is all that came of one call.
type outcome struct {
	progress []string
	chunks   []byte
	result   *toolv1.Result
}

func call(ctx context.Context, t *testing.T, c toolv1.ToolClient, tool, arguments string) outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx) // a stream that is not read to its end lives as long as its context
	defer cancel()
	stream, err := c.Invoke(ctx, &toolv1.InvokeRequest{
		Tool: tool, ArgumentsJson: arguments, CallId: "c1", Attempt: 1, Origin: &toolv1.Origin{TurnId: "t1", Platform: "terminal", ChatId: "here"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	for o.result == nil {
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("call of %s ended without a result: %v", tool, err)
		}
		switch e := e.Event.(type) {
		case *toolv1.InvokeEvent_Progress:
			o.progress = append(o.progress, e.Progress)
		case *toolv1.InvokeEvent_Chunk:
			o.chunks = append(o.chunks, e.Chunk...)
		case *toolv1.InvokeEvent_Result:
			o.result = e.Result
		}
	}
	return o
}

func TestNamesOfTools(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "read_file": true, "z9": true, strings.Repeat("a", 64): true,
		"": false, "A": false, "9a": false, "_a": false, "a-b": false, "a b": false, "ä": false, "a\n": false, strings.Repeat("a", 65): false,
	} {
		if isToolName(name) != want {
			t.Errorf("isToolName(%q) = %v", name, !want)
		}
	}
}
