// Package floor is the least that a go-plugin host does: it starts a plugin, connects to it, asks whether it serves, and starts
// the next one at once when it has ended. What hermes-supervisor needs beside is measured against it.
package floor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// Handshake tells a plugin that this host starts it.
var Handshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "BENCH_FLOOR", MagicCookieValue: "bench"}

// Plugins is the one kind of plugin: it has nothing but go-plugin's own health service.
var Plugins = plugin.PluginSet{"none": none{}}

type none struct {
	plugin.NetRPCUnsupportedPlugin
}

func (none) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }

func (none) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return struct{}{}, nil
}

// Host keeps workers alive until ctx ends. When one has answered, the time is appended to FOLDER/NAME.ready.
func Host(ctx context.Context, program, dir string, names []string) {
	done := make(chan struct{})
	for _, name := range names {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				if err := live(ctx, program, dir, name); err != nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}()
	}
	for range names {
		<-done
	}
}

// live is one life of a worker.
func live(ctx context.Context, program, dir, name string) error {
	cmd := exec.Command(program, dir, name)
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: Handshake, Plugins: Plugins, Cmd: cmd, AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger: hclog.NewNullLogger(), AutoMTLS: false,
	})
	defer client.Kill()
	protocol, err := client.Client()
	if err == nil {
		err = protocol.Ping()
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, name+".ready"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, time.Now().UnixNano())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// go-plugin tells an end only to who asks again and again; the kernel tells it at once.
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return nil // it has ended already
	}
	defer func() { _ = unix.Close(fd) }()
	defer context.AfterFunc(ctx, client.Kill)()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return nil
}
