// Package cli is the command tree of hermes-supervisor: it parses, calls one part and prints. One file a command.
//
// Rules: results go to stdout, everything else to stderr, so that output can be piped. Every command prints a table
// for people and with -o json a document for programs, whose fields are only ever added. Exit codes are those of
// package ipc: 0 fine, 1 failed, 2 usage, 75 try again, 78 configuration. An error says what happened, to what, and
// what to do. Terminal UI is not here but in hermes-terminal, so that the supervisor stays small.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// Main runs the command that args name and returns the exit code.
func Main(args []string) int {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// After the first signal the second one has its usual effect: nobody is held up by an end that takes long.
	context.AfterFunc(ctx, stop)
	return execute(ctx, args, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, hangups: hangups})
}

// streams are where a command reads and writes; tests have their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
	hangups  <-chan os.Signal // nil: none come
}

// program is what all commands share: streams and the flags that every command has.
type program struct {
	streams
	home   string
	runDir string
	output string
	args   []string // of this call
	hangup hangup
	// silence is how long the supervisor may say nothing before it is taken for frozen; 0: the usual time.
	silence time.Duration
}

const (
	outputTable = "table"
	outputJSON  = "json"
)

func execute(ctx context.Context, args []string, s streams) int {
	return (&program{streams: s}).execute(ctx, args)
}

func (p *program) execute(ctx context.Context, args []string) int {
	s := p.streams
	p.args = args
	root := p.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetHelpFunc(p.help(root.HelpFunc()))
	checkCompletion(root) // after the streams are set: it takes the one for its output now
	ctx, end := context.WithCancel(ctx)
	defer end()
	if s.hangups != nil {
		go p.hangup.listen(ctx, s.hangups, end) // ends with ctx
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ipc.ExitOK
	}
	var silent silentError
	if !errors.As(err, &silent) {
		p.printError(err)
	}
	return exitCode(err)
}

// help shows the help of cobra in signs that the terminal has.
func (p *program) help(show func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(c *cobra.Command, args []string) {
		out := c.OutOrStdout()
		c.SetOut(forPeople(out))
		defer c.SetOut(out)
		show(c, args)
	}
}

// printError prints each line of an error with the program's name before the first.
func (p *program) printError(err error) {
	fmt.Fprintf(forPeople(p.err), "hermes-supervisor: %s\n", strings.ReplaceAll(printable(err.Error()), "\n", "\n  "))
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

// silentError ends a command with a code when all has been said.
type silentError struct{ code int }

func (e silentError) Error() string { return fmt.Sprintf("exit %d", e.code) }

func exitCode(err error) int {
	var usage usageError
	var silent silentError
	switch {
	case errors.As(err, &silent):
		return silent.code
	case errors.As(err, &usage):
		return ipc.ExitUsage
	case errors.Is(err, config.ErrInvalid):
		return ipc.ExitConfig
	case errors.Is(err, store.ErrDiskFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return ipc.ExitCode(ipc.ErrFull) // as if the supervisor had met it
	}
	return ipc.ExitCode(err)
}

func (p *program) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "hermes-supervisor",
		Short: "An always-on agent: a small supervisor and isolated workers",
		Long: `hermes-supervisor runs an agent with its chats, tools and boards as isolated processes, and talks to a running one.

Start with:
  hermes-supervisor run --foreground-chat    # supervise and chat in this terminal
  hermes-supervisor chat -q "run: uname -a"  # one question, one answer`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          none,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&p.home, "home", "", "home `folder` (default $HERMES_HOME, else ~/.hermes)")
	c.PersistentFlags().StringVar(&p.runDir, "run-dir", "", "`folder` for sockets (default $XDG_RUNTIME_DIR/hermes-supervisor, else /run/hermes-supervisor-HASH of its service)")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		// The flags of a command that there is none of are known to nobody; what is wrong is its name.
		if before := c.Flags().Args(); c.HasSubCommands() && len(before) > 0 {
			return usageError{unknownCommand(c, before[0])}
		}
		return usageError{fmt.Errorf("%w\nsee: %s --help", err, c.CommandPath())}
	})
	c.SetHelpCommand(helpCommand())
	c.AddCommand(p.run(), p.chat(), p.ctl(), p.kanban(), p.sessions(), p.doctor(), p.backup(), p.restore(), p.snapshots(), p.pairing(), p.plugins(), p.config(), p.init(), p.systemd(), p.version())
	return c
}

