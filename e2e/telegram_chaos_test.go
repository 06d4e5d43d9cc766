package e2e

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/text"
)

// telegramChats is how many people write to the bot at the same time.
const telegramChats = 40

func TestEveryMessageIsAnsweredOnceThroughTelegram(t *testing.T) {
	seed := uint64(numberFromEnv("HERMES_E2E_SEED", int(time.Now().UnixNano()&0x7fffffff)))
	total := numberFromEnv("HERMES_E2E_MESSAGES", chaosMessages)
	t.Logf("seed %d, %d messages (repeat with HERMES_E2E_SEED=%d HERMES_E2E_MESSAGES=%d)", seed, total, seed, total)
	tg := newTelegram(t, ", messages_per_second: 1000, busy: queue, busy_notice: false", quickRestarts)
	sky := newWeather(seed)
	tg.bot.Inject(sky.fault)
	tg.bot.Limit(10, 0, time.Second, 1)
	tg.start()

	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(total)*time.Second/2+2*time.Minute)
	defer cancel()
	asked, stopAsking := context.WithCancel(ctx)
	var background sync.WaitGroup
	watch := &watcher{sys: tg.system}
	kills := &killer{sys: tg.system, random: rand.New(rand.NewPCG(seed, 1)), count: map[string]int{}, pause: 800}
	people := &crowd{tg: tg, seed: seed, posts: make([][]post, telegramChats)}
	kills.done = people.done
	background.Go(func() { kills.run(asked) })
	background.Go(func() { watch.run(asked) })
	background.Go(func() { tg.storm(asked, people, rand.New(rand.NewPCG(seed, 2))) })

	people.write(ctx, t, total)
	stopAsking()
	background.Wait()
	sky.clear()
	t.Logf("kills: %v, faults: %v", kills.count, sky.count)

	for _, role := range []string{"supervisor", "agent", "tools", "gateway", "kanban"} {
		if kills.count[role] == 0 && total >= chaosMessages {
			t.Errorf("no %s was killed", role)
		}
	}
	tg.waitReady(30 * time.Second)
	tg.settle(2 * time.Minute)
	if code, _ := tg.stop(); code != 0 {
		t.Errorf("the supervisor ended with %d", code)
	}
	watch.report(t)
	answers := people.judge(t, sky.lost+kills.count["gateway"]+kills.count["supervisor"])
	checkEffects(t, tg.system, answers)
	checkStore(t, tg.system, answers, func(stored, shown string) bool {
		return strings.TrimSpace(text.Markdown(stored).Text) == strings.TrimSpace(shown)
	})
}

// storm hands messages over twice, cuts all connections, and lets a rival poll for a while.
func (tg *telegram) storm(ctx context.Context, people *crowd, random *rand.Rand) {
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			tg.bot.Rival(false)
			return
		case <-time.After(time.Duration(100+random.IntN(200)) * time.Millisecond):
		}
		if chat, id, ok := people.any(random); ok {
			tg.bot.Repeat(chat, id)
		}
		if n%10 == 0 {
			tg.bot.Cut()
		}
		tg.bot.Rival(n%60 < 5 && n > 60) // about a second of every twelve
	}
}

// A post is a question with the message that it is.
type post struct {
	question
	message int
}

// A crowd is people who each write to the bot in a chat of their own, sometimes without waiting for an answer.
type crowd struct {
	tg   *telegram
	seed uint64

	mu    sync.Mutex
	posts [][]post
}

// write returns when everybody has written all and, as far as they look, been answered.
func (c *crowd) write(ctx context.Context, t *testing.T, total int) {
	var all sync.WaitGroup
	for i := range telegramChats {
		c.tg.bot.Private(firstPerson+int64(i), "P")
		all.Go(func() {
			random := rand.New(rand.NewPCG(c.seed, uint64(100+i)))
			for n := range max(total/telegramChats, 1) {
				c.post(i, makeQuestion(c.tg.system, random, i, n))
				wait := time.Duration(random.IntN(1000)) * time.Millisecond
				if random.IntN(3) > 0 && !c.answered(ctx, i) {
					t.Errorf("chat %d: no answer to message %d: %v", i, n, ctx.Err())
					return
				}
				time.Sleep(wait) // somebody types
			}
			if !c.answered(ctx, i) {
				t.Errorf("chat %d: not all was answered: %v", i, ctx.Err())
			}
		})
	}
	all.Wait()
}

func (c *crowd) post(chat int, q question) {
	id := c.tg.bot.Say(bottest.Post{From: firstPerson + int64(chat), Text: q.text})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts[chat] = append(c.posts[chat], post{q, id})
}

// answered waits until each post of a chat has a message that says something.
func (c *crowd) answered(ctx context.Context, chat int) bool {
	for ctx.Err() == nil {
		said, _ := c.tg.answers(firstPerson + int64(chat))
		c.mu.Lock()
		open := slices.ContainsFunc(c.posts[chat], func(p post) bool {
			return !slices.ContainsFunc(said, func(m bottest.Message) bool { return m.ReplyTo == p.message })
		})
		c.mu.Unlock()
		if !open {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// done counts the messages that answer something.
func (c *crowd) done() (n int) {
	for i := range telegramChats {
		said, _ := c.tg.answers(firstPerson + int64(i))
		n += len(said)
	}
	return n
}

// any chooses one of the messages that were written.
func (c *crowd) any(random *rand.Rand) (chat int64, id int, ok bool) {
	i, n := random.IntN(telegramChats), random.IntN(1<<20)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.posts[i]) == 0 {
		return 0, 0, false
	}
	return firstPerson + int64(i), c.posts[i][n%len(c.posts[i])].message, true
}

// judge holds what the chats show against what was asked: one message a question, in the order of the questions, and
// nothing else but placeholders of which the bot did not learn that they exist.
func (c *crowd) judge(t *testing.T, strays int) [][]answer {
	t.Helper()
	answers := make([][]answer, telegramChats)
	left := 0
	for i, posts := range c.posts {
		said, placeholders := c.tg.answers(firstPerson + int64(i))
		left += placeholders
		for n, p := range posts {
			if n >= len(said) || said[n].ReplyTo != p.message {
				t.Errorf("chat %d: message %d of the bot does not answer %s: %s", i, n, p.id, shownIn(said))
				break
			}
			answers[i] = append(answers[i], answer{p.question, said[n].Text})
		}
		if len(said) != len(posts) {
			t.Errorf("chat %d: %d messages for %d questions: %s", i, len(said), len(posts), shownIn(said))
		}
	}
	t.Logf("%d placeholders were left behind", left)
	if left > strays {
		t.Errorf("%d placeholders were left behind, which %d requests and deaths do not explain", left, strays)
	}
	return answers
}

func shownIn(said []bottest.Message) string {
	var b strings.Builder
	for _, m := range said {
		line, _, _ := strings.Cut(m.Text, "\n")
		b.WriteString("\n  " + line)
	}
	return b.String()
}
