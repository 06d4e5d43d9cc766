// Package telegram is the adapter of Telegram: a bot that receives by long polling and answers by messages that it
// edits.
//
// Rules:
//   - An update is confirmed (the offset moved past it) only after the supervisor stored its message.
//   - One goroutine polls, and only it starts anew. Being alive is judged by its last completed poll.
//   - What may have been sent is never sent again: a message that was seen to exist is edited, see deliver.go.
//   - The token is in the client alone; no error or log has it, see client.go.
//   - Nothing waits inside for a flood limit: a chat that must wait costs no other chat anything.
package telegram

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// Platform is the adapter's name in configuration and session keys.
const Platform = "telegram"

// Names of the secrets that the adapter asks for.
const (
	tokenName        = "TELEGRAM_BOT_TOKEN"
	allowedUsersName = "TELEGRAM_ALLOWED_USERS"
)

// host is the supervisor as this adapter uses it. Services says what each call does.
type host interface {
	Accept(ctx context.Context, m gateway.Message) (gateway.Accepted, error)
	Interrupt(ctx context.Context, turnID, reason string) (bool, error)
	Decide(ctx context.Context, approvalID string, approve bool) (approved, before bool, err error)
	Publish(ctx context.Context, kind, message string, fields map[string]string)
	Received()

	OpenTurns(ctx context.Context, r *hostv1.ListTurnsRequest) (*hostv1.ListTurnsResponse, error)
	Retry(ctx context.Context, r *hostv1.RetryRequest) (*hostv1.RetryResponse, error)
	Session(ctx context.Context, r *hostv1.GetSessionRequest) (*hostv1.SessionInfo, error)
	Sessions(ctx context.Context, r *hostv1.ListSessionsRequest) (*hostv1.ListSessionsResponse, error)
	SetTitle(ctx context.Context, r *hostv1.SetTitleRequest) (*hostv1.SessionInfo, error)
	Bind(ctx context.Context, r *hostv1.BindRequest) (*hostv1.SessionInfo, error)
	SetModel(ctx context.Context, r *hostv1.SetModelRequest) (*hostv1.SessionInfo, error)
	Undo(ctx context.Context, r *hostv1.UndoRequest) (*hostv1.UndoResponse, error)
	EndSession(ctx context.Context, r *hostv1.EndRequest) (*hostv1.EndResponse, error)
	Confirm(ctx context.Context, r *hostv1.AskRequest) (*hostv1.Confirmation, error)
	AnswerConfirmation(ctx context.Context, r *hostv1.AnswerRequest) (*hostv1.Confirmation, error)
	Confirmations(ctx context.Context, r *hostv1.ListConfirmationsRequest) (*hostv1.ListConfirmationsResponse, error)
	ConfirmationDone(ctx context.Context, r *hostv1.DoneRequest) (*hostv1.DoneResponse, error)
	Paired(ctx context.Context, userID string) (bool, error)
	RequestPairing(ctx context.Context, r *hostv1.PairingRequest) (*hostv1.PairingResponse, error)
	Restart(ctx context.Context, r *hostv1.RestartRequest) (*hostv1.RestartResponse, error)
}

// An Adapter is one bot.
type Adapter struct {
	set      settings
	log      hclog.Logger
	host     host
	filesDir string
	started  time.Time

	client *client // for everything but polls
	poller *client // polls have a connection of their own, which can be dropped
	sender *sender
	limits *limits
	health *health
	lock   *tokenLock
	shelf  *shelf
	people people
	groups groups
	turns  *turns
	live   *live
	typing *typing

	me       atomic.Pointer[account]
	drain    chan struct{} // closed: receive nothing new
	drained  chan struct{} // closed: nothing more is being received
	drainOne sync.Once

	strangers *seldom[int64]  // who is told that the bot is private
	notices   *seldom[string] // which conversations are told what became of a message
	edited    *progress
	shown     *shownQuestions
}

var (
	_ gateway.Adapter = (*Adapter)(nil)
	_ gateway.Sender  = (*Adapter)(nil)
	_ gateway.Shower  = (*Adapter)(nil)
	_ gateway.Drainer = (*Adapter)(nil)
	_ gateway.Closer  = (*Adapter)(nil)
	_ gateway.Teller  = (*Adapter)(nil)
)

