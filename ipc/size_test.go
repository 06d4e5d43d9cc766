package ipc

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// sized takes texts of any size and answers with versions of the size that is asked for.
type sized struct {
	hostv1.UnimplementedInboxServer
	toolv1.UnimplementedToolServer
	got  atomic.Int64
	size atomic.Int64
}

func (s *sized) Accept(_ context.Context, r *hostv1.AcceptRequest) (*hostv1.AcceptResponse, error) {
	s.got.Store(int64(len(r.Text)))
	return &hostv1.AcceptResponse{}, nil
}

func (s *sized) Describe(context.Context, *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	return &toolv1.DescribeResponse{Version: strings.Repeat("x", int(s.size.Load()))}, nil
}

// overASocket serves over a socket on disk, as workers are served, and counts the connections that are made to it.
func overASocket(t *testing.T, s *sized) (conn *grpc.ClientConn, dials *atomic.Int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	// One server for both directions; who may call what is tested elsewhere.
	server := grpc.NewServer(ServerOptions(nil, nil)...)
	hostv1.RegisterInboxServer(server, s)
	toolv1.RegisterToolServer(server, s)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	dials = new(atomic.Int32)
	conn, err = grpc.NewClient("passthrough:///s", append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-served })
	return conn, dials
}

func TestFiveMiBPassInBothDirectionsAndMoreThanTheLimitIsRefused(t *testing.T) {
	s := &sized{}
	conn, dials := overASocket(t, s)
	inbox, tool := hostv1.NewInboxClient(conn), toolv1.NewToolClient(conn)
	send := func(n int) error {
		_, err := inbox.Accept(t.Context(), &hostv1.AcceptRequest{Text: strings.Repeat("x", n)})
		return err
	}
	fetch := func(n int) (int, error) {
		s.size.Store(int64(n))
		r, err := tool.Describe(t.Context(), &toolv1.DescribeRequest{})
		return len(r.GetVersion()), err
	}
	for range 3 {
		const large = 5 << 20
		if err := send(large); err != nil || s.got.Load() != large {
			t.Fatalf("5 MiB to the peer: %d arrived, %v", s.got.Load(), err)
		}
		if n, err := fetch(large); err != nil || n != large {
			t.Fatalf("5 MiB from the peer: %d arrived, %v", n, err)
		}
		for what, err := range map[string]error{"to": send(MaxMessageBytes + 1), "from": func() error { _, err := fetch(MaxMessageBytes + 1); return err }()} {
			// It says both sizes, and is no reason to try the same again.
			if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "larger than max") || !strings.Contains(err.Error(), "8388608") {
				t.Errorf("more than the limit %s the peer: %v", what, err)
			}
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections were made: one has to be enough", n)
	}
}

func TestAThousandRefusedRepliesLeaveNothingWithTheSender(t *testing.T) {
	s := &sized{}
	conn, _ := overASocket(t, s)
	tool := toolv1.NewToolClient(conn)
	refused := func(n int) {
		t.Helper()
		s.size.Store(MaxMessageBytes + 1)
		for range n {
			if _, err := tool.Describe(t.Context(), &toolv1.DescribeRequest{}); !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
		}
	}
	measure := func() (heap uint64, goroutines int) {
		runtime.GC()
		runtime.GC() // what pools held over the first one
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	refused(20) // buffers have their size then
	heap, goroutines := measure()
	refused(1000)
	// The last calls may still be on their way out.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		h, g := measure()
		if h <= heap+max(heap/10, 1<<20) && g <= goroutines+goroutines/10 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("heap %d, before %d; goroutines %d, before %d", h, heap, g, goroutines)
		}
	}
}
