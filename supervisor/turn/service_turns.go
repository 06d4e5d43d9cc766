package turn

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// loadBatch is how many bytes of messages go into one response of Load, well under ipc.MaxMessageBytes.
	loadBatch = 1 << 20
	// maxLoaded bounds one message in it. Only rows of other programs can be longer (pictures as text); what a model
	// would take of them is less still.
	maxLoaded = 2 << 20
)

type turnsService struct {
	hostv1.UnimplementedTurnsServer
	hub *Hub
}

func (s *turnsService) Load(r *hostv1.LoadRequest, out grpc.ServerStreamingServer[hostv1.LoadResponse]) error {
	ctx := out.Context()
	id, _ := ipc.IdentityFrom(ctx)
	l, ls, err := s.hub.held(r.TurnId, r.Fence, id.Worker)
	if err != nil {
		return err
	}
	sess, err := s.hub.store.Session(ctx, l.session)
	if err != nil {
		s.hub.unstored(ls, err)
		return wrap(err, "load session %s", l.session)
	}
	rows, err := s.hub.store.Conversation(ctx, l.session)
	if err != nil {
		s.hub.unstored(ls, err)
		return wrap(err, "load conversation %s", l.session)
	}
	if err := out.Send(&hostv1.LoadResponse{Session: s.hub.sessionToProto(sess, l)}); err != nil {
		return err
	}
	return sendBatches(rows, out.Send)
}

// sessionToProto tells of the session with the user of this turn, who in a group need not be the one who opened it.
func (h *Hub) sessionToProto(s store.Session, l *live) *hostv1.Session {
	h.mu.Lock()
	t := l.turn
	h.mu.Unlock()
	p := &hostv1.Session{
		Id: s.ID, Source: s.Source, Model: s.Model, SystemPrompt: s.SystemPrompt, Title: s.Title, StartedAt: unixSeconds(s.StartedAt),
		ChatId: t.ChatID, ThreadId: t.ThreadID, UserId: t.UserID, UserName: t.UserName,
	}
	if p.UserName == "" {
		p.UserName = s.DisplayName
	}
	return p
}

// sendBatches sends rows in as few messages as the limit allows.
func sendBatches(rows []store.Message, send func(*hostv1.LoadResponse) error) error {
	var batch []*turnv1.Message
	size := 0
	for _, row := range rows {
		m := messageToProto(row)
		shorten(m)
		n := proto.Size(m)
		if size > 0 && size+n > loadBatch {
			if err := send(&hostv1.LoadResponse{Messages: batch}); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		batch, size = append(batch, m), size+n
	}
	if len(batch) == 0 {
		return nil
	}
	return send(&hostv1.LoadResponse{Messages: batch})
}

// shorten cuts the texts of a message that could not be sent whole.
func shorten(m *turnv1.Message) {
	for _, s := range []*string{&m.Content, &m.Reasoning} {
		if len(*s) > maxLoaded {
			*s = cut(*s, maxLoaded) + fmt.Sprintf("\n[cut by the supervisor: the first %d MiB of %d bytes]", maxLoaded>>20, len(*s))
		}
	}
	total := 0
	for i, c := range m.ToolCalls {
		if total += proto.Size(c); total > maxLoaded {
			// Cut arguments would be read as others: an empty object is at least seen to be wrong.
			m.ToolCalls[i].ArgumentsJson = "{}"
		}
	}
}

func (s *turnsService) Append(ctx context.Context, r *hostv1.AppendRequest) (*hostv1.AppendResponse, error) {
	steps := messagesFromProto(r.Steps)
	if err := checkSteps(steps); err != nil {
		return nil, err
	}
	if err := checkText("system_prompt", r.SystemPrompt, maxStep); err != nil {
		return nil, err
	}
	leave, err := s.hub.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	id, _ := ipc.IdentityFrom(ctx)
	ids, added, err := s.hub.appendSteps(r.TurnId, r.Fence, id.Worker, steps, r.SystemPrompt, r.Steer)
	if err != nil {
		return nil, err
	}
	resp := &hostv1.AppendResponse{MessageIds: ids}
	for _, m := range added {
		resp.Added = append(resp.Added, messageToProto(m))
	}
	return resp, nil
}

func (s *turnsService) Finish(ctx context.Context, r *hostv1.FinishRequest) (*hostv1.FinishResponse, error) {
	f := store.Finish{TurnID: r.TurnId, Fence: r.Fence, Reply: messageFromProto(r.Reply), Outcome: outcomeFromProto(r.Outcome), Error: cut(r.Error, maxToolError)}
	if f.Outcome == "" || f.Outcome == store.OutcomeParked {
		return nil, invalid("outcome", "%v is not how an agent ends a turn", r.Outcome)
	}
	f.Reply.Role, f.Reply.ToolCalls = "assistant", nil // calls in a last message would stay without results
	if f.Reply.Content == "" {
		f.Reply.Content = textInstead(f)
	}
	if err := checkSteps([]store.Message{f.Reply}); err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	leave, err := s.hub.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	id, _ := ipc.IdentityFrom(ctx)
	row, err := s.hub.finishTurn(f, id.Worker, r.Reply.GetUsage())
	if err != nil {
		return nil, err
	}
	return &hostv1.FinishResponse{MessageId: row}, nil
}

// textInstead is the reply of a turn that ended without a text: a person who waits is told something.
func textInstead(f store.Finish) string {
	switch {
	case f.Error != "":
		return f.Error
	case f.Outcome == store.OutcomeInterrupted:
		return "Stopped."
	}
	return "The model ended its turn without a text."
}

func (s *turnsService) Follow(r *hostv1.FollowRequest, out grpc.ServerStreamingServer[turnv1.TurnEvent]) error {
	platform, err := platformOf(out.Context())
	if err != nil {
		return err
	}
	return s.hub.follow(out.Context(), r.TurnId, platform, out.Send)
}

func (s *turnsService) Interrupt(ctx context.Context, r *hostv1.InterruptRequest) (*hostv1.InterruptResponse, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkID("turn_id", r.TurnId); err != nil {
		return nil, err
	}
	if err := s.hub.ownTurn(ctx, r.TurnId, platform); err != nil {
		return nil, err
	}
	done, err := s.hub.Interrupt(ctx, r.TurnId, r.Reason)
	return &hostv1.InterruptResponse{Interrupted: done}, err
}

func (s *turnsService) Decide(ctx context.Context, r *hostv1.DecideRequest) (*hostv1.DecideResponse, error) {
	platform, err := platformOf(ctx)
	if err != nil {
		return nil, err
	}
	approved, before, err := s.hub.decide(ctx, r.ApprovalId, r.Approve, byUser, platform)
	if err != nil {
		return nil, err
	}
	return &hostv1.DecideResponse{Approved: approved, DecidedBefore: before}, nil
}
