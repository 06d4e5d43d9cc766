package telegram

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/chat"
)

const stillRunning = "Something is still running here. Wait for it, or end it with /stop."

// at is where a conversation is, as the supervisor knows places.
func (p place) at() *hostv1.Place {
	return &hostv1.Place{ChatId: p.chat, ThreadId: p.thread, ChatType: p.chatType, UserId: p.user, SessionKey: p.key}
}

// session returns the current session of a place, nil if there is none.
func (a *Adapter) session(ctx context.Context, p place) (*hostv1.SessionInfo, error) {
	s, err := a.host.Session(ctx, &hostv1.GetSessionRequest{Place: p.at()})
	if errors.Is(err, ipc.ErrNotFound) {
		return nil, nil
	}
	return s, err
}

// nameOf is what a person calls a session, as Markdown.
func nameOf(s *hostv1.SessionInfo) string { return plainWords(chat.Name(s)) }

// words is what an error of the supervisor says to a person, as Markdown.
func words(err error) string { return plainWords(chat.Words(err)) }

// refused answers an error by which the supervisor said no for good. Any other is returned, to be tried again.
func (a *Adapter) refused(ctx context.Context, in *incoming, err error) error {
	switch {
	case chat.StillRunning(err):
		return a.answer(ctx, in, stillRunning)
	case errors.Is(err, ipc.ErrRefused), errors.Is(err, ipc.ErrNotFound), errors.Is(err, ipc.ErrInvalid), errors.Is(err, ipc.ErrExists), errors.Is(err, ipc.ErrDenied):
		return a.answer(ctx, in, "That is not possible: "+words(err))
	}
	return err
}

func (a *Adapter) confirmNew(ctx context.Context, in *incoming, _ string) (string, error) {
	s, err := a.session(ctx, in.place)
	if err != nil || s == nil || s.Messages == 0 && s.RunningTurn == "" {
		return "", err
	}
	return fmt.Sprintf("Begin a new conversation? The present one, %s with %s, ends; /resume brings it back.", nameOf(s), chat.Messages(s)), nil
}

// doNew begins a new conversation: with the message that follows the command, or with the next one.
func (a *Adapter) doNew(ctx context.Context, in *incoming, args string) error {
	if args != "" {
		m := in.message(args)
		m.NewSession = true
		return a.accept(ctx, in, m, hostv1.Busy_BUSY_QUEUE)
	}
	if _, err := a.host.EndSession(ctx, &hostv1.EndRequest{Place: in.place.at(), MessageId: in.id}); err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, "Your next message begins a new conversation.")
}

func (a *Adapter) doRetry(ctx context.Context, in *incoming, _ string) error {
	r, err := a.host.Retry(ctx, &hostv1.RetryRequest{Place: in.place.at(), MessageId: in.id, UserId: in.place.user, UserName: in.userName})
	switch {
	case errors.Is(err, ipc.ErrNotFound):
		return a.answer(ctx, in, "There is no message here that I could answer again.")
	case err != nil:
		return a.refused(ctx, in, err)
	}
	a.turns.add(openTurn{id: r.TurnId, chat: in.place.chat, thread: in.place.thread, key: in.place.key})
	return nil // its answer is what is seen of it
}

func (a *Adapter) confirmUndo(ctx context.Context, in *incoming, args string) (string, error) {
	n, ok := chat.Count(args)
	s, err := a.session(ctx, in.place)
	switch {
	case err != nil || !ok || s == nil || s.Messages == 0:
		return "", err // the command itself says so
	case n == 1:
		return "Take back your last message and my answer to it?", nil
	}
	return fmt.Sprintf("Take back your last %d messages and my answers to them?", n), nil
}

func (a *Adapter) doUndo(ctx context.Context, in *incoming, args string) error {
	n, ok := chat.Count(args)
	if !ok {
		return a.answer(ctx, in, fmt.Sprintf("Write how many messages to take back, 1 to %d.", chat.MaxUndo))
	}
	r, err := a.host.Undo(ctx, &hostv1.UndoRequest{Place: in.place.at(), MessageId: in.id, Count: uint32(n)})
	switch {
	case errors.Is(err, ipc.ErrNotFound) || err == nil && r.Exchanges == 0:
		return a.answer(ctx, in, "There is nothing to take back.")
	case err != nil:
		return a.refused(ctx, in, err)
	case r.Exchanges == 1:
		return a.answer(ctx, in, "Taken back: "+quote(r.Text))
	}
	return a.answer(ctx, in, fmt.Sprintf("Taken back: %d messages with their answers, from %s on.", r.Exchanges, quote(r.Text)))
}

func quote(s string) string { return plainWords(chat.Quote(s)) }

