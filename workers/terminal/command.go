package terminal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/chat"
)

// commandForm is a slash and a word. A path (/etc/hosts) is none, and neither is what has a space before it.
var commandForm = regexp.MustCompile(`(?s)^/([A-Za-z?][A-Za-z0-9_-]*)(?:\s+(.*))?$`)

// A command is what the chat itself does. The table is the only list: /help comes from it.
type command struct {
	names []string
	args  string // as help shows them
	about string
	run   func(c *conversation, ctx context.Context, args string) error
}

func commands() []command {
	return []command{
		{[]string{"new", "reset"}, "[message]", "begin a new session, with this message or the next one", (*conversation).doNew},
		{[]string{"retry"}, "", "answer the last message anew", (*conversation).doRetry},
		{[]string{"undo"}, "[number]", "take back the last message and its answer", (*conversation).doUndo},
		{[]string{"status", "session"}, "", "show which session is asked, and its model", (*conversation).doStatus},
		{[]string{"title"}, "[name]", "show or give the session's name", (*conversation).doTitle},
		{[]string{"sessions"}, "", "list the sessions of this terminal", (*conversation).doSessions},
		{[]string{"resume"}, "[number, name or id]", "go on with another session", (*conversation).doResume},
		{[]string{"model"}, "[name]", "show or choose the session's model", (*conversation).doModel},
		{[]string{"quit", "exit", "q"}, "", "leave (so do Ctrl-D, and Ctrl-C twice)", (*conversation).doQuit},
		{[]string{"help", "?"}, "", "this", (*conversation).doHelp},
	}
}

// errQuit is what /quit returns.
var errQuit = errors.New("quit")

// command obeys a line that begins with a slash and a word. handled is false if it is a message. An error is errQuit, or one
// that ends the chat.
func (c *conversation) command(ctx context.Context, line string) (handled bool, err error) {
	form := commandForm.FindStringSubmatch(strings.TrimRight(line, " \t\r\n"))
	if form == nil {
		return false, nil
	}
	name := strings.ToLower(form[1])
	for _, cmd := range commands() {
		for _, n := range cmd.names {
			if n == name {
				return true, cmd.run(c, ctx, strings.TrimSpace(form[2]))
			}
		}
	}
	c.screen.tell(fmt.Sprintf("(there is no command /%s: /help lists them; with a space before it the line is a message)", name))
	return true, nil
}

func (c *conversation) doQuit(context.Context, string) error { return errQuit }

func (c *conversation) doHelp(context.Context, string) error {
	var b strings.Builder
	for _, cmd := range commands() {
		fmt.Fprintf(&b, "%-30s %s\n", strings.TrimSpace("/"+cmd.names[0]+" "+cmd.args), cmd.about)
	}
	b.WriteString("\nA line that ends with \\ goes on in the next one; a pasted text is one message; with a space before its slash a line is a " +
		"message too. Ctrl-C stops an answer.")
	c.screen.tell(b.String())
	return nil
}

func (c *conversation) doNew(ctx context.Context, args string) error {
	c.fresh, c.sessionID = true, ""
	if args != "" {
		_, err := c.ask(ctx, args)
		return err
	}
	c.screen.tell("(the next message begins a new session)")
	return nil
}

// place is where the conversation is, as the supervisor knows places.
func (c *conversation) place() *hostv1.Place {
	return &hostv1.Place{ChatId: c.chatID, ChatType: "dm", SessionId: c.sessionID}
}

// call makes a call as messages are sent: until a supervisor answers it. Ctrl-C ends the waiting.
func call[R any](ctx context.Context, c *conversation, do func(context.Context) (R, error)) (r R, err error) {
	err = c.attend(ctx, func(ctx context.Context) error {
		return c.client.insist(ctx, func() (err error) {
			r, err = do(ctx)
			return err
		})
	})
	return r, err
}

