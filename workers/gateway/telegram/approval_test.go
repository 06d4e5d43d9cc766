package telegram

import (
	"strings"
	"testing"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

const approvalID = "ap_ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// ask shows an approval request and returns the message that asks.
func (r *rig) ask() bottest.Message {
	r.t.Helper()
	r.host.mu.Lock()
	r.host.asked[approvalID] = true
	r.host.mu.Unlock()
	r.show(to(ann), "turn_1", asking(approvalID, "rm -rf ```build```", time.Minute))
	all := r.bot.Messages(ann)
	if len(all) == 0 || len(all[len(all)-1].Buttons) == 0 {
		r.t.Fatalf("nothing asks: %+v", all)
	}
	return all[len(all)-1]
}

func TestButtonsDecide(t *testing.T) {
	for _, c := range []struct {
		label, want string
		approved    bool
	}{
		{"✅ Allow", "✅ Allowed (Ann)", true},
		{"⛔ Refuse", "⛔ Refused (Ann)", false},
	} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			q := r.ask()
			if !strings.Contains(q.Text, "rm -rf ```build```") || !strings.Contains(q.Text, "it deletes files") {
				t.Errorf("asked %q", q.Text)
			}
			press := r.bot.Press(ann, ann, q.ID, c.label)
			r.pass(time.Second)
			if got, done := r.host.decisions[approvalID]; !done || got != c.approved {
				t.Errorf("decided %v %v", got, done)
			}
			now := r.bot.Messages(ann)[0]
			if !strings.Contains(now.Text, c.want) || len(now.Buttons) != 0 {
				t.Errorf("the question now reads %q with buttons %v", now.Text, now.Buttons)
			}
			if !r.bot.Query(press.ID).Answered {
				t.Error("the button still waits")
			}
			// The supervisor's own event of it changes nothing any more.
			r.show(to(ann), "turn_1", &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Decision{Decision: &turnv1.ApprovalDecision{ApprovalId: approvalID, Approved: c.approved, By: "user"}}})
			if again := r.bot.Messages(ann)[0]; again.Text != now.Text {
				t.Errorf("the question was written again: %q", again.Text)
			}
		})
	}
}

func TestSilenceIsShown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.ask()
		r.show(to(ann), "turn_1", &turnv1.TurnEvent{Event: &turnv1.TurnEvent_Decision{Decision: &turnv1.ApprovalDecision{ApprovalId: approvalID, By: "timeout"}}})
		if got := r.bot.Messages(ann)[0]; !strings.Contains(got.Text, "No answer came") || len(got.Buttons) != 0 {
			t.Errorf("the question reads %q with buttons %v", got.Text, got.Buttons)
		}
	})
}

func TestCommandsDecide(t *testing.T) {
	for _, c := range []struct {
		text     string
		approved bool
	}{{"/approve", true}, {"/deny 1", false}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			r.ask()
			r.bot.Say(bottest.Post{From: ann, Text: c.text})
			r.pass(time.Second)
			if got, done := r.host.decisions[approvalID]; !done || got != c.approved {
				t.Errorf("%s decided %v %v", c.text, got, done)
			}
			if q := r.bot.Messages(ann)[0]; len(q.Buttons) != 0 {
				t.Error("the question still has its buttons")
			}
		})
	}
}

func TestStrangersDoNotDecide(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.users = list{"1001"}
		r.start()
		q := r.ask()
		press := r.bot.Press(bob, ann, q.ID, "✅ Allow")
		r.pass(time.Second)
		if len(r.host.decisions) != 0 {
			t.Error("a stranger decided")
		}
		if got := r.bot.Query(press.ID).Answer; !strings.Contains(got, "may not") {
			t.Errorf("the stranger was told %q", got)
		}
	})
}

func TestOldButtonsAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		q := r.ask()
		for _, data := range []string{"y:ap_of_long_ago", "x", ""} {
			press := r.bot.PressData(ann, ann, q.ID, data)
			r.pass(time.Second)
			if got := r.bot.Query(press.ID); !got.Answered || got.Answer == "" {
				t.Errorf("button with %q: %+v", data, got)
			}
		}
		if len(r.host.decisions) != 0 {
			t.Errorf("decided %v", r.host.decisions)
		}
	})
}

// The question outlives the process that asked it.
func TestAButtonIsPressedAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		q := r.ask()
		r.stop()
		r.bot.Press(ann, ann, q.ID, "✅ Allow")
		r.start()
		r.pass(time.Minute)
		if got, done := r.host.decisions[approvalID]; !done || !got {
			t.Errorf("decided %v %v", got, done)
		}
		if now := r.bot.Messages(ann)[0]; !strings.Contains(now.Text, "Allowed (Ann)") || len(now.Buttons) != 0 {
			t.Errorf("the question reads %q with buttons %v", now.Text, now.Buttons)
		}
	})
}

// A decision that cannot be handed over now is handed over later: the press is not confirmed before.
func TestAPressWaitsForTheSupervisor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		q := r.ask()
		r.bot.Fail(bottest.Fault{Kind: bottest.CutAfter, Method: "answerCallbackQuery", Times: 1})
		r.bot.Press(ann, ann, q.ID, "⛔ Refuse")
		r.pass(time.Minute)
		if got, done := r.host.decisions[approvalID]; !done || got {
			t.Errorf("decided %v %v", got, done)
		}
	})
}

func TestAQuestionIsAskedThroughAFlood(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "sendMessage", Status: 429, RetryAfter: 5, Times: 1})
		r.bot.Fail(bottest.Fault{Kind: bottest.CutBefore, Method: "sendMessage", Times: 1})
		r.ask()
		if n := len(r.bot.Messages(ann)); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestAQuestionIsNotAskedTwice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.ask()
		r.show(to(ann), "turn_1", asking(approvalID, "the same again, with another deadline", time.Minute))
		if n := len(r.bot.Messages(ann)); n != 1 {
			t.Errorf("asked %d times", n)
		}
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), TurnID: "turn_1", Text: "done"})
	})
}

func TestAnOverlongQuestionFits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.show(to(ann), "turn_1", asking(approvalID, strings.Repeat("echo 😀 ", 5000), time.Minute))
		if n := len(r.bot.Messages(ann)); n != 1 {
			t.Errorf("%d messages ask", n)
		}
	})
}
