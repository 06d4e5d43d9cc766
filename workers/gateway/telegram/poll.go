package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

const (
	// pollGrace is how much longer than asked a poll may take. A connection that is half dead, or a proxy that swallows
	// the answer, shows no error at all: this is what finds it.
	pollGrace = 15 * time.Second
	// offsetLife is how long an offset is kept without updates. After a week without any, Telegram chooses new numbers
	// at random, and an offset above them would drop messages unseen.
	offsetLife = 24 * time.Hour
	// conflictTold is how long a conflict lasts before the home chat hears of it: a predecessor's last poll is held
	// for up to a minute.
	conflictTold = 2 * time.Minute
	pollLimit    = 100
)

// allowedUpdates are the kinds that are asked for.
var allowedUpdates = []string{models.AllowedUpdateMessage, models.AllowedUpdateEditedMessage, models.AllowedUpdateCallbackQuery}

// pollParams are the parameters of getUpdates, which the library keeps to itself.
type pollParams struct {
	Offset         int64    `json:"offset,omitempty"`
	Limit          int      `json:"limit"`
	Timeout        int      `json:"timeout"`
	AllowedUpdates []string `json:"allowed_updates"`
}

// A polling is the state of the one loop that receives.
type polling struct {
	offset     int64     // of the next poll; 0: whatever waits
	lastUpdate time.Time // when one came
}

// receive looks the bot up and polls, until ctx ends or the adapter is drained.
func (a *Adapter) receive(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asking, stop := context.WithCancel(ctx) // ends with the drain, while what was received is still handed over
	defer stop()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		select {
		case <-a.drain:
			stop()
		case <-ctx.Done():
		}
	}()
	defer cancel()
	if !a.lookUp(asking) {
		return
	}
	a.finishConfirmed(asking)
	var menu sync.WaitGroup
	defer menu.Wait()
	if a.set.Menu {
		menu.Go(func() { a.setMenu(asking) })
	}
	a.poll(ctx, asking)
}

// lookUp learns the bot's own name, without which mentions cannot be told. It returns false if asking ends first.
func (a *Adapter) lookUp(asking context.Context) bool {
	for {
		var me account
		err := a.client.call(asking, "getMe", nil, &me)
		if err == nil {
			a.me.Store(&me)
			a.log.Info("the bot is known", "name", me.Username, "id", me.ID)
			return true
		}
		if asking.Err() != nil || !a.rest(asking, err) {
			return false
		}
	}
}

// poll asks for updates and hands them over, one poll at a time.
func (a *Adapter) poll(ctx, asking context.Context) {
	p := &polling{lastUpdate: time.Now()}
	for asking.Err() == nil {
		updates, err := a.ask(asking, p)
		if asking.Err() != nil {
			return
		}
		if err != nil {
			if !a.rest(asking, err) {
				return
			}
			continue
		}
		a.health.completed(time.Now())
		a.host.Received()
		a.noteConflict(false)
		if len(updates) == 0 {
			if time.Since(p.lastUpdate) > offsetLife {
				p.offset = 0 // everything below it was confirmed by this very poll
			}
			continue
		}
		p.lastUpdate = time.Now()
		updates = a.wholeAlbum(asking, p, updates)
		fresh := a.anyFresh(updates)
		if a.handOver(ctx, updates) != nil {
			return
		}
		p.confirm(updates[len(updates)-1].ID, fresh)
	}
}

// anyFresh reports whether one of the updates was not handled before.
func (a *Adapter) anyFresh(updates []*models.Update) bool {
	return slices.ContainsFunc(updates, func(u *models.Update) bool { return !a.shelf.wasHandled(u.ID) })
}

// confirm moves the offset past an update. It moves back only with news: then the numbers began anew. A server that
// repeats itself does not move it back.
func (p *polling) confirm(last int64, fresh bool) {
	if fresh || last >= p.offset {
		p.offset = last + 1
	}
}

// ask makes one poll. After a failure it does not wait for updates: that it completes is what counts then.
func (a *Adapter) ask(ctx context.Context, p *polling) ([]*models.Update, error) {
	wait := time.Duration(a.set.PollTimeout)
	if t := a.health.troubled(); t == network || t == flooded || a.health.untried() {
		wait = 0
	}
	return a.getUpdates(ctx, p.offset, wait)
}

