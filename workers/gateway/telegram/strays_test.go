package telegram

import (
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// lose makes the next message be sent without an answer.
func lose(r *rig) {
	r.bot.Fail(bottest.Fault{Kind: bottest.CutAfter, Method: "sendMessage", Times: 1})
}

func TestALostPlaceholderIsFoundAndTakenAway(t *testing.T) {
	for name, find := range map[string]func(r *rig){
		"while the turn runs": func(r *rig) { r.show(to(ann), "turn_1", started(1)); r.show(to(ann), "turn_1", said("Half")) },
		"by the answer":       func(*rig) {},
		"behind a person's next message": func(r *rig) {
			r.bot.Say(bottest.Post{From: ann, Text: "and?"})
			r.pass(time.Second)
		},
		"behind one that is not known yet": func(r *rig) {
			r.bot.Fail(bottest.Fault{Kind: bottest.Hang, Method: "getUpdates"})
			r.bot.Say(bottest.Post{From: ann, Text: "and?"})
		},
		"though the first look has no answer": func(r *rig) {
			r.bot.Fail(bottest.Fault{Kind: bottest.CutBefore, Method: "editMessageText", Times: 1})
			r.deliver(gateway.Delivery{ID: 9, To: to(ann), Text: "A notice."})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				asked := r.bot.Say(bottest.Post{From: ann, Text: "hello"})
				r.pass(time.Second)
				lose(r)
				at := to(ann)
				at.ReplyTo = id64(int64(asked))
				r.show(at, "turn_1", started(1))
				r.wantTexts(ann, placeholder)
				find(r)
				r.deliver(gateway.Delivery{ID: 1, To: at, Text: "The answer.", TurnID: "turn_1"})
				for _, m := range r.bot.Texts(ann) {
					if m == placeholder {
						t.Errorf("the chat shows %q", r.bot.Texts(ann))
					}
				}
			})
		})
	}
}

// What is not known to be a placeholder is never written into, nor taken away.
func TestNoOtherMessageIsTakenForALostPlaceholder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "hello"})
		r.pass(time.Second)
		lose(r)
		r.show(to(ann), "turn_1", started(1))
		lose(r)
		if _, err := r.a.sender.send(t.Context(), target{chat: ann}, render("A text of ours that had no answer.")[0], nil); err == nil {
			t.Fatal("it had one")
		}
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "The answer.", TurnID: "turn_1"})
		r.wantTexts(ann, placeholder, "A text of ours that had no answer.", "The answer.")
	})
}

func TestNothingIsAskedWhereNothingWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		for range 3 {
			r.bot.Say(bottest.Post{From: ann, Text: "hello"})
		}
		r.pass(time.Second)
		for i := range int64(3) {
			r.deliver(gateway.Delivery{ID: i + 1, To: to(ann), Text: "x"})
		}
		if edits, gone := len(r.bot.Calls("editMessageText")), len(r.bot.Calls("deleteMessage")); edits != 3 || gone != 0 {
			t.Errorf("%d edits and %d removals", edits, gone)
		}
	})
}