// current returns the session that the next message goes on with, nil if there is none.
func (c *conversation) current(ctx context.Context) (*hostv1.SessionInfo, error) {
	if c.fresh {
		return nil, nil
	}
	s, err := call(ctx, c, func(ctx context.Context) (*hostv1.SessionInfo, error) {
		return c.client.sessions.Get(ctx, &hostv1.GetSessionRequest{Place: c.place()})
	})
	if errors.Is(err, ipc.ErrNotFound) {
		return nil, nil
	}
	return s, err
}

// session is current for a command that needs one: where there is none it says so. An error is one that ends the chat.
func (c *conversation) session(ctx context.Context) (*hostv1.SessionInfo, error) {
	s, err := c.current(ctx)
	switch {
	case err != nil:
		return nil, c.sorry(err)
	case s == nil && c.sessionID != "":
		c.screen.tell(fmt.Sprintf("(there is no session %s: /resume goes on with another, /new begins one)", c.sessionID))
	case s == nil:
		c.screen.tell("(no session yet: the next message begins one)")
	}
	return s, nil
}

// sorry says why a command was not done. It returns what ends the chat.
func (c *conversation) sorry(err error) error {
	switch {
	case errors.Is(err, errBroken):
		c.screen.tell("(given up: nobody answered)")
	case errors.Is(err, errLeft):
		return err
	case chat.StillRunning(err):
		c.screen.tell("(something is still running in this session: wait for its end)")
	default:
		c.screen.tell("! " + chat.Words(err))
	}
	return nil
}

func (c *conversation) doStatus(ctx context.Context, _ string) error {
	s, err := c.session(ctx)
	if s == nil {
		return err
	}
	text := fmt.Sprintf("(session %s", s.Id)
	if name := chat.Name(s); name != s.Id {
		text += ", " + name
	}
	text += fmt.Sprintf(": %s, model %s", chat.Messages(s), chat.Model(s))
	if tokens := s.InputTokens + s.OutputTokens; tokens > 0 {
		text += fmt.Sprintf(", %d tokens", tokens)
	}
	if s.RunningTurn != "" || s.Queued > 0 {
		text += ", something runs in it"
	}
	c.screen.tell(text + ")")
	return nil
}

func (c *conversation) doTitle(ctx context.Context, args string) error {
	s, err := c.session(ctx)
	switch {
	case s == nil:
		return err
	case args == "" && s.Title == "":
		c.screen.tell("(this session has no name; /title and a name gives it one)")
		return nil
	case args == "":
		c.screen.tell("(this session is " + chat.Name(s) + ")")
		return nil
	}
	s, err = call(ctx, c, func(ctx context.Context) (*hostv1.SessionInfo, error) {
		return c.client.sessions.SetTitle(ctx, &hostv1.SetTitleRequest{Place: c.place(), Title: args})
	})
	if err != nil {
		return c.sorry(err)
	}
	c.screen.tell("(this session is now " + chat.Name(s) + ")")
	return nil
}

func (c *conversation) doModel(ctx context.Context, args string) error {
	s, err := c.session(ctx)
	if s == nil {
		return err
	}
	if args == "" {
		c.screen.tell("(the model of this session: " + chat.Model(s) + "; /model and a name chooses another, /model default the configured one)")
		return nil
	}
	if args == "default" {
		args = ""
	}
	s, err = call(ctx, c, func(ctx context.Context) (*hostv1.SessionInfo, error) {
		return c.client.sessions.SetModel(ctx, &hostv1.SetModelRequest{Place: c.place(), Model: args})
	})
	if err != nil {
		return c.sorry(err)
	}
	c.screen.tell("(from the next message on, the model of this session: " + chat.Model(s) + ")")
	return nil
}

