package telegram

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

func TestCommandsAreRead(t *testing.T) {
	for _, c := range []struct {
		text string
		want command
		ok   bool
	}{
		{"/help", command{name: "help"}, true},
		{"/Help@" + bottest.BotName, command{name: "help", bot: bottest.BotName}, true},
		{"/new  what is\nnext? ", command{name: "new", args: "what is\nnext?"}, true},
		{"  /stop\n", command{name: "stop"}, true},
		{"/etc/hosts", command{}, false},
		{"/ help", command{}, false},
		{"see /help", command{}, false},
		{"/" + strings.Repeat("a", 33), command{}, false},
		{"", command{}, false},
	} {
		got, ok := commandOf(&models.Message{Text: c.text})
		if got != c.want || ok != c.ok {
			t.Errorf("%q is read as %+v %v, want %+v %v", c.text, got, ok, c.want, c.ok)
		}
	}
}

func FuzzCommandsAreReadWhole(f *testing.F) {
	for _, s := range []string{"/new a b", "/x@y z", "/a\u00a0b", "/", "//", "/a\n\n/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := commandOf(&models.Message{Text: s})
		if ok && (c.name == "" || len(c.name) > 32 || strings.ToLower(c.name) != c.name || !strings.HasSuffix(strings.TrimSpace(s), c.args)) {
			t.Errorf("%q is read as %+v", s, c)
		}
	})
}

// One table makes help and the menu.
func TestHelpAndMenuListEveryCommand(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "/help"})
		r.pass(time.Second)
		help := strings.Join(r.bot.Texts(ann), "\n")
		var menu []models.BotCommand
		if err := json.Unmarshal([]byte(r.bot.Commands()), &menu); err != nil {
			t.Fatal(err)
		}
		if len(menu) != len(verbs) {
			t.Errorf("the menu has %d of %d commands", len(menu), len(verbs))
		}
		for i, v := range verbs {
			if !strings.Contains(help, "/"+v.name) || !strings.Contains(help, v.about) {
				t.Errorf("help does not have /%s: %q", v.name, help)
			}
			if menu[i].Command != v.name {
				t.Errorf("the menu has %q for %q", menu[i].Command, v.name)
			}
		}
	})
}

func TestAMenuThatHangsDoesNotKeepTheBotFromReceiving(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Fail(bottest.Fault{Kind: bottest.Hang, Method: "setMyCommands", Times: 1})
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "hello"})
		r.pass(time.Second)
		r.wantTaken("hello")
	})
}

func TestCommandsAnswer(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"/start", "Hello!"},
		{"/whoami", "1001"},
		{"/version", "hermes-supervisor"},
		{"/status", "Telegram: connected"},
		{"/stop", "Nothing is running here."},
		{"/approve", "Nothing waits for an answer here."},
		{"/deny 3", "Nothing waits for an answer here."},
		{"/approve everything", "Write the number"},
		{"/queue", "/queue"},
		{"/frobnicate", "There is no command /frobnicate"},
	} {
		t.Run(c.text, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.bot.Say(bottest.Post{From: ann, Text: c.text})
				r.pass(time.Second)
				if got := strings.Join(r.bot.Texts(ann), "\n"); !strings.Contains(got, c.want) {
					t.Errorf("answered %q, want %q", got, c.want)
				}
				r.wantTaken()
			})
		})
	}
}

func TestAPathIsNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "/etc/hosts looks odd"})
		r.pass(time.Second)
		r.wantTaken("/etc/hosts looks odd")
	})
}

func TestStopEndsTheTurnsOfThisConversationOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.busy = true
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "a long task"})
		r.pass(time.Second)
		r.bot.Say(bottest.Post{From: bob, Text: "another"})
		r.pass(time.Second)
		r.stop() // a new process asks the supervisor what runs
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "/stop"})
		r.pass(time.Minute)
		if got := strings.Join(r.host.stopped, " "); got != "turn_1" {
			t.Errorf("stopped %q, want turn_1", got)
		}
		r.wantTexts(ann, "Stopping.")
	})
}

// In a group each person has a conversation, and stops that one.
func TestStopInAGroupIsForOnesOwn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.busy = true
		r.set["require_mention"] = false
		r.bot.Supergroup(group, "Team")
		r.start()
		r.bot.Say(bottest.Post{From: ann, Chat: group, Text: "a long task"})
		r.bot.Say(bottest.Post{From: bob, Chat: group, Text: "another"})
		r.bot.Say(bottest.Post{From: bob, Chat: group, Text: "/stop"})
		r.pass(time.Second)
		if got := strings.Join(r.host.stopped, " "); got != "turn_2" {
			t.Errorf("stopped %q, want turn_2", got)
		}
	})
}

func TestQueueIsAMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "/q and then this"})
		r.pass(time.Second)
		r.wantTaken("and then this")
	})
}

func TestAnEditedCommandIsNotDoneAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		id := r.bot.Say(bottest.Post{From: ann, Text: "/new one"})
		r.pass(time.Second)
		r.bot.Edit(ann, id, "/new two")
		r.pass(time.Second)
		r.wantTaken("one")
	})
}
