package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	agentv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/agent/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
)

// build makes the binary that is tested.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hermes-agent")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func TestTheBinary(t *testing.T) {
	path := build(t)
	t.Run("says its version", func(t *testing.T) {
		out, err := exec.Command(path, "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), "hermes-agent ") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("does not run by hand", func(t *testing.T) {
		out, err := exec.Command(path).CombinedOutput()
		var exit *exec.ExitError
		if !asExit(err, &exit) || exit.ExitCode() != ipc.ExitUsage || !strings.Contains(string(out), "hermes-supervisor run") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("runs a turn as a process of its own", func(t *testing.T) { runTurn(t, path) })
}

func asExit(err error, target **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*target = e
	return ok
}

func runTurn(t *testing.T, path string) {
	host := agenttest.NewHost()
	t.Cleanup(host.Close)
	host.Tools["terminal"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
		return agenttest.Result(`{"output":"hello-42\n","exit_code":0,"error":null}`)
	}}
	began := time.Now()
	pid, peer := connect(t, path, host)
	reached := time.Since(began)

	agent := agentv1.NewAgentClient(peer.Conn)
	ask := func(id, text string) string {
		host.Accept(id, text)
		stream, err := agent.Run(t.Context(), &agentv1.RunRequest{TurnId: id, SessionId: host.Session.Id, Fence: host.Lease(id), Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := stream.Recv(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		end := host.End(id)
		if end.GetOutcome() != turnv1.Outcome_OUTCOME_COMPLETED {
			t.Errorf("ended %v", end)
		}
		return end.GetReply().GetContent()
	}
	idle := memory(t, pid)
	if got := ask("t1", "run: echo hello-42"); got != "hello-42" {
		t.Errorf("answered %q", got)
	}
	first := time.Since(began)
	for i := range 100 {
		ask(fmt.Sprint("u", i), "hello")
	}
	health, err := workerv1.NewWorkerClient(peer.Conn).Health(t.Context(), &workerv1.HealthRequest{})
	if err != nil || health.State != workerv1.HealthResponse_STATE_READY || health.InFlight != 0 || health.Detail != "offline" {
		t.Errorf("health %v, %v", health, err)
	}
	t.Logf("initialised after %s, first turn after %s; idle %s; after 100 turns %s", reached, first, idle, memory(t, pid))
}

// connect starts the binary and initialises it, as the supervisor does.
func connect(t *testing.T, path string, host *agenttest.Host) (int, *ipc.Peer) {
	t.Helper()
	var stderr bytes.Buffer
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: ipc.Handshake, VersionedPlugins: ipc.Versions(nil), AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS: true, GRPCBrokerMultiplex: true, SkipHostEnv: true, GRPCDialOptions: ipc.DialOptions(),
		Cmd: exec.Command(path), Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}), Stderr: &stderr,
	})
	t.Cleanup(func() {
		client.Kill()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	protocol, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Dispense(ipc.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	peer := raw.(*ipc.Peer)
	id := peer.Broker.NextId()
	go peer.Broker.AcceptAndServe(id, func(opts []grpc.ServerOption) *grpc.Server {
		s := grpc.NewServer(opts...)
		hostv1.RegisterTurnsServer(s, host)
		hostv1.RegisterToolsServer(s, host)
		hostv1.RegisterConfigServer(s, host)
		return s
	})
	config, err := json.Marshal(ipc.AgentConfig{Provider: "offline", Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := workerv1.NewWorkerClient(peer.Conn).Init(t.Context(), &workerv1.InitRequest{
		Name: "agent-1", Incarnation: 1, HostBrokerId: id, SupervisorVersion: version(t, path), ConfigJson: config,
	})
	if err != nil || r.Role != ipc.RoleAgent {
		t.Fatalf("init: %v, %v", r, err)
	}
	return client.ReattachConfig().Pid, peer
}

// version asks the binary, whose build is not that of the test.
func version(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), "hermes-agent "))
}

// memory returns the resident and the anonymous memory of a process, as the kernel prints them.
func memory(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "VmRSS" || name == "RssAnon" {
			out = append(out, name+" "+strings.TrimSpace(value))
		}
	}
	return strings.Join(out, ", ")
}
