package telegram

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// maxSummary is how much of what is asked for is shown, in runes: the question must fit into one message.
const maxSummary = 2500

// The data of buttons: a letter and the id of the approval, at most 64 bytes.
const (
	yesPrefix = "y:"
	noPrefix  = "n:"
)

// askPerson shows a question with buttons. One that is there already (asked again after a restart) is not repeated.
func (a *Adapter) askPerson(ctx context.Context, to gateway.To, turn string, r *turnv1.ApprovalRequest) {
	t, ok := targetOf(to)
	if !ok {
		return
	}
	if q, known := a.turns.question(r.ApprovalId); known && q.message != 0 {
		return
	}
	q := question{id: r.ApprovalId, turn: turn, chat: to.ChatID, thread: to.ThreadID, text: questionText(r)}
	keyboard := models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{{
		{Text: "✅ Allow", CallbackData: yesPrefix + r.ApprovalId},
		{Text: "⛔ Refuse", CallbackData: noPrefix + r.ApprovalId},
	}}}
	var markup models.ReplyMarkup = keyboard
	if len(yesPrefix+r.ApprovalId) > 64 {
		markup, q.text = nil, q.text+"\n\nAnswer with /approve or /deny."
	}
	deadline := time.UnixMilli(r.DeadlineMs)
	for {
		id, err := a.sender.send(ctx, t, render(q.text)[0], markup)
		if err == nil {
			q.message = id
			break
		}
		// A question that nobody sees is a no, so it is worth some tries. Twice is better than never here.
		wait := time.Second
		if f := (*floodError)(nil); errors.As(err, &f) {
			wait = f.after
		}
		if isChatGone(err) || time.Now().Add(wait).After(deadline) || pause(ctx, wait) != nil {
			a.log.Warn("a question was not asked", "approval", r.ApprovalId, "error", err)
			break
		}
	}
	a.turns.ask(q)
}

func questionText(r *turnv1.ApprovalRequest) string {
	summary := r.Summary
	if runes := []rune(summary); len(runes) > maxSummary {
		summary = string(runes[:maxSummary]) + "…"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**May I do this?** (%s)\n\n%s", r.Tool, fence(summary))
	if r.Reason != "" {
		b.WriteString("\n\n" + r.Reason)
	}
	if r.DeadlineMs > 0 {
		if left := time.Until(time.UnixMilli(r.DeadlineMs)).Round(time.Second); left > 0 {
			fmt.Fprintf(&b, "\n\nWithout an answer within %s I will not.", left)
		}
	}
	return b.String()
}

// fence makes a code block of s, whatever s holds.
func fence(s string) string {
	marks := "```"
	for strings.Contains(s, marks) {
		marks += "`"
	}
	return marks + "\n" + s + "\n" + marks
}

// pressed answers a button.
func (a *Adapter) pressed(ctx context.Context, p *models.CallbackQuery) error {
	approve := strings.HasPrefix(p.Data, yesPrefix)
	id := strings.TrimPrefix(strings.TrimPrefix(p.Data, yesPrefix), noPrefix)
	m := p.Message.Message
	var chat models.Chat
	if m != nil {
		chat = m.Chat
	}
	may, err := a.mayUse(ctx, &p.From, chat)
	if err != nil {
		return err
	}
	choice, question, confirms := confirmationOf(p.Data)
	switch {
	case !may:
		a.acknowledge(ctx, p, "You may not decide this.")
		return nil
	case confirms:
		return a.confirmed(ctx, p, choice, question)
	case !approve && !strings.HasPrefix(p.Data, noPrefix):
		a.acknowledge(ctx, p, "This button does nothing any more.")
		return nil
	}
	who := strings.TrimSpace(p.From.FirstName + " " + p.From.LastName)
	said, err := a.decide(ctx, id, approve)
	if err != nil {
		return err
	}
	a.acknowledge(ctx, p, said)
	if m != nil {
		a.settle(ctx, id, m, said+" ("+who+")")
	}
	return nil
}

// decide hands a decision over and says what holds.
func (a *Adapter) decide(ctx context.Context, id string, approve bool) (said string, err error) {
	approved, before, err := a.host.Decide(ctx, id, approve)
	switch {
	case errors.Is(err, ipc.ErrNotFound), errors.Is(err, ipc.ErrDenied), errors.Is(err, ipc.ErrInvalid):
		return "This is not asked any more.", nil
	case err != nil:
		return "", err
	case before && approved:
		return "✅ Allowed already", nil
	case before:
		return "⛔ Refused already", nil
	case approved:
		return "✅ Allowed", nil
	}
	return "⛔ Refused", nil
}

// acknowledge ends the waiting sign of a button. The query may be too old for that, which does not matter.
func (a *Adapter) acknowledge(ctx context.Context, p *models.CallbackQuery, said string) {
	err := a.client.call(ctx, "answerCallbackQuery", &bot.AnswerCallbackQueryParams{CallbackQueryID: p.ID, Text: said}, nil)
	if err != nil {
		a.log.Debug("a button was not acknowledged", "error", err)
	}
}

// settle writes the decision under the question and takes its buttons away. m is the question as it stands, for one
// that an earlier process asked.
func (a *Adapter) settle(ctx context.Context, id string, m *models.Message, said string) {
	q, known := a.turns.answered(id)
	body := render(q.text + "\n\n**" + said + "**")[0]
	if !known {
		body = text.Plain(m.Text + "\n\n" + said)
	}
	t := target{chat: m.Chat.ID}
	if err := a.sender.edit(ctx, t, m.ID, body, nil); err != nil {
		a.log.Warn("a question still has its buttons", "approval", id, "error", err)
	}
}

// decided shows a decision that came another way: by a command, from another program, by silence.
func (a *Adapter) decided(ctx context.Context, to gateway.To, d *turnv1.ApprovalDecision) {
	q, known := a.turns.answered(d.ApprovalId)
	t, ok := targetOf(to)
	if !known || !ok || q.message == 0 {
		return
	}
	said := "⛔ Refused"
	switch {
	case d.Approved:
		said = "✅ Allowed"
	case d.By == "timeout":
		said = "⌛ No answer came, so it was not done"
	}
	if err := a.sender.edit(ctx, t, q.message, render(q.text + "\n\n**" + said + "**")[0], nil); err != nil {
		a.log.Warn("a question still has its buttons", "approval", d.ApprovalId, "error", err)
	}
}

// decideByCommand answers a question of this chat: the oldest, or the one whose number is given.
func (a *Adapter) decideByCommand(ctx context.Context, in *incoming, args string, approve bool) error {
	asked := a.turns.questions(in.place)
	n := 1
	if args != "" {
		var err error
		if n, err = strconv.Atoi(args); err != nil || n < 1 {
			return a.answer(ctx, in, "Write the number of the question, 1 for the oldest.")
		}
	}
	if n > len(asked) {
		return a.answer(ctx, in, "Nothing waits for an answer here.")
	}
	q := asked[n-1]
	said, err := a.decide(ctx, q.id, approve)
	if err != nil {
		return err
	}
	if q.message != 0 {
		m := &models.Message{ID: q.message, Chat: in.first.Chat}
		a.settle(ctx, q.id, m, said+" ("+in.userName+")")
	}
	return a.answer(ctx, in, said)
}
