package telegram

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/chat"
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

func (a *Adapter) doQueue(ctx context.Context, in *incoming, args string) error {
	if args == "" {
		return a.answer(ctx, in, "Write `/queue` and your message.")
	}
	return a.accept(ctx, in, in.message(args), hostv1.Busy_BUSY_QUEUE)
}

func (a *Adapter) doSteer(ctx context.Context, in *incoming, args string) error {
	if args == "" {
		return a.answer(ctx, in, "Write `/steer` and what I should know.")
	}
	return a.accept(ctx, in, in.message(args), hostv1.Busy_BUSY_STEER)
}

// openTurns returns the turns of a conversation that have not ended, whoever started this process.
func (a *Adapter) openTurns(ctx context.Context, p place) ([]*hostv1.OpenTurn, error) {
	r, err := a.host.OpenTurns(ctx, &hostv1.ListTurnsRequest{ChatId: p.chat, ThreadId: p.thread})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.Turns, func(t *hostv1.OpenTurn) bool {
		return t.ThreadId != p.thread || !p.shared && p.chatType == "group" && t.UserId != p.user
	}), nil
}

// doStop ends all turns of the conversation. Their answers, with what they have, still come.
func (a *Adapter) doStop(ctx context.Context, in *incoming, _ string) error {
	open, err := a.openTurns(ctx, in.place)
	if err != nil {
		return err
	}
	stopped := 0
	for _, turn := range open {
		ended, err := a.host.Interrupt(ctx, turn.TurnId, "stopped by "+in.userName)
		switch {
		case errors.Is(err, ipc.ErrNotFound):
		case err != nil:
			return err
		case ended:
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
	session, err := a.session(ctx, in.place)
	switch {
	case err != nil:
		return err
	case session == nil:
		b.WriteString("\nNo conversation yet: your next message begins one.")
	default:
		fmt.Fprintf(&b, "\nConversation: %s, %s, model %s", nameOf(session), chat.Messages(session), plainWords(chat.Model(session)))
		if tokens := session.InputTokens + session.OutputTokens; tokens > 0 {
			fmt.Fprintf(&b, ", %d tokens", tokens)
		}
	}
	open, err := a.openTurns(ctx, in.place)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nRunning or waiting in this conversation: %d", len(open))
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
