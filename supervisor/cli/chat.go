package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// chatOptions are the flags of chat, handed on to hermes-terminal.
type chatOptions struct {
	question string
	session  string
	fresh    bool
}

func (p *program) chat() *cobra.Command {
	var o chatOptions
	c := &cobra.Command{
		Use:   "chat",
		Short: "Chat with the agent in this terminal, or ask one question",
		Long: `Chat talks to the running supervisor of the home. With -q it asks one question and prints the reply alone on stdout;
where no supervisor runs, it starts one for the question, without chat adapters, and ends it again.

A message is stored before it is answered: if the supervisor dies, chat waits for the next one and goes on.
Ctrl-C interrupts the answer, twice leaves.

What begins with a slash and a word is for the chat and not for the model; /help lists its commands (/new /retry /undo
/title /sessions /resume /model /status). With a space before the slash a line is a message.`,
		Example: `  hermes-supervisor chat
  hermes-supervisor chat -q "run: uname -a"
  git diff | hermes-supervisor chat -q -`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("query") && o.question == "" {
				return usageError{errors.New("-q needs a text; - reads it from stdin")}
			}
			if o.session != "" && o.fresh {
				return usageError{errors.New("--session and --new exclude each other")}
			}
			return p.talk(c.Context(), o)
		},
	}
	c.Flags().StringVarP(&o.question, "query", "q", "", "ask this `text`, print the reply and leave; - reads it from stdin")
	c.Flags().StringVar(&o.session, "session", "", "go on in the session with this `id`")
	c.Flags().BoolVar(&o.fresh, "new", false, "begin a new session")
	return c
}

// terminalArgs is how hermes-terminal is called.
func (o chatOptions) terminalArgs(socket string) []string {
	args := []string{"--socket", socket}
	if o.question != "" {
		args = append(args, "-q", o.question)
	}
	if o.session != "" {
		args = append(args, "--session", o.session)
	}
	if o.fresh {
		args = append(args, "--new")
	}
	if asciiOnly(os.Getenv) {
		args = append(args, "--ascii")
	}
	return args
}

// talk becomes hermes-terminal where a supervisor runs; for a question it starts one where none does.
func (p *program) talk(ctx context.Context, o chatOptions) error {
	terminal, err := p.terminal()
	if err != nil {
		return err
	}
	socket, home, err := p.socket()
	if err != nil {
		return err
	}
	missing := answers(ctx, socket)
	if missing == nil {
		return become(terminal, o.terminalArgs(socket))
	}
	if o.question == "" {
		return fmt.Errorf("%w\nor do both at once: %s --foreground-chat", p.noSupervisor(home, socket, missing), p.startLine())
	}
	return p.askPrivately(ctx, terminal, home, o)
}

// terminal finds hermes-terminal.
func (p *program) terminal() (string, error) {
	libexec := ""
	if c, err := p.load(); err == nil {
		libexec = c.Supervisor.Libexec
	}
	return supervisor.FindBinary("hermes-terminal", libexec)
}

// become replaces this process, so that nothing stands between the person and the terminal client.
func become(path string, args []string) error {
	err := syscall.Exec(path, append([]string{filepath.Base(path)}, args...), os.Environ())
	return fmt.Errorf("start %s: %w", path, err)
}

// askPrivately asks one question of a supervisor of its own. When another one takes the home at that moment (a second
// question, say), that one is asked or waited for.
func (p *program) askPrivately(ctx context.Context, terminal, home string, o chatOptions) error {
	c, err := config.Load(home)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(startBudget)
	p.progress("no supervisor runs, starting one for this question …")
	for waiting := false; ; waiting = true {
		s, dir, err := p.startForQuestion(ctx, home)
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			defer s.stop(c.Supervisor.DrainTimeout)
			return runTerminal(terminal, o.terminalArgs(s.socket))
		}
		if !homeInUse(err) || time.Now().After(deadline) {
			return startFailure(err)
		}
		if !waiting {
			var e *startError
			_ = errors.As(err, &e) // homeInUse has seen it
			p.progress(e.text + "; waiting for it …")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for home %s: %w", home, ipc.ErrCancelled)
		case <-time.After(200 * time.Millisecond):
		}
		if socket, err := config.FindSocket(p.runDir, home); err == nil && answers(ctx, socket) == nil {
			return become(terminal, o.terminalArgs(socket))
		}
	}
}

// startForQuestion starts a supervisor with a run directory that only this command knows.
func (p *program) startForQuestion(ctx context.Context, home string) (*private, string, error) {
	base, err := config.TempBase()
	if err != nil {
		return nil, "", err
	}
	socket, err := config.FindSocket(base, home)
	if err == nil {
		var s *private
		if s, err = startPrivate(ctx, socket, "--home", home, "--run-dir", base, "--no-adapters"); err == nil {
			return s, base, nil
		}
	}
	_ = os.RemoveAll(base)
	return nil, "", err
}

// startFailure ends the command with the exit code of the supervisor that did not start.
func startFailure(err error) error {
	var e *startError
	if !errors.As(err, &e) {
		return err
	}
	kind := map[int]error{ipc.ExitConfig: config.ErrInvalid, ipc.ExitTryAgain: ipc.ErrBusy, ipc.ExitUsage: ipc.ErrInvalid}[e.code]
	if kind == nil {
		return err
	}
	return ipc.WithKind(err, kind)
}

// progress tells a person who looks what takes time.
func (p *program) progress(text string) {
	if isTerminal(p.err) {
		fmt.Fprintln(forPeople(p.err), p.colour(dim, text))
	}
}

// runTerminal runs hermes-terminal in this terminal and passes its exit code on. Ctrl-C is the terminal's; a SIGTERM
// to this process is handed on.
func runTerminal(path string, args []string) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	cmd := exec.Command(path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return silentError{max(exit.ExitCode(), ipc.ExitFailed)}
			}
			return err
		}
	}
}

// runWithChat is run --foreground-chat: a supervisor as a process of its own, a chat in this terminal, and the end of
// both when the chat is left.
func (p *program) runWithChat(ctx context.Context) error {
	terminal, err := p.terminal()
	if err != nil {
		return err
	}
	socket, home, err := p.socket()
	if err != nil {
		return err
	}
	if answers(ctx, socket) == nil {
		p.progress("a supervisor of this home runs already; leaving the chat leaves it running")
		return become(terminal, chatOptions{}.terminalArgs(socket))
	}
	if err := config.Prepare(home); err != nil {
		return err
	}
	c, err := config.Load(home)
	if err != nil {
		return err
	}
	runDir, err := config.RunDirIn(p.runDir, home)
	if err != nil {
		return err
	}
	socket = config.SocketPath(runDir)
	keeper := &keeper{start: func(ctx context.Context) (*private, error) {
		return startPrivate(ctx, socket, "--home", home, "--run-dir", filepath.Dir(runDir))
	}}
	if err := keeper.begin(ctx); err != nil {
		return startFailure(err)
	}
	defer keeper.end(c.Supervisor.DrainTimeout)
	defer p.progress("stopping …")
	return runTerminal(terminal, chatOptions{}.terminalArgs(socket))
}
