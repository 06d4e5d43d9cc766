package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
)

// How a command that takes something away is done once, whatever dies between question, answer and deed:
//
//  1. The question is stored by the supervisor, with all that is needed to do the command, and then shown with buttons.
//  2. The first answer holds, whichever process hears it.
//  3. After a yes the command is done under the id of its message, so that doing it again does nothing, and then noted
//     as done. A process that starts does what was allowed and is not noted.

// The data of the buttons: a choice and the id of the question, at most 64 bytes.
var choices = []struct {
	prefix, label string
	choice        hostv1.AnswerRequest_Choice
}{
	{"o:", "✅ Approve Once", hostv1.AnswerRequest_CHOICE_ONCE},
	{"a:", "☑ Always Approve", hostv1.AnswerRequest_CHOICE_ALWAYS},
	{"c:", "✖ Cancel", hostv1.AnswerRequest_CHOICE_CANCEL},
}

const (
	// questionTries is how often a question is sent that a flood limit holds up, and questionWait the longest wait for
	// one try: the messages of other chats wait meanwhile for the end of their poll.
	questionTries = 3
	questionWait  = 5 * time.Second
)

// confirmationOf reads the data of a button. ok is false if it is none of a question about a command.
func confirmationOf(data string) (choice hostv1.AnswerRequest_Choice, id string, ok bool) {
	for _, c := range choices {
		if id, ok := strings.CutPrefix(data, c.prefix); ok {
			return c.choice, id, true
		}
	}
	return 0, "", false
}

// A held command is what is needed to do it later, perhaps by another process.
type held struct {
	Message  string         `json:"message"`
	Chat     string         `json:"chat"`
	Thread   string         `json:"thread,omitempty"`
	ChatType string         `json:"chat_type"`
	User     string         `json:"user"`
	UserName string         `json:"user_name"`
	Key      string         `json:"key"`
	Shared   bool           `json:"shared,omitempty"`
	Args     string         `json:"args,omitempty"`
	Files    []gateway.File `json:"files,omitempty"`
}

func hold(in *incoming, args string) held {
	p := in.place
	return held{
		Message: in.id, Chat: p.chat, Thread: p.thread, ChatType: p.chatType, User: p.user, UserName: in.userName,
		Key: p.key, Shared: p.shared, Args: args, Files: in.files,
	}
}

// incoming is the message of the command, as far as commands with a question look at it.
func (h held) incoming() *incoming {
	t, _ := targetOf(gateway.To{ChatID: h.Chat, ThreadID: h.Thread, ReplyTo: h.Message})
	return &incoming{
		id: h.Message, target: t, userName: h.UserName, files: h.Files,
		place: place{chat: h.Chat, thread: h.Thread, chatType: h.ChatType, user: h.User, key: h.Key, shared: h.Shared},
	}
}

// confirm asks whether a command may be done. It is done at once if that was answered before.
func (a *Adapter) confirm(ctx context.Context, in *incoming, v *verb, args, question string) error {
	payload, err := json.Marshal(hold(in, args))
	if err != nil {
		return fmt.Errorf("keep the command: %w", err)
	}
	user := in.place.user
	if author(in.first) == nil {
		user = "" // an administrator who writes as the group presses buttons as himself
	}
	c, err := a.host.Confirm(ctx, &hostv1.AskRequest{
		Key: in.id, ChatId: in.place.chat, ThreadId: in.place.thread, UserId: user,
		Command: "/" + v.name, Question: question, Payload: payload,
	})
	switch {
	case err != nil:
		return err
	case allowed(c):
		return a.carryOut(ctx, c)
	case c.State == hostv1.Confirmation_STATE_PENDING:
		a.showConfirmation(ctx, in, c)
	}
	return nil
}

// allowed reports whether a question was answered with a yes that is not carried out.
func allowed(c *hostv1.Confirmation) bool {
	yes := c.State == hostv1.Confirmation_STATE_ONCE || c.State == hostv1.Confirmation_STATE_ALWAYS
	return yes && !c.Done
}

