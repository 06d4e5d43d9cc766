package telegram

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// eventually waits for what another process does.
func eventually(t *testing.T, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		m := missing()
		if m == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(m)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// The gateway is a process of its own here, and killed around a person's yes.
func TestAYesOutlivesTheGatewayThatHearsIt(t *testing.T) {
	for _, step := range []gatewaytest.Step{"", gatewaytest.AfterAnswer, gatewaytest.BeforeDone} {
		t.Run(string(step), func(t *testing.T) {
			bot := newStandIn(t)
			defer bot.Close()
			host := gatewaytest.NewHost(t, Platform)
			host.Secrets = bot.Secrets()
			k := host.Keep(t, bot.Settings())
			bot.know(ann, "Ann")
			for n, text := range []string{"one", "two"} {
				bot.Say(id64(ann), fmt.Sprint(n), text)
				eventually(t, func() string { return missing(bot, ann, gatewaytest.Answer(text)) })
			}
			bot.Say(id64(ann), "2", "/undo")
			var q bottest.Message
			eventually(t, func() string {
				for _, m := range bot.Messages(ann) {
					if len(m.Buttons) > 0 {
						q = m
						return ""
					}
				}
				return "nothing is asked"
			})
			if step == "" {
				k.Kill()
			} else {
				host.At(step, 0, k.Kill)
			}
			bot.Press(ann, ann, q.ID, onceLabel)
			eventually(t, func() string { return missing(bot, ann, "Taken back: “two”") })
			// The one before it is still there: it was done once.
			bot.Say(id64(ann), "3", "/retry")
			eventually(t, func() string {
				if n := strings.Count(strings.Join(bot.Texts(ann), "\n"), gatewaytest.Answer("one")); n != 2 {
					return fmt.Sprintf("“one” was answered %d times", n)
				}
				return ""
			})
			if left := host.Pending(); len(left) > 0 {
				t.Errorf("%s was never passed, so nothing was tested", left)
			}
		})
	}
}

func missing(bot *standIn, chat int64, text string) string {
	all := strings.Join(bot.Texts(chat), "\n")
	if strings.Contains(all, text) {
		return ""
	}
	return fmt.Sprintf("chat %d does not show %q but %q", chat, text, all)
}
