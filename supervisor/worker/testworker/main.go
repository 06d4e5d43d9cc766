// Command testworker is a worker with faults, for the tests of package worker. Its first argument names the fault.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

// original is stderr as it was inherited; go-plugin replaces os.Stderr when it serves.
var original = os.Stderr

func main() {
	// The first thing that a replacement does, for the benchmark.
	if path := os.Getenv("TESTWORKER_FIRST"); path != "" {
		note(path, strconv.FormatInt(time.Now().UnixNano(), 10))
	}
	if words := os.Getenv("TESTWORKER_SAYS"); words != "" {
		fmt.Fprintln(os.Stderr, words)
	}
	faultFromFile()
	fault := ""
	if len(os.Args) > 1 {
		fault = os.Args[1]
	}
	beforeServing(fault)
	workers.Main(roleName(), &role{fault: fault})
}

// faultFromFile takes the fault and its arguments from a file beside the binary, for supervisors that give their workers no
// arguments.
func faultFromFile() {
	if text, err := os.ReadFile(os.Args[0] + ".fault"); err == nil && len(os.Args) == 1 {
		os.Args = append(os.Args, strings.Fields(string(text))...)
	}
}

// roleName is the role that the binary is installed for, tools if it is not.
func roleName() string {
	if role, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "hermes-"); ok {
		return role
	}
	return ipc.RoleTools
}

func note(path, text string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, text)
		f.Close()
	}
}

// beforeServing has the faults of a start.
func beforeServing(fault string) {
	switch fault {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot read the list of wishes")
		os.Exit(3)
	case "silent":
		time.Sleep(time.Hour)
	case "close-stdout":
		os.Stdout.Close()
		time.Sleep(time.Hour)
	case "garbage":
		fmt.Println("Welcome to the library")
		fmt.Println("1|one|two")
	case "babble":
		for i := range 1000 {
			fmt.Println("line", i)
		}
		time.Sleep(time.Hour)
	case "liar":
		fmt.Println("1|1|unix|/run/somebody-elses-socket|grpc||true")
		time.Sleep(time.Hour)
	case "dies-after-handshake":
		dieAfterHandshake()
	case "other-language":
		os.Unsetenv("PLUGIN_CLIENT_CERT")
	case "old-protocol":
		os.Setenv("PLUGIN_PROTOCOL_VERSIONS", "7")
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  ipc.Handshake,
			VersionedPlugins: map[int]plugin.PluginSet{7: {ipc.PluginName: &ipc.WorkerPlugin{Register: func(*grpc.Server, *plugin.GRPCBroker) error { return nil }}}},
			GRPCServer:       plugin.DefaultGRPCServer,
		})
		os.Exit(0)
	case "cut-off":
		fd, _ := strconv.Atoi(os.Getenv(ipc.HostFDEnv))
		hostSocket, _ = syscall.Dup(fd)
	case "slow-start":
		time.Sleep(time.Duration(argument(2)) * time.Millisecond)
	case "fd-hog":
		leakDescriptors(argument(2)) // likewise
	case "hog":
		allocate(1 << 30) // a command below a worker
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM)
		go func() {
			// workers.Main asks for SIGTERM later, so ignore it again and again.
			for {
				signal.Ignore(syscall.SIGTERM)
				time.Sleep(5 * time.Millisecond)
			}
		}()
	}
}

// hostSocket is a copy of the inherited socket, for a fault.
var hostSocket int

// dieAfterHandshake makes a socket and a true handshake and is gone before anybody can connect.
func dieAfterHandshake() {
	path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "plugin1")
	if _, err := net.Listen("unix", path); err != nil {
		os.Exit(4)
	}
	fmt.Printf("1|1|unix|%s|grpc||true\n", path)
	if len(os.Args) > 2 {
		d, _ := time.ParseDuration(os.Args[2])
		time.Sleep(d)
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

type role struct {
	fault string
	host  *workers.Host
}

func (r *role) Register(*grpc.Server) {}

func (r *role) Start(ctx context.Context, host *workers.Host, config json.RawMessage) error {
	r.host = host
	if r.fault != "quick" {
		report()
	}
	if r.fault == "refuse" {
		return fmt.Errorf("the door is shut: %s", config)
	}
	// Show that the host services can be reached.
	if _, err := host.Config.Secret(ctx, &hostv1.SecretRequest{Name: "TEST_SECRET"}); err != nil {
		fmt.Fprintln(original, "secret:", err)
	}
	r.afterServing()
	return nil
}

// report says on stderr what the process sees of itself.
func report() {
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(-1)
	own := strconv.Itoa(int(d.Fd()))
	var fds []string
	for _, n := range names {
		if target, err := os.Readlink("/proc/self/fd/" + n); err == nil && n != own {
			fds = append(fds, n+"="+target)
		}
	}
	d.Close()
	out, _ := exec.Command("sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	line, _ := json.Marshal(map[string]any{
		"@level": "info", "@message": "report", "soft": limit.Cur, "hard": limit.Max,
		"child_limits": strings.Fields(string(out)), "fds": fds, "env": os.Environ(),
	})
	fmt.Fprintln(original, string(line))
}

