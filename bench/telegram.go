package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

const (
	// rushChats write at once.
	rushChats = 300
	// firstChat is the id of the first of them.
	firstChat = 10_000
	// placeholder stands for an answer that is to come, and is not counted as text.
	placeholder = "…"
	// What Telegram lets a bot do, about: in one chat, and in all.
	chatLimit, botLimit = 4, 30
	// rushPatience is how long the rush may stand still before it is given up.
	rushPatience = time.Minute
)

// measureTelegram sends a rush of messages through a server without limits, so that what is measured is our own work.
// The adapter keeps to one message a second in a chat all the same.
func measureTelegram(r *report, h *home, _ *provider, o options) error {
	return rush(r, h, "telegram", o.posts, 1e6, func(*bottest.Server) {})
}

// measureLimitedTelegram does it with a server that refuses as the public one does.
func measureLimitedTelegram(r *report, h *home, _ *provider, o options) error {
	return rush(r, h, "telegram within limits", o.slow, botLimit, func(bot *bottest.Server) {
		bot.Limit(chatLimit, botLimit, time.Second, 3)
	})
}

func rush(r *report, h *home, name string, posts, perSecond int, limit func(*bottest.Server)) error {
	bot := bottest.New()
	defer bot.Close()
	limit(bot)
	for c := range int64(rushChats) {
		bot.Private(firstChat+c, "P")
	}
	err := h.configure(fmt.Sprintf(`model: {provider: offline}
adapters:
  api: {enabled: false}
  telegram: {base_url: %q, allowed_users: "*", lock_dir: %q, messages_per_second: %d, busy: queue, busy_notice: false}
`, bot.Listen(), filepath.Join(h.dir, "locks"), perSecond), "TELEGRAM_BOT_TOKEN="+bottest.Token+"\n")
	if err != nil {
		return err
	}
	if _, err := h.start(); err != nil {
		return err
	}
	// One message each warms up what a first turn costs, connections and statements among it.
	if err := h.post(bot, rushChats, &usage{}); err != nil {
		return err
	}
	bot.Forget()
	before, err := h.use()
	if err != nil {
		return err
	}
	peak := usage{}
	begun := time.Now()
	if err := h.post(bot, posts, &peak); err != nil {
		return err
	}
	r.add(name+", answered", "messages/s", float64(posts)/time.Since(begun).Seconds())
	first, final, err := waits(bot)
	if err != nil {
		return err
	}
	r.add(name+", to first visible text", "s", first...)
	r.add(name+", to the whole answer", "s", final...)
	after, err := h.settled(before)
	if err != nil {
		return err
	}
	r.add(name+", most memory of the gateway", "MiB", peak.gatewayRSS)
	r.add(name+", most memory of the supervisor", "MiB", peak.supervisorRSS)
	r.add(name+", descriptors of the gateway kept", "", float64(after.gatewayFDs-before.gatewayFDs))
	r.add(name+", descriptors of the supervisor kept", "", float64(after.supervisorFDs-before.supervisorFDs))
	return nil
}

// post writes messages, spread over the chats, and returns when every one is answered as a whole.
func (h *home) post(bot *bottest.Server, n int, peak *usage) error {
	for i := range n {
		bot.Say(bottest.Post{From: firstChat + int64(i%rushChats), Text: fmt.Sprintf("question %d", i)})
	}
	last, moved := -1, time.Now()
	for {
		time.Sleep(200 * time.Millisecond)
		st, err := h.status()
		if err != nil {
			return err
		}
		peak.add(st)
		open := bot.Waiting() + int(st.Turns.Queued+st.Turns.Running+st.Outbox.Pending+st.Outbox.Unknown)
		if open == 0 {
			return nil
		}
		if open != last {
			last, moved = open, time.Now()
		}
		if time.Since(moved) > rushPatience {
			return fmt.Errorf("%d messages are not answered and none was for %v", open, rushPatience)
		}
	}
}

// waits returns how long each question waited, in seconds, and an error if one has not exactly one answer.
func waits(bot *bottest.Server) (first, final []float64, err error) {
	for c := range int64(rushChats) {
		asked, answers := map[int]time.Time{}, 0
		for _, m := range bot.All(firstChat + c) {
			if m.From != bottest.BotID {
				asked[m.ID] = m.Time
				continue
			}
			at, known := asked[m.ReplyTo]
			if !known || m.Text == placeholder {
				return nil, nil, fmt.Errorf("chat %d: message %q answers nothing", m.Chat, m.Text)
			}
			answers++
			for i, text := range m.Versions {
				if text != placeholder {
					first = append(first, m.Since[i].Sub(at).Seconds())
					break
				}
			}
			final = append(final, m.Since[len(m.Since)-1].Sub(at).Seconds())
		}
		if answers != len(asked) {
			return nil, nil, fmt.Errorf("chat %d: %d answers to %d questions", firstChat+c, answers, len(asked))
		}
	}
	return first, final, nil
}

// usage is what the gateway and the supervisor use.
type usage struct {
	gatewayRSS, supervisorRSS float64 // MiB
	gatewayFDs, supervisorFDs int64
}

func (u *usage) add(st *controlv1.StatusResponse) {
	const mib = 1 << 20
	u.supervisorRSS = max(u.supervisorRSS, float64(st.Supervisor.RssBytes)/mib)
	u.supervisorFDs = max(u.supervisorFDs, st.Supervisor.Fds)
	for _, w := range st.Workers {
		if strings.HasPrefix(w.Name, "gateway-") {
			u.gatewayRSS = max(u.gatewayRSS, float64(w.RssBytes)/mib)
			u.gatewayFDs = max(u.gatewayFDs, w.Fds)
		}
	}
}

func (h *home) use() (usage, error) {
	time.Sleep(3 * time.Second) // the figures of workers are sampled once a second
	st, err := h.status()
	if err != nil {
		return usage{}, err
	}
	var u usage
	u.add(st)
	return u, nil
}

// settled returns what is used when descriptors are back where they were, or after half a minute, in which idle
// connections have ended.
func (h *home) settled(before usage) (usage, error) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		u, err := h.use()
		if err != nil || u.gatewayFDs <= before.gatewayFDs && u.supervisorFDs <= before.supervisorFDs || time.Now().After(deadline) {
			return u, err
		}
	}
}
