package telegram

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-telegram/bot/models"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

const (
	// handOverAtOnce bounds the chats whose messages are handed over side by side. The supervisor stores what comes
	// together in one transaction, so this is what makes a full poll fast.
	handOverAtOnce = 32
	// firstAgain and lastAgain bound the growing pauses between tries to hand a message over.
	firstAgain = 200 * time.Millisecond
	lastAgain  = 30 * time.Second
	// oddTries is how often a message is tried that fails in a way that nobody foresaw. After that it is given up, loudly:
	// one message must not keep a bot from all that come after it.
	oddTries = 10
)

// A job is what one update asks for, or several that belong together.
type job struct {
	updates []int64
	chat    int64
	album   string
	msgs    []*models.Message
	edited  bool
	press   *models.CallbackQuery
	told    bool // its chat knows that it waits
}

// jobs puts updates in order by chat. Those that ask for nothing are left out.
func (a *Adapter) jobs(updates []*models.Update) (byChat map[int64][]*job) {
	byChat = map[int64][]*job{}
	for _, u := range updates {
		j := &job{updates: []int64{u.ID}}
		switch {
		case u.Message != nil:
			j.msgs, j.chat, j.album = []*models.Message{u.Message}, u.Message.Chat.ID, u.Message.MediaGroupID
		case u.EditedMessage != nil:
			j.msgs, j.chat, j.edited = []*models.Message{u.EditedMessage}, u.EditedMessage.Chat.ID, true
		case u.CallbackQuery != nil:
			j.press, j.chat = u.CallbackQuery, u.CallbackQuery.From.ID
		default:
			continue
		}
		list := byChat[j.chat]
		if n := len(list); n > 0 && j.album != "" && list[n-1].album == j.album {
			list[n-1].updates = append(list[n-1].updates, u.ID)
			list[n-1].msgs = append(list[n-1].msgs, u.Message)
			continue
		}
		byChat[j.chat] = append(list, j)
	}
	return byChat
}

