package main

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// A wiretap is a connection of the supervisor into which frames can be put that gRPC would not send.
type wiretap struct {
	net.Conn
	mu sync.Mutex
}

// Write sends what gRPC sends. It waits for ever once half a frame was sent: whatever came then would be the other half.
func (w *wiretap) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Conn.Write(b)
}

// wiretaps are the connections that are made without TLS.
type wiretaps struct {
	credentials.TransportCredentials
	mu   sync.Mutex
	list []*wiretap
}

var tapped = &wiretaps{TransportCredentials: insecure.NewCredentials()}

func (w *wiretaps) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tap := &wiretap{Conn: c}
	w.mu.Lock()
	w.list = append(w.list, tap)
	w.mu.Unlock()
	return w.TransportCredentials.ServerHandshake(tap)
}

func (w *wiretaps) Clone() credentials.TransportCredentials { return w }

// inject puts bytes into each connection. With stuck nothing comes after them.
func (w *wiretaps) inject(b []byte, stuck bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tap := range w.list {
		tap.mu.Lock()
		_, err := tap.Conn.Write(b)
		if !stuck {
			tap.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Kinds and flags of HTTP/2 frames.
const (
	frameData, frameHeaders, frameReset, frameSettings = 0, 1, 3, 4
	endStream, endHeaders                              = 1, 4
)

// frame is one of HTTP/2, whose length may be another than that of its payload.
func frame(length int, kind, flags byte, stream uint32, payload ...byte) []byte {
	b := []byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// halfFrame sends the beginning of a frame and waits for ever.
func halfFrame(ctx context.Context, _ settings) (string, error) {
	if err := tapped.inject(frame(600, frameSettings, 0, 0, 0, 1, 0, 0), true); err != nil {
		return "", err
	}
	<-ctx.Done()
	return "", ctx.Err()
}

// answerOthers sends the results of calls that nobody has made, and ends them.
func answerOthers(context.Context, settings) (string, error) {
	result := []byte("\x00\x00\x00\x00\x08\x1a\x06\x0a\x04mine")
	for id := uint32(100_001); id < 101_001; id += 2 {
		for _, f := range [][]byte{
			frame(1, frameHeaders, endHeaders, id, 0x88), // :status 200
			frame(len(result), frameData, 0, id, result...),
			frame(len(result), frameData, endStream, id+1, result...),
			frame(4, frameReset, 0, id, 0, 0, 0, 0),
		} {
			if err := tapped.inject(f, false); err != nil {
				return "", err
			}
		}
	}
	return "answered for others", nil
}

const daemonVariable = "HOSTILE_DAEMON"

// daemonise leaves all that it does to a child in a session of its own, and ends.
func daemonise() {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), daemonVariable+"=1")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.ExtraFiles = []*os.File{os.NewFile(3, "liveness")}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// closeAll closes all that the process has open but what Go's runtime waits with, and lives on.
func closeAll() {
	for fd := range 1 << 10 {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT != 0 { // what it waits with is of no type
			_ = syscall.Close(fd)
		}
	}
	time.Sleep(time.Minute)
	os.Exit(0)
}
