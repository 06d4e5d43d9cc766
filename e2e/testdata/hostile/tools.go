package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

// running counts the calls that have not returned, whoever still waits for them.
var running atomic.Int32

func begin() (end func()) {
	running.Add(1)
	return func() { running.Add(-1) }
}

// stderr is what was inherited: go-plugin puts another in its place.
var stderr = os.Stderr

// short is the time of a call: a test waits for its end.
var short = plugins.Timeout(2*time.Second, 2*time.Second)

// tools are the misbehaviours of calls that go by the protocol.
func tools() []plugins.Tool {
	var options []plugins.Option
	if wants != "" {
		options = append(options, plugins.UsesSecret(wants))
	}
	list := []plugins.Tool{
		tool("fine", func(context.Context, settings) (string, error) { return "all is well", nil }, options...),
		// slow takes n milliseconds and says which version has served it.
		tool("slow", func(ctx context.Context, s settings) (string, error) {
			select {
			case <-time.After(time.Duration(s.N) * time.Millisecond):
			case <-ctx.Done():
			}
			return "served by version " + version, ctx.Err()
		}),
		tool("panic", func(context.Context, settings) (string, error) { panic("boom in the call") }),
		tool("panic_beside", func(ctx context.Context, _ settings) (string, error) {
			go panic("boom beside the call")
			<-ctx.Done()
			return "", ctx.Err()
		}),
		tool("hang", func(ctx context.Context, _ settings) (string, error) { <-ctx.Done(); return "", ctx.Err() }, short),
		tool("hang_for_ever", func(context.Context, settings) (string, error) { select {} }, short),
		tool("freeze", func(ctx context.Context, _ settings) (string, error) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-ctx.Done()
			return "", ctx.Err()
		}),
		tool("deafen", func(context.Context, settings) (string, error) { ignoreSignals(); return "deaf", nil }),
		tool("fork_away", forkAway),
		tool("deaf_grandchild", deafGrandchild),
		tool("close_stdout", func(context.Context, settings) (string, error) { return "closed", syscall.Close(1) }),
		tool("deep_json", deepJSON),
		tool("fork_bomb", forkBomb),
		tool("flood_stderr", floodStderr),
		tool("long_line", longLine),
		tool("return_1gb", func(context.Context, settings) (string, error) { return strings.Repeat("x", 1<<30), nil }),
		tool("leak_fds", leakFDs),
		tool("leak_memory", leakMemory),
		tool("hog_memory", hogMemory),
		tool("read", func(_ context.Context, s settings) (string, error) {
			b, err := os.ReadFile(s.Path)
			return fmt.Sprintf("read %q", b[:min(len(b), 20)]), err
		}),
		tool("overwrite", overwrite),
		tool("open_to_others", func(_ context.Context, s settings) (string, error) { return "opened", os.Chmod(s.Path, 0o777) }),
		tool("dial", dial),
		tool("signal", func(_ context.Context, s settings) (string, error) { return "signalled", syscall.Kill(s.N, 0) }),
		tool("trace", trace),
		tool("who", who),
		tool("forks", forks, short),
		tool("long_result", func(context.Context, settings) (string, error) { return strings.Repeat("long ", 50_000), nil }),
		tool("environment", func(context.Context, settings) (string, error) { return said(os.Environ()), nil }),
	}
	list = append(list, crude()...)
	for name := range raw {
		list = append(list, tool(name, func(context.Context, settings) (string, error) { return "", errors.New("raw") }))
	}
	return list
}

// crude are those that go below the protocol, at descriptors and files.
func crude() []plugins.Tool {
	return []plugins.Tool{
		tool("endless_line", endlessLine),
		tool("half_frame", halfFrame),
		tool("answer_others", answerOthers),
		tool("daemonise", func(context.Context, settings) (string, error) { daemonise(); return "", nil }),
		tool("close_all", func(context.Context, settings) (string, error) { closeAll(); return "", nil }),
		tool("fill_temp", fill("TMPDIR")),
		tool("fill_disk", fill("HOME")),
	}
}

func tool(name string, f func(context.Context, settings) (string, error), options ...plugins.Option) plugins.Tool {
	return plugins.Func(name, "Misbehave: "+name+".", func(ctx context.Context, _ *plugins.Call, s settings) (string, error) { return f(ctx, s) }, options...)
}

// raw are those that break the protocol.
var raw = map[string]func(grpc.ServerStreamingServer[toolv1.InvokeEvent]) error{
	"stream_1gb": func(s grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
		chunk := &toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Chunk{Chunk: make([]byte, 1<<20)}}
		for range 1 << 10 {
			if err := s.Send(chunk); err != nil {
				return err
			}
		}
		return nil
	},
	"huge_message": func(s grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
		return s.Send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Result{Result: &toolv1.Result{Content: strings.Repeat("x", 9<<20)}}})
	},
	// A result (field 3) with a content (field 1) that is no UTF-8.
	"bad_utf8": sendRaw("\x1a\x05\x0a\x03\xff\xfe\xfd"),
	// No protobuf at all: JSON.
	"bad_message": sendRaw(`{"result": {"content": "I thought this was REST"`),
	"no_result":   func(grpc.ServerStreamingServer[toolv1.InvokeEvent]) error { return nil },
}

func sendRaw(text string) func(grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
	return func(s grpc.ServerStreamingServer[toolv1.InvokeEvent]) error {
		w := wire(text)
		return s.SendMsg(&w)
	}
}