func (a *Adapter) doTitle(ctx context.Context, in *incoming, args string) error {
	if args == "" {
		s, err := a.session(ctx, in.place)
		switch {
		case err != nil:
			return err
		case s == nil:
			return a.answer(ctx, in, "There is no conversation here yet.")
		case s.Title == "":
			return a.answer(ctx, in, "This conversation has no name. `/title` and a name gives it one.")
		}
		return a.answer(ctx, in, "This conversation is "+nameOf(s)+".")
	}
	s, err := a.host.SetTitle(ctx, &hostv1.SetTitleRequest{Place: in.place.at(), Title: args})
	if errors.Is(err, ipc.ErrNotFound) {
		return a.answer(ctx, in, "There is no conversation here yet that could have a name.")
	}
	if err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, "This conversation is now "+nameOf(s)+".")
}

// sessions lists the conversations that may be seen in a place: those of this chat, in a group with one each those of the
// person. What was said elsewhere is not shown here.
func (a *Adapter) sessions(ctx context.Context, p place, limit uint32) ([]*hostv1.SessionInfo, error) {
	r := &hostv1.ListSessionsRequest{ChatId: p.chat, Limit: limit}
	if p.chatType == "group" && !p.shared {
		r.UserId = p.user
	}
	list, err := a.host.Sessions(ctx, r)
	return list.GetSessions(), err
}

func (a *Adapter) doSessions(ctx context.Context, in *incoming, _ string) error {
	list, err := a.sessions(ctx, in.place, chat.ListedSessions)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return a.answer(ctx, in, "There is no conversation here yet.")
	}
	current, err := a.session(ctx, in.place)
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, s := range list {
		mark := ""
		if current != nil && current.Id == s.Id {
			mark = " (this one)"
		}
		at := time.UnixMilli(int64(s.LastActive * 1000)).Format("2 Jan 15:04")
		fmt.Fprintf(&b, "%d. %s, %s, %s%s\n", i+1, nameOf(s), at, chat.Messages(s), mark)
	}
	b.WriteString("\n/resume with a number or a name goes on with one of them.")
	return a.answer(ctx, in, b.String())
}

// plainWords keeps the letters of a person's text from being read as Markdown.
func plainWords(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "~", `\~`, "<", `\<`, "#", `\#`, "|", `\|`).Replace(s)
}

func (a *Adapter) doResume(ctx context.Context, in *incoming, args string) error {
	if args == "" {
		return a.doSessions(ctx, in, args)
	}
	list, err := a.sessions(ctx, in.place, chat.SearchedSessions)
	if err != nil {
		return err
	}
	found := chat.Find(list, args)
	if found == nil {
		return a.answer(ctx, in, "There is no such conversation in this chat; /sessions lists them.")
	}
	s, err := a.host.Bind(ctx, &hostv1.BindRequest{Place: in.place.at(), Session: found.Id, MessageId: in.id})
	if err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, fmt.Sprintf("We go on with %s, %s.", nameOf(s), chat.Messages(s)))
}

func (a *Adapter) doModel(ctx context.Context, in *incoming, args string) error {
	s, err := a.session(ctx, in.place)
	switch {
	case err != nil:
		return err
	case s == nil:
		return a.answer(ctx, in, "There is no conversation here yet; write something first.")
	case args == "":
		return a.answer(ctx, in, "The model of this conversation: "+plainWords(chat.Model(s))+". `/model` and a name chooses another, `/model default` the configured one.")
	}
	if args == "default" {
		args = ""
	}
	s, err = a.host.SetModel(ctx, &hostv1.SetModelRequest{Place: in.place.at(), Model: args})
	if err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, "From the next message on, the model of this conversation: "+plainWords(chat.Model(s))+".")
}

func (a *Adapter) confirmRestart(context.Context, *incoming, string) (string, error) {
	return "Restart the whole system? What runs is given time to end, and what does not end goes on after the start.", nil
}

func (a *Adapter) doRestart(ctx context.Context, in *incoming, _ string) error {
	r, err := a.host.Restart(ctx, &hostv1.RestartRequest{ChatId: in.place.chat, ThreadId: in.place.thread, UserId: in.place.user, MessageId: in.id})
	switch {
	case errors.Is(err, ipc.ErrRefused), errors.Is(err, ipc.ErrInvalid), errors.Is(err, ipc.ErrDenied):
		return a.answer(ctx, in, "I cannot restart: "+words(err))
	case err != nil:
		return err
	case r.Duplicate:
		return nil // it was done, and is told by who comes after it
	}
	said, patience := "♻ Restarting.", roughly(time.Duration(r.DrainMs)*time.Millisecond)
	switch n := r.Running + r.Queued; {
	case n == 1:
		said += fmt.Sprintf(" One task is under way: it has %s to end, and goes on afterwards otherwise.", patience)
	case n > 1:
		said += fmt.Sprintf(" %d tasks are under way: they have %s to end, and go on afterwards otherwise.", n, patience)
	}
	return a.answer(ctx, in, said)
}
