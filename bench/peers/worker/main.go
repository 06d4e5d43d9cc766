// Command worker is what every supervisor that bench/peers measures keeps alive: one program, so that a difference between two
// of them is the supervisors'. The first thing that it does is to write down when it began. Started by a go-plugin host it
// serves as its plugin, by hermes-supervisor as its tools worker, and else it sleeps.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/bench/peers/floor"
	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

func main() {
	begun := time.Now()
	dir, name := place()
	note(filepath.Join(dir, name+".starts"), fmt.Sprintf("%d %d", begun.UnixNano(), os.Getpid()))
	if _, err := os.Stat(filepath.Join(dir, name+".crash")); err == nil {
		os.Exit(1)
	}
	if _, err := os.Stat(filepath.Join(dir, name+".family")); err == nil {
		haveChildren(dir, name)
	}
	switch {
	case os.Getenv(ipc.Handshake.MagicCookieKey) != "":
		workers.Main(ipc.RoleTools, role{})
	case os.Getenv(floor.Handshake.MagicCookieKey) != "":
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig: floor.Handshake, Plugins: floor.Plugins, GRPCServer: plugin.DefaultGRPCServer,
		})
	default:
		<-time.After(1 << 62)
	}
}

// place is where the worker writes what it does, and its name: the arguments, or the file that hermes-supervisor's own is
// installed with, as that gives its workers none.
func place() (dir, name string) {
	if len(os.Args) == 3 {
		return os.Args[1], os.Args[2]
	}
	text, err := os.ReadFile(os.Args[0] + ".place")
	dir, name, ok := strings.Cut(strings.TrimSpace(string(text)), " ")
	if err != nil || !ok {
		fmt.Fprintln(os.Stderr, "usage: worker FOLDER NAME")
		os.Exit(ipc.ExitUsage)
	}
	return dir, name
}

func note(path, line string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintln(f, line)
	_ = f.Close()
}

// haveChildren starts two processes, the second in a session of its own, and writes their pids down, behind its own.
func haveChildren(dir, name string) {
	pids := fmt.Sprint(os.Getpid(), " ")
	for _, own := range []bool{false, true} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: own}
		if err := cmd.Start(); err == nil {
			pids += fmt.Sprint(cmd.Process.Pid, " ")
		}
	}
	note(filepath.Join(dir, name+".children"), pids)
}

// role is a worker of hermes-supervisor without work.
type role struct{}

func (role) Register(*grpc.Server)                                       {}
func (role) Start(context.Context, *workers.Host, json.RawMessage) error { return nil }
func (role) Drain(context.Context) int                                   { return 0 }
func (role) Close()                                                      {}