// forkAway leaves processes in sessions of their own: with the plugin's environment, without, and with no parent.
func forkAway(context.Context, settings) (string, error) {
	for _, c := range []*exec.Cmd{
		exec.Command("sleep", "61"),
		exec.Command("env", "-i", "/bin/sleep", "61"),
		exec.Command("sh", "-c", "sleep 61 & exit 0"),
	} {
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return "", err
		}
		go func() { _ = c.Wait() }()
	}
	return "forked away", nil
}

// deafGrandchild leaves a process that no signal but SIGKILL ends, whose parent has ended.
func deafGrandchild(ctx context.Context, _ settings) (string, error) {
	c := exec.CommandContext(ctx, "sh", "-c", `trap "" TERM INT HUP QUIT; sleep 61 & exit 0`)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return "it is deaf", c.Run()
}

// deepJSON returns JSON of a depth that ends a parser which calls itself; it is longer than what is cut.
func deepJSON(context.Context, settings) (string, error) {
	return strings.Repeat(`{"a":[`, 15_000) + strings.Repeat("]}", 15_000), nil
}

// forkBomb doubles n times, in groups of its own children; each process ends after a minute.
func forkBomb(ctx context.Context, s settings) (string, error) {
	c := exec.Command("sh", "-c", `f() { if [ $1 -gt 0 ]; then f $(($1-1)) & f $(($1-1)) & fi; sleep 60; }; f `+fmt.Sprint(s.N))
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return "", err
	}
	<-ctx.Done()
	return "", ctx.Err()
}

// floodStderr prints n MiB in lines.
func floodStderr(_ context.Context, s settings) (string, error) {
	lines := bytes.Repeat([]byte("all work and no play makes a plugin dull\n"), 1<<10)
	for range s.N * 25 {
		if _, err := stderr.Write(lines); err != nil {
			return "", err
		}
	}
	return "flooded", nil
}

// longLine prints a line of n MiB.
func longLine(ctx context.Context, s settings) (string, error) {
	if _, err := endlessLine(ctx, s); err != nil {
		return "", err
	}
	_, err := stderr.Write([]byte("\n"))
	return "printed", err
}

// endlessLine prints n MiB without the end of a line.
func endlessLine(_ context.Context, s settings) (string, error) {
	part := bytes.Repeat([]byte("x"), 1<<20)
	for range s.N {
		if _, err := stderr.Write(part); err != nil {
			return "", err
		}
	}
	return "printed", nil
}

// fill writes files of a MiB into the folder of a variable until there is no room, at most n.
func fill(folder string) func(context.Context, settings) (string, error) {
	return func(_ context.Context, s settings) (string, error) {
		for i := range s.N {
			if err := os.WriteFile(fmt.Sprintf("%s/full-%d", os.Getenv(folder), i), make([]byte, 1<<20), 0o600); err != nil {
				return "", err
			}
		}
		return "written", nil
	}
}

// leakFDs opens n descriptors a second, in the background.
func leakFDs(_ context.Context, s settings) (string, error) {
	go func() {
		for {
			_, _ = syscall.Open("/dev/null", syscall.O_RDONLY, 0)
			time.Sleep(time.Second / time.Duration(s.N))
		}
	}()
	return "leaking descriptors", nil
}

var held [][]byte

// leakMemory keeps n MiB more a second, in the background.
func leakMemory(_ context.Context, s settings) (string, error) {
	go func() {
		for {
			held = append(held, bytes.Repeat([]byte("x"), s.N<<20/10))
			time.Sleep(time.Second / 10)
		}
	}()
	return "leaking memory", nil
}

// hogMemory takes a GiB a second, up to four.
func hogMemory(ctx context.Context, _ settings) (string, error) {
	for range 40 {
		held = append(held, bytes.Repeat([]byte("x"), 1<<30/10))
		time.Sleep(time.Second / 10)
	}
	<-ctx.Done()
	return "", ctx.Err()
}

// overwrite tries to put another program in the place of a file, in each way there is.
func overwrite(_ context.Context, s settings) (string, error) {
	other := "other"
	if err := os.WriteFile(other, []byte("#!/bin/sh\n"), 0o700); err != nil {
		return "", err
	}
	f, open := os.OpenFile(s.Path, os.O_WRONLY|os.O_TRUNC, 0)
	if open == nil {
		_, open = f.Write([]byte("#!/bin/sh\n"))
		_ = f.Close()
	}
	self, err := os.OpenFile("/proc/self/exe", os.O_WRONLY, 0)
	if err == nil {
		_ = self.Close()
	}
	tries := map[string]error{"write": open, "self": err, "rename": os.Rename(other, s.Path)}
	var failed []error
	for what, err := range tries {
		if err == nil {
			return "replaced by " + what, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", what, err))
	}
	return "", errors.Join(failed...)
}

// dial connects to a socket and speaks HTTP/2 without TLS, as gRPC does.
func dial(_ context.Context, s settings) (string, error) {
	c, err := net.DialTimeout("unix", s.Path, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return "", err
	}
	b := make([]byte, 9)
	n, err := c.Read(b)
	if err != nil {
		return "", fmt.Errorf("connected, but not answered: %w", err)
	}
	if b[0] == 0x15 { // an alert of TLS
		return "", fmt.Errorf("connected, but TLS is wanted: % x", b[:n])
	}
	return fmt.Sprintf("was answered with % x", b[:n]), nil
}
