package control

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	workerv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/worker/v1"
)

// Operations are what an operator looks at and changes beyond single workers.
type Operations interface {
	Series(worker string, since time.Time) (*controlv1.SeriesResponse, error)
	Profile(ctx context.Context, worker string, r *workerv1.ProfileRequest) (*workerv1.ProfileResponse, error)
	Pause() (running int)
	Resume() (was bool)
	Reload(ctx context.Context) ([]*controlv1.Change, error)
}

type operationsService struct {
	controlv1.UnimplementedOperationsServer
	operations Operations
}

func (o *operationsService) Series(_ context.Context, r *controlv1.SeriesRequest) (*controlv1.SeriesResponse, error) {
	return o.operations.Series(r.Worker, unixTime(r.Since))
}

func (o *operationsService) Drain(context.Context, *controlv1.DrainRequest) (*controlv1.DrainResponse, error) {
	return &controlv1.DrainResponse{Running: int64(o.operations.Pause())}, nil
}

func (o *operationsService) Resume(context.Context, *controlv1.ResumeRequest) (*controlv1.ResumeResponse, error) {
	return &controlv1.ResumeResponse{WasDrained: o.operations.Resume()}, nil
}

func (o *operationsService) Reload(ctx context.Context, _ *controlv1.ReloadRequest) (*controlv1.ReloadResponse, error) {
	changes, err := o.operations.Reload(ctx)
	return &controlv1.ReloadResponse{Changes: changes}, err
}

// profileKinds are the names of the command line.
var profileKinds = map[string]workerv1.ProfileRequest_Kind{
	"heap": workerv1.ProfileRequest_KIND_HEAP, "cpu": workerv1.ProfileRequest_KIND_CPU, "goroutine": workerv1.ProfileRequest_KIND_GOROUTINE,
}

func (o *operationsService) Profile(ctx context.Context, r *controlv1.ProfileRequest) (*controlv1.ProfileResponse, error) {
	kind, ok := profileKinds[r.Kind]
	if !ok {
		return nil, fmt.Errorf("profile of kind %q: %w: heap, cpu and goroutine are there", r.Kind, ipc.ErrInvalid)
	}
	p, err := o.operations.Profile(ctx, r.Worker, &workerv1.ProfileRequest{Kind: kind, Seconds: r.Seconds})
	return &controlv1.ProfileResponse{Data: p.GetData(), Format: p.GetFormat()}, err
}

func (o *operationsService) Ping(context.Context, *controlv1.PingRequest) (*controlv1.PingResponse, error) {
	return &controlv1.PingResponse{}, nil
}

// A Heart asks the control socket from outside, as any command does, whether it still serves: a server that accepts no more,
// or whose calls hang before they begin, looks well from inside.
type Heart struct {
	conn  *grpc.ClientConn
	beats atomic.Uint64
}

// NewHeart returns a heart of the socket at path. It connects at the first Beat and must be closed.
func NewHeart(path string) (*Heart, error) {
	conn, err := grpc.NewClient("unix:"+path, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return &Heart{conn: conn}, nil
}

// Beat asks once and counts an answer.
func (h *Heart) Beat(ctx context.Context) error {
	if _, err := controlv1.NewOperationsClient(h.conn).Ping(ctx, &controlv1.PingRequest{}); err != nil {
		return err
	}
	h.beats.Add(1)
	return nil
}

// Progress counts the answers.
func (h *Heart) Progress() uint64 { return h.beats.Load() }

// Close ends the connection.
func (h *Heart) Close() { _ = h.conn.Close() }
