package telegram

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

// A command is a message that begins with a slash and a word.
type command struct {
	name string // lower case, without slash
	bot  string // name of the bot it is for, empty if it does not say
	args string
}

var commandForm = regexp.MustCompile(`(?s)^/([A-Za-z0-9_]{1,32})(?:@([A-Za-z0-9_]+))?(?:\s+(.*))?$`)

// commandOf reads the command of a message. A path (/etc/hosts) is none.
func commandOf(m *models.Message) (command, bool) {
	body, _ := content(m)
	f := commandForm.FindStringSubmatch(strings.TrimSpace(body))
	if f == nil {
		return command{}, false
	}
	return command{name: strings.ToLower(f[1]), bot: f[2], args: strings.TrimSpace(f[3])}, true
}

// meantFor reports whether a command in a group is for this bot: by name, or one of its own without a name.
func (c command) meantFor(me account) bool {
	if c.bot != "" {
		return strings.EqualFold(c.bot, me.Username)
	}
	_, known := commands[c.name]
	return known
}

// A verb is one command that the bot knows. The table is the only list: help and the menu come from it.
type verb struct {
	name    string
	aliases []string
	args    string // as help shows them
	about   string
	message bool // what follows it is a message, with the files beside it
	owner   bool // only for people whom the operator named
	run     func(a *Adapter, ctx context.Context, in *incoming, args string) error
	// confirm returns the question that must be answered first, "" if there is nothing to lose. nil: none.
	confirm func(a *Adapter, ctx context.Context, in *incoming, args string) (question string, err error)
}

func table() []verb {
	return []verb{
		{name: "new", aliases: []string{"reset"}, args: "[message]", about: "Begin a new conversation", message: true, run: (*Adapter).doNew, confirm: (*Adapter).confirmNew},
		{name: "stop", about: "End what is running here", run: (*Adapter).doStop},
		{name: "retry", about: "Answer the last message anew", run: (*Adapter).doRetry},
		{name: "undo", args: "[number]", about: "Take back the last message and its answer", run: (*Adapter).doUndo, confirm: (*Adapter).confirmUndo},
		{name: "queue", aliases: []string{"q"}, args: "message", about: "Ask after what is running has ended", message: true, run: (*Adapter).doQueue},
		{name: "steer", args: "message", about: "Tell something to what is running", message: true, run: (*Adapter).doSteer},
		{name: "status", about: "Show how the bot and this chat are doing", run: (*Adapter).doStatus},
		{name: "title", args: "[name]", about: "Name this conversation", run: (*Adapter).doTitle},
		{name: "sessions", about: "List the conversations of this chat", run: (*Adapter).doSessions},
		{name: "resume", args: "[number or name]", about: "Go on with an earlier conversation", run: (*Adapter).doResume},
		{name: "model", args: "[name]", about: "Show or choose the model of this conversation", run: (*Adapter).doModel},
		{name: "approve", args: "[number]", about: "Allow what the bot asked for", run: (*Adapter).doApprove},
		{name: "deny", args: "[number]", about: "Refuse what the bot asked for", run: (*Adapter).doDeny},
		{name: "whoami", about: "Show your id and this chat's", run: (*Adapter).doWhoami},
		{name: "restart", about: "Restart the whole system", owner: true, run: (*Adapter).doRestart, confirm: (*Adapter).confirmRestart},
		{name: "help", aliases: []string{"commands"}, about: "List the commands", run: (*Adapter).doHelp},
		{name: "start", about: "Say hello", run: (*Adapter).doStart},
		{name: "version", aliases: []string{"v"}, about: "Show the version", run: (*Adapter).doVersion},
	}
}

// verbs is the table, and commands finds its rows by name and alias. They are filled by init as the verbs' functions read
// them.
var (
	verbs    []verb
	commands = map[string]*verb{}
)

func init() {
	verbs = table()
	for i := range verbs {
		v := &verbs[i]
		for _, name := range append([]string{v.name}, v.aliases...) {
			commands[name] = v
		}
	}
}

// helpText lists the verbs as Markdown.
func helpText() string {
	var b strings.Builder
	for _, v := range verbs {
		b.WriteString("/" + v.name)
		if v.args != "" {
			b.WriteString(" " + v.args)
		}
		b.WriteString(" – " + v.about)
		if len(v.aliases) > 0 {
			b.WriteString(" (also /" + strings.Join(v.aliases, ", /") + ")")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// setMenu tells Telegram the verbs, for the menu beside the text field. It is an aid: a failure is tried again with
// the next start.
func (a *Adapter) setMenu(ctx context.Context) {
	var list []models.BotCommand
	for _, v := range verbs {
		list = append(list, models.BotCommand{Command: v.name, Description: v.about})
	}
	if err := a.client.call(ctx, "setMyCommands", &bot.SetMyCommandsParams{Commands: list}, nil); err != nil {
		a.log.Warn("the command menu was not set", "error", err)
	}
}

// command runs a command, after a yes where it takes something away, or says that there is none of that name.
func (a *Adapter) command(ctx context.Context, in *incoming, c command) error {
	v, known := commands[c.name]
	if !known {
		return a.answer(ctx, in, fmt.Sprintf("There is no command /%s. /help lists what there is.", c.name))
	}
	if v.owner {
		if may, err := a.mayOperate(ctx, in); !may {
			if err == nil {
				err = a.answer(ctx, in, fmt.Sprintf("/%s is for people whom the allow list of the bot names, or who were let in with a code.", v.name))
			}
			return err
		}
	}
	if v.message {
		if err := a.fetchFiles(ctx, in); err != nil {
			return err
		}
	}
	if v.confirm != nil && a.set.Confirm {
		question, err := v.confirm(a, ctx, in, c.args)
		if err != nil {
			return err
		}
		if question != "" {
			return a.confirm(ctx, in, v, c.args, question)
		}
	}
	return v.run(a, ctx, in, c.args)
}
