package worker

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// A stuckTransport makes connections whose Close does not return until it is released, as one whose reader sits in a raw read.
type stuckTransport struct {
	credentials.TransportCredentials
	closing *atomic.Int32
	release chan struct{}
}

func (s stuckTransport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ClientHandshake(ctx, authority, conn)
	return stuckConn{conn, s}, info, err
}

func (s stuckTransport) Clone() credentials.TransportCredentials { return s }

type stuckConn struct {
	net.Conn
	stuck stuckTransport
}

func (c stuckConn) Close() error {
	c.stuck.closing.Add(1)
	<-c.stuck.release
	return c.Conn.Close()
}

func TestAConnectionThatIsNeverClosedHoldsNobodyUp(t *testing.T) {
	r := newRig(t)
	before := measure(t)
	stuck := stuckTransport{insecure.NewCredentials(), new(atomic.Int32), make(chan struct{})}
	r.env.dial = []grpc.DialOption{grpc.WithTransportCredentials(stuck)}
	r.env.Timing.Tidy = 100 * time.Millisecond
	s := spec()
	s.Plain = true // no certificates, so that the transport is ours
	w := r.live(s)
	w.awaitReady()

	// Stopped, started and stopped again; then the end of the supervisor. Each of them within the limits of its own steps.
	within := func(what string, f func()) {
		t.Helper()
		done := make(chan struct{})
		go func() { defer close(done); f() }()
		select {
		case <-done:
		case <-time.After(quick.Dial + quick.Term + quick.Quit + DefaultTiming.Kill + s.Drain + 10*time.Second):
			t.Fatalf("%s is held up by a connection that is not closed", what)
		}
	}
	pid := w.PID()
	within("a stop", func() {
		if err := w.Stop(context.Background(), "a test"); err != nil {
			t.Error(err)
		}
	})
	if alive, _ := children(t); len(alive) > 0 {
		t.Errorf("alive after the stop: %v (it was %d)", alive, pid)
	}
	within("a start", func() {
		if err := w.Start(context.Background(), "a test"); err != nil {
			t.Error(err)
		}
	})
	r.await(1, kindReady)
	within("the end", w.end)
	if stuck.closing.Load() == 0 {
		t.Error("nobody closed a connection: this shows nothing")
	}
	close(stuck.release)
	settles(t, before)
}
