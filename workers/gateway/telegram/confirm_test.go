package telegram

import (
	"strconv"
	"strings"
	"testing"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

const (
	onceLabel   = "✅ Approve Once"
	alwaysLabel = "☑ Always Approve"
	cancelLabel = "✖ Cancel"
)

// question returns the last message of the bot, which must have buttons.
func (r *rig) question(chat int64) bottest.Message {
	r.t.Helper()
	all := r.bot.Messages(chat)
	if len(all) == 0 || len(all[len(all)-1].Buttons) == 0 {
		r.t.Fatalf("nothing is asked: %q", r.bot.Texts(chat))
	}
	return all[len(all)-1]
}

func TestWhatTakesSomethingAwayIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		command, label string
		settled, then  string
	}{
		{"/undo", onceLabel, "✅ Approved", "Taken back: “two”"},
		{"/undo 2", onceLabel, "✅ Approved", "Taken back: 2 messages"},
		{"/undo", cancelLabel, "✖ Cancelled", ""},
		{"/new", onceLabel, "✅ Approved", "Your next message begins"},
		{"/reset", cancelLabel, "✖ Cancelled", ""},
		{"/new three", onceLabel, "✅ Approved", ""},
		{"/restart", onceLabel, "✅ Approved", "♻ Restarting."},
		{"/restart", alwaysLabel, "☑ Approved, and not asked again", "♻ Restarting."},
	} {
		t.Run(c.command+" "+c.label, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.users = list{"1001"}
				r.start()
				r.write(ann, "one", "two", c.command)
				q := r.question(ann)
				press := r.bot.Press(ann, ann, q.ID, c.label)
				r.pass(5 * time.Second)
				now := r.bot.Messages(ann)
				if len(now[0].Buttons) != 0 || !strings.Contains(now[0].Text, c.settled) {
					t.Errorf("the question reads %q with %v", now[0].Text, now[0].Buttons)
				}
				if !r.bot.Query(press.ID).Answered {
					t.Error("the button still waits")
				}
				switch {
				case c.then == "" && len(now) != 1:
					t.Errorf("told %q", r.bot.Texts(ann))
				case c.then != "":
					r.wantLast(ann, c.then)
				}
				want := 2
				if c.command == "/new three" {
					want = 3
				}
				if got := len(r.host.messages()); got != want {
					t.Errorf("%d messages were handed over, want %d", got, want)
				}
			})
		})
	}
}

func TestNothingIsAskedWhereNothingIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.write(ann, "/new")
		r.wantTexts(ann, "Your next message begins a new conversation.")
	})
}

func TestAlwaysIsAskedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.write(ann, "one", "two", "/undo")
		r.bot.Press(ann, ann, r.question(ann).ID, alwaysLabel)
		r.pass(5 * time.Second)
		r.write(ann, "/undo")
		r.wantLast(ann, "Taken back: “one”")
		// It holds for this command and this person.
		r.write(ann, "three", "/new")
		r.question(ann)
		r.write(bob, "four", "/undo")
		r.question(bob)
	})
}

func TestAQuestionIsForWhoAsked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["require_mention"] = false
		r.bot.Supergroup(group, "Team")
		r.start()
		r.bot.Say(bottest.Post{From: ann, Chat: group, Text: "one"})
		r.bot.Say(bottest.Post{From: ann, Chat: group, Text: "/undo"})
		r.pass(5 * time.Second)
		q := r.question(group)
		press := r.bot.Press(bob, group, q.ID, onceLabel)
		r.pass(5 * time.Second)
		if got := r.bot.Query(press.ID).Answer; got != "This question is for somebody else." {
			t.Errorf("told %q", got)
		}
		r.question(group) // still waits
	})
}

func TestAnAnswerThatComesTooLateDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.write(ann, "one", "/undo")
		q := r.question(ann)
		r.stop() // the next process does not know where the question stands, so its buttons stay
		r.start()
		r.pass(6 * time.Minute)
		r.bot.Press(ann, ann, q.ID, onceLabel)
		r.pass(5 * time.Second)
		r.wantLast(ann, "⌛ No answer came in time")
		press := r.bot.PressData(ann, ann, q.ID, "o:c9999")
		r.pass(5 * time.Second)
		if got := r.bot.Query(press.ID).Answer; got != "This is not asked any more." {
			t.Errorf("told %q", got)
		}
	})
}

// A question that nobody answers says so by itself when its time is over, and has no buttons that do nothing. Where the
// platform, or the supervisor, cannot be reached then, it is tried again.
func TestAQuestionThatExpiresLosesItsButtons(t *testing.T) {
	for _, trouble := range []string{"", "answer"} {
		t.Run("trouble "+trouble, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				r.write(ann, "one", "/undo")
				q := r.question(ann)
				r.pass(4 * time.Minute)
				r.question(ann) // still waits
				r.host.failAt(trouble, false)
				r.pass(time.Minute + 10*time.Second)
				r.host.failAt("", false)
				r.pass(time.Minute)
				all := r.bot.Messages(ann)
				now := all[len(all)-1]
				if now.ID != q.ID || len(now.Buttons) != 0 || !strings.Contains(now.Text, "⌛ No answer came in time, so it was not done") || !strings.Contains(now.Text, "/undo") {
					t.Errorf("the question reads %q with %v", now.Text, now.Buttons)
				}
				r.write(ann, "two", "/undo")
				r.bot.Press(ann, ann, r.question(ann).ID, onceLabel)
				r.pass(5 * time.Second)
				r.wantLast(ann, "Taken back: “two”")
			})
		})
	}
}

// An answer that came in time is not written over when the time is over.
func TestAnAnsweredQuestionDoesNotExpire(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.write(ann, "one", "two", "/undo")
		r.bot.Press(ann, ann, r.question(ann).ID, cancelLabel)
		r.pass(10 * time.Minute)
		r.wantLast(ann, "✖ Cancelled")
		if n := len(r.bot.Texts(ann)); n != 1 {
			t.Errorf("told %q", r.bot.Texts(ann))
		}
	})
}

func TestTheQuestionsToExpireAreBounded(t *testing.T) {
	s, at := newShownQuestions(), time.Unix(1000, 0)
	for n := range 2 * shownLimit {
		s.add(shownQuestion{Confirmation: &hostv1.Confirmation{Id: strconv.Itoa(n)}, due: at.Add(time.Duration(n))})
	}
	s.settled(strconv.Itoa(2*shownLimit - 1))
	over, _ := s.take(at.Add(time.Hour))
	if len(over) != shownLimit-1 || over[0].Id != strconv.Itoa(shownLimit) {
		t.Errorf("%d are left", len(over))
	}
}

// Whatever dies between question, answer and deed: the question stands, the first answer holds, the deed is done once.
func TestAnAnswerOutlivesEveryProcess(t *testing.T) {
	for _, dies := range []string{"before the press", "answer", "undo", "done"} {
		for _, lost := range []bool{false, true} { // the call had its effect before the death
			t.Run(dies, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.start()
					r.write(ann, "one", "two", "/undo")
					q := r.question(ann)
					if dies == "before the press" {
						r.stop()
						r.start()
					} else {
						r.host.failAt(dies, lost)
					}
					r.bot.Press(ann, ann, q.ID, onceLabel)
					r.pass(100 * time.Millisecond)
					if dies != "before the press" {
						r.stop()
						r.host.failAt("", false)
						r.dir = t.TempDir() // and its notes are lost
						r.start()
					}
					r.pass(time.Minute)
					if got := strings.Join(r.bot.Texts(ann), "\n"); !strings.Contains(got, "Taken back: “two”") {
						t.Errorf("told %q", got)
					}
					// One is left: it was taken back once.
					r.write(ann, "/undo 5")
					r.bot.Press(ann, ann, r.question(ann).ID, onceLabel)
					r.pass(5 * time.Second)
					r.wantLast(ann, "Taken back: “one”")
				})
			})
		}
	}
}
