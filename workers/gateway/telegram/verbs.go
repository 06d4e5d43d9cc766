package telegram

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// answer sends a text of the bot's own. It is not worth holding up messages for: what fails is logged.
func (a *Adapter) answer(ctx context.Context, in *incoming, md string) error {
	for _, part := range render(md) {
		if _, err := a.sender.send(ctx, in.target, part, nil); err != nil {
			a.log.Warn("an answer was not sent", "chat", in.place.chat, "error", err)
			return ctx.Err()
		}
	}
	return nil
}

func (a *Adapter) doStart(ctx context.Context, in *incoming, _ string) error {
	return a.answer(ctx, in, "Hello! Write to me as you would to a person. /help lists what else I know.")
}

func (a *Adapter) doHelp(ctx context.Context, in *incoming, _ string) error {
	return a.answer(ctx, in, helpText())
}

func (a *Adapter) doVersion(ctx context.Context, in *incoming, _ string) error {
	return a.answer(ctx, in, "hermes-supervisor "+ipc.Version())
}

func (a *Adapter) doWhoami(ctx context.Context, in *incoming, _ string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "You are %s, id `%s`.\nThis chat is `%s` (%s).", in.userName, in.place.user, in.place.chat, in.place.chatType)
	if in.place.thread != "" {
		fmt.Fprintf(&b, "\nThis topic is `%s`.", in.place.thread)
	}
	fmt.Fprintf(&b, "\nThe conversation is `%s`.", in.place.key)
	return a.answer(ctx, in, b.String())
}

// doNew begins a new conversation: with the message that follows the command, or with the next one.
func (a *Adapter) doNew(ctx context.Context, in *incoming, args string) error {
	if args != "" {
		return a.accept(ctx, in, in.message(args, true))
	}
	if err := a.shelf.askFresh(in.place.key); err != nil {
		a.log.Warn("a new conversation was not noted", "error", err)
		return a.answer(ctx, in, "That could not be noted. Write `/new` and your message in one.")
	}
	return a.answer(ctx, in, "Your next message begins a new conversation.")
}

func (a *Adapter) doQueue(ctx context.Context, in *incoming, args string) error {
	if args == "" {
		return a.answer(ctx, in, "Write `/queue` and your message.")
	}
	return a.accept(ctx, in, in.message(args, false))
}

// doStop ends all turns of the conversation. Their answers, with what they have, still come.
func (a *Adapter) doStop(ctx context.Context, in *incoming, _ string) error {
	stopped := 0
	for _, turn := range a.turns.of(in.place) {
		ended, err := a.host.Interrupt(ctx, turn, "stopped by "+in.userName)
		if err != nil {
			return err
		}
		if ended {
			stopped++
		}
	}
	if stopped == 0 {
		return a.answer(ctx, in, "Nothing is running here.")
	}
	return a.answer(ctx, in, "Stopping.")
}

func (a *Adapter) doStatus(ctx context.Context, in *incoming, _ string) error {
	s := a.Status()
	var b strings.Builder
	fmt.Fprintf(&b, "Telegram: %s", s.State)
	if s.Detail != "" {
		fmt.Fprintf(&b, " (%s)", s.Detail)
	}
	running := a.turns.of(in.place)
	fmt.Fprintf(&b, "\nRunning or waiting in this conversation: %d", len(running))
	if asked := a.turns.questions(in.place); len(asked) > 0 {
		fmt.Fprintf(&b, "\nWaiting for your answer: %d (/approve or /deny)", len(asked))
	}
	fmt.Fprintf(&b, "\nUp for %s, version %s", time.Since(a.started).Round(time.Second), ipc.Version())
	return a.answer(ctx, in, b.String())
}

func (a *Adapter) doApprove(ctx context.Context, in *incoming, args string) error {
	return a.decideByCommand(ctx, in, args, true)
}

func (a *Adapter) doDeny(ctx context.Context, in *incoming, args string) error {
	return a.decideByCommand(ctx, in, args, false)
}

// tell sends a notice to the home chat, if there is one. It is best effort.
func (a *Adapter) tell(ctx context.Context, md string) {
	t, ok := targetOf(gateway.To{ChatID: a.set.HomeChat})
	if !ok {
		return
	}
	for _, part := range render(md) {
		if _, err := a.sender.send(ctx, t, part, nil); err != nil {
			a.log.Warn("the home chat was not told", "error", err)
			return
		}
	}
}
