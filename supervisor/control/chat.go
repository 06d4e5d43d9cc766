package control

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Hub is the turn queue as chats use it.
type Hub interface {
	Accept(ctx context.Context, in store.Inbound) (store.Accepted, error)
	Follow(ctx context.Context, turnID string, send func(*turnv1.TurnEvent) error) error
	Interrupt(ctx context.Context, turnID, reason string) (bool, error)
	Decide(ctx context.Context, approvalID string, approve bool, by string) (approved, before bool, err error)
	Notices(ctx context.Context, chatID string, send func(store.OutboxRow) error) error
	Acknowledge(ctx context.Context, outboxID int64) error
}

// DefaultChat is the terminal chat of those who name none.
const DefaultChat = "main"

type chatService struct {
	controlv1.UnimplementedChatServer
	hub  Hub
	life context.Context
}

func (c *chatService) Send(ctx context.Context, r *controlv1.SendRequest) (*controlv1.SendResponse, error) {
	if r.MessageId == "" {
		return nil, fmt.Errorf("message_id: %w: it makes a repeated message the same message", ipc.ErrInvalid)
	}
	if !utf8.ValidString(r.Text) {
		return nil, fmt.Errorf("text: %w: not UTF-8", ipc.ErrInvalid)
	}
	a, err := c.hub.Accept(ctx, store.Inbound{
		Platform: PlatformTerminal, ChatID: chatOrDefault(r.ChatId), ChatType: "dm", MessageID: r.MessageId,
		SessionID: r.SessionId, NewSession: r.NewSession, UserName: r.UserName, Text: r.Text,
	})
	if err != nil {
		return nil, err
	}
	return &controlv1.SendResponse{TurnId: a.TurnID, SessionId: a.SessionID, Duplicate: a.Duplicate}, nil
}

func (c *chatService) Follow(r *controlv1.FollowRequest, out grpc.ServerStreamingServer[turnv1.TurnEvent]) error {
	ctx, cancel := bound(out.Context(), c.life)
	defer cancel()
	return ended(c.hub.Follow(ctx, r.TurnId, out.Send), c.life)
}

func (c *chatService) Interrupt(ctx context.Context, r *controlv1.InterruptRequest) (*controlv1.InterruptResponse, error) {
	done, err := c.hub.Interrupt(ctx, r.TurnId, "stopped in the terminal")
	return &controlv1.InterruptResponse{Interrupted: done}, err
}

func (c *chatService) Decide(ctx context.Context, r *controlv1.DecideRequest) (*controlv1.DecideResponse, error) {
	approved, before, err := c.hub.Decide(ctx, r.ApprovalId, r.Approve, "user")
	return &controlv1.DecideResponse{Approved: approved, DecidedBefore: before}, err
}

func (c *chatService) Notices(r *controlv1.NoticesRequest, out grpc.ServerStreamingServer[controlv1.OutboxNotice]) error {
	ctx, cancel := bound(out.Context(), c.life)
	defer cancel()
	err := c.hub.Notices(ctx, chatOrDefault(r.ChatId), func(row store.OutboxRow) error {
		return out.Send(&controlv1.OutboxNotice{OutboxId: row.ID, Text: row.Text, CreatedAt: unixSeconds(row.CreatedAt)})
	})
	return ended(err, c.life)
}

func (c *chatService) Acknowledge(ctx context.Context, r *controlv1.AcknowledgeRequest) (*controlv1.AcknowledgeResponse, error) {
	return &controlv1.AcknowledgeResponse{}, c.hub.Acknowledge(ctx, r.OutboxId)
}

func chatOrDefault(id string) string {
	if id == "" {
		return DefaultChat
	}
	return id
}
