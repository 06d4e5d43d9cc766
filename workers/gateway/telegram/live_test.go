package telegram

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

func TestARunningTurnIsStreamedIntoOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", started(1))
		r.wantTexts(ann, placeholder)
		text := ""
		for i := range 5 {
			text += fmt.Sprintf("word%d ", i)
			r.show(to(ann), "turn_1", said(text))
		}
		r.wantTexts(ann, strings.TrimSpace(text)+cursor)
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "All **done**.", TurnID: "turn_1"})
		r.wantTexts(ann, "All done.")
		if n := len(r.bot.Calls("sendMessage")); n != 1 {
			t.Errorf("%d messages were sent", n)
		}
	})
}

// The spec's pace: 0.8 s between edits, 3 s in groups.
func TestEditsKeepTheirPace(t *testing.T) {
	for _, c := range []struct {
		chat int64
		pace time.Duration
	}{{ann, 800 * time.Millisecond}, {group, groupInterval}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.bot.Supergroup(group, "Team")
			r.start()
			for i := range 20 {
				r.show(to(c.chat), "turn_1", said(strings.Repeat("word ", i+1)))
			}
			edits := r.bot.Calls("editMessageText")
			for i := 1; i < len(edits); i++ {
				if gap := edits[i].Time.Sub(edits[i-1].Time); gap < c.pace {
					t.Fatalf("chat %d: edits %s apart", c.chat, gap)
				}
			}
			if len(edits) < 15 {
				t.Errorf("only %d edits", len(edits))
			}
		})
	}
}

func TestStreamingSlowsDownAndStopsInAFlood(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", started(1))
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "editMessageText", Status: 429, RetryAfter: 1, Times: maxStrikes})
		for i := range 40 {
			r.show(to(ann), "turn_1", said(strings.Repeat("word ", i+1)))
			time.Sleep(100 * time.Millisecond)
		}
		edits := r.bot.Calls("editMessageText")
		if len(edits) != maxStrikes {
			t.Fatalf("%d edits were tried, want %d", len(edits), maxStrikes)
		}
		for i, least := 1, 1600*time.Millisecond; i < len(edits); i, least = i+1, 2*least {
			if gap := edits[i].Time.Sub(edits[i-1].Time); gap < least {
				t.Errorf("edit %d came %s after the one before, want %s", i, gap, least)
			}
		}
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "the whole answer", TurnID: "turn_1"})
		r.wantTexts(ann, "the whole answer")
	})
}

func TestANewAttemptVoidsTheText(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", said("the first try says"))
		r.show(to(ann), "turn_1", started(2))
		r.show(to(ann), "turn_1", said("the second"))
		r.wantTexts(ann, "the second"+cursor)
	})
}

func TestToolsAndNoticesAreShownBelowTheText(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		tool := func(id, name, summary string) *turnv1.TurnEvent {
			return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolStarted{ToolStarted: &turnv1.ToolStarted{CallId: id, Tool: name, Summary: summary}}}
		}
		done := func(id, name string, ok bool) *turnv1.TurnEvent {
			return &turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolFinished{ToolFinished: &turnv1.ToolFinished{CallId: id, Tool: name, Ok: ok}}}
		}
		r.show(to(ann), "turn_1", said("Let me look."))
		r.show(to(ann), "turn_1", tool("1", "terminal", "ls\n-l *"+strings.Repeat("x", 500)))
		r.show(to(ann), "turn_1", tool("2", "read_file", "a_b_c.txt"))
		r.show(to(ann), "turn_1", done("1", "terminal", false))
		r.show(to(ann), "turn_1", &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Notice{Notice: &turnv1.Notice{Text: "the provider is slow"}}})
		got := r.bot.Texts(ann)[0]
		want := "Let me look. ▉\n\n✗ terminal: ls -l *" + strings.Repeat("x", 120-len("terminal: ls -l *")) + "…\n⚙ read_file: a_b_c.txt\nthe provider is slow"
		if got != want {
			t.Errorf("the chat shows %q, want %q", got, want)
		}
	})
}

func TestALongTextIsStreamedIntoSeveralMessages(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		text := strings.Repeat("A sentence of it. ", 600)
		r.show(to(ann), "turn_1", said(text))
		r.show(to(ann), "turn_1", said(text+"And the end."))
		shown := strings.Join(r.bot.Texts(ann), " ")
		if len(r.bot.Messages(ann)) != 3 || strings.Count(shown, "A sentence") != 600 || !strings.HasSuffix(shown, "And the end."+cursor) {
			t.Errorf("the chat shows %d messages: %.80q", len(r.bot.Messages(ann)), shown)
		}
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "It is shorter now.", TurnID: "turn_1"})
		r.wantTexts(ann, "It is shorter now.")
	})
}

// A process that dies while it streams leaves a message behind, which its successor goes on with.
func TestAStreamedMessageOutlivesItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", said("Half a"))
		r.show(to(ann), "turn_1", said("Half an answer"))
		r.stop()
		r.start()
		r.show(to(ann), "turn_1", started(2))
		r.show(to(ann), "turn_1", said("Again"))
		r.stop()
		r.start()
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "The answer.", TurnID: "turn_1"})
		r.wantTexts(ann, "The answer.")
	})
}

func TestShowEndsWhenAnAnswerWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		ctx, cancel := context.WithCancel(r.t.Context())
		event := said("text")
		event.TurnId = "turn_1"
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			r.a.Show(ctx, to(ann), event)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Error("Show goes on")
		}
	})
}

func TestWithoutStreamingOnlyTheSignIsShown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["streaming"] = false
		r.start()
		r.show(to(ann), "turn_1", started(1))
		r.show(to(ann), "turn_1", said("text"))
		r.pass(time.Second)
		r.wantTexts(ann)
		if len(r.bot.Calls("sendChatAction")) == 0 {
			t.Error("no sign of typing")
		}
	})
}

func TestTypingIsShownUntilTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", started(1))
		r.pass(20 * time.Second)
		signs := r.bot.Calls("sendChatAction")
		if len(signs) < 4 || len(signs) > 6 {
			t.Errorf("%d signs in 20 s", len(signs))
		}
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "x", TurnID: "turn_1"})
		n := len(r.bot.Calls("sendChatAction"))
		r.pass(time.Minute)
		if more := len(r.bot.Calls("sendChatAction")) - n; more > 0 {
			t.Errorf("%d signs after the answer", more)
		}
	})
}

func TestTypingEndsWhenNothingIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", started(1))
		r.pass(2 * typingLife)
		n := len(r.bot.Calls("sendChatAction"))
		r.pass(time.Hour)
		if more := len(r.bot.Calls("sendChatAction")) - n; more > 0 {
			t.Errorf("%d signs for a turn that nobody hears of", more)
		}
	})
}

// A sign that hangs in one chat is no reason to show none in another.
func TestTypingOfAChatThatHangsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.Hang, Method: "sendChatAction", Chat: ann})
		r.show(to(ann), "turn_1", started(1))
		r.show(to(bob), "turn_2", started(1))
		r.pass(5 * time.Second)
		for _, c := range r.bot.Calls("sendChatAction") {
			if c.Chat() == bob && c.Status == 200 {
				return
			}
		}
		t.Error("no sign in the other chat")
	})
}

// The answer of an earlier turn comes first in the chat, however early a later one begins.
func TestAnswersStandInTheOrderOfTheirTurns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "one"})
		r.bot.Say(bottest.Post{From: ann, Text: "two"})
		r.pass(time.Second)
		r.show(to(ann), "turn_2", started(1))
		r.show(to(ann), "turn_2", said("streamed before the first answer"))
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "first", TurnID: "turn_1"})
		r.show(to(ann), "turn_2", said("streamed after it"))
		r.deliver(gateway.Delivery{ID: 2, To: to(ann), Text: "second", TurnID: "turn_2"})
		r.wantTexts(ann, "first", "second")
		if n := len(r.bot.Calls("deleteMessage")); n > 0 {
			t.Errorf("%d messages were shown too early and taken away", n)
		}
	})
}

// A new process does not know that an answer is owed, and shows a later turn: that makes way.
func TestAnAnswerOvertakesWhatANewProcessShowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_2", started(1))
		r.show(to(ann), "turn_2", said("streamed too early"))
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "first", TurnID: "turn_1"})
		r.show(to(ann), "turn_2", said("streamed again"))
		r.wantTexts(ann, "first", "streamed again"+cursor)
		r.deliver(gateway.Delivery{ID: 2, To: to(ann), Text: "second", TurnID: "turn_2"})
		r.wantTexts(ann, "first", "second")
	})
}

// In a group each person has a conversation, and they go on side by side.
func TestConversationsInAGroupStandBesideEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["require_mention"] = false
		r.bot.Supergroup(group, "Team")
		r.start()
		r.bot.Say(bottest.Post{From: ann, Chat: group, Text: "one"})
		r.bot.Say(bottest.Post{From: bob, Chat: group, Text: "two"})
		r.pass(time.Second)
		r.show(to(group), "turn_2", said("for Bob"))
		r.show(to(group), "turn_1", said("for Ann"))
		r.deliver(gateway.Delivery{ID: 1, To: to(group), Text: "Ann's", TurnID: "turn_1"})
		r.wantTexts(group, "for Bob"+cursor, "Ann's")
		r.deliver(gateway.Delivery{ID: 2, To: to(group), Text: "Bob's", TurnID: "turn_2"})
		r.wantTexts(group, "Bob's", "Ann's")
	})
}

// An edit that the platform works off slowly must not come behind the answer, whoever has given it up.
func TestALateEditDoesNotReplaceTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		delay  time.Duration
		killed bool
		edits  int // of all
	}{
		"it is waited for":                    {delay: lastCall / 2, edits: 2},
		"it is given up":                      {delay: 2 * time.Second, edits: 3},
		"it is one of a process that is gone": {delay: time.Second, killed: true, edits: 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.show(to(ann), "turn_1", started(1))
				r.bot.Fail(bottest.Fault{Kind: bottest.Late, Method: "editMessageText", Delay: c.delay, Times: 1})
				ctx, cancel := context.WithCancel(t.Context())
				event := said("Half an answer")
				event.TurnId = "turn_1"
				shown := make(chan struct{})
				go func() { defer close(shown); r.a.Show(ctx, to(ann), event) }()
				r.pass(10 * time.Millisecond)
				cancel() // an answer is there
				if <-shown; c.killed {
					r.stop()
					r.start()
				}
				r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "The answer.", TurnID: "turn_1"})
				r.pass(time.Minute)
				r.wantTexts(ann, "The answer.")
				if n := len(r.bot.Calls("editMessageText")); n != c.edits {
					t.Errorf("%d edits, want %d", n, c.edits)
				}
			})
		})
	}
}

func TestAPlaceholderThatIsBeingSentIsNotLostToAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.SlowAfter, Method: "sendMessage", Delay: lastCall / 2, Times: 1})
		ctx, cancel := context.WithCancel(t.Context())
		event := started(1)
		event.TurnId = "turn_1"
		shown := make(chan struct{})
		go func() { defer close(shown); r.a.Show(ctx, to(ann), event) }()
		r.pass(10 * time.Millisecond)
		cancel()
		<-shown
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "The answer.", TurnID: "turn_1"})
		r.wantTexts(ann, "The answer.")
	})
}
