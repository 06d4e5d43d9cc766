package telegram

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

func TestConnectedMeansThatAPollCompleted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		wedge := r.bot.Fail(bottest.Fault{Kind: bottest.Hang, Method: "getUpdates"})
		r.start()
		if len(r.bot.Calls("getMe")) == 0 {
			t.Fatal("the bot was not looked up")
		}
		r.wantState(gateway.StateConnecting)
		r.bot.Mend(wedge)
		r.pass(20 * time.Second)
		r.wantState(gateway.StateConnected)
		if r.a.Status().LastReceive.IsZero() {
			t.Error("no time of the last receive")
		}
	})
}

// The counter of conflicts began anew with each poll that was merely started, and the bot was deaf for
// days while all looked well.
func TestARivalIsSeenWithoutASpinAndRecoversByItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["home_chat"] = id64(bob)
		r.start()
		r.wantState(gateway.StateConnected)
		r.bot.Rival(true)
		before := len(r.bot.Calls())
		begin := time.Now()
		for time.Since(begin) < 10*time.Minute {
			r.pass(time.Second)
			if s := r.a.Status(); s.State != gateway.StateConflict || s.Detail == "" {
				t.Fatalf("after %s of conflict the state is %s (%s)", time.Since(begin), s.State, s.Detail)
			}
		}
		if n := len(r.bot.Calls()) - before; n > 20 {
			t.Errorf("%d requests in 10 minutes of conflict", n)
		}
		if told := r.bot.Texts(bob); len(told) != 1 || !strings.Contains(told[0], "Another program") {
			t.Errorf("the home chat was told %q", told)
		}
		r.bot.Rival(false)
		r.bot.Say(bottest.Post{From: ann, Text: "are you there?"})
		r.pass(maxConflictWait)
		r.wantState(gateway.StateConnected)
		r.wantTaken("are you there?")
	})
}

// The gateway may be started again and again while a rival polls. The home chat hears of it once, and of the next one again.
func TestAConflictIsToldOnceOverRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["home_chat"] = id64(bob)
		for round := range 2 {
			r.bot.Rival(true)
			for range 3 {
				r.start()
				r.pass(5 * time.Minute)
				r.wantState(gateway.StateConflict)
				r.stop()
			}
			if told := r.bot.Texts(bob); len(told) != round+1 {
				t.Errorf("conflict %d: the home chat was told %q", round+1, told)
			}
			r.bot.Rival(false)
			r.start()
			r.pass(maxConflictWait)
			r.wantState(gateway.StateConnected)
			r.stop()
		}
	})
}

// The old process's last poll is held for a while, and a restart into it must not be its end.
func TestARestartIntoAMinuteOfConflictSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Rival(true)
		r.start()
		for range 60 {
			r.pass(time.Second)
			r.wantState(gateway.StateConflict)
		}
		r.bot.Rival(false)
		r.pass(maxConflictWait)
		r.wantState(gateway.StateConnected)
	})
}

// Only one thing polls, whatever goes wrong.
func TestPollsAreStrictlySequential(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["retry_longest"] = "2s"
		kinds := []bottest.FaultKind{bottest.CutBefore, bottest.CutAfter, bottest.Garbage, bottest.Refuse}
		for i := range 100 {
			r.bot.Fail(bottest.Fault{Kind: kinds[i%len(kinds)], Method: "getUpdates", Times: 1, Status: []int{502, 409, 500}[i%3]})
		}
		r.start()
		r.pass(30 * time.Minute)
		r.wantState(gateway.StateConnected)
		if n := r.bot.Polls(); n != 1 {
			t.Errorf("%d polls at the same time", n)
		}
		if n := len(r.bot.Calls("getUpdates")); n < 100 {
			t.Errorf("%d polls in all, so not all faults were met", n)
		}
	})
}

// A probe of other methods was well for hours while polls were wedged.
func TestWedgedPollsAreDeafnessWhateverElseWorks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		wedge := r.bot.Fail(bottest.Fault{Kind: bottest.Hang, Method: "getUpdates"})
		r.pass(50 * time.Second) // the poll that was under way ends
		if out := r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "still sending"}); out[len(out)-1].State != gateway.StateSent {
			t.Fatal("sending does not work, so the test shows nothing")
		}
		r.pass(deafAfter)
		r.wantState(gateway.StateDeaf)
		r.bot.Mend(wedge)
		r.bot.Say(bottest.Post{From: ann, Text: "hello?"})
		r.pass(3 * time.Minute)
		r.wantState(gateway.StateConnected)
		r.wantTaken("hello?")
	})
}