// afterServing has the faults of a worker that serves.
func (r *role) afterServing() {
	switch r.fault {
	case "grandchild", "setsid", "setsid-stderr", "unmarked", "stubborn-group", "leak-below", "leak-fds-below", "leak-fds-astray", "crowd", "drip":
		below(r.fault)
	case "bad-json":
		fmt.Fprintln(original, `{"@message":1}`)
		fmt.Fprintln(original, `{"@level":null,"@message":{}}`)
		fmt.Fprintln(original, `{"@message":"good","@level":"info"}`)
	case "long-line":
		for _, f := range []*os.File{original, rawStdout()} {
			w := bufio.NewWriter(f)
			for range 1 << 20 {
				w.WriteByte('x')
			}
			w.WriteByte('\n')
			w.Flush()
		}
		fmt.Fprintln(original, "after the long line")
	case "flood":
		go flood()
	case "prints":
		fmt.Println("printed after the handshake")
	case "panic":
		go func() { time.Sleep(20 * time.Millisecond); panic("the sky is falling") }()
	case "talks-and-dies": // a pipe full of words, the last of which say why
		go func() {
			time.Sleep(20 * time.Millisecond)
			for i := range 1000 {
				fmt.Fprintln(original, "a word before the end", i)
			}
			panic("the sky is falling")
		}()
	case "cut-off": // from the host services, by whatever
		go func() {
			time.Sleep(20 * time.Millisecond)
			_ = syscall.Shutdown(hostSocket, syscall.SHUT_RDWR)
			for {
				_, _ = r.host.Config.Secret(context.Background(), &hostv1.SecretRequest{Name: "TEST_SECRET"})
				time.Sleep(time.Millisecond)
			}
		}()
	case "exit-0":
		go func() { time.Sleep(20 * time.Millisecond); os.Exit(0) }()
	case "leak":
		for range 100 {
			_, _ = os.Open("/dev/null")
		}
	case "freeze": // after so many milliseconds
		time.AfterFunc(time.Duration(argument(2))*time.Millisecond, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
	case "leak-fds": // so many a second
		go leakDescriptors(argument(2))
	case "leak-memory": // so many MiB a second
		go allocate(argument(2) << 20)
	}
}

// below has the faults of what a worker leaves below it.
func below(fault string) {
	switch fault {
	case "grandchild":
		start(original, false, "sleep", "1000")
	case "setsid":
		start(nil, true, "sleep", "1000")
	case "setsid-stderr":
		start(original, true, "sleep", "1000")
	case "unmarked":
		cmd := exec.Command("env", "-i", "/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
	case "stubborn-group":
		start(nil, false, "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
	case "leak-below":
		start(original, true, os.Args[0], "hog")
	case "leak-fds-below": // so many a second, by a child in a session of its own
		start(original, true, os.Args[0], "fd-hog", os.Args[2])
	case "leak-fds-astray": // the same by one that has lost its parent at once
		start(original, true, "sh", "-c", "exec "+os.Args[0]+" fd-hog "+os.Args[2]+" & ")
	case "crowd": // so many processes
		for range argument(2) {
			start(nil, false, "sleep", "1000")
		}
	case "drip":
		// Orphans that end by themselves.
		for range 10 {
			start(nil, true, "sh", "-c", "sleep 0.05 &")
		}
	}
}

func argument(n int) int {
	v, _ := strconv.Atoi(os.Args[n])
	return v
}

func leakDescriptors(perSecond int) {
	for range time.Tick(time.Second / time.Duration(perSecond)) {
		if _, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); err != nil {
			fmt.Fprintln(original, "out of descriptors:", err)
		}
	}
}

// kept is what allocate never gives back.
var kept [][]byte

// allocate takes memory and touches it.
func allocate(perSecond int) {
	for range time.Tick(10 * time.Millisecond) {
		b := make([]byte, perSecond/100)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
}

func rawStdout() *os.File { return os.NewFile(1, "stdout") }

func flood() {
	w := bufio.NewWriterSize(original, 64<<10)
	lines := 300_000
	if len(os.Args) > 2 {
		lines, _ = strconv.Atoi(os.Args[2])
	}
	for i := range lines {
		fmt.Fprintf(w, "flooding line %d with some text behind it to make it as long as lines are\n", i)
	}
	w.Flush()
	fmt.Fprintln(original, "the flood is over")
}

func start(stderr *os.File, setsid bool, name string, args ...string) {
	cmd := exec.Command(name, args...)
	if stderr != nil {
		cmd.Stderr = stderr
	}
	if setsid {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(original, "start:", err)
		return
	}
	go func() { _ = cmd.Wait() }()
}

func (r *role) Drain(ctx context.Context) int {
	if r.fault != "slow-drain" {
		return 0
	}
	d, _ := time.ParseDuration(os.Args[2])
	select {
	case <-time.After(d):
		return 0
	case <-ctx.Done():
		return 2
	}
}

func (r *role) Close() {}
