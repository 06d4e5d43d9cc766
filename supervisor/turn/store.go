package turn

import (
	"context"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// Store is the durable side of turns as the hub uses it; *store.State is one. Every method commits before it returns,
// and refuses a write under an old fence.
type Store interface {
	Accept(ctx context.Context, in store.Inbound) (store.Accepted, error)
	Open(ctx context.Context) ([]store.Turn, error)
	Lease(ctx context.Context, turnID, worker string) (store.Turn, error)
	Requeue(ctx context.Context, turnID string, fence uint64) (store.Turn, error)
	Release(ctx context.Context, turnID string, fence uint64) (store.Turn, error)
	AppendSteps(ctx context.Context, turnID string, fence uint64, steps []store.Message, systemPrompt string) ([]int64, error)
	FinishTurn(ctx context.Context, f store.Finish) (store.Turn, error)
	Turn(ctx context.Context, id string) (store.Turn, error)

	Session(ctx context.Context, id string) (store.Session, error)
	Conversation(ctx context.Context, sessionID string) ([]store.Message, error)

	BeginCall(ctx context.Context, fence uint64, c store.Call) (store.Call, bool, error)
	SetCall(ctx context.Context, c store.Call) error
	Calls(ctx context.Context, turnID string) ([]store.Call, error)

	RequestApproval(ctx context.Context, a store.Approval) (store.Approval, error)
	DecideApproval(ctx context.Context, id string, approve bool, by string) (a store.Approval, before bool, err error)
	Approvals(ctx context.Context, turnID string) ([]store.Approval, error)

	Stop(ctx context.Context, turnID, reason string) error
	Restarted(ctx context.Context, turnID string, fence uint64, window time.Duration) (store.Turn, error)
	AppendRound(ctx context.Context, turnID string, fence uint64, steps []store.Message, systemPrompt string) (ids []int64, added []store.Message, err error)
	Retry(ctx context.Context, in store.Inbound) (store.Accepted, string, error)
	OpenIn(ctx context.Context, p store.Place) ([]store.OpenTurn, error)
	Conversations
	Questions

	PutNotice(ctx context.Context, r store.OutboxRow, kind string, pause time.Duration) (put bool, err error)
	PutOutbox(ctx context.Context, r store.OutboxRow) (id int64, duplicate bool, err error)
	DueOutbox(ctx context.Context, now time.Time, limit int, platforms ...string) ([]store.OutboxRow, error)
	PendingOutbox(ctx context.Context, platform, chatID string, limit int) ([]store.OutboxRow, error)
	BeginSend(ctx context.Context, id int64) (store.OutboxRow, error)
	ReportSend(ctx context.Context, id int64, r store.OutboxReport) error
}

// Board is one kanban board as the hub uses it; *store.Board is one.
type Board interface {
	CreateTask(ctx context.Context, t store.NewTask) (store.Task, bool, error)
	Task(ctx context.Context, id string) (store.Task, error)
	Tasks(ctx context.Context, status string, limit int) ([]store.Task, error)
	SetStatus(ctx context.Context, id, status, summary string) (store.Task, error)
	Subscribe(ctx context.Context, s store.Subscription) error
	Unseen(ctx context.Context, limit int) ([]store.Unseen, error)
	Advance(ctx context.Context, s store.Subscription, eventID int64) error
}

// Conversations are the sessions of chats as their commands see and change them.
type Conversations interface {
	CurrentSession(ctx context.Context, p store.Place) (store.SessionSum, error)
	RecentSessions(ctx context.Context, f store.SessionFilter) ([]store.SessionSum, error)
	SetTitle(ctx context.Context, p store.Place, title string) (store.SessionSum, error)
	SetModel(ctx context.Context, p store.Place, model string) (store.SessionSum, error)
	Bind(ctx context.Context, p store.Place, name, messageID string) (store.SessionSum, error)
	Undo(ctx context.Context, p store.Place, count int, messageID string) (store.Undone, error)
	EndSession(ctx context.Context, p store.Place, messageID string) (ended string, duplicate bool, err error)
}

// Questions are the confirmations that commands ask people for.
type Questions interface {
	Ask(ctx context.Context, c store.Confirmation) (store.Confirmation, error)
	Answer(ctx context.Context, platform, id string, choice store.ConfirmationState, userID string) (c store.Confirmation, before bool, err error)
	Confirmation(ctx context.Context, platform, id string) (store.Confirmation, error)
	Confirmations(ctx context.Context, platform, chatID string) ([]store.Confirmation, error)
	ConfirmationDone(ctx context.Context, platform, id string) error
}
