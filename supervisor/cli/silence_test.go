package cli

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// aloneCommands says which commands have nothing to do with a supervisor that runs, and why.
var aloneCommands = map[string]string{
	"help": "prints", "init": "writes a configuration", "version": "prints", "run": "is the supervisor",
	"config check": "reads files", "config path": "prints", "config show": "reads files",
	"ctl top": "becomes hermes-terminal", "chat": "becomes hermes-terminal",
	"ctl metrics":     "serves until it is ended; a scrape has its own limit",
	"systemd install": "asks the service manager", "systemd show": "prints", "systemd uninstall": "asks the service manager",
	"plugins init": "writes files", "plugins test": "runs a program", "snapshots list": "reads files",
	"plugins verify": "reads files", "plugins new": "writes files", "plugins info": "reads files",
	"plugins add": "tries the program before it says a word to the supervisor",
	"restore":     "refuses while a supervisor is there", "sessions recover": "reads files", "snapshots prune": "removes files",
}

// arguments are what commands need beside their name to come as far as the supervisor.
var arguments = map[string][]string{
	"ctl fds": {"tools"}, "ctl mem": {"tools"}, "ctl profile": {"tools", "heap"}, "ctl restart": {"tools"}, "ctl start": {"tools"}, "ctl logs": {"-f"},
	"kanban archive": {"1"}, "kanban block": {"1", "why"}, "kanban complete": {"1"}, "kanban create": {"title"}, "kanban show": {"1"},
	"kanban subscribe": {"1", "--platform", "telegram", "--chat", "1"}, "kanban unblock": {"1"},
	"pairing approve": {"telegram", "12345678"}, "pairing revoke": {"telegram", "1"},
	"plugins disable": {"x"}, "plugins enable": {"x"}, "plugins remove": {"x"},
	"sessions delete": {"--yes", "x"}, "sessions import": {"-"}, "sessions rename": {"x", "title"}, "sessions search": {"words"}, "sessions show": {"x"},
	"sessions optimize-storage": {"--yes"}, "sessions export": {"--all"},
}

// TestNoCommandWaitsForEverForASupervisorThatIsFrozen runs every command of the tree against a control socket behind which
// nobody is: the kernel takes connections, and nothing is ever answered, as with a supervisor that was stopped.
func TestNoCommandWaitsForEverForASupervisorThatIsFrozen(t *testing.T) {
	base, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(base) }()
	home := filepath.Join(base, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, stateFile), nil, 0o600); err != nil { // what a backup copies
		t.Fatal(err)
	}
	dir, err := config.RunDirIn(base, home)
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := net.Listen("unix", config.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Close() }()

	var running sync.WaitGroup
	for _, line := range leaves((&program{}).root(), nil) {
		name := strings.Join(line, " ")
		if aloneCommands[name] != "" {
			continue
		}
		args := append(append([]string{"--home", home, "--run-dir", base}, line...), arguments[name]...)
		running.Go(func() {
			var out, errOut bytes.Buffer
			p := &program{streams: streams{in: strings.NewReader(""), out: &out, err: &errOut}, silence: 300 * time.Millisecond}
			code := p.execute(t.Context(), args)
			if code != ipc.ExitTryAgain || !strings.Contains(errOut.String(), "is there but did not answer in time") {
				t.Errorf("%s: exit %d, stderr %q", name, code, errOut.String())
			}
		})
	}
	running.Wait()
}

// leaves returns the names of all commands that do something.
func leaves(c *cobra.Command, at []string) [][]string {
	var out [][]string
	for _, child := range c.Commands() {
		line := append(append([]string(nil), at...), child.Name())
		if child.HasSubCommands() {
			out = append(out, leaves(child, line)...)
		} else {
			out = append(out, line)
		}
	}
	return out
}
