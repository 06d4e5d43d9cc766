package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

func (p *program) ctlRestart() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:               "restart NAME",
		Short:             "End a worker after a drain and start it again",
		Long:              "Restart ends a worker after what it runs has finished (at most supervisor.drain_timeout) and returns when the\nnew one serves. A turn that does not finish goes on in the new one.",
		Example:           `  hermes-supervisor ctl restart agent-1`,
		Args:              exactly(1, "the name of a worker"),
		ValidArgsFunction: p.completeWorkers,
		RunE: func(c *cobra.Command, args []string) error {
			return p.verb(c, "restart "+args[0], func(ctx context.Context, client controlv1.ControlClient) (*controlv1.WorkerStatus, error) {
				r, err := client.RestartWorker(ctx, &controlv1.RestartWorkerRequest{Name: args[0]})
				return r.GetWorker(), err
			})
		},
	})
}

func (p *program) ctlStart() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:               "start NAME",
		Short:             "Start a worker that was stopped or has failed",
		Example:           `  hermes-supervisor ctl start gateway-api`,
		Args:              exactly(1, "the name of a worker"),
		ValidArgsFunction: p.completeWorkers,
		RunE: func(c *cobra.Command, args []string) error {
			return p.verb(c, "start "+args[0], func(ctx context.Context, client controlv1.ControlClient) (*controlv1.WorkerStatus, error) {
				r, err := client.StartWorker(ctx, &controlv1.StartWorkerRequest{Name: args[0]})
				return r.GetWorker(), err
			})
		},
	})
}

func (p *program) ctlStop() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "stop [NAME]",
		Short: "Stop a worker until it is started again, or the whole supervisor",
		Long: `With a name, stop ends that worker after a drain and keeps it down until "ctl start".
Without one it ends the supervisor as SIGTERM would and waits until it has gone: running turns get
supervisor.drain_timeout; what does not finish goes on after the next start.`,
		Example: `  hermes-supervisor ctl stop gateway-api
  hermes-supervisor ctl stop`,
		Args:              between(0, 1, "at most the name of a worker"),
		ValidArgsFunction: p.completeWorkers,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.shutdown(c.Context())
			}
			return p.verb(c, "stop "+args[0], func(ctx context.Context, client controlv1.ControlClient) (*controlv1.WorkerStatus, error) {
				r, err := client.StopWorker(ctx, &controlv1.StopWorkerRequest{Name: args[0]})
				return r.GetWorker(), err
			})
		},
	})
}

// verb makes one change to a worker and shows what it is now.
func (p *program) verb(c *cobra.Command, what string, call func(context.Context, controlv1.ControlClient) (*controlv1.WorkerStatus, error)) error {
	return p.control(c.Context(), func(client controlv1.ControlClient) error {
		status, err := call(c.Context(), client)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return p.print(status, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s is %s%s\n", printable(status.GetName()), p.stateText(status.GetState()), forced(status.GetLastExit()))
			return err
		})
	})
}

// forced says that a process which was asked to end did not do so by itself.
func forced(e *controlv1.ExitStatus) string {
	if e.GetBy() == "" || e.GetSignal() != "SIGKILL" && e.GetSignal() != "SIGQUIT" {
		return ""
	}
	return printable(fmt.Sprintf("; process %d had to be forced: %s", e.Pid, e.Message))
}

// goneEvery is how often shutdown looks whether the supervisor has gone.
const goneEvery = 50 * time.Millisecond

// shutdown asks the supervisor to end and waits until its process has ended, so that the next command can start one.
func (p *program) shutdown(ctx context.Context) error {
	var process *processHandle
	err := p.control(ctx, func(client controlv1.ControlClient) error {
		r, err := client.Status(ctx, &controlv1.StatusRequest{})
		if err != nil {
			return err
		}
		if process, err = openProcess(int(r.GetSupervisor().GetPid())); err != nil {
			return err
		}
		_, err = client.Shutdown(ctx, &controlv1.ShutdownRequest{})
		return err
	})
	defer process.close()
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	for !process.ended() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the supervisor was asked to stop and still drains: %w", ipc.ErrCancelled)
		case <-time.After(goneEvery):
		}
	}
	if p.output == outputJSON {
		return p.json(map[string]bool{"stopped": true})
	}
	_, err = fmt.Fprintln(p.out, "stopped")
	return err
}

// A processHandle is a pidfd: it stays that process, whatever becomes of its number.
type processHandle struct{ fd int }

func openProcess(pid int) (*processHandle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return &processHandle{fd}, nil
}

// ended says whether the process has ended, reaped or not.
func (h *processHandle) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func (h *processHandle) close() {
	if h != nil {
		_ = unix.Close(h.fd)
	}
}
