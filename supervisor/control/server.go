// Package control is the control socket: what `ctl`, `chat` and other commands ask of the running supervisor.
//
// Rules: the socket is 0600 in a 0700 folder and the peer's uid is checked as well; whoever may open it may do
// everything, so there is one role, the operator. Nothing here decides: every method hands over to the part of the
// supervisor that owns the matter.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// drainTime is how long running calls may go on when the server is closed. Streams end at once: their context is
// the server's.
const drainTime = 2 * time.Second

// A Server serves the control socket.
type Server struct {
	grpc   *grpc.Server
	path   string
	made   bool // by Listen: the file goes with the server
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

// Services are the parts of the supervisor behind the socket.
type Services struct {
	Workers Workers
	Hub     Hub
	Journal Journal
	Logs    Logs
	// Answers returns what became of the final replies of turns to chats, by turn; nil in tests that ask for none.
	Answers func(ctx context.Context, turns []string) (map[string]store.OutboxRow, error)
	// Operations may be nil in tests that ask for none.
	Operations Operations
	// Status fills what the parts above do not know: the supervisor itself, model, stores, warnings.
	Status func(ctx context.Context) (*controlv1.StatusResponse, error)
	// Shutdown asks the supervisor to end as SIGTERM would; by says who wants it. It returns at once.
	Shutdown func(by string)
	// Register adds services that the socket shares with workers (Boards).
	Register func(*grpc.Server)
	// Refuse says why a process of this user may not connect all the same; nil: every one may.
	Refuse func(pid int) error
}

// Listen makes the socket at path. Whatever is at path is removed: the caller holds the home's lock, so no other
// supervisor serves it.
func Listen(path string) (net.Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	return ownListener{l}, nil
}

// ownListener is one whose file goes with the server. That of the service manager stays.
type ownListener struct{ net.Listener }

func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket %s: remove the old one: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return l, nil
}

// Serve serves s on l until Close. It returns at once.
func Serve(l net.Listener, s Services, log hclog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	onPanic := func(method string, value any, stack []byte) {
		log.Error("panic in a control call", "method", method, "panic", fmt.Sprint(value), "stack", string(stack))
	}
	options := append(ipc.ServerOptions(operator, onPanic), grpc.Creds(peerCredentials{uid: os.Getuid(), refuse: s.Refuse}))
	_, made := l.(ownListener)
	server := &Server{made: made, grpc: grpc.NewServer(options...), path: l.Addr().String(), cancel: cancel, done: make(chan struct{})}
	main := &controlService{services: s, life: ctx}
	controlv1.RegisterControlServer(server.grpc, main)
	controlv1.RegisterChatServer(server.grpc, &chatService{hub: s.Hub, life: ctx})
	controlv1.RegisterTimelineServer(server.grpc, &timelineService{journal: s.Journal, known: main.known, answers: s.Answers})
	if s.Operations != nil {
		controlv1.RegisterOperationsServer(server.grpc, &operationsService{operations: s.Operations})
	}
	if s.Register != nil {
		s.Register(server.grpc)
	}
	go func() {
		defer close(server.done)
		if err := server.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			log.Error("control socket ended", "error", err)
		}
	}()
	return server
}

// Close ends all streams, lets running calls end within drainTime and removes the socket.
func (s *Server) Close() {
	s.once.Do(func() {
		s.cancel()
		stop := time.AfterFunc(drainTime, s.grpc.Stop)
		s.grpc.GracefulStop()
		stop.Stop()
		<-s.done
		if s.made {
			_ = os.Remove(s.path)
		}
	})
}

// bound returns a context that ends with ctx or with the server.
func bound(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(life, cancel)
	return ctx, func() { stop(); cancel() }
}

// ended turns the end of the server into an error that clients know: the supervisor is going, come back later.
func ended(err error, life context.Context) error {
	if err != nil && life.Err() != nil {
		return fmt.Errorf("supervisor is stopping: %w", ipc.ErrGone)
	}
	return err
}
