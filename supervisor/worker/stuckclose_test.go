package worker

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/logs"
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

// A start may fail while the machine is so busy that its process is not over within the limit. It ends later, and then all
// that belonged to it goes: the connection if there was one, the files, the folder of its socket.
func TestAFailedStartWhoseProcessEndsLateLeavesNothing(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"ended early":     func(s *Spec) { s.Args = []string{"exit"} },
		"no handshake":    func(s *Spec) { s.Args = []string{"silent"} },
		"a lie":           func(s *Spec) { s.Args = []string{"liar"} },
		"old protocol":    func(s *Spec) { s.Args = []string{"old-protocol"} },
		"another version": func(s *Spec) { s.Path = otherBinary },
		"refused":         func(s *Spec) { s.Args = []string{"refuse"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			before := measure(t)
			// Who reads what it says gets no processor: until then it is not over.
			ends := make(chan struct{})
			release := sync.OnceFunc(func() { close(ends) })
			defer release()
			r.env.Log = logs.NewBook(logs.Options{Redact: func(s string) string {
				if strings.HasPrefix(s, "panic: ") {
					<-ends
				}
				return s
			}})
			r.env.Timing.Start, r.env.Timing.Kill = time.Second, 10*time.Millisecond
			s := spec()
			s.Files = func() ([]*os.File, error) {
				f, err := os.Open("/dev/null")
				return []*os.File{f}, err
			}
			change(&s)
			s.Env = append(s.Env, "TESTWORKER_SAYS=panic: it takes a while to read this")
			l := &launcher{spec: s, hooks: r.hooks(), env: r.env, log: r.book.Logger()}
			l.env.Timing = l.env.Timing.orDefault()
			b, _, err := l.launch(context.Background(), 1, func(int) {})
			if err == nil {
				t.Fatal("it serves")
			}
			// The start has waited for it.
			b.(*instance).timing.Kill = time.Hour
			tidied := make(chan struct{})
			go func() {
				defer close(tidied)
				b.tidy()
			}()
			until(t, "nobody waits for it again", func() bool {
				select {
				case <-tidied:
					return true
				default:
					return false
				}
			})
			select {
			case <-b.done():
				t.Fatalf("the process is over: this shows nothing (%v)", err)
			default:
			}
			release()
			<-b.done()
			until(t, "its folder is gone", func() bool {
				left, err := os.ReadDir(r.runDir)
				return err == nil && len(left) == 0
			})
			r.env.Log.Close()
			settles(t, before)
		})
	}
}
