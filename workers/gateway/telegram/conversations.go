package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

const (
	// listedSessions are shown; searchedSessions are looked through for a name.
	listedSessions   = 10
	searchedSessions = 100
	// maxUndo bounds what one /undo takes back, so that a slip of the finger does not empty a conversation.
	maxUndo = 20
	// maxTold is how much of a message is repeated to say which one is meant, in runes.
	maxTold = 80
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

// nameOf is what a person calls a session.
func nameOf(s *hostv1.SessionInfo) string {
	if s.Title != "" {
		return "“" + s.Title + "”"
	}
	if s.Preview != "" {
		return "“" + short(s.Preview) + "”"
	}
	return s.Id
}

func modelOf(s *hostv1.SessionInfo) string { return cmp.Or(s.Model, "as configured") }

// short is the beginning of a text on one line.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > maxTold {
		s = string(runes[:maxTold]) + "…"
	}
	return s
}

// words is what an error of the supervisor says to a person: what follows its kind, if anything does.
func words(err error) string {
	said := err.Error()
	var r *ipc.RemoteError
	if errors.As(err, &r) {
		said = r.Error()
	}
	for _, kind := range []error{ipc.ErrRefused, ipc.ErrNotFound, ipc.ErrInvalid, ipc.ErrExists, ipc.ErrDenied} {
		if _, reason, ok := strings.Cut(said, kind.Error()+": "); ok {
			return plainWords(reason)
		}
	}
	return plainWords(said)
}

// refused answers an error by which the supervisor said no for good. Any other is returned, to be tried again.
func (a *Adapter) refused(ctx context.Context, in *incoming, err error) error {
	switch {
	case errors.Is(err, ipc.ErrRefused):
		return a.answer(ctx, in, stillRunning)
	case errors.Is(err, ipc.ErrNotFound), errors.Is(err, ipc.ErrInvalid), errors.Is(err, ipc.ErrExists), errors.Is(err, ipc.ErrDenied):
		return a.answer(ctx, in, "That is not possible: "+words(err))
	}
	return err
}

func (a *Adapter) confirmNew(ctx context.Context, in *incoming, _ string) (string, error) {
	s, err := a.session(ctx, in.place)
	if err != nil || s == nil || s.Messages == 0 && s.RunningTurn == "" {
		return "", err
	}
	return fmt.Sprintf("Begin a new conversation? The present one, %s with %d messages, ends; /resume brings it back.", nameOf(s), s.Messages), nil
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

// count reads how many exchanges are to be taken back. ok is false if it is no such number.
func count(args string) (n int, ok bool) {
	if args == "" {
		return 1, true
	}
	n, err := strconv.Atoi(args)
	return n, err == nil && n >= 1 && n <= maxUndo
}

func (a *Adapter) confirmUndo(ctx context.Context, in *incoming, args string) (string, error) {
	n, ok := count(args)
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
	n, ok := count(args)
	if !ok {
		return a.answer(ctx, in, fmt.Sprintf("Write how many messages to take back, 1 to %d.", maxUndo))
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

func quote(s string) string { return "“" + plainWords(short(s)) + "”" }

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
		return a.answer(ctx, in, "This conversation is "+plainWords(nameOf(s))+".")
	}
	s, err := a.host.SetTitle(ctx, &hostv1.SetTitleRequest{Place: in.place.at(), Title: args})
	if errors.Is(err, ipc.ErrNotFound) {
		return a.answer(ctx, in, "There is no conversation here yet that could have a name.")
	}
	if err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, "This conversation is now "+plainWords(nameOf(s))+".")
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
	list, err := a.sessions(ctx, in.place, listedSessions)
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
		fmt.Fprintf(&b, "%d. %s, %s, %d messages%s\n", i+1, plainWords(nameOf(s)), at, s.Messages, mark)
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
	list, err := a.sessions(ctx, in.place, searchedSessions)
	if err != nil {
		return err
	}
	id := find(list, args)
	if id == "" {
		return a.answer(ctx, in, "There is no such conversation in this chat; /sessions lists them.")
	}
	s, err := a.host.Bind(ctx, &hostv1.BindRequest{Place: in.place.at(), Session: id, MessageId: in.id})
	if err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, fmt.Sprintf("We go on with %s, %d messages.", plainWords(nameOf(s)), s.Messages))
}

// find looks for a session by its number in the list, its name, or the beginning of its id.
func find(list []*hostv1.SessionInfo, name string) string {
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= min(listedSessions, len(list)) {
		return list[n-1].Id
	}
	for _, s := range list {
		if s.Id == name || strings.EqualFold(s.Title, name) {
			return s.Id
		}
	}
	for _, s := range list {
		if strings.HasPrefix(s.Id, name) {
			return s.Id
		}
	}
	return ""
}

func (a *Adapter) doModel(ctx context.Context, in *incoming, args string) error {
	s, err := a.session(ctx, in.place)
	switch {
	case err != nil:
		return err
	case s == nil:
		return a.answer(ctx, in, "There is no conversation here yet; write something first.")
	case args == "":
		return a.answer(ctx, in, "The model of this conversation: "+plainWords(modelOf(s))+". `/model` and a name chooses another, `/model default` the configured one.")
	}
	if args == "default" {
		args = ""
	}
	s, err = a.host.SetModel(ctx, &hostv1.SetModelRequest{Place: in.place.at(), Model: args})
	if err != nil {
		return a.refused(ctx, in, err)
	}
	return a.answer(ctx, in, "From the next message on, the model of this conversation: "+plainWords(modelOf(s))+".")
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
	said := "♻ Restarting."
	if n := r.Running + r.Queued; n > 0 {
		said += fmt.Sprintf(" %d tasks are under way: they have %s to end, and go on afterwards otherwise.", n, roughly(time.Duration(r.DrainMs)*time.Millisecond))
	}
	return a.answer(ctx, in, said)
}
