package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

const patience = 60 * time.Second

// A home is one supervised system to measure.
type home struct {
	dir, bin string
	cmd      *exec.Cmd
	conn     *grpc.ClientConn
}

func newHome(bin, providerURL string) (*home, error) {
	dir, err := os.MkdirTemp("", "hs-bench-")
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir, bin: bin}
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o700); err != nil {
		return nil, err
	}
	return h, h.configureDefault(providerURL, 2)
}

// configureDefault has a number of agents, and the API as the only adapter.
func (h *home) configureDefault(providerURL string, agents int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api := l.Addr().String()
	_ = l.Close()
	return h.configure(fmt.Sprintf(`model: {provider: openai, default: bench, base_url: %q}
adapters:
  api: {enabled: true, listen: %q}
supervisor:
  agent_instances: %d
  restart: {burst: 100000, max_delay: 100ms}
`, providerURL, api, agents), "OPENAI_API_KEY=bench\n")
}

// configure writes the configuration and the secrets of the home.
func (h *home) configure(config, env string) error {
	if err := os.WriteFile(filepath.Join(h.dir, "home", ".env"), []byte(env), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.dir, "home", "config.yaml"), []byte(config), 0o600)
}

// start starts the supervisor and returns how long it took until it told systemd's socket READY=1.
func (h *home) start() (time.Duration, error) {
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(h.dir, "notify"), Net: "unixgram"})
	if err != nil {
		return 0, err
	}
	defer func() { _ = notify.Close(); _ = os.Remove(filepath.Join(h.dir, "notify")) }()
	h.cmd = exec.Command(filepath.Join(h.bin, "hermes-supervisor"), "run", "--home", filepath.Join(h.dir, "home"), "--run-dir", filepath.Join(h.dir, "run"))
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "NOTIFY_SOCKET=" + filepath.Join(h.dir, "notify")}
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	h.cmd.Stdout, h.cmd.Stderr = log, log
	begun := time.Now()
	if err := h.cmd.Start(); err != nil {
		return 0, err
	}
	_ = notify.SetReadDeadline(begun.Add(patience))
	buf := make([]byte, 4096)
	for {
		n, err := notify.Read(buf)
		if err != nil {
			out, _ := os.ReadFile(filepath.Join(h.dir, "log"))
			return 0, fmt.Errorf("no READY=1: %w\n%s", err, out)
		}
		if strings.Contains(string(buf[:n]), "READY=1") {
			return time.Since(begun), nil
		}
	}
}

func (h *home) client() (*grpc.ClientConn, error) {
	if h.conn != nil {
		return h.conn, nil
	}
	sockets, _ := filepath.Glob(filepath.Join(h.dir, "run", "*", "control.sock"))
	if len(sockets) != 1 {
		return nil, fmt.Errorf("%d control sockets below %s", len(sockets), h.dir)
	}
	var err error
	h.conn, err = grpc.NewClient("unix://"+sockets[0], append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	return h.conn, err
}

func (h *home) status() (*controlv1.StatusResponse, error) {
	conn, err := h.client()
	if err != nil {
		return nil, err
	}
	return controlv1.NewControlClient(conn).Status(context.Background(), &controlv1.StatusRequest{})
}

// stop ends the supervisor as systemd would.
func (h *home) stop() error {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
	if h.cmd == nil {
		return nil
	}
	cmd := h.cmd
	h.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	return cmd.Wait()
}

func (h *home) remove() {
	_ = h.stop()
	_ = os.RemoveAll(h.dir)
}