// handOver returns when everything that updates ask for is done, in the order of each chat, or ctx has ended.
func (a *Adapter) handOver(ctx context.Context, updates []*models.Update) error {
	old := &tooOld{byChat: map[int64]int{}}
	places := make(chan struct{}, handOverAtOnce)
	var all sync.WaitGroup
	for _, list := range a.jobs(updates) {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			for _, j := range list {
				if a.insist(ctx, j, old) != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.health.taken()
	a.reportOld(ctx, old)
	return nil
}

// insist does a job until it is done.
func (a *Adapter) insist(ctx context.Context, j *job, old *tooOld) error {
	odd := 0
	for try := 1; ; try++ {
		err := a.do(ctx, j, old)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			a.handled(j)
			return nil
		}
		if !passing(err) {
			odd++
		}
		if hopeless(err) || odd >= oddTries {
			a.giveUp(ctx, j, err)
			a.handled(j)
			return nil
		}
		a.health.waits(time.Now(), err)
		a.tellThatItWaits(ctx, j, err)
		a.log.Debug("a message is not taken yet", "chat", j.chat, "try", try, "error", err)
		if err := pause(ctx, grow(firstAgain, try, lastAgain)); err != nil {
			return err
		}
	}
}

// handled notes that a job is done. If that fails, a repeat may repeat a help text, no more.
func (a *Adapter) handled(j *job) {
	if err := a.shelf.setHandled(j.updates...); err != nil {
		a.log.Warn("handled updates were not noted", "error", err)
	}
}

// passing reports whether the supervisor is away or busy, which ends.
func passing(err error) bool {
	for _, kind := range []error{ipc.ErrGone, ipc.ErrBusy, ipc.ErrTimeout, ipc.ErrCancelled, ipc.ErrRefused} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return gateway.TakesNoWrites(err)
}

// tellThatItWaits says in a chat, once, that a message cannot be stored before a person has done something.
func (a *Adapter) tellThatItWaits(ctx context.Context, j *job, why error) {
	reason := "what I keep them in takes no writes"
	switch {
	case errors.Is(why, ipc.ErrFull) || errors.Is(why, unix.ENOSPC):
		reason = "the disk is full"
	case !errors.Is(why, ipc.ErrRefused) && !gateway.TakesNoWrites(why):
		return
	}
	if len(j.msgs) == 0 || j.told {
		return
	}
	j.told = true
	in := newIncoming(j.msgs, j.edited, a.groups, *a.me.Load())
	_ = a.answer(ctx, in, "⏸ I can take no messages now: "+reason+". Yours waits, and I answer it when that is over.") // logs itself
}

// hopeless reports whether it is the message that is at fault.
func hopeless(err error) bool {
	for _, kind := range []error{gateway.ErrTooLarge, ipc.ErrInvalid, ipc.ErrNotFound, ipc.ErrExists, ipc.ErrDenied} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// giveUp says that a message was not taken, to who wrote it and on the timeline.
func (a *Adapter) giveUp(ctx context.Context, j *job, why error) {
	a.log.Error("a message was not taken", "chat", j.chat, "error", why)
	a.host.Publish(ctx, "adapter_message_refused", "telegram: a message was not taken: "+why.Error(), map[string]string{"chat": id64(j.chat)})
	if len(j.msgs) == 0 {
		return
	}
	in := newIncoming(j.msgs, j.edited, a.groups, *a.me.Load())
	_ = a.answer(ctx, in, fmt.Sprintf("Your message could not be taken: %v", why)) // logs itself
}

// do does a job once.
func (a *Adapter) do(ctx context.Context, j *job, old *tooOld) error {
	if j.press != nil {
		return a.pressed(ctx, j.press)
	}
	m, me := j.msgs[0], *a.me.Load()
	for _, one := range j.msgs {
		a.sender.trails.saw(one.Chat.ID, one.ID)
	}
	if m.MigrateToChatID != 0 {
		a.sender.move(m.Chat.ID, m.MigrateToChatID)
	}
	if own(m, me) || empty(j.msgs) || !a.addressed(j.msgs, me) {
		return nil
	}
	if admitted, err := a.admit(ctx, m); !admitted {
		return err
	}
	if a.set.MaxAge > 0 && !j.edited && a.age(m) > time.Duration(a.set.MaxAge) {
		old.add(m.Chat.ID)
		return nil
	}
	in := newIncoming(j.msgs, j.edited, a.groups, me)
	a.sender.seen(in.target)
	if c, ok := commandOf(m); ok && (c.bot == "" || c.meantFor(me)) {
		if j.edited || a.shelf.wasHandled(j.updates[0]) {
			return nil // it was done when it was sent; messages are the supervisor's to know again
		}
		return a.command(ctx, in, c)
	}
	if !j.edited {
		if err := a.fetchFiles(ctx, in); err != nil {
			return err
		}
	}
	return a.accept(ctx, in, in.message(in.body), a.busyWith(in))
}

// empty reports whether messages hold nothing that a person said: service messages of groups.
func empty(msgs []*models.Message) bool {
	for _, m := range msgs {
		if body, _ := content(m); strings.TrimSpace(body) != "" || described(m) != "" || len(attachments(m)) > 0 {
			return false
		}
	}
	return true
}

func (a *Adapter) addressed(msgs []*models.Message, me account) bool {
	for _, m := range msgs {
		if a.groups.addressed(m, me) {
			return true
		}
	}
	return false
}

// tooOld counts messages that are not answered for their age, by chat.
type tooOld struct {
	mu     sync.Mutex
	byChat map[int64]int
}

func (o *tooOld) add(chat int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byChat[chat]++
}

// age is how old a message is by the server's clock: ours may be wrong.
func (a *Adapter) age(m *models.Message) time.Duration {
	return a.poller.serverTime().Sub(time.Unix(int64(m.Date), 0))
}

// reportOld tells each chat once how many of its messages are not answered.
func (a *Adapter) reportOld(ctx context.Context, old *tooOld) {
	for chat, n := range old.byChat {
		a.host.Publish(ctx, "adapter_messages_too_old", fmt.Sprintf("telegram: %d messages are older than max_age and are not answered", n),
			map[string]string{"chat": id64(chat), "messages": fmt.Sprint(n)})
		body := render(fmt.Sprintf("While I was away %d of your messages came that are more than %s old. I have not answered them; please write again what still counts.",
			n, time.Duration(a.set.MaxAge)))[0]
		if _, err := a.sender.send(ctx, target{chat: chat}, body, nil); err != nil {
			a.log.Warn("a chat was not told of old messages", "chat", chat, "error", err)
		}
	}
}
