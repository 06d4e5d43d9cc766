package telegram

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	botapi "github.com/go-telegram/bot"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// attempt makes one attempt of a delivery.
func (r *rig) attempt(d gateway.Delivery) gateway.Delivered {
	ctx, cancel := context.WithTimeout(r.t.Context(), 29*time.Second)
	defer cancel()
	return r.a.Deliver(ctx, d)
}

func TestAnAnswerIsAnEditOfAPlaceholderThatTheSupervisorKnows(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		q := r.bot.Say(bottest.Post{From: ann, Text: "hello"})
		at := to(ann)
		at.ReplyTo = fmt.Sprint(q)
		d := gateway.Delivery{ID: 1, To: at, Text: "**Hi** there", TurnID: "turn_1", Attempt: 1}
		first := r.attempt(d)
		if first.State != gateway.StateRetry || len(first.MessageIDs) != 1 || first.RetryAfter > time.Second || first.RetryAfter <= 0 {
			t.Fatalf("first attempt: %+v", first)
		}
		r.wantTexts(ann, placeholder)
		d.Attempt, d.MessageIDs = 2, first.MessageIDs
		if second := r.attempt(d); second.State != gateway.StateSent || len(second.MessageIDs) != 1 || second.MessageIDs[0] != first.MessageIDs[0] {
			t.Fatalf("second attempt: %+v", second)
		}
		m := r.bot.Messages(ann)[0]
		if m.Text != "Hi there" || len(m.Entities) != 1 || m.Entities[0] != (bottest.Entity{Type: "bold", Offset: 0, Length: 2}) || m.ReplyTo != q {
			t.Errorf("the message is %+v", m)
		}
		// The report was lost: the same again is success and changes nothing ("message is not modified").
		if third := r.attempt(d); third.State != gateway.StateSent {
			t.Errorf("third attempt: %+v", third)
		}
		r.wantTexts(ann, "Hi there")
	})
}

func TestAFailedRequestDoublesNothingWhereverItFails(t *testing.T) {
	for _, method := range []string{"sendMessage", "editMessageText"} {
		for _, f := range []bottest.Fault{
			{Kind: bottest.CutBefore}, {Kind: bottest.CutAfter}, {Kind: bottest.Hang}, {Kind: bottest.SlowAfter, Delay: 20 * time.Second},
			{Kind: bottest.Garbage, Status: 502}, {Kind: bottest.Refuse, Status: 502}, {Kind: bottest.Refuse, Status: 500},
			{Kind: bottest.Refuse, Status: 429, RetryAfter: 7},
		} {
			t.Run(fmt.Sprintf("%s %s %d", method, f.Kind, f.Status), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.start()
					f.Method, f.Times = method, 3
					r.bot.Fail(f)
					answer := strings.Repeat("A long answer. ", 400)
					r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: answer, TurnID: "turn_1"})
					whole := ""
					for _, s := range r.bot.Texts(ann) {
						if s != placeholder { // of a request that had its effect and no answer
							whole += s + " "
						}
					}
					if strings.Count(whole, "A long answer.") != 400 {
						t.Errorf("the chat shows %q", r.bot.Texts(ann))
					}
				})
			})
		}
	}
}

// The placeholders are noted as they are sent, so that a process that dies before it reports them leaves none behind.
func TestALostReportLeavesNoPlaceholderBehind(t *testing.T) {
	for _, turn := range []string{"turn_1", ""} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			d := gateway.Delivery{ID: 7, To: to(ann), Text: strings.Repeat("A long answer. ", 400), TurnID: turn, Attempt: 1}
			r.attempt(d) // and nobody hears of it
			r.stop()
			r.start()
			r.deliver(d)
			if n := len(r.bot.All(ann)); n != 2 {
				t.Errorf("%d messages for two parts: %.20q", n, r.bot.Texts(ann))
			}
		})
	}
}

