// Package gateway is the frame around chat adapters: one process, one adapter, one platform account. It serves
// hermes.adapter.v1 to the supervisor and gives the adapter its way in (Services). What a platform needs is in the
// folder of its adapter (api, telegram, …); the list of them is the map in cmd/hermes-gateway.
//
// Rules:
//   - A message is acknowledged to its platform only after Services.Accept returned without an error.
//   - For one chat, Show and Deliver never run at the same time; different chats never wait for each other.
//   - Health comes from completed receives and sends, never from a connection that merely exists.
//   - An adapter keeps no global state: everything it has hangs off the value that its Open returned.
package gateway

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/proxy"
)

// An Adapter joins one account of one platform. Optional abilities are the interfaces below: Sender, Shower,
// Drainer, Closer.
type Adapter interface {
	// Run connects, receives and hands over (Services.Accept) until ctx ends, and then returns nil. It reconnects
	// by itself, for ever, with growing waits, and it is the only one that does. A platform that says no
	// (unauthorised, conflict) is a state, not an end. It returns an error only when a new process may help; the
	// worker then ends and is started again. Everything it started has ended when it returns.
	Run(ctx context.Context) error
	// Status says how the platform is reached, judged by the last completed receive. It never blocks. The frame asks
	// when a Teller says so, else once a second, and puts changes on the timeline, with the cause and, at recovery, how
	// long it took.
	Status() Status
}

// A Teller is an adapter that says when its Status may have become another one. Nobody wakes it for nothing then.
type Teller interface {
	// Changed rings after whatever may have changed the Status. What mere time changes is in Status.Until.
	Changed() Bell
}

// A Bell rings for one listener. Rings that nobody has heard yet are one.
type Bell chan struct{}

// NewBell returns a bell.
func NewBell() Bell { return make(Bell, 1) }

// Ring rings, and never waits.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// A Sender is an adapter of a platform that is pushed to. Without it, clients ask for their answers (api) and
// the supervisor keeps no outbox for the platform.
type Sender interface {
	// Deliver sends one text, with its files, and says what became of it. It is called one at a time for each
	// chat, in order. Waiting for a platform's flood limit is not its business: it returns Retry with the time.
	//
	// A repeat after an unknown outcome must not show the text twice. Where the platform can edit, that is done
	// in two calls: the first one sends short placeholders (or takes those that Show made) and returns Retry with
	// their ids and the wait AtOnce; the supervisor stores the ids and calls again, and now each call is an edit of
	// known messages, which can be repeated. Where it cannot, an attempt that may have happened is Unknown.
	Deliver(ctx context.Context, d Delivery) Delivered
}

// A Shower is an adapter that shows running turns: typing signs, streamed text, tool progress, approval buttons.
type Shower interface {
	// Show passes one event of a running turn. It may block (a request to the platform, a pause between edits):
	// events of that chat wait meanwhile. Text is always a snapshot, all of the step so far, and one that is
	// overtaken while it waits is left out. ctx ends when a final text is to be delivered to the chat, so that no
	// edit holds it up. Best effort; final events are never shown, they come by Deliver, and nothing of a turn is
	// shown after its Deliver began.
	Show(ctx context.Context, to To, event *turnv1.TurnEvent)
}

// A Drainer is an adapter with work that the frame does not see. The frame itself waits for running deliveries.
type Drainer interface {
	// Drain takes nothing new from the platform, waits for what runs until ctx ends, and returns how much was
	// left that Services.Begin does not count. Run is still running and returns afterwards.
	Drain(ctx context.Context) int
}

// A Closer is an adapter that holds something beyond its process: children, locks.
type Closer interface {
	// Close is called once, last, after Run's context ended, and must return within half a second.
	Close()
}

// Open makes an adapter from what it is given. It refuses a configuration that cannot work with an error for the
// person who can mend it; that is a failed start. It has a few seconds and must not depend on the platform being
// reachable: connecting is Run's work.
type Open func(ctx context.Context, s Setup) (Adapter, error)

// Adapters is the table of platforms, by the name that configuration and session keys use.
type Adapters map[string]Open

// A Setup is what an adapter is made from.
type Setup struct {
	Platform string
	Services *Services
	Settings Settings // adapters.<platform> of config.yaml, without the keys of the frame itself
	// Dir is a folder for this adapter alone (0700) for small durable things, and FilesDir, below it, is where files
	// from chats are put and from where files may be sent. Both exist, or both are empty if the supervisor gave none.
	Dir, FilesDir string
	Proxies       proxy.Variables
	Log           hclog.Logger // adapters never log a secret or a URL that holds one
}

