package worker

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// BenchmarkKillToReplacement measures from SIGKILL to the replacement's first instruction in main and to its first answered
// call: as it is, without mutual TLS and multiplexing, and what go-plugin needs by itself to start the same program.
func BenchmarkKillToReplacement(b *testing.B) {
	b.Run("supervised", func(b *testing.B) { killToReplacement(b, false) })
	b.Run("plain", func(b *testing.B) { killToReplacement(b, true) })
	b.Run("floor", goPluginAlone)
}

// goPluginAlone is the floor: a loop that starts the program with go-plugin's own runner, without Init and host services.
func goPluginAlone(b *testing.B) {
	first := filepath.Join(b.TempDir(), "first")
	start := func() (*plugin.Client, *exec.Cmd, *ipc.Peer) {
		cmd := exec.Command(testBinary)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TESTWORKER_FIRST=" + first}
		client := plugin.NewClient(&plugin.ClientConfig{
			HandshakeConfig: ipc.Handshake, VersionedPlugins: ipc.Versions(nil), Cmd: cmd, AutoMTLS: true, GRPCBrokerMultiplex: true,
			SkipHostEnv: true, AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, GRPCDialOptions: ipc.DialOptions(),
			Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		})
		peer, err := dispense(client)
		if err != nil {
			b.Fatal(err)
		}
		return client, cmd, peer
	}
	client, cmd, _ := start()
	var toMain, toCall []time.Duration
	for b.Loop() {
		killed := time.Now()
		_ = cmd.Process.Kill()
		for !client.Exited() {
			time.Sleep(time.Millisecond)
		}
		old := client
		var peer *ipc.Peer
		client, cmd, peer = start()
		if _, err := healthpb.NewHealthClient(peer.Conn).Check(context.Background(), &healthpb.HealthCheckRequest{Service: plugin.GRPCServiceName}); err != nil {
			b.Fatal(err)
		}
		toCall = append(toCall, time.Since(killed))
		toMain = append(toMain, lastNote(b, first).Sub(killed))
		old.Kill()
	}
	client.Kill()
	tell(b, toMain, toCall)
}

func killToReplacement(b *testing.B, plain bool) {
	r := newRig(b)
	first := filepath.Join(b.TempDir(), "first")
	s := spec("quick")
	s.Plain = plain
	s.Env = []string{"TESTWORKER_FIRST=" + first}
	s.Policy = Policy{Base: 1, MaxDelay: 1, Burst: 1 << 30}
	up := make(chan grpc.ClientConnInterface, 1)
	hooks := r.hooks()
	hooks.Up = func(_ ipc.Identity, conn grpc.ClientConnInterface) func() {
		up <- conn
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := New(s, hooks, r.env)
	over := make(chan struct{})
	go func() { defer close(over); w.Run(ctx) }()
	defer func() { cancel(); <-over }()
	<-up

	var toMain, toCall []time.Duration
	for b.Loop() {
		until(b, "a pid", func() bool { return w.State() == Ready })
		killed := time.Now()
		_ = syscall.Kill(w.PID(), syscall.SIGKILL)
		conn := <-up
		if _, err := workerv1.NewWorkerClient(conn).Health(ctx, &workerv1.HealthRequest{}); err != nil {
			b.Fatal(err)
		}
		toCall = append(toCall, time.Since(killed))
		toMain = append(toMain, lastNote(b, first).Sub(killed))
	}
	tell(b, toMain, toCall)
}

func tell(b *testing.B, toMain, toCall []time.Duration) {
	b.ReportMetric(0, "ns/op")
	for name, d := range map[string][]time.Duration{"main": toMain, "call": toCall} {
		slices.Sort(d)
		b.ReportMetric(ms(d[0]), name+"-min-ms")
		b.ReportMetric(ms(d[len(d)/2]), name+"-p50-ms")
		b.ReportMetric(ms(d[len(d)*99/100]), name+"-p99-ms")
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func lastNote(b *testing.B, path string) time.Time {
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.Fields(string(data))
	n, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Unix(0, n)
}

// BenchmarkFlood is what a worker that prints a million lines as fast as it can costs the supervisor.
func BenchmarkFlood(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		began, used := time.Now(), processorTime(b)
		w := New(spec("flood", "1000000"), r.hooks(), r.env)
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() { defer close(over); w.Run(ctx) }()
		until(b, "a million lines", func() bool { return w.Status().LogLinesDropped > 990_000 })
		wall, cpu := time.Since(began), processorTime(b)-used
		cancel()
		<-over
		b.ReportMetric(ms(wall), "wall-ms")
		b.ReportMetric(ms(cpu), "cpu-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// processorTime is what this process has used, without its children.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
