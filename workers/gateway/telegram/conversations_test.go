package telegram

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// type writes messages of a person, each after the one before it was dealt with.
func (r *rig) write(person int64, texts ...string) {
	r.t.Helper()
	for _, s := range texts {
		r.bot.Say(bottest.Post{From: person, Text: s})
		r.pass(5 * time.Second)
	}
}

// last is the last text that the bot wrote to a chat.
func (r *rig) last(chat int64) string {
	all := r.bot.Texts(chat)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func (r *rig) wantLast(chat int64, part string) {
	r.t.Helper()
	if got := r.last(chat); !strings.Contains(got, part) {
		r.t.Errorf("chat %d was told %q last, want %q", chat, got, part)
	}
}

func TestCommandsOfAConversation(t *testing.T) {
	for _, c := range []struct {
		name  string
		write []string
		want  string
	}{
		{"nothing to retry", []string{"/retry"}, "no message here"},
		{"nothing to take back", []string{"/undo"}, "nothing to take back"},
		{"too much to take back", []string{"a", "/undo 99"}, "1 to 20"},
		{"no name yet", []string{"/title"}, "no conversation here"},
		{"a name needs a conversation", []string{"/title x"}, "no conversation here"},
		{"without a name", []string{"a", "/title"}, "has no name"},
		{"a name", []string{"a", "/title my *plan*", "/title"}, "is “my *plan*”."},
		{"a name that is taken", []string{"a", "/title x", "/new b", "/title x"}, "not possible: "},
		{"no conversations", []string{"/sessions"}, "no conversation here"},
		{"nothing to go on with", []string{"a", "/resume nonsense"}, "no such conversation"},
		{"no model without a conversation", []string{"/model x"}, "no conversation here"},
		{"the configured model", []string{"a", "/model"}, "as configured"},
		{"another model", []string{"a", "/model big_one", "/model"}, "big_one"},
		{"back to the configured model", []string{"a", "/model x", "/model default"}, "as configured"},
		{"what to steer", []string{"/steer"}, "/steer"},
		{"status", []string{"a", "/title x", "/status"}, "Conversation: “x”, 2 messages, model as configured"},
		{"new without a conversation", []string{"/new"}, "Your next message begins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.set["confirm"] = false
				r.start()
				r.write(ann, c.write...)
				r.wantLast(ann, c.want)
			})
		})
	}
}

func TestAnEarlierConversationIsResumed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["confirm"] = false
		r.start()
		r.write(bob, "of Bob", "/title secret")
		r.write(ann, "the first", "/title plan", "/new", "the second", "/sessions")
		list := r.last(ann)
		if !strings.Contains(list, "1. “the second”") || !strings.Contains(list, "(this one)") || !strings.Contains(list, "2. “plan”") || strings.Contains(list, "secret") {
			t.Errorf("listed %q", list)
		}
		r.write(ann, "/resume plan")
		r.wantLast(ann, "We go on with “plan”, 2 messages.")
		r.write(ann, "goes on", "/title")
		r.wantLast(ann, "“plan”")
		r.write(ann, "/resume 2", "/title")
		r.wantLast(ann, "has no name")
		// What another person said is not to be had by its name.
		r.write(ann, "/resume secret")
		r.wantLast(ann, "no such conversation")
	})
}

func TestRetryAnswersAnewOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.write(ann, "what is it?")
		id := r.bot.Say(bottest.Post{From: ann, Text: "/retry"})
		r.pass(time.Second)
		r.bot.Repeat(ann, id)
		r.pass(time.Second)
		if r.host.retried != 1 {
			t.Errorf("retried %d times", r.host.retried)
		}
		r.write(ann, "/retry")
		r.wantLast(ann, "still running")
	})
}

func TestUndoTakesBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["confirm"] = false
		r.start()
		r.write(ann, "one", "two", "three")
		id := r.bot.Say(bottest.Post{From: ann, Text: "/undo 2"})
		r.pass(time.Second)
		r.bot.Repeat(ann, id)
		r.pass(time.Second)
		r.wantLast(ann, "2 messages with their answers, from “two” on")
		r.write(ann, "/undo")
		r.wantLast(ann, "Taken back: “one”")
		r.write(ann, "/undo")
		r.wantLast(ann, "nothing to take back")
	})
}

func TestNewEndsTheConversation(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["confirm"] = false
		r.start()
		r.write(ann, "one", "/new", "two", "/new three", "/sessions")
		list := r.last(ann)
		for _, want := range []string{"1. “three”", "2. “two”", "3. “one”"} {
			if !strings.Contains(list, want) {
				t.Errorf("listed %q, want %s", list, want)
			}
		}
		r.wantTaken("one", "two", "three")
	})
}

// A restart that is asked for again, because its update was not confirmed in time, is not done again.
func TestARestartIsDoneOnceThoughItsUpdateComesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["confirm"] = false
		r.users = list{"1001"}
		r.start()
		id := r.bot.Say(bottest.Post{From: ann, Text: "/restart"})
		r.pass(time.Second)
		r.wantTexts(ann, "♻ Restarting.")
		r.stop()
		r.dir = t.TempDir() // and nothing of the earlier process is kept
		r.start()
		r.bot.Repeat(ann, id)
		r.pass(time.Minute)
		if n := len(r.host.Restarts()); n != 1 {
			t.Errorf("restarted %d times", n)
		}
		r.wantTexts(ann, "♻ Restarting.")
	})
}

func TestARestartThatCannotBeSaysWhatToDo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["confirm"] = false
		r.users = list{"1001"}
		r.host.RefuseRestarts(fmt.Errorf("nothing would start it again; run it as a service: %w", ipc.ErrRefused))
		r.start()
		r.write(ann, "/restart")
		r.wantLast(ann, "run it as a service")
	})
}

func TestOnlyWhoIsNamedMayRestart(t *testing.T) {
	for _, c := range []struct {
		name  string
		users list
		pair  bool
		want  int
	}{
		{"somebody of everybody", list{"*"}, false, 0},
		{"who is named", list{"*", "1001"}, false, 1},
		{"who was let in", list{"1002"}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.set["confirm"] = false
				r.users = c.users
				r.start()
				if c.pair {
					r.write(ann, "hello")
					r.host.Approve("CODE0001")
				}
				r.write(ann, "/restart")
				if got := len(r.host.Restarts()); got != c.want {
					t.Errorf("%d restarts, want %d; told %q", got, c.want, r.last(ann))
				}
			})
		})
	}
}

// A call that fails for a while is made again, not told as a failure.
func TestACommandWaitsForTheSupervisor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.write(ann, "one")
		r.host.setAway(true)
		r.bot.Say(bottest.Post{From: ann, Text: "/title x"})
		r.pass(20 * time.Second)
		r.host.setAway(false)
		r.pass(time.Minute)
		r.wantLast(ann, "is now “x”")
	})
}