// Requests fail at random, before and after their effect, and the process is replaced in between: what the chat shows in
// the end is each answer once, in order, beside stray placeholders.
func TestAnswersThroughAnyFaultsAndRestarts(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				dice, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // the server has its own
				r.bot.Inject(func(c bottest.Call) *bottest.Fault {
					if strings.HasPrefix(c.Method, "get") || faults.IntN(3) > 0 {
						return nil
					}
					return &bottest.Fault{Kind: bottest.FaultKind(1 + faults.IntN(7)), Status: []int{429, 500, 502}[faults.IntN(3)], RetryAfter: 2, Delay: time.Duration(faults.IntN(20)) * time.Second}
				})
				r.start()
				var want []string
				for n := range 10 {
					answer := fmt.Sprintf("Answer %d. %s", n, strings.Repeat("More of it. ", dice.IntN(600)))
					want = append(want, text.Markdown(answer).Split(text.Limit{Size: maxText})[0].Text[:9])
					d := gateway.Delivery{ID: int64(n), To: to(ann), Text: answer, TurnID: fmt.Sprint("turn_", n)}
					r.showFor(dice, d)
					r.deliverWithRestarts(dice, d)
				}
				got := strings.Join(r.bot.Texts(ann), " ")
				for i, w := range want {
					if n := strings.Count(got, w); n != 1 {
						t.Errorf("%d times %q", n, w)
					}
					if i > 0 && strings.Index(got, w) < strings.Index(got, want[i-1]) {
						t.Errorf("%q is shown before %q", w, want[i-1])
					}
				}
			})
		})
	}
}

// showFor shows a turn as it runs, as far as the dice say.
func (r *rig) showFor(dice *rand.Rand, d gateway.Delivery) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	for i := range dice.IntN(4) {
		event := started(1)
		if i > 0 {
			event = said(d.Text[:min(len(d.Text), i*400)])
		}
		event.TurnId = d.TurnID
		r.a.Show(ctx, d.To, event)
	}
	if dice.IntN(4) == 0 {
		r.stop()
		r.start()
	}
}

func (r *rig) deliverWithRestarts(dice *rand.Rand, d gateway.Delivery) {
	for d.Attempt = 1; d.Attempt < 100; d.Attempt++ {
		out := r.attempt(d)
		if dice.IntN(5) == 0 { // the report is lost with the process
			r.stop()
			r.start()
			continue
		}
		if len(out.MessageIDs) > 0 {
			d.MessageIDs = out.MessageIDs
		}
		if out.State == gateway.StateSent {
			return
		}
		time.Sleep(max(out.RetryAfter, time.Second))
	}
	r.t.Fatalf("%s was never delivered", d.TurnID)
}

func TestAFloodWaitIsObeyedAndHoldsUpNoOtherChat(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Status: 429, RetryAfter: 900, Chat: ann, Times: 1})
		begin := time.Now()
		d := gateway.Delivery{ID: 1, To: to(ann), Text: "to Ann", Attempt: 1}
		if out := r.attempt(d); out.State != gateway.StateRetry || out.RetryAfter != 900*time.Second {
			t.Errorf("outcome %+v, want a retry after 900 s", out)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the delivery was held for %s", took)
		}
		calls := len(r.bot.Calls())
		r.deliver(gateway.Delivery{ID: 2, To: to(bob), Text: "to Bob"})
		r.wantTexts(bob, "to Bob")
		// What is not essential is left out while the chat may not be written to.
		r.show(to(ann), "turn_1", started(1))
		r.show(to(ann), "turn_1", said("streaming"))
		r.attempt(d)
		r.pass(899 * time.Second)
		for _, c := range r.bot.Calls()[calls:] {
			if c.Chat() == ann {
				t.Errorf("%s to a chat that asked to wait, after %s", c.Method, c.Time.Sub(begin))
			}
		}
		d.Attempt = 2
		r.deliver(d)
		r.wantTexts(ann, "to Ann")
	})
}

// Many chats at once over their limits mean that the bot is: then it waits as a whole.
func TestAFloodOfTheWholeBotIsObeyedByAllChats(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "sendMessage", Status: 429, RetryAfter: 30, Times: manyFlooded})
		for i := range int64(manyFlooded) {
			r.bot.Private(3000+i, "P")
			r.attempt(gateway.Delivery{ID: i, To: to(3000 + i), Text: "x", Attempt: 1})
		}
		if out := r.attempt(gateway.Delivery{ID: 9, To: to(ann), Text: "x", Attempt: 1}); out.State != gateway.StateRetry || out.RetryAfter < 28*time.Second {
			t.Errorf("another chat: %+v", out)
		}
		r.pass(31 * time.Second)
		r.deliver(gateway.Delivery{ID: 9, To: to(ann), Text: "x", Attempt: 1})
	})
}