func (a *Adapter) getUpdates(ctx context.Context, offset int64, wait time.Duration) ([]*models.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+pollGrace)
	defer cancel()
	params := pollParams{Offset: offset, Limit: pollLimit, Timeout: int(wait / time.Second), AllowedUpdates: allowedUpdates}
	var raw []json.RawMessage
	if err := a.poller.long(ctx, "getUpdates", params, &raw); err != nil {
		return nil, err
	}
	updates := make([]*models.Update, 0, len(raw))
	for _, r := range raw {
		u, err := decodeUpdate(r)
		if err != nil {
			a.log.Error("an update was read in part only", "update", u.ID, "error", err)
		}
		updates = append(updates, u)
	}
	return updates, nil
}

// rest waits after a failed request, and does what can be done about the failure. It returns false if ctx ends first.
func (a *Adapter) rest(ctx context.Context, err error) bool {
	wait := a.health.failed(time.Now(), err)
	a.log.Debug("a poll failed", "error", err, "again_in", wait)
	a.poller.closeIdle() // what is wrong with one connection may be wrong with those beside it
	if isWebhookSet(err) {
		a.dropWebhook(ctx)
	}
	if a.health.conflictFor(time.Now()) >= conflictTold && !a.shelf.conflictTold() {
		a.noteConflict(true)
		a.tell(ctx, "**Another program receives the messages of this bot.** I get none until it stops. (Telegram answers 409: Conflict.)")
	}
	return pause(ctx, wait) == nil
}

// noteConflict keeps in mind whether the home chat was told of the conflict that lasts.
func (a *Adapter) noteConflict(told bool) {
	if err := a.shelf.setConflictTold(told); err != nil {
		a.log.Warn("that the home chat was told of a conflict is not noted", "error", err)
	}
}

// dropWebhook takes away a webhook, which excludes polling. Waiting updates are kept.
func (a *Adapter) dropWebhook(ctx context.Context) {
	if err := a.client.call(ctx, "deleteWebhook", &bot.DeleteWebhookParams{}, nil); err != nil {
		a.log.Warn("the webhook was not removed", "error", err)
		return
	}
	a.log.Info("a webhook was removed: this bot is polled")
	a.host.Publish(ctx, "adapter_webhook_removed", "telegram: a webhook was set for this bot and was removed, as it is polled", nil)
}

// albumPause is how long the rest of an album takes to come, as a rule.
const albumPause = 500 * time.Millisecond

// wholeAlbum waits a moment for the rest of an album that ends a poll, so that it is one message.
func (a *Adapter) wholeAlbum(ctx context.Context, p *polling, updates []*models.Update) []*models.Update {
	last := updates[len(updates)-1]
	if last.Message == nil || last.Message.MediaGroupID == "" || len(updates) >= pollLimit || pause(ctx, albumPause) != nil {
		return updates
	}
	more, err := a.getUpdates(ctx, p.offset, 0)
	if err != nil || len(more) < len(updates) {
		return updates // the next poll tells
	}
	return more
}

// decodeUpdate reads one update. One with parts that this build does not know is read as far as possible, so that a
// new kind of attachment costs neither the text beside it nor the updates behind it.
func decodeUpdate(raw json.RawMessage) (*models.Update, error) {
	u := &models.Update{}
	err := json.Unmarshal(raw, u)
	if err == nil {
		return u, nil
	}
	var simple struct {
		ID      int64          `json:"update_id"`
		Message *simpleMessage `json:"message"`
	}
	if again := json.Unmarshal(raw, &simple); again != nil {
		var id struct {
			ID int64 `json:"update_id"`
		}
		_ = json.Unmarshal(raw, &id)
		return &models.Update{ID: id.ID}, fmt.Errorf("decode update: %w", again)
	}
	u = &models.Update{ID: simple.ID}
	if simple.Message != nil {
		u.Message = simple.Message.message()
	}
	return u, fmt.Errorf("decode update: %w", err)
}

// simpleMessage is what is needed of a message.
type simpleMessage struct {
	ID             int                    `json:"message_id"`
	Thread         int                    `json:"message_thread_id"`
	IsTopicMessage bool                   `json:"is_topic_message"`
	Date           int                    `json:"date"`
	From           *models.User           `json:"from"`
	SenderChat     *models.Chat           `json:"sender_chat"`
	Chat           models.Chat            `json:"chat"`
	Text           string                 `json:"text"`
	Caption        string                 `json:"caption"`
	Entities       []models.MessageEntity `json:"entities"`
}

func (s *simpleMessage) message() *models.Message {
	return &models.Message{
		ID: s.ID, MessageThreadID: s.Thread, IsTopicMessage: s.IsTopicMessage, Date: s.Date, From: s.From,
		SenderChat: s.SenderChat, Chat: s.Chat, Text: s.Text, Caption: s.Caption, Entities: s.Entities,
	}
}