// To says where something is shown or sent.
type To struct {
	ChatID   string
	ThreadID string
	ReplyTo  string // platform id of the message that is answered, may be empty
}

// A Message is what a platform handed over.
type Message struct {
	ChatID   string
	ThreadID string
	// ID is the platform's id of the message. It is unique within the chat and the same when the platform hands
	// the message over again: that is what makes a repeat harmless.
	ID         string
	ChatType   string // dm | group | channel | thread; empty means dm
	UserID     string // the platform's stable id, never a display name
	UserName   string
	Text       string
	Files      []File      // told to the model as lines after the text
	SessionKey string      // empty: one conversation for each chat and thread
	SessionID  string      // an existing session, overrides SessionKey
	NewSession bool        // end the conversation of the key and begin another with this message
	Busy       hostv1.Busy // what it does to a turn that its conversation runs; unspecified: it waits

	// Fingerprint tells a repeat of the message from another one under the same ID (a client's mistake). If both
	// are given and differ, Accept fails with ipc.ErrExists. Empty where IDs are made by the platform.
	Fingerprint string

	// For clients that keep their own conversation; ignored for an existing session.
	History []*turnv1.Message
	System  string
	Model   string
}

// Accepted is where a message went. Duplicate is true if it had been handed over before; the rest tells what became of
// it then.
type Accepted struct {
	TurnID      string
	SessionID   string
	Duplicate   bool
	Disposition hostv1.Disposition
	Ahead       int // turns before it
}

// A File came with a message or goes out with a text.
type File struct {
	Kind string // image | voice | audio | video | document
	Name string // as the sender named it; never used as a path
	MIME string
	Path string // absolute, inside FilesDir or a folder that the settings allow
	Size int64
}

// A Delivery is one text owed to a chat.
type Delivery struct {
	ID         int64 // the same for every attempt
	To         To
	Text       string // Markdown of the model, tags of files taken out
	Files      []OutFile
	Attempt    int      // from 1
	MessageIDs []string // known from an earlier attempt of this delivery
	TurnID     string   // empty for a notice that answers no message
}

// DeliveryState says what became of a delivery.
type DeliveryState int

// The outcomes of a delivery. The zero value is not one of them, so that a forgotten return is seen as unknown.
const (
	StateSent     DeliveryState = iota + 1 // the platform confirmed it
	StateRetry                             // not sent; again after RetryAfter
	StateRejected                          // the platform will never take it
	StateUnknown                           // may or may not have been sent
)

// Delivered is the outcome of a delivery. MessageIDs are all messages known to show it (or to be its placeholders).
type Delivered struct {
	State      DeliveryState
	MessageIDs []string
	RetryAfter time.Duration // 0: the supervisor chooses
	Detail     string        // for a person; says why it is not sent
}

// AtOnce is the wait of a Retry that is no failure. Without a wait the supervisor chooses one that grows.
const AtOnce = time.Millisecond

// Sent says that the platform confirmed the messages.
func Sent(ids ...string) Delivered { return Delivered{State: StateSent, MessageIDs: ids} }

// Retry says that nothing final was sent and that it may be tried again after a time. ids are placeholders or
// parts that a repeat edits.
func Retry(after time.Duration, detail string, ids ...string) Delivered {
	return Delivered{State: StateRetry, RetryAfter: after, Detail: detail, MessageIDs: ids}
}

// Rejected says that the platform will never take it (the chat blocked the bot, the chat is gone).
func Rejected(detail string) Delivered { return Delivered{State: StateRejected, Detail: detail} }

// Unknown says that it may or may not have been sent (no answer came).
func Unknown(detail string, ids ...string) Delivered {
	return Delivered{State: StateUnknown, Detail: detail, MessageIDs: ids}
}

// ConnState is how a platform is reached.
type ConnState string

// The states of a connection. Everything but StateConnected makes the worker's health degraded.
const (
	StateConnecting   ConnState = "connecting"   // no receive has completed yet
	StateConnected    ConnState = "connected"    // the last receive completed, and recently
	StateDegraded     ConnState = "degraded"     // works in part; Detail says what does not
	StateConflict     ConnState = "conflict"     // somebody else receives for this account
	StateUnauthorised ConnState = "unauthorised" // the platform refuses the token
	StateDeaf         ConnState = "deaf"         // nothing was received for too long although it looks connected
)

// A Status is how the platform is reached now.
type Status struct {
	State       ConnState
	Detail      string    // for a person; never empty unless connected
	LastReceive time.Time // end of the last completed receive; zero if none
	Until       time.Time // when it may become another one though nothing happens; zero: never. Only of a Teller
}
