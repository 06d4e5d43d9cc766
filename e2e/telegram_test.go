package e2e

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// firstPerson is the id of the first person who writes to the bot.
const firstPerson = 10_000

// A telegram is a system whose bot is served by a Bot API server of this test.
type telegram struct {
	*system
	bot *bottest.Server
}

// newTelegram makes a system with a bot that anybody may use. settings are further keys of adapters.telegram.
func newTelegram(t *testing.T, settings, supervisorYAML string) *telegram {
	t.Helper()
	tg := &telegram{system: newSystem(t, ""), bot: bottest.New()}
	url := tg.bot.Listen()
	t.Cleanup(tg.bot.Close)
	config := fmt.Sprintf(`model: {provider: offline}
adapters:
  api: {enabled: true, listen: %q}
  telegram: {base_url: %q, allowed_users: "*,%d", lock_dir: %q, poll_timeout: 5s, retry_first: 100ms, retry_longest: 1s%s}
%s
`, tg.api, url, firstPerson, filepath.Join(tg.home, "locks"), settings, supervisorYAML)
	tg.write("config.yaml", config)
	tg.write(".env", "TELEGRAM_BOT_TOKEN="+bottest.Token+"\n")
	tg.bot.Private(firstPerson, "Ann")
	return tg
}

// say makes the first person write.
func (tg *telegram) say(text string) int {
	return tg.bot.Say(bottest.Post{From: firstPerson, Text: text})
}

// shows waits until a message of the bot in the chat of the first person has these words, and returns it.
func (tg *telegram) shows(words string) (found bottest.Message) {
	tg.t.Helper()
	tg.eventually(limit, "the chat shows "+words, func() error {
		for _, m := range tg.bot.Messages(firstPerson) {
			if strings.Contains(m.Text, words) {
				found = m
				return nil
			}
		}
		return fmt.Errorf("it shows %q", tg.bot.Texts(firstPerson))
	})
	return found
}

func (tg *telegram) write(name, text string) {
	tg.t.Helper()
	if err := os.WriteFile(filepath.Join(tg.home, name), []byte(text), 0o600); err != nil {
		tg.t.Fatal(err)
	}
}

func (tg *telegram) read(name string) string {
	tg.t.Helper()
	b, err := os.ReadFile(filepath.Join(tg.home, name))
	if err != nil {
		tg.t.Fatal(err)
	}
	return string(b)
}

const (
	// waiting stands in the chat for what is still to come.
	waiting = "…"
	// aboutRestart begins what is told of a restart, which answers no message.
	aboutRestart = "♻"
)

// answers returns the bot's messages of a chat that answer something, and how many placeholders stand beside them.
func (tg *telegram) answers(chat int64) (said []bottest.Message, placeholders int) {
	for _, m := range tg.bot.Messages(chat) {
		switch {
		case m.Text == waiting:
			placeholders++
		case m.ReplyTo != 0 || !strings.HasPrefix(m.Text, aboutRestart):
			said = append(said, m)
		}
	}
	return said, placeholders
}

// settle waits until nothing is owed: no update waits, no turn runs, no answer is to be sent.
func (tg *telegram) settle(limit time.Duration) {
	tg.t.Helper()
	tg.eventually(limit, "all is answered", func() error {
		waiting := tg.bot.Waiting()
		st, err := tg.status()
		switch {
		case err != nil:
			return err
		case waiting > 0:
			return fmt.Errorf("%d updates wait at the platform", waiting)
		case st.Turns.Queued+st.Turns.Running > 0:
			return fmt.Errorf("turns: %v", st.Turns)
		case st.Outbox.Pending+st.Outbox.Unknown > 0:
			return fmt.Errorf("outbox: %v", st.Outbox)
		}
		return nil
	})
}

// weather is what the platform does to requests. The same seed gives the n-th request of a kind in a chat the same
// fault, however the chats are interleaved.
type weather struct {
	seed uint64

	mu    sync.Mutex
	fair  bool
	calls map[string]int
	count map[bottest.FaultKind]int
	lost  int // messages that were sent without the bot learning of it
}

func newWeather(seed uint64) *weather {
	return &weather{seed: seed, calls: map[string]int{}, count: map[bottest.FaultKind]int{}}
}

func (w *weather) fault(c bottest.Call) *bottest.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fair {
		return nil
	}
	kind := fmt.Sprintf("%s/%d", c.Method, c.Chat())
	w.calls[kind]++
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", kind, w.calls[kind])
	random := rand.New(rand.NewPCG(w.seed, h.Sum64()))
	var f *bottest.Fault
	switch c.Method {
	case "getUpdates":
		f = pollFault(random.IntN(1000))
	case "sendMessage", "editMessageText", "deleteMessage":
		f = sendFault(random.IntN(1000))
	}
	if f != nil {
		w.count[f.Kind]++
		if c.Method == "sendMessage" && (f.Kind == bottest.CutAfter || f.Kind == bottest.SlowAfter || f.Kind == bottest.SlowBefore) {
			w.lost++
		}
	}
	return f
}

func pollFault(permille int) *bottest.Fault {
	switch {
	case permille < 5:
		return &bottest.Fault{Kind: bottest.Hang} // found by its timeout, or by a kill
	case permille < 20:
		return &bottest.Fault{Kind: bottest.Refuse, Status: http.StatusConflict}
	case permille < 50:
		return &bottest.Fault{Kind: bottest.Garbage, Status: http.StatusBadGateway}
	case permille < 80:
		return &bottest.Fault{Kind: bottest.CutAfter}
	case permille < 110:
		return &bottest.Fault{Kind: bottest.CutBefore}
	case permille < 130:
		return &bottest.Fault{Kind: bottest.Refuse, Status: http.StatusTooManyRequests, RetryAfter: 1}
	case permille < 160:
		return &bottest.Fault{Kind: bottest.SlowAfter, Delay: 700 * time.Millisecond}
	}
	return nil
}

func sendFault(permille int) *bottest.Fault {
	switch {
	case permille < 3:
		return &bottest.Fault{Kind: bottest.Hang}
	case permille < 33:
		return &bottest.Fault{Kind: bottest.Refuse, Status: http.StatusTooManyRequests, RetryAfter: 1}
	case permille < 63:
		return &bottest.Fault{Kind: bottest.Garbage, Status: http.StatusBadGateway}
	case permille < 93:
		return &bottest.Fault{Kind: bottest.CutAfter}
	case permille < 123:
		return &bottest.Fault{Kind: bottest.CutBefore}
	case permille < 143:
		return &bottest.Fault{Kind: bottest.SlowAfter, Delay: 500 * time.Millisecond}
	case permille < 163:
		return &bottest.Fault{Kind: bottest.SlowBefore, Delay: 500 * time.Millisecond}
	}
	return nil
}

// clear ends all faults.
func (w *weather) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fair = true
}
