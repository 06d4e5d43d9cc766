package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an Inbox and a Turns whose answers the test sets.
type host struct {
	hostv1.UnimplementedInboxServer
	hostv1.UnimplementedTurnsServer
	accept func(context.Context) error
	follow func(context.Context) error
}

func (h *host) Accept(ctx context.Context, _ *hostv1.AcceptRequest) (*hostv1.AcceptResponse, error) {
	return &hostv1.AcceptResponse{}, h.accept(ctx)
}

func (h *host) Follow(_ *hostv1.FollowRequest, s grpc.ServerStreamingServer[turnv1.TurnEvent]) error {
	return h.follow(s.Context())
}

// pair serves h as seen by a caller of the given role and returns a connection to it.
func pair(t *testing.T, h *host, role string, onPanic PanicFunc) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	identify := func(context.Context) (Identity, error) { return Identity{Worker: role + "-1", Role: role}, nil }
	server := grpc.NewServer(ServerOptions(identify, onPanic)...)
	hostv1.RegisterInboxServer(server, h)
	hostv1.RegisterTurnsServer(server, h)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///pair", append(DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return conn
}

func TestErrorKindsSurviveTheWire(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.err.Error(), func(t *testing.T) {
			h := &host{accept: func(context.Context) error { return fmt.Errorf("turn t_1: %w", k.err) }}
			_, err := hostv1.NewInboxClient(pair(t, h, RoleGateway, nil)).Accept(t.Context(), &hostv1.AcceptRequest{})
			if !errors.Is(err, k.err) {
				t.Fatalf("got %v, want kind %v", err, k.err)
			}
			if !strings.Contains(err.Error(), "turn t_1") {
				t.Errorf("%q lost its text", err)
			}
			if ExitCode(err) != k.exit {
				t.Errorf("exit code %d, want %d", ExitCode(err), k.exit)
			}
		})
	}
}

func TestErrorsOfNoKindAreInternalWithTheirText(t *testing.T) {
	h := &host{accept: func(context.Context) error { return errors.New("the disk sang") }}
	_, err := hostv1.NewInboxClient(pair(t, h, RoleGateway, nil)).Accept(t.Context(), &hostv1.AcceptRequest{})
	if err == nil || !strings.Contains(err.Error(), "the disk sang") {
		t.Fatalf("got %v", err)
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			t.Errorf("it became %v", k.err)
		}
	}
}

func TestStreamErrorsKeepTheirKind(t *testing.T) {
	h := &host{follow: func(context.Context) error { return fmt.Errorf("turn: %w", ErrNotFound) }}
	s, err := hostv1.NewTurnsClient(pair(t, h, RoleGateway, nil)).Follow(t.Context(), &hostv1.FollowRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v", err)
	}
}

func TestACallThatPanicsCostsThatCall(t *testing.T) {
	var told atomic.Value
	h := &host{accept: func(context.Context) error { panic("boom") }}
	conn := pair(t, h, RoleGateway, func(method string, value any, stack []byte) {
		told.Store(fmt.Sprint(method, value, len(stack) > 0))
	})
	_, err := hostv1.NewInboxClient(conn).Accept(t.Context(), &hostv1.AcceptRequest{})
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Fatalf("got %v", err)
	}
	if got := told.Load(); got != "/hermes.host.v1.Inbox/Acceptboomtrue" {
		t.Errorf("panic handler was told %v", got)
	}
	h.accept = func(context.Context) error { return nil }
	if _, err := hostv1.NewInboxClient(conn).Accept(t.Context(), &hostv1.AcceptRequest{}); err != nil {
		t.Errorf("the next call failed: %v", err)
	}
}

func TestAMethodOutsideTheRoleIsDeniedBeforeItRuns(t *testing.T) {
	h := &host{accept: func(context.Context) error { t.Error("it ran"); return nil }}
	_, err := hostv1.NewInboxClient(pair(t, h, RoleAgent, nil)).Accept(t.Context(), &hostv1.AcceptRequest{})
	if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "agent-1") {
		t.Fatalf("got %v", err)
	}
}

func TestTheCalleeSeesTheIdentityOfTheConnection(t *testing.T) {
	var seen Identity
	h := &host{accept: func(ctx context.Context) error { seen, _ = IdentityFrom(ctx); return nil }}
	if _, err := hostv1.NewInboxClient(pair(t, h, RoleGateway, nil)).Accept(t.Context(), &hostv1.AcceptRequest{}); err != nil {
		t.Fatal(err)
	}
	if seen.Worker != "gateway-1" || seen.Role != RoleGateway {
		t.Errorf("identity %+v", seen)
	}
}

func TestACallWithoutDeadlineGetsTheOneOfTheTable(t *testing.T) {
	var left time.Duration
	h := &host{accept: func(ctx context.Context) error {
		if d, ok := ctx.Deadline(); ok {
			left = time.Until(d)
		}
		return nil
	}}
	if _, err := hostv1.NewInboxClient(pair(t, h, RoleGateway, nil)).Accept(context.Background(), &hostv1.AcceptRequest{}); err != nil {
		t.Fatal(err)
	}
	want, _ := Deadline("/hermes.host.v1.Inbox/Accept")
	if left <= 0 || left > want {
		t.Errorf("deadline in %v, want at most %v", left, want)
	}
}