// 429 storms: a server that counts for itself refuses most, and still nothing is lost or doubled.
func TestAStormOfRefusalsLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Limit(3, 20, 3*time.Second, 2)
		r.start()
		const chats, each = 12, 6
		done := make(chan struct{})
		for c := range int64(chats) {
			r.bot.Private(3000+c, "P")
			go func() {
				defer func() { done <- struct{}{} }()
				for n := range int64(each) {
					r.deliver(gateway.Delivery{ID: c*100 + n, To: to(3000 + c), Text: fmt.Sprint("answer ", n), TurnID: fmt.Sprintf("t%d_%d", c, n)})
				}
			}()
		}
		for range chats {
			<-done
		}
		refused := 0
		for _, c := range r.bot.Calls() {
			if c.Status == 429 {
				refused++
			}
		}
		if refused == 0 {
			t.Error("nothing was refused, so nothing is tested")
		}
		for c := range int64(chats) {
			r.wantTexts(3000+c, "answer 0", "answer 1", "answer 2", "answer 3", "answer 4", "answer 5")
		}
	})
}

func TestEveryPartFitsWhateverTheText(t *testing.T) {
	for _, s := range []string{strings.Repeat("!", 4096), strings.Repeat("<&>", 3000), strings.Repeat("😀", 5000), strings.Repeat("**a** ", 2000), "```\n" + strings.Repeat("x = 1\n", 2000) + "```"} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: s})
			for _, c := range r.bot.Calls() {
				if c.Status == 400 {
					t.Errorf("refused: %s", c.Error)
				}
			}
		})
	}
}

func TestFormattingThatIsRefusedCostsNoText(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Inject(func(c bottest.Call) *bottest.Fault {
			if c.Params["entities"] == "" {
				return nil
			}
			return &bottest.Fault{Kind: bottest.Refuse, Status: 400, Description: "Bad Request: can't parse entities: unsupported"}
		})
		r.start()
		md := strings.Repeat("x", 4000) + " **" + strings.Repeat("bold ", 40) + "** and [a link](https://example.com/x)"
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: md})
		all := strings.Join(r.bot.Texts(ann), " ")
		if strings.Count(all, "bold") != 40 || !strings.Contains(all, "a link (https://example.com/x)") {
			t.Errorf("the chat shows %q", all)
		}
	})
}

func TestAChatThatWantsNothingIsParkedWithTheReason(t *testing.T) {
	for _, why := range []string{"bot was blocked by the user", "user is deactivated", "bot was kicked from the group chat"} {
		bubble(t, func(t *testing.T, r *rig) {
			r.start()
			r.bot.Block(ann, why)
			out := r.attempt(gateway.Delivery{ID: 1, To: to(ann), Text: "x", Attempt: 1})
			if out.State != gateway.StateRejected || !strings.Contains(out.Detail, why) {
				t.Errorf("%s: %+v", why, out)
			}
		})
	}
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		for _, chat := range []string{"77", "elsewhere"} {
			out := r.attempt(gateway.Delivery{ID: 1, To: gateway.To{ChatID: chat}, Text: "x", Attempt: 1})
			if out.State != gateway.StateRejected || out.Detail == "" {
				t.Errorf("chat %s: %+v", chat, out)
			}
		}
	})
}

func TestATokenThatIsRefusedParksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		f := r.bot.Fail(bottest.Fault{Kind: bottest.Refuse, Method: "sendMessage", Status: 401})
		if out := r.attempt(gateway.Delivery{ID: 1, To: to(ann), Text: "x", Attempt: 1}); out.State != gateway.StateRetry {
			t.Errorf("%+v", out)
		}
		r.bot.Mend(f)
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: "x", Attempt: 1})
	})
}

// A topic that is gone was written to for ever.
func TestAnAnswerToATopicThatIsGoneReachesTheChat(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Supergroup(forum, "Forum", topic)
		r.start()
		at := gateway.To{ChatID: id64(forum), ThreadID: fmt.Sprint(topic)}
		r.deliver(gateway.Delivery{ID: 1, To: at, Text: "in the topic"})
		r.bot.CloseTopic(forum, topic)
		if all := r.deliver(gateway.Delivery{ID: 2, To: at, Text: "where is it?"}); len(all) > 2 {
			t.Errorf("%d attempts", len(all))
		}
		r.deliver(gateway.Delivery{ID: 3, To: at, Text: "not asked again"})
		asked := 0
		for _, c := range r.bot.Calls("sendMessage") {
			if c.Error != "" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("the dead topic was tried %d times", asked)
		}
		r.wantTexts(forum, "in the topic", "where is it?", "not asked again")
		if m := r.bot.Messages(forum); m[0].Thread != topic || m[1].Thread != 0 {
			t.Errorf("threads %d, %d", m[0].Thread, m[1].Thread)
		}
	})
}

