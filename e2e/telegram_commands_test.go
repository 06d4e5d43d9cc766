package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// The question is stored, and so is the answer: whichever process dies around the press, the command is done once.
func TestAYesInAChatOutlivesEveryProcess(t *testing.T) {
	tg := newTelegram(t, "", quickRestarts)
	tg.start()
	deaths := map[string]func(){
		"supervisor": func() { tg.kill(); tg.start() },
		"gateway":    func() { _ = killPID(int(tg.worker("gateway-telegram").Pid)) },
	}
	for round, name := range []string{"supervisor", "gateway"} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s dies before the press %v", name, early), func(t *testing.T) {
				one, two := fmt.Sprintf("one-%d-%v", round, early), fmt.Sprintf("two-%d-%v", round, early)
				for _, text := range []string{one, two} {
					tg.say(text)
					tg.shows("“" + text + "”") // the stand-in for a model repeats what was said
				}
				tg.settle(limit)
				q := tg.waitQuestion(tg.say("/undo"))
				if early {
					deaths[name]()
				}
				tg.bot.Press(firstPerson, firstPerson, q.ID, "✅ Approve Once")
				if !early {
					time.Sleep(5 * time.Millisecond) // whether the answer or the deed is met is chance
					deaths[name]()
				}
				tg.shows("Taken back: “" + two + "”")
				q = tg.waitQuestion(tg.say("/undo"))
				tg.bot.Press(firstPerson, firstPerson, q.ID, "✅ Approve Once")
				tg.shows("Taken back: “" + one + "”")
			})
		}
	}
}

// waitQuestion waits for a message with buttons after another message.
func (tg *telegram) waitQuestion(after int) (q bottest.Message) {
	tg.t.Helper()
	tg.eventually(limit, "something is asked", func() error {
		for _, m := range tg.bot.Messages(firstPerson) {
			if len(m.Buttons) > 0 && m.ID > after {
				q = m
				return nil
			}
		}
		return fmt.Errorf("the chat shows %q", tg.bot.Texts(firstPerson))
	})
	return q
}

// A restart that a chat asks for: what runs is told once, however much is written meanwhile; all of it is answered
// afterwards; who asked is told once; and the command, whose update comes again, is not done again.
func TestARestartIsToldOnce(t *testing.T) {
	tg := newTelegram(t, ", busy: queue, busy_notice: false, confirm: false", "supervisor: {drain_timeout: 2s}")
	tg.managed = true
	const other = firstPerson + 1
	tg.bot.Private(other, "Bob")
	tg.start()
	tg.bot.Say(bottest.Post{From: other, Text: "wait: 5"})
	tg.runningAgent()
	restart := tg.say("/restart")
	tg.shows("Restarting")
	for n := range 5 {
		tg.bot.Say(bottest.Post{From: other, Text: fmt.Sprintf("follow-up %d", n)})
	}
	tg.ended(limit)
	tg.bot.Repeat(firstPerson, restart)
	tg.start()
	tg.shows("I have been restarted")
	tg.settle(limit)
	if told := strings.Count(strings.Join(tg.bot.Texts(firstPerson), "\n"), "♻"); told != 2 {
		t.Errorf("who asked was told %q", tg.bot.Texts(firstPerson))
	}
	all := strings.Join(tg.bot.Texts(other), "\n")
	if n := strings.Count(all, "⏳"); n != 1 {
		t.Errorf("%d notices: %q", n, all)
	}
	for n := range 5 {
		if want := fmt.Sprintf("“follow-up %d”", n); strings.Count(all, want) != 1 {
			t.Errorf("%s is not answered once: %q", want, all)
		}
	}
	st, err := tg.status()
	if err != nil || st.Supervisor.UptimeSeconds <= 0 || st.Supervisor.State != "ready" {
		t.Errorf("after the restart: %v %v", st, err)
	}
	// Bob's turn was cut by the stop: the timeline says when he had his answer.
	if text, _, _ := tg.command(nil, "ctl", "timeline", "--since", "1h"); !strings.Contains(text, ", in telegram after ") {
		t.Errorf("the timeline:\n%s", text)
	}
}

func TestAStrangerIsLetInByTheOperator(t *testing.T) {
	tg := newTelegram(t, "", quickRestarts)
	tg.write("config.yaml", strings.ReplaceAll(tg.read("config.yaml"), fmt.Sprintf(`"*,%d"`, firstPerson), `""`))
	tg.start()
	tg.say("hello?")
	said := tg.shows("pairing approve telegram").Text
	_, code, _ := strings.Cut(said, "pairing approve telegram ")
	if out, errs, exit := tg.command(nil, "pairing", "approve", "telegram", strings.TrimSpace(code)); exit != 0 {
		t.Fatalf("approve: %d %s %s", exit, out, errs)
	}
	tg.say("and now?")
	tg.shows("“and now?”")
}
