package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// hostServices are the host services that need no turn: Events and Config. Inbox, Turns, Tools and Boards are the
// hub's.
type hostServices struct {
	hostv1.UnimplementedEventsServer
	hostv1.UnimplementedConfigServer
	secrets func() config.Secrets // of this moment
	given   func(value string)    // told of each secret before it is handed out; nil: nobody wants to know
	record  func(store.Event)
	heard   func(kind string) // what was published, after it is recorded; nil: nobody wants to know
	now     func() time.Time
	taken   eventRates
}

func (h *hostServices) register(s *grpc.Server) {
	hostv1.RegisterEventsServer(s, h)
	hostv1.RegisterConfigServer(s, h)
}

// Limits of a published event, so that a worker cannot fill the journal with one call.
const (
	maxEventText   = 4 << 10
	maxEventFields = 32
)

// Publish records an event in the name of the worker that calls.
func (h *hostServices) Publish(ctx context.Context, r *hostv1.PublishRequest) (*hostv1.PublishResponse, error) {
	id, _ := ipc.IdentityFrom(ctx)
	if r.Kind == "" || len(r.Kind) > 64 {
		return nil, fmt.Errorf("kind of an event: %w: 1 to 64 bytes are needed, got %d", ipc.ErrInvalid, len(r.Kind))
	}
	if len(r.Fields) > maxEventFields {
		return nil, fmt.Errorf("event %s: %w: %d fields, at most %d are kept", r.Kind, ipc.ErrInvalid, len(r.Fields), maxEventFields)
	}
	size := len(r.Message)
	for k, v := range r.Fields {
		size += len(k) + len(v)
	}
	if size > maxEventText {
		return nil, fmt.Errorf("event %s: %w: %d bytes of text, at most %d are kept", r.Kind, ipc.ErrInvalid, size, maxEventText)
	}
	ok, lost := h.taken.allow(id.Worker, h.now())
	if !ok {
		return nil, fmt.Errorf("event %s: %w: %s publishes more than %d events a second", r.Kind, ipc.ErrBusy, id.Worker, eventsPerSecond)
	}
	if lost > 0 {
		h.record(store.Event{Kind: "events_lost", Worker: id.Worker, Message: wording.Count(lost, "event was not kept: it", "events were not kept: they") + " came too fast"})
	}
	h.record(store.Event{Kind: r.Kind, Worker: id.Worker, TurnID: r.TurnId, Message: r.Message, Fields: r.Fields})
	if h.heard != nil {
		h.heard(r.Kind)
	}
	return &hostv1.PublishResponse{}, nil
}

// Secret returns a secret that this worker was given the right to when it was started.
func (h *hostServices) Secret(ctx context.Context, r *hostv1.SecretRequest) (*hostv1.SecretResponse, error) {
	id, _ := ipc.IdentityFrom(ctx)
	if !slices.Contains(id.Secrets, r.Name) {
		return nil, fmt.Errorf("secret %s is not for %s: %w", r.Name, id.Worker, ipc.ErrDenied)
	}
	value, ok := h.secrets().Lookup(r.Name)
	if !ok {
		return nil, fmt.Errorf("secret %s: %w: set it in %s of the home", r.Name, ipc.ErrNotFound, config.EnvFileName)
	}
	if h.given != nil {
		h.given(value)
	}
	return &hostv1.SecretResponse{Value: value}, nil
}