func (c *conversation) doUndo(ctx context.Context, args string) error {
	n, ok := chat.Count(args)
	if !ok {
		c.screen.tell(fmt.Sprintf("(/undo takes how many messages to take back, 1 to %d)", chat.MaxUndo))
		return nil
	}
	if s, err := c.session(ctx); s == nil {
		return err
	}
	request := &hostv1.UndoRequest{Place: c.place(), MessageId: rand.Text(), Count: uint32(n)} // its id makes it happen once
	r, err := call(ctx, c, func(ctx context.Context) (*hostv1.UndoResponse, error) { return c.client.sessions.Undo(ctx, request) })
	switch {
	case err != nil:
		return c.sorry(err)
	case r.Exchanges == 0:
		c.screen.tell("(there is nothing to take back)")
	case r.Exchanges == 1:
		c.screen.tell("(taken back: " + chat.Quote(r.Text) + ")")
	default:
		c.screen.tell(fmt.Sprintf("(taken back: %d messages with their answers, from %s on)", r.Exchanges, chat.Quote(r.Text)))
	}
	return nil
}

// doRetry shows the turn that answers the last message anew, as that of a message.
func (c *conversation) doRetry(ctx context.Context, _ string) error {
	if s, err := c.session(ctx); s == nil {
		return err
	}
	_, err := c.follow(ctx, Message{ID: rand.Text(), ChatID: c.chatID, SessionID: c.sessionID, User: c.user, Retry: true})
	switch {
	case errors.Is(err, ipc.ErrNotFound):
		c.screen.tell("(there is no message here that could be answered again)")
	case errors.Is(err, ipc.ErrRefused):
		return c.sorry(err)
	default:
		return err
	}
	return nil
}

// listed returns the terminal's sessions, the newest activity first.
func (c *conversation) listed(ctx context.Context, limit uint32) ([]*hostv1.SessionInfo, error) {
	r, err := call(ctx, c, func(ctx context.Context) (*hostv1.ListSessionsResponse, error) {
		return c.client.sessions.List(ctx, &hostv1.ListSessionsRequest{Limit: limit})
	})
	return r.GetSessions(), err
}

func (c *conversation) doSessions(ctx context.Context, _ string) error {
	list, err := c.listed(ctx, chat.ListedSessions)
	if err != nil {
		return c.sorry(err)
	}
	if len(list) == 0 {
		c.screen.tell("(there is no session of a terminal yet)")
		return nil
	}
	current, err := c.current(ctx)
	if err != nil {
		return c.sorry(err)
	}
	var b strings.Builder
	for i, s := range list {
		mark := ""
		if s.Id == current.GetId() {
			mark = " (this one)"
		}
		at := time.UnixMilli(int64(s.LastActive * 1000)).Format("2 Jan 15:04")
		fmt.Fprintf(&b, "%2d. %s  %s, %s%s\n", i+1, at, chat.Name(s), chat.Messages(s), mark)
	}
	b.WriteString("/resume with a number, a name or an id goes on with one; hermes-supervisor sessions list shows those of all chats")
	c.screen.tell(b.String())
	return nil
}

// doResume goes on with a session in this terminal alone, as --session does.
func (c *conversation) doResume(ctx context.Context, args string) error {
	if args == "" {
		return c.doSessions(ctx, args)
	}
	found, err := c.named(ctx, args)
	switch {
	case err != nil:
		return c.sorry(err)
	case found == nil:
		c.screen.tell("(there is no such session, or more than one; /sessions lists those of this terminal)")
	default:
		c.sessionID, c.fresh = found.Id, false
		c.screen.tell(fmt.Sprintf("(going on with %s, %s)", chat.Name(found), chat.Messages(found)))
	}
	return nil
}

// named returns the session that a person means, nil if there is none: one of this terminal, or by its whole id one of any
// chat.
func (c *conversation) named(ctx context.Context, name string) (*hostv1.SessionInfo, error) {
	list, err := c.listed(ctx, chat.SearchedSessions)
	if err != nil {
		return nil, err
	}
	if s := chat.Find(list, name); s != nil {
		return s, nil
	}
	s, err := call(ctx, c, func(ctx context.Context) (*hostv1.SessionInfo, error) {
		return c.client.sessions.Get(ctx, &hostv1.GetSessionRequest{Place: &hostv1.Place{ChatId: c.chatID, SessionId: name}})
	})
	if errors.Is(err, ipc.ErrNotFound) || errors.Is(err, ipc.ErrInvalid) { // what cannot be an id is none
		return nil, nil
	}
	return s, err
}