// An outage could not be told from silence.
func TestAnOutageHasACauseAndAnEndWithoutTraffic(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		down := r.bot.Fail(bottest.Fault{Kind: bottest.CutBefore})
		r.bot.Cut()
		r.pass(30 * time.Second)
		if s := r.a.Status(); s.State != gateway.StateDegraded || !strings.Contains(s.Detail, "EOF") {
			t.Errorf("state is %s (%s)", s.State, s.Detail)
		}
		r.pass(5 * time.Minute)
		r.wantState(gateway.StateDeaf)
		r.bot.Mend(down)
		r.pass(6 * time.Minute)
		r.wantState(gateway.StateConnected)
	})
}

func TestNetworkErrorsAreWaitedOutForEver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		down := r.bot.Fail(bottest.Fault{Kind: bottest.CutBefore})
		r.start()
		r.pass(72 * time.Hour)
		calls := r.bot.Calls()
		if n := len(calls); n > 72*60/4+50 {
			t.Errorf("%d requests in three days without network", n)
		}
		if gap := calls[len(calls)-1].Time.Sub(calls[len(calls)-2].Time); gap < 4*time.Minute || gap > 5*time.Minute {
			t.Errorf("the waits have grown to %s", gap)
		}
		r.bot.Mend(down)
		r.pass(5 * time.Minute)
		r.wantState(gateway.StateConnected)
	})
}

func TestARefusedTokenIsSaidAndTriedSeldom(t *testing.T) {
	for _, status := range []int{401, 404} {
		bubble(t, func(t *testing.T, r *rig) {
			refused := r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Status: status})
			r.start()
			r.wantState(gateway.StateUnauthorised)
			r.pass(time.Hour)
			r.wantState(gateway.StateUnauthorised)
			if n := len(r.bot.Calls()); n > 20 {
				t.Errorf("%d requests in an hour with a token that is refused", n)
			}
			r.bot.Mend(refused)
			r.pass(5 * time.Minute)
			r.wantState(gateway.StateConnected)
		})
	}
}

func TestAFloodOfPollsIsObeyed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "getUpdates", Status: 429, RetryAfter: 40, Times: 1})
		r.start()
		r.pass(time.Minute)
		polls := r.bot.Calls("getUpdates")
		if gap := polls[1].Time.Sub(polls[0].Time); gap < 40*time.Second || gap > 42*time.Second {
			t.Errorf("polled again after %s", gap)
		}
		r.wantState(gateway.StateConnected)
	})
}

func TestAWebhookIsTakenAwayWithoutLosingWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.SetWebhook("https://old.example.com/hook")
		r.bot.Say(bottest.Post{From: ann, Text: "sent to the webhook"})
		r.start()
		r.pass(10 * time.Second)
		r.wantState(gateway.StateConnected)
		r.wantTaken("sent to the webhook")
		if !strings.Contains(r.host.timeline(), "webhook") {
			t.Errorf("the timeline does not tell: %q", r.host.timeline())
		}
	})
}

// After a quiet week Telegram chooses new numbers, which may be lower. An old offset would drop all of them unseen.
func TestNumbersThatBeginAnewAreReceived(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "before"})
		r.pass(8 * 24 * time.Hour)
		r.bot.JumpIDs(1000)
		r.bot.Say(bottest.Post{From: ann, Text: "after a week"})
		r.bot.Say(bottest.Post{From: ann, Text: "and one more"})
		r.pass(time.Minute)
		r.wantTaken("before", "after a week", "and one more")
	})
}

func TestASupervisorThatIsAwayIsWaitedForAndSaid(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.host.fail(gone)
		r.bot.Say(bottest.Post{From: ann, Text: "one"})
		r.bot.Say(bottest.Post{From: bob, Text: "two"})
		r.pass(20 * time.Second)
		if s := r.a.Status(); s.State != gateway.StateDegraded || !strings.Contains(s.Detail, "wait for the supervisor") {
			t.Errorf("state is %s (%s)", s.State, s.Detail)
		}
		if n := r.bot.Waiting(); n != 2 {
			t.Errorf("%d updates are still owed by Telegram, want 2: the offset moved too early", n)
		}
		r.host.fail(nil)
		r.pass(time.Minute)
		r.wantState(gateway.StateConnected)
		if got := r.host.texts(); len(got) != 2 {
			t.Errorf("handed over %q", got)
		}
		r.pass(time.Minute)
		if n := r.bot.Waiting(); n != 0 {
			t.Errorf("%d updates were never confirmed", n)
		}
	})
}

func TestDrainTakesNothingNewAndKeepsTheRestForTheSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "before"})
		r.pass(time.Second)
		if left := r.a.Drain(r.t.Context()); left != 0 {
			t.Errorf("%d left over", left)
		}
		r.bot.Say(bottest.Post{From: ann, Text: "while draining"})
		r.pass(time.Minute)
		r.wantTaken("before")
		if out := r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "the answer"}); out[len(out)-1].State != gateway.StateSent {
			t.Error("answers of turns that end meanwhile do not get out")
		}
		r.stop()
		r.start()
		r.pass(time.Minute)
		r.wantTaken("before", "while draining")
	})
}
