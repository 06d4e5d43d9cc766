package store

import (
	"errors"
	"slices"
	"time"
)

// Failures that a caller decides on.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("already there")
	ErrLeaseLost = errors.New("lease lost") // the fence of the write is not the turn's current one
	ErrInvalid   = errors.New("invalid")
	ErrQueueFull = errors.New("store queue is full") // try again later
	ErrClosed    = errors.New("store is closed")
	ErrDiskFull  = errors.New("disk is full")
	ErrReadOnly  = errors.New("store is read-only")
	ErrFailed    = errors.New("store has failed")               // no more writes until it is opened anew
	ErrSuspended = errors.New("store has stopped writing")      // it may go on by itself; try again later. Of a write that was under way the outcome is not known
	ErrBusy      = errors.New("another process holds the file") // its write lock was not free in time; try again later
	ErrTooNew    = errors.New("written by a newer version")     // the file's migration number is not known here
)

// TurnState is the life of a turn: queued → leased → done, or back to queued when its worker dies.
type TurnState string

const (
	TurnQueued TurnState = "queued"
	TurnLeased TurnState = "leased"
	TurnDone   TurnState = "done"
)

// Outcome says how a turn ended. The values are those of hermes.turn.v1.Outcome in lower case.
type Outcome string

const (
	OutcomeCompleted   Outcome = "completed"
	OutcomeInterrupted Outcome = "interrupted"
	OutcomeFailed      Outcome = "failed"
	OutcomeBudget      Outcome = "budget"
	OutcomeParked      Outcome = "parked"
)

// Inbound is a message that a platform handed over.
type Inbound struct {
	Platform   string
	ChatID     string
	ThreadID   string
	MessageID  string // unique within platform and chat; a repeated one is a duplicate
	SessionKey string // empty: SessionKeyFor of the fields here
	SessionID  string // an existing session, overrides SessionKey
	NewSession bool   // end the key's current session and open another
	ChatType   string // dm | group | channel | thread; empty means dm
	UserID     string
	UserName   string
	Text       string
	History    []Message // opens a new session with these messages; ignored for an existing one
	System     string    // prompt of a new session, empty as a rule
	Model      string    // model of a new session, empty as a rule
	// Fingerprint tells a repeat from another message under the same MessageID: Accept of a known message fails
	// with ErrExists if the stored and the given one differ and neither is empty.
	Fingerprint string
	Busy        Busy // what it does to the turn that its session runs
}

// Accepted is the answer to an Inbound.
type Accepted struct {
	TurnID      string
	SessionID   string
	Duplicate   bool
	Disposition Disposition
	Ahead       int    // turns of the session before it
	Interrupted string // the turn that it stopped
}

// A Turn is one user message and what follows from it until the final reply.
type Turn struct {
	Seq         int64 // order of acceptance over all sessions
	ID          string
	SessionID   string
	Platform    string
	ChatID      string
	ThreadID    string
	MessageID   string // the platform's id of the message that is answered
	UserID      string
	UserName    string
	State       TurnState
	Fence       uint64 // counts leases; a write under an older one is refused
	Worker      string // holder of the lease
	Attempt     int    // leases so far
	Interrupted int    // leases lost in a row without a step stored
	NextSeq     uint32 // after the last stored step
	Outcome     Outcome
	Final       string // text of the final reply
	Error       string // for a person
	AcceptedAt  time.Time
	LeasedAt    time.Time
	EndedAt     time.Time
	Stopped     bool   // a person wants it to end
	StopReason  string // why
	Looped      bool   // it ran at two ends of the supervisor within minutes
	Followed    string // of FinishTurn: the turn that texts handed to this one became
}

// A Message is one row of a conversation.
type Message struct {
	ID           int64
	SessionID    string
	TurnID       string // empty for rows of other programs
	Seq          uint32 // step within the turn; the user's message is 0
	Role         string // system | user | assistant | tool
	Content      string
	ToolCalls    []ToolCall // assistant
	ToolCallID   string     // tool
	ToolName     string     // tool
	Reasoning    string
	FinishReason string
	Usage        Usage
	Time         time.Time
}

// A ToolCall is what the model asked for. Arguments is as the model wrote it, JSON or not.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string
}

// Usage counts tokens.
type Usage struct {
	Input, Output, CacheRead, Reasoning int64
}

// A Session is one conversation.
type Session struct {
	ID           string
	Source       string // platform that opened it
	Key          string
	ChatID       string
	ChatType     string
	ThreadID     string
	UserID       string
	DisplayName  string
	Model        string
	SystemPrompt string
	Title        string
	StartedAt    time.Time
	EndedAt      time.Time // zero while open
	EndReason    string
	LastActive   time.Time
	Messages     int
	ToolCalls    int
}

