package turn

import (
	"context"
	"errors"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	confirmTimeout    = 5 * time.Minute
	maxConfirmTimeout = 24 * time.Hour
	maxPayload        = 64 << 10
	maxQuestion       = 16 << 10
)

type confirmationsService struct {
	hostv1.UnimplementedConfirmationsServer
	hub *Hub
}

// Ask stores a question of a gateway.
func (s *confirmationsService) Ask(ctx context.Context, r *hostv1.AskRequest) (*hostv1.Confirmation, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.Join(checkID("key", r.Key), checkID("chat_id", r.ChatId), checkName("thread_id", r.ThreadId), checkName("user_id", r.UserId),
		checkID("command", r.Command), checkText("question", r.Question, maxQuestion))
	if err != nil {
		return nil, err
	}
	if len(r.Payload) > maxPayload {
		return nil, invalid("payload", "%d bytes, at most %d are kept", len(r.Payload), maxPayload)
	}
	wait := time.Duration(r.TimeoutMs) * time.Millisecond
	if r.TimeoutMs <= 0 {
		wait = confirmTimeout
	}
	wait = min(wait, maxConfirmTimeout)
	c, err := change(s.hub, func(ctx context.Context) (store.Confirmation, error) {
		return s.hub.store.Ask(ctx, store.Confirmation{
			Platform: platform, ChatID: r.ChatId, Key: r.Key, ThreadID: r.ThreadId, UserID: r.UserId, Command: r.Command, Question: r.Question,
			Payload: r.Payload, Deadline: s.hub.now().Add(wait),
		})
	})
	if err != nil {
		return nil, wrap(err, "ask in chat %q", r.ChatId)
	}
	return confirmationToProto(c), nil
}

var choices = map[hostv1.AnswerRequest_Choice]store.ConfirmationState{
	hostv1.AnswerRequest_CHOICE_ONCE:   store.ConfirmOnce,
	hostv1.AnswerRequest_CHOICE_ALWAYS: store.ConfirmAlways,
	hostv1.AnswerRequest_CHOICE_CANCEL: store.ConfirmCancelled,
}

// Answer decides a question.
func (s *confirmationsService) Answer(ctx context.Context, r *hostv1.AnswerRequest) (*hostv1.Confirmation, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	choice, ok := choices[r.Choice]
	if !ok {
		return nil, invalid("choice", "%v is not once, always or cancel", r.Choice)
	}
	if err := errors.Join(checkID("id", r.Id), checkName("user_id", r.UserId)); err != nil {
		return nil, err
	}
	var before bool
	c, err := change(s.hub, func(ctx context.Context) (c store.Confirmation, err error) {
		c, before, err = s.hub.store.Answer(ctx, platform, r.Id, choice, r.UserId)
		return c, err
	})
	if err != nil {
		return nil, wrap(err, "answer")
	}
	if !before {
		s.hub.event("command_confirmed", "", "", "", map[string]string{"platform": platform, "chat": c.ChatID, "command": c.Command, "answer": string(c.State)})
	}
	p := confirmationToProto(c)
	p.DecidedBefore = before
	return p, nil
}

// Get returns one question.
func (s *confirmationsService) Get(ctx context.Context, r *hostv1.GetConfirmationRequest) (*hostv1.Confirmation, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.hub.store.Confirmation(ctx, platform, r.Id)
	if err != nil {
		return nil, wrap(err, "look up question")
	}
	return confirmationToProto(c), nil
}

// List returns the questions that something is still to be done about.
func (s *confirmationsService) List(ctx context.Context, r *hostv1.ListConfirmationsRequest) (*hostv1.ListConfirmationsResponse, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.hub.store.Confirmations(ctx, platform, r.ChatId)
	if err != nil {
		return nil, wrap(err, "list questions")
	}
	resp := &hostv1.ListConfirmationsResponse{}
	for _, c := range list {
		resp.Confirmations = append(resp.Confirmations, confirmationToProto(c))
	}
	return resp, nil
}

// Done notes that the command of a yes has been carried out.
func (s *confirmationsService) Done(ctx context.Context, r *hostv1.DoneRequest) (*hostv1.DoneResponse, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	_, err = change(s.hub, func(ctx context.Context) (any, error) {
		return nil, s.hub.store.ConfirmationDone(ctx, platform, r.Id)
	})
	return &hostv1.DoneResponse{}, wrap(err, "note a command as done")
}

var confirmationStates = map[store.ConfirmationState]hostv1.Confirmation_State{
	store.ConfirmPending:   hostv1.Confirmation_STATE_PENDING,
	store.ConfirmOnce:      hostv1.Confirmation_STATE_ONCE,
	store.ConfirmAlways:    hostv1.Confirmation_STATE_ALWAYS,
	store.ConfirmCancelled: hostv1.Confirmation_STATE_CANCELLED,
	store.ConfirmExpired:   hostv1.Confirmation_STATE_EXPIRED,
}

func confirmationToProto(c store.Confirmation) *hostv1.Confirmation {
	return &hostv1.Confirmation{
		Id: c.ID, Key: c.Key, ChatId: c.ChatID, ThreadId: c.ThreadID, UserId: c.UserID, Command: c.Command, Question: c.Question, Payload: c.Payload,
		State: confirmationStates[c.State], DeadlineMs: c.Deadline.UnixMilli(), Done: c.Done, Remembered: c.Remembered, AskedMs: c.AskedAt.UnixMilli(),
	}
}
