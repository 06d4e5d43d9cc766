package telegram

import (
	"context"
	"sync"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

// A desk is the rest of the supervisor as the adapter sees it, without the wire between.
type desk struct {
	*gatewaytest.Desk
	sessions hostv1.SessionsServer
	confirms hostv1.ConfirmationsServer
	pairing  hostv1.PairingServer
	life     hostv1.LifecycleServer

	mu      sync.Mutex
	retried int
	away    bool   // every call fails
	failing string // the call that fails
	lost    bool   // after its effect
}

func newDesk() *desk {
	d := gatewaytest.NewDesk()
	return &desk{
		Desk: d, sessions: d.Sessions(), confirms: d.Confirmations(), pairing: d.Pairing(), life: d.Lifecycle(),
	}
}

func through[Q, A any](ctx context.Context, d *desk, what string, call func(context.Context, Q) (A, error), r Q) (a A, err error) {
	d.mu.Lock()
	fails, lost := d.away || what == d.failing, d.lost
	d.mu.Unlock()
	if !fails || lost {
		a, err = call(ctx, r)
	}
	if fails {
		err = gone
	}
	return a, err
}

func (d *desk) OpenTurns(_ context.Context, r *hostv1.ListTurnsRequest) (*hostv1.ListTurnsResponse, error) {
	return d.ListOpen(r), nil
}

func (d *desk) Retry(_ context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error) {
	out, err := d.Desk.Retry(r, "turn_retry")
	if err == nil && !out.Duplicate {
		d.mu.Lock()
		d.retried++
		d.mu.Unlock()
	}
	return out, err
}

func (d *desk) Session(ctx context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error) {
	return through(ctx, d, "session", d.sessions.Get, r)
}

func (d *desk) Sessions(ctx context.Context, r *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error) {
	return through(ctx, d, "sessions", d.sessions.List, r)
}

func (d *desk) SetTitle(ctx context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error) {
	return through(ctx, d, "title", d.sessions.SetTitle, r)
}

func (d *desk) Bind(ctx context.Context, r *hostv1.BindRequest) (*hostv1.SessionInfo, error) {
	return through(ctx, d, "bind", d.sessions.Bind, r)
}

func (d *desk) SetModel(ctx context.Context, r *hostv1.SetModelRequest) (*hostv1.SessionInfo, error) {
	return through(ctx, d, "model", d.sessions.SetModel, r)
}

func (d *desk) Undo(ctx context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error) {
	return through(ctx, d, "undo", d.sessions.Undo, r)
}

func (d *desk) EndSession(ctx context.Context, r *hostv1.EndRequest) (*hostv1.EndResponse, error) {
	return through(ctx, d, "end", d.sessions.End, r)
}

func (d *desk) Confirm(ctx context.Context, r *hostv1.AskRequest) (*hostv1.Confirmation, error) {
	return through(ctx, d, "confirm", d.confirms.Ask, r)
}

func (d *desk) AnswerConfirmation(ctx context.Context, r *hostv1.AnswerRequest) (*hostv1.Confirmation, error) {
	return through(ctx, d, "answer", d.confirms.Answer, r)
}

func (d *desk) Confirmations(ctx context.Context, r *hostv1.ListConfirmationsRequest) (*hostv1.ListConfirmationsResponse, error) {
	return through(ctx, d, "confirmations", d.confirms.List, r)
}

func (d *desk) ConfirmationDone(ctx context.Context, r *hostv1.DoneRequest) (*hostv1.DoneResponse, error) {
	return through(ctx, d, "done", d.confirms.Done, r)
}

func (d *desk) Paired(ctx context.Context, user string) (bool, error) {
	r, err := through(ctx, d, "paired", d.pairing.Check, &hostv1.PairingCheckRequest{UserId: user})
	return r.GetAllowed(), err
}

func (d *desk) RequestPairing(ctx context.Context, r *hostv1.PairingRequest) (*hostv1.PairingResponse, error) {
	return through(ctx, d, "pair", d.pairing.Request, r)
}

func (d *desk) Restart(ctx context.Context, r *hostv1.RestartRequest) (*hostv1.RestartResponse, error) {
	return through(ctx, d, "restart", d.life.Restart, r)
}

// failAt makes calls of one kind fail, as those of a process that dies; after they have had their effect if lost is true.
// "" ends it.
func (d *desk) failAt(what string, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing, d.lost = what, lost
}

// setAway makes all calls fail, or none.
func (d *desk) setAway(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
}
