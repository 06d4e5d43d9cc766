package telegram

import (
	"strings"
	"testing"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

func TestAMessageToABusyConversationIsAcknowledgedOnce(t *testing.T) {
	for _, c := range []struct {
		mode, command string
		want          string // of the acknowledgement
		stopped       string
		steered       string
	}{
		{mode: "interrupt", want: "⚡", stopped: "turn_1"},
		{mode: "queue", want: "⏳"},
		{mode: "steer", want: "⏩", steered: "and this"},
		{mode: "interrupt", command: "/queue ", want: "⏳"},
		{mode: "interrupt", command: "/steer ", want: "⏩", steered: "and this"},
	} {
		t.Run(c.mode+c.command, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.host.busy = true
				r.set["busy"] = c.mode
				r.start()
				r.write(ann, "a long task")
				id := r.bot.Say(bottest.Post{From: ann, Text: c.command + "and this"})
				r.pass(time.Second)
				r.bot.Repeat(ann, id)
				r.pass(time.Second)
				if got := r.bot.Texts(ann); len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
					t.Errorf("told %q, want one %s", got, c.want)
				}
				if got := strings.Join(r.host.stopped, " "); got != c.stopped {
					t.Errorf("stopped %q", got)
				}
				if got := strings.Join(r.host.Steered("turn_1"), " "); got != c.steered {
					t.Errorf("steered %q", got)
				}
			})
		})
	}
}

func TestABurstHasOneAcknowledgement(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.busy = true
		r.set["busy"] = "queue"
		r.start()
		r.write(ann, "a long task", "and", "then", "this")
		if got := r.bot.Texts(ann); len(got) != 1 {
			t.Errorf("told %q", got)
		}
		r.pass(noticeAgain)
		r.write(ann, "and that")
		if got := r.bot.Texts(ann); len(got) != 2 || !strings.Contains(got[1], "4 others") {
			t.Errorf("told %q", got)
		}
		r.wantTaken("a long task", "and", "then", "this", "and that")
	})
}

func TestAnAcknowledgementCanBeSwitchedOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.busy = true
		r.set["busy_notice"] = false
		r.start()
		r.write(ann, "a long task", "and this")
		r.wantTexts(ann)
	})
}

// A picture is often an afterthought: it ends nothing.
func TestAPictureDoesNotInterrupt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.busy = true
		r.start()
		r.write(ann, "a long task")
		r.bot.Say(bottest.Post{From: ann, Text: "look", Photo: []byte("\xff\xd8\xffpicture")})
		r.pass(5 * time.Second)
		if got := r.host.messages()[1].Busy; got != hostv1.Busy_BUSY_QUEUE || len(r.host.stopped) != 0 {
			t.Errorf("handed over as %s, stopped %q", got, r.host.stopped)
		}
	})
}

// A person is told that a message waits only after it is stored.
func TestWhatIsNotStoredIsNotAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.host.busy = true
		r.set["busy"] = "queue"
		r.start()
		r.write(ann, "a long task")
		r.host.fail(gone)
		r.write(ann, "and this")
		r.wantTexts(ann)
		r.host.fail(nil)
		r.pass(time.Minute)
		if got := r.bot.Texts(ann); len(got) != 1 || !strings.HasPrefix(got[0], "⏳") {
			t.Errorf("told %q", got)
		}
	})
}

func TestFilesBesideACommandComeAlong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "/queue read this", File: bottest.Upload{Name: "a.pdf", Data: []byte("%PDF")}})
		r.pass(5 * time.Second)
		got := r.host.messages()
		if len(got) != 1 || got[0].Text != "read this" || len(got[0].Files) != 1 {
			t.Errorf("handed over %+v", got)
		}
	})
}