// Open makes the adapter. It refuses a configuration that cannot work, and a token that another process uses.
func Open(ctx context.Context, s gateway.Setup) (gateway.Adapter, error) {
	token, err := s.Services.Secret(ctx, tokenName)
	if err != nil {
		return nil, err
	}
	users, err := s.Services.Secret(ctx, allowedUsersName)
	if err != nil && !errors.Is(err, ipc.ErrDenied) {
		return nil, err
	}
	return open(ctx, s, parts{host: s.Services, token: token, users: splitList(users)})
}

// parts are what Open gets from the supervisor and tests make themselves.
type parts struct {
	host  host
	token string
	users list
	dial  dialFunc
}

func open(ctx context.Context, s gateway.Setup, p parts) (*Adapter, error) {
	set, err := readSettings(s.Settings)
	if err != nil {
		return nil, err
	}
	if p.token == "" {
		return nil, fmt.Errorf("%s is not set: put the token that @BotFather gave you into .env", tokenName)
	}
	via, err := set.route(s.Proxies)
	if err != nil {
		return nil, err
	}
	shelf, err := openShelf(s.Dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockToken(ctx, set.LockDir, p.token, s.Dir)
	if err != nil {
		shelf.close()
		return nil, err
	}
	a := &Adapter{
		set: set, log: s.Log, host: p.host, filesDir: s.FilesDir, started: time.Now(),
		client: newClient(set.BaseURL, p.token, via, p.dial), poller: newClient(set.BaseURL, p.token, via, p.dial),
		limits: newLimits(set.MessagesPerSecond), lock: lock, shelf: shelf,
		health: newHealth(time.Now(), time.Duration(set.RetryFirst), time.Duration(set.RetryLongest)),
		people: newPeople(append(p.users, set.AllowedUsers...), set.AllowedChats), groups: newGroups(set),
		turns: &turns{}, drain: make(chan struct{}), drained: make(chan struct{}),
		strangers: newSeldom[int64](strangerAgain), notices: newSeldom[string](noticeAgain), edited: &progress{done: map[int64]int{}},
	}
	a.sender = newSender(a.client, a.limits)
	a.live = newLive(time.Duration(set.EditInterval))
	a.typing = newTyping(a.sender)
	a.shown = newShownQuestions()
	if a.people.nobody() {
		a.log.Warn("nobody may use the bot: set " + allowedUsersName + " or adapters.telegram.allowed_users")
	}
	return a, nil
}

// Run connects and receives until ctx ends.
func (a *Adapter) Run(ctx context.Context) error {
	var side sync.WaitGroup
	side.Go(func() { a.typing.run(ctx) })
	side.Go(func() { a.tidy(ctx) })
	side.Go(func() { a.expire(ctx) })
	a.receive(ctx)
	close(a.drained)
	<-ctx.Done()
	side.Wait()
	a.poller.closeIdle()
	a.client.closeIdle()
	return nil
}

// Status says how Telegram is reached.
func (a *Adapter) Status() gateway.Status { return a.health.status(time.Now()) }

// Changed rings at the end of each poll, and when messages begin or end to wait.
func (a *Adapter) Changed() gateway.Bell { return a.health.changed }

// Drain stops receiving and waits until what was received is handed over.
func (a *Adapter) Drain(ctx context.Context) int {
	a.drainOne.Do(func() { close(a.drain) })
	select {
	case <-a.drained:
		return 0
	case <-ctx.Done():
		return 1 // the messages of one poll; Telegram hands them over again
	}
}

// Close gives the token free.
func (a *Adapter) Close() {
	a.shelf.close()
	a.lock.release()
}

// tidyInterval is how often old files are looked for.
const tidyInterval = time.Hour

// tidy removes what is not needed any more.
func (a *Adapter) tidy(ctx context.Context) {
	for {
		now := time.Now()
		a.shelf.sweep(now)
		a.live.sweep(now)
		if keep := time.Duration(a.set.KeepFiles); keep > 0 && a.filesDir != "" {
			removeOld(a.filesDir, now.Add(-keep))
		}
		if pause(ctx, tidyInterval) != nil {
			return
		}
	}
}
