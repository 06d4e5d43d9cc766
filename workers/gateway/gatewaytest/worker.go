package gatewaytest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// order is what a worker process is told on its standard input. The end of that input is the end of its supervisor.
type order struct {
	Host, Serve string // sockets
	Config      ipc.GatewayConfig
}

// orderEnv makes the test binary a worker.
const orderEnv = "GATEWAYTEST_WORKER"

// ready is the first line of a worker that serves. Anything else is why it does not.
const ready = "ready"

// Main is the TestMain of an adapter's package: the test binary is its own worker process when Worker starts it as
// that, and else runs the tests and looks for goroutines that they left.
func Main(m *testing.M, adapters gateway.Adapters, options ...goleak.Option) {
	if os.Getenv(orderEnv) != "" {
		serve(adapters)
		return
	}
	goleak.VerifyTestMain(m, options...)
}

// serve is the life of a worker process.
func serve(adapters gateway.Adapters) {
	var o order
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	role := gateway.New(adapters)
	ctx, cancel := context.WithCancel(context.Background())
	if err == nil {
		err = start(ctx, role, o)
	}
	if err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	fmt.Println(ready)
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	gone := make(chan struct{})
	go func() { // for the life of the process
		_, _ = io.Copy(io.Discard, in)
		close(gone)
	}()
	code := 0
	select {
	case <-terminate:
		drain, stop := context.WithTimeout(ctx, drainBudget)
		code = role.Drain(drain)
		stop()
	case <-gone:
	}
	cancel()
	role.Close()
	os.Exit(code)
}

// drainBudget is what a worker has to end its work after SIGTERM.
const drainBudget = 20 * time.Second

func start(ctx context.Context, role *gateway.Gateway, o order) error {
	conn, err := dial(o.Host)
	if err != nil {
		return err
	}
	log := hclog.New(&hclog.LoggerOptions{Name: o.Config.Platform, Output: os.Stderr, Level: hclog.Debug})
	server := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	role.Register(server)
	config, err := json.Marshal(o.Config)
	if err != nil {
		return err
	}
	if err := role.Start(ctx, workers.NewHost(conn, "gateway-"+o.Config.Platform, 1, log), config); err != nil {
		return err
	}
	listener, err := net.Listen("unix", o.Serve)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(listener) }() // for the life of the process
	return nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// A Worker is an adapter in a process of its own.
type Worker struct {
	PID int

	cmd    *exec.Cmd
	in     io.Closer
	detach func()
	conn   *grpc.ClientConn
	dead   chan struct{}
	log    *lockedBuffer
}

// Start starts the test binary as a worker with an adapter, and attaches it to the host. It returns the adapter's own
// words if it does not start. dir is the adapter's folder, empty for none.
func (h *Host) Start(t testing.TB, settings map[string]any, dir string) (*Worker, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.started++
	socket := filepath.Join(filepath.Dir(h.socket), fmt.Sprint("worker", h.started))
	h.mu.Unlock()
	o, err := json.Marshal(order{Host: h.socket, Serve: socket, Config: ipc.GatewayConfig{Platform: h.platform, Settings: settings, Dir: dir}})
	if err != nil {
		return nil, err
	}
	w := &Worker{cmd: exec.Command(self), dead: make(chan struct{}), log: &lockedBuffer{}}
	w.cmd.Env = []string{orderEnv + "=1"}
	w.cmd.Stderr = w.log
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	w.in, w.PID = in, w.cmd.Process.Pid
	_, writeErr := in.Write(append(o, '\n'))
	said, readErr := bufio.NewReader(out).ReadString('\n')
	go func() { // ends with the process
		_ = w.cmd.Wait()
		close(w.dead)
	}()
	if said = strings.TrimSpace(said); said != ready {
		w.Kill()
		if said == "" {
			said = fmt.Sprintf("it died: %v %v\n%s", writeErr, readErr, w.log)
		}
		return nil, errors.New(said)
	}
	if err := w.attach(h, socket); err != nil {
		w.Kill()
		return nil, fmt.Errorf("%w\n%s", err, w.log)
	}
	return w, nil
}

func (w *Worker) attach(h *Host, socket string) (err error) {
	if w.conn, err = dial(socket); err != nil {
		return err
	}
	w.detach, err = h.Attach(w.conn)
	return err
}

// Kill ends the process as kill -9 does, and returns when it is gone.
func (w *Worker) Kill() {
	_ = w.cmd.Process.Kill() // its error is that it has ended
	w.end()
}

// Stop ends the process as the supervisor does, and returns its exit code: what it left unfinished.
func (w *Worker) Stop() int {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	w.end()
	return w.cmd.ProcessState.ExitCode()
}

// Abandon lets the process find that its supervisor is gone, and returns when it has ended.
func (w *Worker) Abandon() {
	_ = w.in.Close()
	w.end()
}

func (w *Worker) end() {
	<-w.dead
	_ = w.in.Close()
	if w.detach != nil {
		w.detach()
	}
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// Dead is closed when the process has ended.
func (w *Worker) Dead() <-chan struct{} { return w.dead }

// Log returns what the process has logged.
func (w *Worker) Log() string { return w.log.String() }

// FDs counts the descriptors of the process.
func (w *Worker) FDs(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.PID))
	if err != nil {
		t.Skipf("cannot count descriptors: %v", err)
	}
	return len(list)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