// showConfirmation shows a question. One that cannot be shown is given up: its command is written again more easily than
// waited for.
func (a *Adapter) showConfirmation(ctx context.Context, in *incoming, c *hostv1.Confirmation) {
	var row []models.InlineKeyboardButton
	for _, b := range choices {
		row = append(row, models.InlineKeyboardButton{Text: b.label, CallbackData: b.prefix + c.Id})
	}
	body := render(fmt.Sprintf("**%s**\n\n%s\n\nWithout an answer within %s I will not.",
		c.Command, plainWords(c.Question), roughly(time.Until(time.UnixMilli(c.DeadlineMs)))))[0]
	for try := 1; ; try++ {
		id, err := a.sender.send(ctx, in.target, body, models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{row}})
		if err == nil {
			a.shown.add(shownQuestion{Confirmation: c, chat: in.target.chat, message: id, due: time.UnixMilli(c.DeadlineMs)})
			return
		}
		wait := time.Second
		if f := (*floodError)(nil); errors.As(err, &f) {
			wait = f.after
		} else if after, flooded := retryAfter(err); flooded {
			wait = after
		}
		if try >= questionTries || wait > questionWait || isChatGone(err) || pause(ctx, wait) != nil {
			a.log.Warn("a question was not asked", "command", c.Command, "chat", in.place.chat, "error", err)
			return
		}
	}
}

// confirmed takes an answer and does what it allows.
func (a *Adapter) confirmed(ctx context.Context, p *models.CallbackQuery, choice hostv1.AnswerRequest_Choice, id string) error {
	c, err := a.host.AnswerConfirmation(ctx, &hostv1.AnswerRequest{Id: id, Choice: choice, UserId: id64(p.From.ID)})
	switch {
	case errors.Is(err, ipc.ErrDenied):
		a.acknowledge(ctx, p, "This question is for somebody else.")
		return nil
	case errors.Is(err, ipc.ErrNotFound), errors.Is(err, ipc.ErrInvalid):
		a.acknowledge(ctx, p, "This is not asked any more.")
		return nil
	case err != nil:
		return err
	}
	said := outcome(c)
	a.acknowledge(ctx, p, said)
	if m := p.Message.Message; m != nil {
		if err := a.sender.edit(ctx, target{chat: m.Chat.ID}, m.ID, settledText(c, said), nil); err != nil {
			a.log.Warn("a question still has its buttons", "question", id, "error", err)
		} else {
			a.shown.settled(id)
		}
	}
	if allowed(c) {
		return a.carryOut(ctx, c)
	}
	return nil
}

func outcome(c *hostv1.Confirmation) string {
	switch c.State {
	case hostv1.Confirmation_STATE_ONCE:
		return "✅ Approved"
	case hostv1.Confirmation_STATE_ALWAYS:
		return "☑ Approved, and not asked again"
	case hostv1.Confirmation_STATE_EXPIRED:
		return "⌛ No answer came in time, so it was not done"
	}
	return "✖ Cancelled"
}

// carryOut does a command that was allowed.
func (a *Adapter) carryOut(ctx context.Context, c *hostv1.Confirmation) error {
	var h held
	v, known := commands[strings.TrimPrefix(c.Command, "/")]
	if err := json.Unmarshal(c.Payload, &h); err != nil || !known {
		a.log.Error("a command that was allowed cannot be read", "command", c.Command, "error", err)
	} else if err := v.run(a, ctx, h.incoming(), h.Args); err != nil {
		return fmt.Errorf("%s: %w", c.Command, err)
	}
	_, err := a.host.ConfirmationDone(ctx, &hostv1.DoneRequest{Id: c.Id})
	return err
}

// finishConfirmed does what an earlier process was allowed to do and did not come to. What fails is left to the next
// start, or to the press of the button, which Telegram hands over again.
func (a *Adapter) finishConfirmed(ctx context.Context) {
	list, err := a.host.Confirmations(ctx, &hostv1.ListConfirmationsRequest{})
	if err != nil {
		a.log.Warn("what was allowed before the start is not known", "error", err)
		return
	}
	for _, c := range list.Confirmations {
		if !allowed(c) {
			continue
		}
		if err := a.carryOut(ctx, c); err != nil {
			a.log.Warn("a command that was allowed is not done", "command", c.Command, "error", err)
		}
	}
}