// checkCompletion makes a shell that is not known an error of the completion command, which cobra answers with its help and success.
func checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		group(c)
	}
}

// helpCommand is cobra's, but for an unknown name, which is an error there in words only.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  hermes-supervisor help ctl logs",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			at, _, err := c.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, child := range at.Commands() {
				if child.IsAvailableCommand() {
					names = append(names, child.Name()+"\t"+child.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			at, rest, err := c.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			if len(rest) > 0 {
				return usageError{unknownCommand(at, rest[0])}
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// group is a command that only holds others.
func group(c *cobra.Command, children ...*cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usageError{unknownCommand(c, args[0])}
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		_ = c.Help()
		return silentError{ipc.ExitUsage}
	}
	c.AddCommand(children...)
	return c
}

func unknownCommand(c *cobra.Command, name string) error {
	hint := ""
	if near := meantCommand(c, name); near != nil {
		hint = "\ndid you mean: " + near.CommandPath()
	}
	has := "there is no command"
	if c.HasParent() {
		has = shortPath(c) + " has no command"
	}
	return fmt.Errorf("%s %q%s\nsee: %s --help", has, name, hint, c.CommandPath())
}

// shortPath is the name of a command in an error, which begins with that of the program.
func shortPath(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// meantCommand returns the command below c that name was probably meant to be: one that other programs call so, one that begins
// so, one that is spelt nearly so, or one of this name elsewhere.
func meantCommand(c *cobra.Command, name string) *cobra.Command {
	list := slices.DeleteFunc(slices.Clone(c.Commands()), func(o *cobra.Command) bool { return !o.IsAvailableCommand() })
	var names []string
	for _, o := range list {
		names = append(names, o.Name())
	}
	spelt := config.Suggest(name, names)
	for _, is := range []func(*cobra.Command) bool{
		func(o *cobra.Command) bool { return slices.Contains(o.SuggestFor, name) },
		func(o *cobra.Command) bool { return len(name) > 1 && strings.HasPrefix(o.Name(), name) },
		func(o *cobra.Command) bool { return o.Name() == spelt },
	} {
		if i := slices.IndexFunc(list, is); i >= 0 {
			return list[i]
		}
	}
	if c.HasParent() {
		return nil
	}
	var elsewhere []*cobra.Command
	for _, group := range list {
		elsewhere = append(elsewhere, slices.DeleteFunc(slices.Clone(group.Commands()), func(o *cobra.Command) bool { return o.Name() != name })...)
	}
	if len(elsewhere) != 1 {
		return nil
	}
	return elsewhere[0]
}

// none, exactly and between check the number of arguments.
func none(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasParent() {
		return usageError{unknownCommand(c, args[0])}
	}
	return usageError{fmt.Errorf("%s takes no arguments, got %q\nsee: %s --help", shortPath(c), args[0], c.CommandPath())}
}

func between(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usageError{fmt.Errorf("%s needs %s\nsee: %s --help", shortPath(c), what, c.CommandPath())}
		case len(args) > most:
			return usageError{fmt.Errorf("%s has %s too many, the first is %q\nsee: %s --help", shortPath(c), wording.Count(len(args)-most, "argument", "arguments"), args[most], c.CommandPath())}
		}
		return nil
	}
}

func exactly(n int, what string) cobra.PositionalArgs { return between(n, n, what) }

// withOutput adds -o to a command.
func (p *program) withOutput(c *cobra.Command) *cobra.Command { return p.withFormat(c, "output") }

// withFormat is withOutput for a command that has an --output for a file: the long name is another one.
func (p *program) withFormat(c *cobra.Command, long string) *cobra.Command {
	c.Flags().StringVarP(&p.output, long, "o", outputTable, "output `format`: table or json")
	_ = c.RegisterFlagCompletionFunc(long, cobra.FixedCompletions([]string{outputTable, outputJSON}, cobra.ShellCompDirectiveNoFileComp))
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if p.output != outputTable && p.output != outputJSON {
			return usageError{fmt.Errorf("-o %s: the formats are table and json", p.output)}
		}
		return run(c, args)
	}
	return c
}

// resolvedHome returns the home of this call.
func (p *program) resolvedHome() (string, error) { return config.Home(p.home) }

// load reads the configuration of this call's home.
func (p *program) load() (*config.Config, error) {
	home, err := p.resolvedHome()
	if err != nil {
		return nil, err
	}
	return config.Load(home)
}
