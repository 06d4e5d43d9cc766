package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

const (
	// startBudget is how long a supervisor may take until all required workers serve. Usually it is a second; a
	// store that was left by a crash may have to be recovered first.
	startBudget = 2 * time.Minute
	// stopBudget comes on top of the drain that the configuration allows.
	stopBudget = 30 * time.Second
	readyEvery = 20 * time.Millisecond
)

// A private supervisor is a process of its own that runs for one command. It ends when its stdin is closed, which also
// happens when this process is killed.
type private struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	log    *tail
	socket string
	done   chan struct{} // closed when the process has ended; then err is set
	err    error
}

// startPrivate starts `run` of this executable for home and returns when it is ready. socket is where it will listen.
func startPrivate(ctx context.Context, socket string, args ...string) (*private, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	s := &private{cmd: exec.Command(self, append([]string{"run", "--until-eof"}, args...)...), log: &tail{}, socket: socket, done: make(chan struct{})}
	s.cmd.Stderr = s.log
	// A group of its own: Ctrl-C in this terminal is for the chat, which interrupts a turn by it.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a supervisor: %w", err)
	}
	go func() {
		defer close(s.done)
		s.err = s.cmd.Wait()
	}()
	if err := s.awaitReady(ctx); err != nil {
		s.stop(0)
		return nil, err
	}
	return s, nil
}

// awaitReady asks for the status until every required worker serves.
func (s *private) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	conn, err := dial(s.socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := controlv1.NewControlClient(conn)
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return s.failed()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("waiting for the supervisor to be ready: %w", ipc.ErrCancelled)
			}
			return fmt.Errorf("the supervisor did not become ready: %w\n%s", ipc.ErrTimeout, s.log.lines(5))
		case <-tick.C:
		}
		// The socket is looked at first: a connection that failed waits a second before it tries again.
		if answers(ctx, s.socket) != nil {
			continue
		}
		r, err := client.Status(ctx, &controlv1.StatusRequest{})
		if err != nil {
			continue
		}
		if state := r.GetSupervisor().GetState(); state == "ready" || state == "degraded" {
			return nil
		}
		if err := hopeless(r.GetWorkers()); err != nil {
			return err
		}
	}
}

// slowLane tells a start that is soon tried again from one that is given to the slow lane, whose first delay is a minute.
const slowLane = 30.0

// hopeless is why a worker without which nothing is answered cannot start, if that is so. A gateway may fail: its port may
// be in use.
func hopeless(workers []*controlv1.WorkerStatus) error {
	for _, w := range workers {
		if w.NextStartSeconds > slowLane && w.Role != ipc.RoleGateway && w.GetLastExit().GetCause() == "start_failed" {
			code := ipc.ExitFailed
			if strings.Contains(w.Detail, worker.CannotStart) {
				code = ipc.ExitConfig
			}
			return &startError{code: code, text: fmt.Sprintf("worker %s: %s", w.Name, w.LastExit.Message)}
		}
	}
	return nil
}

// failed is why the supervisor ended before it was ready, in its own words, with its own exit code.
func (s *private) failed() error {
	text := s.log.lines(5)
	if _, said, ok := strings.Cut(text, "hermes-supervisor: "); ok {
		text = said
	}
	code := s.cmd.ProcessState.ExitCode()
	if code <= 0 {
		code = ipc.ExitFailed
	}
	return &startError{code: code, text: strings.TrimSpace(text)}
}

// startError is the error of another process of this program.
type startError struct {
	code int
	text string
}

func (e *startError) Error() string { return "the supervisor did not start: " + e.text }

// stop ends the supervisor: orderly within the drain, then by force.
func (s *private) stop(drain time.Duration) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.stdin.Close()
	timer := time.NewTimer(drain + stopBudget)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// died says that the supervisor ended by itself with a failure.
func (s *private) died() bool {
	select {
	case <-s.done:
		return s.err != nil
	default:
		return false
	}
}

// tail keeps the end of what a process says.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// maxTail is some hundred lines: enough for a stack of a panic.
const maxTail = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// lines returns the last n lines.
func (t *tail) lines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := strings.Split(strings.TrimRight(string(t.buf), "\n"), "\n")
	return strings.Join(list[max(0, len(list)-n):], "\n")
}

// homeInUse says that a start failed because another supervisor owns the home.
func homeInUse(err error) bool {
	var e *startError
	return errors.As(err, &e) && e.code == ipc.ExitTryAgain
}