// Finish is the end of a turn.
type Finish struct {
	TurnID  string
	Fence   uint64
	Reply   Message // stored with its Seq; empty Content stores no row
	Outcome Outcome
	Error   string
	Outbox  bool // the platform is pushed to: queue the reply for delivery in the same transaction
}

// CallState is the life of a tool call.
type CallState string

const (
	CallIntent   CallState = "intent"   // stored, not yet made
	CallApproval CallState = "approval" // waits for a person
	CallRunning  CallState = "running"  // handed to the tool
	CallDone     CallState = "done"     // Result holds
	CallUnknown  CallState = "unknown"  // may or may not have had its effect
)

// A Call is a tool call of a turn.
type Call struct {
	TurnID    string
	CallID    string
	Seq       uint32 // step of the assistant message that asked for it
	Tool      string
	Arguments string
	State     CallState
	Attempt   int
	ReadOnly  bool
	Result    string // what the model reads
	ErrorKind string // empty if it worked; name of hermes.tool.v1.ToolError.Kind
	Error     string
	SpillPath string
	StartedAt time.Time
	EndedAt   time.Time
}

// An Approval is a question to a person about one tool call. Silence until Deadline means no.
type Approval struct {
	ID        string
	TurnID    string
	CallID    string
	Tool      string
	Summary   string
	Reason    string
	Deadline  time.Time
	Decided   bool
	Approved  bool
	By        string // user | timeout
	DecidedAt time.Time
}

// OutboxState is the life of an outbox row.
type OutboxState string

const (
	OutboxPending  OutboxState = "pending"
	OutboxSending  OutboxState = "sending"
	OutboxSent     OutboxState = "sent"
	OutboxUnknown  OutboxState = "unknown"  // may or may not have been sent
	OutboxRejected OutboxState = "rejected" // the platform will never take it
)

// An OutboxRow is a text owed to a chat. Rows of one chat are sent in the order of ID.
type OutboxRow struct {
	ID          int64
	Key         string // unique: a second Put of the same key is a duplicate
	Platform    string
	ChatID      string
	ThreadID    string
	ReplyTo     string
	TurnID      string
	Text        string
	State       OutboxState
	Attempt     int
	MessageIDs  []string
	NextAttempt time.Time
	Detail      string
	CreatedAt   time.Time
	SentAt      time.Time
}

// OutboxReport is what became of a row.
type OutboxReport struct {
	State       OutboxState // pending means: try again at NextAttempt
	MessageIDs  []string
	NextAttempt time.Time
	Detail      string
}

// Counts of turns and outbox rows by state.
type Counts struct {
	Queued, Running, Parked      int64
	OutboxPending, OutboxUnknown int64
}

// Health says how a store does, by the worst of its conditions. State is ok, degraded, readonly or failed.
type Health struct {
	Name      string // file name without .db
	State     string
	Condition string // one of the Cond names, empty if ok
	Detail    string // what it is, with paths and processes
	Advice    string // what a person can do
	Refused   uint64 // writes that were given up since the file was opened, because of the store and not of what they were
}

// A Task is one card of a board. Times of a board are whole Unix seconds.
type Task struct {
	ID, Board, Title, Body, Assignee, Status, CreatedBy, Tenant, Result string
	Priority                                                            int
	CreatedAt, StartedAt, CompletedAt                                   int64
	Parents                                                             []string
}

// NewTask describes a task to create.
type NewTask struct {
	Title, Body, Assignee, CreatedBy, SessionID string
	Priority                                    int
	IdempotencyKey                              string // the same key returns the same task
	Parents                                     []string
	Subscribe                                   *Subscription
}

// A Subscription asks for a task's events to be told to a chat.
type Subscription struct {
	TaskID, Platform, ChatID, ThreadID, UserID string
}

// An Unseen is an event past the cursor of a subscription.
type Unseen struct {
	Subscription Subscription
	Task         Task
	EventID      int64
	Kind         string
	Payload      string // JSON or empty
	CreatedAt    int64
}

// An Event is one entry of the supervisor's journal.
type Event struct {
	ID      int64
	Time    time.Time
	Kind    string
	Worker  string
	PID     int
	TurnID  string
	Message string
	Fields  map[string]string
}

// EventFilter selects journal entries; zero fields select all. Limit (0 means 100) keeps the newest, or, with AfterID,
// the ones that follow it, so that a reader can page forward without a gap.
type EventFilter struct {
	AfterID  int64
	BeforeID int64
	Since    time.Time
	Worker   string
	Kinds    []string
	Limit    int
}

// Selects says whether an entry is one of those that the limit is for.
func (f EventFilter) Selects(e Event) bool {
	return e.ID > f.AfterID && (f.BeforeID == 0 || e.ID < f.BeforeID) && !e.Time.Before(f.Since) &&
		(f.Worker == "" || e.Worker == f.Worker) && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind))
}