func TestTheGeneralTopicIsWrittenToWithoutItsNumber(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Supergroup(forum, "Forum", topic)
		r.start()
		r.deliver(gateway.Delivery{ID: 1, To: gateway.To{ChatID: id64(forum), ThreadID: "1"}, Text: "x"})
		for _, c := range r.bot.Calls("sendMessage") {
			if c.Error != "" {
				t.Errorf("refused: %s", c.Error)
			}
		}
	})
}

func TestAGroupThatMovedIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bot.Group(-5, "Team")
		r.start()
		first := r.attempt(gateway.Delivery{ID: 1, To: to(-5), Text: "before the move", Attempt: 1})
		r.bot.Upgrade(-5, group)
		r.deliver(gateway.Delivery{ID: 1, To: to(-5), Text: "before the move", MessageIDs: first.MessageIDs})
		r.deliver(gateway.Delivery{ID: 2, To: to(-5), Text: "after it"})
		r.wantTexts(group, "before the move", "after it")
	})
}

func TestAPlaceholderThatThePersonRemovedIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		d := gateway.Delivery{ID: 1, To: to(ann), Text: "the answer", Attempt: 1}
		first := r.attempt(d)
		r.bot.Delete(ann, r.bot.Messages(ann)[0].ID)
		d.MessageIDs = first.MessageIDs
		r.deliver(d)
		r.wantTexts(ann, "the answer")
	})
}

func TestWhatIsAnsweredMayBeGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		at := to(ann)
		at.ReplyTo = "4711"
		r.deliver(gateway.Delivery{ID: 1, To: at, Text: "x"})
		r.wantTexts(ann, "x")
	})
}

func TestReplySetting(t *testing.T) {
	for _, c := range []struct {
		set            string
		private, group bool
	}{{"first", true, true}, {"groups", false, true}, {"off", false, false}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.set["reply"] = c.set
			r.set["require_mention"] = false
			r.bot.Supergroup(group, "Team")
			r.start()
			for chat, want := range map[int64]bool{ann: c.private, group: c.group} {
				q := r.bot.Say(bottest.Post{From: ann, Chat: chat, Text: "q"})
				at := to(chat)
				at.ReplyTo = fmt.Sprint(q)
				r.deliver(gateway.Delivery{ID: chat, To: at, Text: "a"})
				if got := r.bot.Messages(chat)[0].ReplyTo == q; got != want {
					t.Errorf("reply: %s, chat %d: answers show what they answer: %v", c.set, chat, got)
				}
			}
		})
	}
}

func TestAnEmptyAnswerIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.deliver(gateway.Delivery{ID: 1, To: to(ann), Text: " \n\u200b"})
		r.wantTexts(ann, "(no text)")
	})
}

func FuzzRenderedMessagesAreTaken(f *testing.F) {
	for _, s := range []string{"# a\n**b** `c` [d](https://e.fg)\n> q\n> ```go\n> x\n> ```", strings.Repeat("*a* **b** ", 300), "|a|b|\n|-|-|\n|1|2|", "  \n\u200b", "[x](tg://user?id=1) ~~y~~ 😀"} {
		f.Add(s)
	}
	bot := bottest.New()
	bot.Private(ann, "Ann")
	client := newClient(bot.Listen(), bottest.Token, route{}, nil)
	f.Cleanup(func() { client.closeIdle(); bot.Close() })
	f.Fuzz(func(t *testing.T, md string) {
		defer bot.Forget()
		for _, part := range render(md) {
			if text.UTF16Len(part.Text) > maxText {
				t.Fatalf("a part has %d units", text.UTF16Len(part.Text))
			}
			p := &botapi.SendMessageParams{ChatID: ann, Text: part.Text, Entities: entities(part)}
			if err := client.call(t.Context(), "sendMessage", p, nil); err != nil {
				t.Fatalf("%q with %+v was refused: %v", part.Text, p.Entities, err)
			}
		}
	})
}
