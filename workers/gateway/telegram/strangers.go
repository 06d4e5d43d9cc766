package telegram

import (
	"context"
	"fmt"
	"time"

	"github.com/go-telegram/bot/models"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// strangerAgain is how often one stranger is told that the bot is private. A bot that answers every message of a
// stranger can be used to spend its limits.
const strangerAgain = time.Hour

// mayUse reports whether a person may use the bot in a chat: by the lists, or as somebody whom the operator let in with
// a code. u is nil for an administrator who writes as the group.
func (a *Adapter) mayUse(ctx context.Context, u *models.User, chat models.Chat) (bool, error) {
	if a.people.allow(u, chat) {
		return true, nil
	}
	if u == nil {
		return false, nil
	}
	return a.host.Paired(ctx, id64(u.ID))
}

// mayOperate reports whether the author of a message may do what concerns everybody: only who is known by name, not one
// of "*" or of a group that may use the bot.
func (a *Adapter) mayOperate(ctx context.Context, in *incoming) (bool, error) {
	u := author(in.first)
	if u == nil {
		return false, nil
	}
	if a.people.named(u) {
		return true, nil
	}
	return a.host.Paired(ctx, id64(u.ID))
}

// admit reports whether the author of a message may use the bot, and answers one who may not. An error is to be tried again.
func (a *Adapter) admit(ctx context.Context, m *models.Message) (bool, error) {
	if ok, err := a.mayUse(ctx, author(m), m.Chat); ok || err != nil {
		return ok, err
	}
	a.log.Info("a message of somebody who is not allowed", "user", userID(m), "chat", m.Chat.ID)
	if m.Chat.Type != models.ChatTypePrivate || author(m) == nil {
		return false, nil
	}
	switch a.set.Strangers {
	case "tell":
		if a.strangers.due(m.From.ID, time.Now()) {
			a.tellStranger(ctx, m, fmt.Sprintf("This bot is private. Your Telegram id is `%d`; whoever runs it can allow you with it.", m.From.ID))
		}
	case "pair":
		return a.pair(ctx, m)
	}
	return false, nil
}

// pair gives a stranger a code. The supervisor keeps the limits: a code in ten minutes for a person, few open ones in all.
func (a *Adapter) pair(ctx context.Context, m *models.Message) (admitted bool, err error) {
	r, err := a.host.RequestPairing(ctx, &hostv1.PairingRequest{UserId: id64(m.From.ID), UserName: userName(m)})
	if err != nil {
		return false, err
	}
	switch r.Outcome {
	case hostv1.PairingResponse_OUTCOME_ALLOWED:
		return true, nil
	case hostv1.PairingResponse_OUTCOME_CODE:
		a.strangers.due(m.From.ID, time.Now()) // the next message needs no answer
		until := time.UnixMilli(r.ExpiresMs)
		a.tellStranger(ctx, m, fmt.Sprintf("This bot is private. Your code is `%s`, valid for %s.\n\nWhoever runs the bot can let you in with it:\n%s",
			r.Code, roughly(time.Until(until)), fence(r.Command)))
	default:
		if a.strangers.due(m.From.ID, time.Now()) {
			a.tellStranger(ctx, m, "This bot is private. "+notNow(r))
		}
	}
	return false, nil
}

// notNow says why there is no code.
func notNow(r *hostv1.PairingResponse) string {
	wait := roughly(time.Duration(r.RetryAfterMs) * time.Millisecond)
	switch r.Outcome {
	case hostv1.PairingResponse_OUTCOME_WAIT:
		return "You were given a code a short while ago; you can ask for another in " + wait + "."
	case hostv1.PairingResponse_OUTCOME_LOCKED:
		return "Too many wrong codes were tried; ask again in " + wait + "."
	}
	return "Too many people wait to be let in; ask again in an hour."
}

// roughly writes a time as people say it.
func roughly(d time.Duration) string {
	switch minutes := int((d + 30*time.Second) / time.Minute); {
	case minutes <= 1:
		return "a minute"
	case minutes < 90:
		return fmt.Sprintf("%d minutes", minutes)
	default:
		return fmt.Sprintf("%d hours", (minutes+30)/60)
	}
}

func (a *Adapter) tellStranger(ctx context.Context, m *models.Message, md string) {
	if _, err := a.sender.send(ctx, target{chat: m.Chat.ID}, render(md)[0], nil); err != nil {
		a.log.Warn("a stranger was not told", "error", err)
	}
}
