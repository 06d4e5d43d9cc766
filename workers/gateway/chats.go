package gateway

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// What a chat's commands ask of the supervisor. The requests say in their protocol what each does; those with the id of a
// message are done once for it, however often they are made.

// ask makes a call and says in an error what it was for.
func ask[Q, A any](ctx context.Context, what string, call func(context.Context, Q, ...grpc.CallOption) (A, error), req Q) (A, error) {
	a, err := call(ctx, req)
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	return a, nil
}

// OpenTurns returns the turns of a chat or session that have not ended, in the order in which they run.
func (s *Services) OpenTurns(ctx context.Context, r *hostv1.ListTurnsRequest) (*hostv1.ListTurnsResponse, error) {
	return ask(ctx, "list turns", s.host.Turns.ListOpen, r)
}

// Retry answers the last message of a conversation anew.
func (s *Services) Retry(ctx context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error) {
	return ask(ctx, "retry", s.host.Turns.Retry, r)
}

// Session returns the current session of a place, or ipc.ErrNotFound.
func (s *Services) Session(ctx context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error) {
	return ask(ctx, "get session", s.host.Sessions.Get, r)
}

// Sessions lists the sessions of a chat or a person.
func (s *Services) Sessions(ctx context.Context, r *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error) {
	return ask(ctx, "list sessions", s.host.Sessions.List, r)
}

// SetTitle names the session of a place.
func (s *Services) SetTitle(ctx context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error) {
	return ask(ctx, "set title", s.host.Sessions.SetTitle, r)
}

// Bind makes an existing session the current one of a place.
func (s *Services) Bind(ctx context.Context, r *hostv1.BindRequest) (*hostv1.SessionInfo, error) {
	return ask(ctx, "resume session", s.host.Sessions.Bind, r)
}

// SetModel sets the model of the session of a place.
func (s *Services) SetModel(ctx context.Context, r *hostv1.SetModelRequest) (*hostv1.SessionInfo, error) {
	return ask(ctx, "set model", s.host.Sessions.SetModel, r)
}

// Undo takes the last exchanges out of a conversation.
func (s *Services) Undo(ctx context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error) {
	return ask(ctx, "undo", s.host.Sessions.Undo, r)
}

// EndSession ends the current session of a place, so that the next message begins another.
func (s *Services) EndSession(ctx context.Context, r *hostv1.EndRequest) (*hostv1.EndResponse, error) {
	return ask(ctx, "end session", s.host.Sessions.End, r)
}

// Confirm stores a question to a person whether a command may be done, and returns how it stands.
func (s *Services) Confirm(ctx context.Context, r *hostv1.AskRequest) (*hostv1.Confirmation, error) {
	return ask(ctx, "ask", s.host.Confirmations.Ask, r)
}

// AnswerConfirmation stores a person's answer and returns what holds.
func (s *Services) AnswerConfirmation(ctx context.Context, r *hostv1.AnswerRequest) (*hostv1.Confirmation, error) {
	return ask(ctx, "answer", s.host.Confirmations.Answer, r)
}

// Confirmations returns the questions that wait for an answer, and those whose yes has not been carried out.
func (s *Services) Confirmations(ctx context.Context, r *hostv1.ListConfirmationsRequest) (*hostv1.ListConfirmationsResponse, error) {
	return ask(ctx, "list questions", s.host.Confirmations.List, r)
}

// ConfirmationDone says that the command of a yes has been carried out.
func (s *Services) ConfirmationDone(ctx context.Context, r *hostv1.DoneRequest) (*hostv1.DoneResponse, error) {
	return ask(ctx, "settle question", s.host.Confirmations.Done, r)
}

// Paired says whether the operator let a person in whom no list names.
func (s *Services) Paired(ctx context.Context, userID string) (bool, error) {
	r, err := ask(ctx, "check pairing", s.host.Pairing.Check, &hostv1.PairingCheckRequest{UserId: userID})
	return r.GetAllowed(), err
}

// RequestPairing makes a code with which the operator can let a person in, if the limits allow one.
func (s *Services) RequestPairing(ctx context.Context, r *hostv1.PairingRequest) (*hostv1.PairingResponse, error) {
	return ask(ctx, "request pairing", s.host.Pairing.Request, r)
}

// Restart ends the supervisor so that it is started again.
func (s *Services) Restart(ctx context.Context, r *hostv1.RestartRequest) (*hostv1.RestartResponse, error) {
	return ask(ctx, "restart", s.host.Lifecycle.Restart, r)
}
