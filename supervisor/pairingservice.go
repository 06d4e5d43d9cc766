package supervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/pairing"
)

// pairingService is the gateways' side of pairing, each for its own platform.
type pairingService struct {
	hostv1.UnimplementedPairingServer
	store *pairing.Store
}

// Check says whether a person was approved.
func (s *pairingService) Check(ctx context.Context, r *hostv1.PairingCheckRequest) (*hostv1.PairingCheckResponse, error) {
	id, _ := ipc.IdentityFrom(ctx)
	p, ok, err := s.store.Check(id.Platform, r.UserId)
	if err != nil {
		return nil, err
	}
	resp := &hostv1.PairingCheckResponse{Allowed: ok}
	if ok {
		resp.UserName, resp.ApprovedAt = p.UserName, unixTime(p.ApprovedAt)
	}
	return resp, nil
}

const maxPerson = 512 // bytes of an id or name

var pairingOutcomes = map[pairing.Outcome]hostv1.PairingResponse_Outcome{
	pairing.Code:    hostv1.PairingResponse_OUTCOME_CODE,
	pairing.Allowed: hostv1.PairingResponse_OUTCOME_ALLOWED,
	pairing.Wait:    hostv1.PairingResponse_OUTCOME_WAIT,
	pairing.Full:    hostv1.PairingResponse_OUTCOME_FULL,
	pairing.Locked:  hostv1.PairingResponse_OUTCOME_LOCKED,
}

// Request makes a code for a person.
func (s *pairingService) Request(ctx context.Context, r *hostv1.PairingRequest) (*hostv1.PairingResponse, error) {
	id, _ := ipc.IdentityFrom(ctx)
	if r.UserId == "" || len(r.UserId) > maxPerson || len(r.UserName) > maxPerson {
		return nil, fmt.Errorf("user_id and user_name: %w: an id is needed, and at most %d bytes of each are kept", ipc.ErrInvalid, maxPerson)
	}
	a, err := s.store.Request(id.Platform, r.UserId, r.UserName)
	if err != nil {
		return nil, err
	}
	resp := &hostv1.PairingResponse{Outcome: pairingOutcomes[a.Outcome], Code: a.Code, RetryAfterMs: a.Retry.Milliseconds()}
	if a.Outcome == pairing.Code {
		resp.ExpiresMs = a.Expires.UnixMilli()
		resp.Command = fmt.Sprintf("hermes-supervisor pairing approve %s %s", id.Platform, a.Code)
	}
	return resp, nil
}

// operatorPairing is the operator's side.
type operatorPairing struct {
	controlv1.UnimplementedPairingServer
	store *pairing.Store
}

// NewPairing serves the operator's side of pairing on a store: over the control socket, and to a command that holds the
// home's lock itself because no supervisor runs.
func NewPairing(s *pairing.Store) controlv1.PairingServer { return &operatorPairing{store: s} }

func (o *operatorPairing) List(_ context.Context, r *controlv1.PairingListRequest) (*controlv1.PairingListResponse, error) {
	waiting, people, err := o.store.List(r.Platform)
	if err != nil {
		return nil, pairingError(err)
	}
	resp := &controlv1.PairingListResponse{}
	for _, w := range waiting {
		resp.Pending = append(resp.Pending, &controlv1.PairingWish{
			Platform: w.Platform, Id: w.ID, UserId: w.UserID, UserName: w.UserName,
			AskedAt: unixTime(w.AskedAt), ExpiresAt: unixTime(w.AskedAt.Add(pairing.CodeTTL)),
		})
	}
	for _, p := range people {
		resp.Approved = append(resp.Approved, personToProto(p))
	}
	return resp, nil
}

func (o *operatorPairing) Approve(_ context.Context, r *controlv1.PairingApproveRequest) (*controlv1.PairedPerson, error) {
	p, err := o.store.Approve(r.Platform, r.Code)
	if err != nil {
		return nil, pairingError(err)
	}
	return personToProto(p), nil
}

func (o *operatorPairing) Revoke(_ context.Context, r *controlv1.PairingRevokeRequest) (*controlv1.PairingRevokeResponse, error) {
	was, err := o.store.Revoke(r.Platform, r.UserId)
	return &controlv1.PairingRevokeResponse{Revoked: was}, pairingError(err)
}

func (o *operatorPairing) ClearPending(_ context.Context, r *controlv1.PairingClearRequest) (*controlv1.PairingClearResponse, error) {
	n, err := o.store.ClearPending(r.Platform)
	return &controlv1.PairingClearResponse{Cleared: uint32(n)}, pairingError(err)
}

// pairingError gives an error of the store the kind that decides a command's exit code.
func pairingError(err error) error {
	for _, k := range []struct{ from, to error }{
		{pairing.ErrNoCode, ipc.ErrNotFound}, {pairing.ErrLocked, ipc.ErrBusy}, {pairing.ErrName, ipc.ErrInvalid},
	} {
		if errors.Is(err, k.from) {
			return fmt.Errorf("%w (%w)", err, k.to)
		}
	}
	return err
}

func personToProto(p pairing.Person) *controlv1.PairedPerson {
	return &controlv1.PairedPerson{Platform: p.Platform, UserId: p.UserID, UserName: p.UserName, ApprovedAt: unixTime(p.ApprovedAt)}
}
