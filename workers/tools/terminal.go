package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/plugins"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/process"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/shell"
)

//go:embed terminal.md
var terminalText string

const (
	// maxTerminalTimeout is the longest that a command may ask for. The model and a person wait for it.
	maxTerminalTimeout = 600 * time.Second
	// terminalMargin is what ending a command may take beyond its timeout: the grace, the kill, the drain.
	terminalMargin = 15 * time.Second
	// termGrace is what a command gets between SIGTERM and SIGKILL.
	termGrace = 2 * time.Second
	// leftoverGrace is the same for what is left in the background after the command itself has ended: nobody
	// waits for what that still has to say.
	leftoverGrace = 500 * time.Millisecond
	// drainWait is how long output is read on after everything has been ended. What is in the pipe takes
	// milliseconds; only a process that cannot be ended holds it open longer.
	drainWait = time.Second
	// exitTimeout is the exit code of a command that was ended, as of timeout(1).
	exitTimeout = 124
)

// terminalArgs are the arguments of the terminal tool.
type terminalArgs struct {
	Command string `json:"command" jsonschema:"the command line, for bash"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"seconds until the command is ended; 180 if not given" minimum:"1" maximum:"600"`
	WorkDir string `json:"workdir,omitempty" jsonschema:"directory to run it in; the configured working directory if not given"`
}

// Validate refuses what no shell can be given.
func (a terminalArgs) Validate() error {
	switch {
	case strings.TrimSpace(a.Command) == "":
		return errors.New(`"command" is empty`)
	case strings.ContainsRune(a.Command, 0):
		return errors.New(`"command" holds a NUL character`)
	case strings.ContainsRune(a.WorkDir, 0):
		return errors.New(`"workdir" holds a NUL character`)
	}
	return nil
}

// terminalResult is what the model reads.
type terminalResult struct {
	Output   string  `json:"output"`
	ExitCode int     `json:"exit_code"`
	Error    *string `json:"error"`
}

// terminal runs shell commands.
type terminal struct {
	places
	tree    *process.Tree
	shell   string // path of bash, or of sh where there is no bash
	posix   bool
	env     []string
	timeout time.Duration
	limit   int // characters of output
	started atomic.Uint64
}

func (t *terminal) tool() plugins.Tool {
	return plugins.Func("terminal", terminalText, t.run,
		plugins.Timeout(t.timeout, maxTerminalTimeout+terminalMargin), plugins.Check(t.check))
}

// check has the command judged before it is run.
func (t *terminal) check(_ context.Context, a terminalArgs) plugins.Verdict {
	dir, err := t.directory(a.WorkDir)
	if err != nil {
		dir = t.workDir // the call will fail; judge what it would do elsewhere
	}
	judge := &shell.Judge{Files: &t.files, Dir: dir, POSIX: t.posix}
	return verdict(judge.Command(a.Command), a.Command)
}

// verdict turns a ruling into the answer of a check.
func verdict(r guard.Ruling, summary string) plugins.Verdict {
	switch r.Verdict {
	case guard.Allow:
		return plugins.Allow(summary)
	case guard.Ask:
		return plugins.Ask(r.Reason, summary)
	default:
		return plugins.Refuse(r.Reason, summary)
	}
}

// directory resolves where a command is run.
func (t *terminal) directory(name string) (string, error) {
	dir := t.path(name)
	info, err := os.Stat(dir)
	if err != nil {
		return "", plugins.BadArguments("workdir: %v", err)
	}
	if !info.IsDir() {
		return "", plugins.BadArguments("workdir: %s is not a directory", dir)
	}
	return dir, nil
}

func (t *terminal) run(ctx context.Context, c *plugins.Call, a terminalArgs) (terminalResult, error) {
	dir, err := t.directory(a.WorkDir)
	if err != nil {
		return terminalResult{}, err
	}
	limit := t.timeout
	if a.Timeout > 0 {
		limit = time.Duration(a.Timeout) * time.Second
	}
	out := newOutput(t.limit, c.Spill)
	r, w, err := os.Pipe()
	if err != nil {
		return terminalResult{}, fmt.Errorf("pipe for the output: %w", err)
	}
	defer r.Close()
	command, err := t.start(c, a.Command, dir, w)
	_ = w.Close()
	if err != nil {
		return terminalResult{}, err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		shown := show(c)
		defer shown.stop()
		_, _ = io.Copy(io.MultiWriter(out, shown), r)
	}()
	ending := t.wait(ctx, command, limit)
	_ = r.SetReadDeadline(time.Now().Add(drainWait))
	<-read
	return ending.result(ctx, out.finish(), limit)
}

// start starts the command with its output into w.
func (t *terminal) start(c *plugins.Call, text, dir string, w *os.File) (*process.Command, error) {
	args := []string{"-c", text}
	if !t.posix {
		args = append([]string{"--noprofile", "--norc"}, args...)
	}
	mark := fmt.Sprintf("%d.%d", os.Getpid(), t.started.Add(1)) // not the call's id, which may hold anything
	cmd := exec.Command(t.shell, args...)
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(t.env), "PWD="+dir, process.MarkVariable+"="+mark)
	cmd.Stdout, cmd.Stderr = w, w // the same file, so that lines of both keep their order
	command, err := t.tree.Start(cmd, mark)
	switch {
	case errors.Is(err, syscall.E2BIG):
		return nil, plugins.BadArguments("the command is too long for the system; write it to a file and run that")
	case err != nil:
		return nil, fmt.Errorf("start %s: %w", t.shell, err)
	}
	return command, nil
}

// An ending is how a command ended.
type ending struct {
	state    *os.ProcessState
	left     int
	timedOut bool
	cut      bool // by the end of the call
}

// wait waits for the command, its timeout or the end of the call, and ends what is left of it.
func (t *terminal) wait(ctx context.Context, c *process.Command, limit time.Duration) (e ending) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	grace := termGrace
	select {
	case <-c.Exited():
		grace = leftoverGrace
	case <-timer.C:
		e.timedOut = true
	case <-ctx.Done():
		e.cut = true
	}
	e.state, e.left = c.End(grace)
	return e
}

func (e ending) result(ctx context.Context, text string, limit time.Duration) (terminalResult, error) {
	r := terminalResult{Output: text}
	switch {
	case e.timedOut:
		r.ExitCode = exitTimeout
		r.fail("the command did not end within %s and was ended", limit)
	case e.cut:
		return r, fmt.Errorf("the command was ended: %w", ctx.Err())
	case e.state == nil:
		r.ExitCode = exitTimeout
		r.fail("the command cannot be ended; it is stuck in the kernel")
	default:
		r.ExitCode = e.state.ExitCode()
		if status, ok := e.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			r.ExitCode = 128 + int(status.Signal())
			r.fail("the command was ended by a signal (%s)", status.Signal())
		}
	}
	if e.left > 0 {
		r.fail("%d processes of the command could not be ended", e.left)
	}
	return r, nil
}

func (r *terminalResult) fail(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if r.Error != nil {
		text = *r.Error + "; " + text
	}
	r.Error = &text
}
