// Package tools is the worker of the built-in tools: a shell, files, search, memory and the kanban board. Each tool
// is a Go file beside the text that the model reads about it.
//
// Rules: nothing of a call outlives it, neither a process nor a descriptor nor a goroutine; memory and results are
// bounded whatever a command prints or a file holds; every call ends when its context does. The databases are
// never opened, by no tool, under no name. What may do harm is judged before it is done (Check), and what nobody
// may do is refused again when it is done.
package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/guard"
	"github.com/hermes-supervisor/hermes-supervisor/workers/tools/process"
)

const (
	// closeLimit is what ending all children may take, within the budget that a worker has to end.
	closeLimit = 600 * time.Millisecond
	// fileMask is for files that the tools and their commands make. The supervisor's own 077 is right for its
	// sockets and databases, but not for a project's files.
	fileMask = 0o022
)

// Worker is the role of the tools worker.
type Worker struct {
	server *plugins.Server

	mu   sync.Mutex
	tree *process.Tree
}

var _ workers.Role = (*Worker)(nil)

// New returns the role, not yet started.
func New() *Worker {
	return &Worker{server: plugins.NewServer("builtin", ipc.Version())}
}

// Register adds the Tool service.
func (w *Worker) Register(s *grpc.Server) { toolv1.RegisterToolServer(s, w.server) }

// Start makes the tools as configured.
func (w *Worker) Start(_ context.Context, host *workers.Host, config json.RawMessage) error {
	var c ipc.ToolsConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return fmt.Errorf("configuration of the tools: %w: %w", ipc.ErrInvalid, err)
	}
	if err := defaults(&c); err != nil {
		return err
	}
	tree, err := process.NewTree()
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.tree = tree
	w.mu.Unlock()
	unix.Umask(fileMask)
	user, err := os.UserHomeDir()
	if err != nil {
		user = c.WorkDir
	}
	p := places{files: guard.Files{Home: c.Home, User: user}, workDir: c.WorkDir}
	name, posix := findShell(os.Getenv("PATH"))
	t := &terminal{
		places: p, tree: tree, shell: name, posix: posix, env: commandEnv(os.Environ(), c.EnvPassthrough, c.Home),
		timeout: c.TerminalTimeout, limit: c.MaxOutputChars,
	}
	m := &memory{
		dir: filepath.Join(c.Home, "memories"), now: time.Now,
		limits: map[string]int{"memory": c.MemoryCharLimit, "user": c.UserCharLimit},
	}
	all := []plugins.Tool{
		t.tool(), (&readFile{p, c.FileReadMaxChars}).tool(), (&writeFile{p}).tool(), (&searchFiles{p}).tool(), m.tool(),
		(&sessionSearch{host.Past}).tool(),
	}
	all = append(all, (&kanban{host.Boards}).tools()...)
	env := plugins.Env{Log: host.Log, Begin: host.Work.Begin, SpillDir: c.SpillDir, MaxResult: resultLimit(c)}
	return w.server.Start(env, all...)
}

// resultLimit is over what any tool returns by its own limits, with room for JSON's escapes: a tool cuts its output
// where it knows what to leave out.
func resultLimit(c ipc.ToolsConfig) int {
	return 2*max(c.MaxOutputChars, c.FileReadMaxChars) + 10_000
}

// defaults fills in what a configuration leaves out, with the values of Hermes Agent.
func defaults(c *ipc.ToolsConfig) error {
	if c.Home == "" {
		return fmt.Errorf("configuration of the tools: %w: no home", ipc.ErrInvalid)
	}
	if c.WorkDir == "" {
		dir, err := os.UserHomeDir()
		if err != nil {
			dir = "/"
		}
		c.WorkDir = dir
	}
	if !filepath.IsAbs(c.Home) || !filepath.IsAbs(c.WorkDir) {
		return fmt.Errorf("configuration of the tools: %w: home %q and work_dir %q must be absolute", ipc.ErrInvalid, c.Home, c.WorkDir)
	}
	if c.TerminalTimeout <= 0 {
		c.TerminalTimeout = 180 * time.Second
	}
	c.TerminalTimeout = min(c.TerminalTimeout, maxTerminalTimeout)
	for _, v := range []struct {
		value    *int
		standard int
	}{{&c.MaxOutputChars, 50_000}, {&c.FileReadMaxChars, 100_000}, {&c.MemoryCharLimit, 2200}, {&c.UserCharLimit, 1375}} {
		if *v.value <= 0 {
			*v.value = v.standard
		}
	}
	return nil
}

// Drain waits for the running calls until ctx ends and returns how many still run.
func (w *Worker) Drain(ctx context.Context) int { return w.server.Drain(ctx) }

// Report says whether calls go on that were given up.
func (w *Worker) Report() (degraded bool, detail string) { return w.server.Report() }

// Close ends every call and every process that one started.
func (w *Worker) Close() {
	w.server.Close()
	w.mu.Lock()
	tree := w.tree
	w.mu.Unlock()
	if tree != nil {
		tree.Close(closeLimit)
	}
}
