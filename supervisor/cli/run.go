package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
	"github.com/hermes-supervisor/hermes-supervisor/systemd"
)

// formatText is the log format for people; under a journal its lines have fields as well.
const formatText = "text"

// runFlags are those of run.
type runFlags struct {
	chat      bool
	logFormat string
	// untilEOF ends the supervisor when its stdin is closed, so that one that was started for a chat does not
	// outlive it, whatever happens to the chat.
	untilEOF bool
	// noAdapters starts no gateway: a supervisor for one question must not take the ports and polls of another.
	noAdapters bool
}

func (p *program) run() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Supervise the agent and its workers until stopped",
		Long: `Run starts all workers and keeps them running until SIGTERM, Ctrl-C or "ctl stop". Then running turns get
supervisor.drain_timeout to finish; what does not finish goes on after the next start.
SIGHUP reloads the configuration, as "ctl reload" does.

The home is made if it is not there; without a configuration a built-in stand-in answers.`,
		Example: `  hermes-supervisor run --foreground-chat
  hermes-supervisor run --log-format json 2>>supervisor.log
  hermes-supervisor --home ~/second run`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.logFormat != formatText && f.logFormat != outputJSON {
				return usageError{fmt.Errorf("--log-format %s: the formats are text and json", f.logFormat)}
			}
			if f.chat {
				return p.runWithChat(c.Context())
			}
			return p.supervise(c.Context(), f)
		},
	}
	c.Flags().BoolVar(&f.chat, "foreground-chat", false, "chat in this terminal; leaving the chat stops the supervisor")
	c.Flags().StringVar(&f.logFormat, "log-format", formatText, "`format` of the log on stderr: text or json")
	c.Flags().BoolVar(&f.untilEOF, "until-eof", false, "stop when stdin is closed")
	c.Flags().BoolVar(&f.noAdapters, "no-adapters", false, "start no gateway, whatever the configuration says")
	_ = c.Flags().MarkHidden("until-eof")
	return c
}

// supervise is the supervisor itself.
func (p *program) supervise(ctx context.Context, f runFlags) error {
	// First of all: what is opened from here on belongs to this process alone.
	if _, err := worker.Prepare(); err != nil {
		return err
	}
	home, err := p.resolvedHome()
	if err != nil {
		return err
	}
	if err := config.Prepare(home); err != nil {
		return err
	}
	c, err := config.Load(home)
	if err != nil {
		return err
	}
	c = f.adjust(c)
	runDir, err := config.RunDirIn(p.runDir, home)
	if err != nil {
		return err
	}
	listener, err := systemd.Passed(config.SocketPath(runDir))
	if err != nil {
		return err
	}
	c.Resolve(ctx)
	keepOnBrokenPipe()
	if f.untilEOF {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		go func() { // ends with stdin, or with the process
			_, _ = io.Copy(io.Discard, p.in)
			stop()
		}()
	}
	err = supervisor.Run(ctx, supervisor.Options{
		Hangup: p.hangup.reloads(), Listener: listener, Journal: f.logFormat == formatText && systemd.StderrIsJournal(),
		Load: func(ctx context.Context) (*config.Config, error) {
			c, err := config.Load(home)
			if err != nil {
				return nil, err
			}
			c = f.adjust(c)
			c.Resolve(ctx)
			return c, nil
		},
		Config: c, RunDir: runDir, Version: ipc.Version(), Stderr: p.err, LogJSON: f.logFormat == outputJSON,
	})
	return ofRun(err)
}

// ofRun gives the end of a supervisor the exit code that its service manager understands.
func ofRun(err error) error {
	switch {
	case errors.Is(err, supervisor.ErrHomeInUse) && systemd.Manages():
		// Its unit is told not to try again: two supervisors of one home are a matter of how they were set up.
		return ipc.WithKind(err, config.ErrInvalid)
	case errors.Is(err, supervisor.ErrHomeInUse):
		return ipc.WithKind(err, ipc.ErrBusy)
	case errors.Is(err, supervisor.ErrRestart):
		return silentError{ipc.ExitTryAgain} // a failure to the service manager, which starts it again
	}
	return err
}

// keepOnBrokenPipe makes a write to a closed stderr an error instead of the end of the process: the reader of the log
// may be restarted.
func keepOnBrokenPipe() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
