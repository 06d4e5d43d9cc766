package telegram

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

const carl, dora, emil = 1003, 1004, 1005

func TestAStrangerIsLetInWithACode(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.users = list{"1002"}
		r.start()
		r.write(ann, "hello?")
		r.wantLast(ann, "hermes-supervisor pairing approve telegram CODE0001")
		r.write(ann, "hello??", "hello???")
		if got := r.bot.Texts(ann); len(got) != 1 {
			t.Errorf("a stranger who writes on was told %q", got)
		}
		r.host.Approve("CODE0001")
		r.write(ann, "and now?")
		r.wantTaken("and now?")
		r.host.Revoke("1001")
		r.write(ann, "still?")
		r.wantTaken("and now?")
	})
}

func TestCodesAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.users = list{"1"}
		for _, id := range []int64{carl, dora, emil} {
			r.bot.Private(id, "P")
		}
		r.start()
		for _, id := range []int64{ann, bob, carl} {
			r.write(id, "hello?")
			r.wantLast(id, "CODE")
		}
		r.write(dora, "hello?", "hello?")
		if got := r.bot.Texts(dora); len(got) != 1 || !strings.Contains(got[0], "Too many people wait") {
			t.Errorf("told %q", got)
		}
		r.stop()
		r.start() // which does not know whom it told
		r.write(ann, "hello?")
		r.wantLast(ann, "You were given a code a short while ago")
		r.wantTaken()
	})
}

// Groups are not told: who is in one sees what others are told.
func TestAStrangerInAGroupIsToldNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.users = list{"1002"}
		r.set["require_mention"] = false
		r.bot.Supergroup(group, "Team")
		r.start()
		r.bot.Say(bottest.Post{From: ann, Chat: group, Text: "hello?"})
		r.pass(5 * time.Second)
		r.wantTexts(group)
		r.wantTexts(ann)
		r.wantTaken()
	})
}

// The supervisor knows who was let in. While it is away, nobody is turned away and nothing is lost.
func TestAStrangerWaitsForTheSupervisor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.users = list{"1002"}
		r.start()
		r.write(ann, "hello?")
		r.host.Approve("CODE0001")
		r.host.setAway(true)
		r.write(ann, "and now?")
		r.wantTaken()
		r.host.setAway(false)
		r.pass(time.Minute)
		r.wantTaken("and now?")
	})
}
