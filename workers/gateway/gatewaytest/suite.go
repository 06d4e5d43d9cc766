package gatewaytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Platform is a stand-in of a chat platform over real sockets, as the suite drives it. What it shows is what a
// person would see.
type Platform interface {
	// Settings are adapters.<platform> with which the adapter reaches the stand-in, with waits short enough for a
	// test. They are the same at every call.
	Settings() map[string]any
	// Secrets are what .env holds, by name.
	Secrets() map[string]string
	// Say lets the person of a chat write a message. The stand-in hands it over as the platform would, as often as
	// it takes, in order within the chat. Say returns at once.
	Say(chat, id, text string)
	// Again hands a message over again that was said before, acknowledged or not.
	Again(chat, id string)
	// Shown returns the texts from the agent in a chat, oldest first, as they look now.
	Shown(chat string) []string
	// FailConnects makes n connections between adapter and platform fail, and returns when they have, at most when
	// ctx ends.
	FailConnects(ctx context.Context, n int) error
	Close()
}

// What a platform may do to an adapter besides; the suite tests what the stand-in can do.
type (
	// A Flooder refuses everything that shows in a chat until d has passed, saying so.
	Flooder interface {
		Flood(chat string, d time.Duration)
	}
	// A Formatter refuses all formatted text while on.
	Formatter interface{ RefuseFormatting(on bool) }
	// A Cutter carries out the next n requests that show something, and cuts the connection instead of answering.
	Cutter interface{ CutAnswers(n int) }
	// A Blocker says that the person of a chat wants nothing from the agent any more.
	Blocker interface{ Block(chat string) }
)

// A Suite tests one adapter. The package's TestMain must be Main.
type Suite struct {
	Name string                      // of the platform in the table of adapters
	New  func(t *testing.T) Platform // a fresh stand-in
	// Messages and kills of the random test, 0 for the usual number.
	Messages int
}

// patience is how long a test waits for what must happen. Nothing takes this long unless it never happens.
const patience = 90 * time.Second

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	t.Run("each message is answered once and in order", s.answers)
	t.Run("a message that is handed over again starts nothing", s.duplicates)
	t.Run("an order to stop lets a running turn end", s.drain)
	t.Run("a worker without supervisor ends", s.orphan)
	t.Run("a long answer is shown whole", s.long)
	t.Run("failed connects leave no descriptors", s.connects)
	for _, step := range []Step{BeforeAccept, AfterAccept, TurnRuns, BeforeDeliver, AfterDeliver} {
		t.Run("killed "+string(step), func(t *testing.T) { s.killed(t, step) })
	}
	t.Run("killed at random", s.killedAtRandom)
	t.Run("formatting that is refused costs no text", s.formatting)
	t.Run("a flooded chat holds up no other", s.flood)
	t.Run("an answer of the platform that is cut doubles nothing", s.cut)
	t.Run("a chat that blocks holds up no other", s.blocked)
}

// A rig is an adapter process between a host and a platform.
type rig struct {
	t    *testing.T
	h    *Host
	p    Platform
	k    *Keeper
	mu   sync.Mutex
	said map[string][]string // texts by chat, in order
}

func (s Suite) rig(t *testing.T) *rig {
	t.Helper()
	p := s.New(t)
	t.Cleanup(p.Close)
	h := NewHost(t, s.Name)
	h.Secrets = p.Secrets()
	r := &rig{t: t, h: h, p: p, said: map[string][]string{}}
	r.k = h.Keep(t, p.Settings())
	return r
}

// chat names are numbers, which is what most platforms have.
func chat(n int) string { return strconv.Itoa(1000 + n) }

// say lets a person say the next message of a chat.
func (r *rig) say(chat string) (id, text string) {
	r.mu.Lock()
	n := len(r.said[chat]) + 1
	id, text = strconv.Itoa(n), fmt.Sprintf("question %d of %s.", n, chat)
	r.said[chat] = append(r.said[chat], text)
	r.mu.Unlock()
	r.p.Say(chat, id, text)
	return id, text
}

// eventually waits until holds says nothing is missing.
func (r *rig) eventually(missing func() string) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		m := missing()
		if m == "" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("after %s: %s", patience, m)
		}
		time.Sleep(5 * time.Millisecond) // the platform and the adapter are other processes' business
	}
}

// answered waits until every message has its answer, and checks that each has one, in order.
func (r *rig) answered() {
	r.t.Helper()
	r.eventually(func() string {
		for chat, said := range r.said {
			all := strings.Join(r.p.Shown(chat), "\n")
			for _, text := range said {
				if !strings.Contains(all, Answer(text)) {
					return fmt.Sprintf("chat %s has no answer to %q; it shows %q", chat, text, all)
				}
			}
		}
		return ""
	})
	r.once()
}

// once checks that no answer is there twice, or before an earlier one.
func (r *rig) once() {
	r.t.Helper()
	total := 0
	for chat, said := range r.said {
		all := strings.Join(r.p.Shown(chat), "\n")
		last := -1
		for _, text := range said {
			if n := strings.Count(all, Answer(text)); n != 1 {
				r.t.Errorf("chat %s shows %d answers to %q: %q", chat, n, text, all)
			}
			at := strings.Index(all, Answer(text))
			if at < last {
				r.t.Errorf("chat %s shows the answer to %q before an earlier one: %q", chat, text, all)
			}
			last = at
		}
		total += len(said)
	}
	if got := len(r.h.Turns()); got != total {
		r.t.Errorf("%d turns for %d messages", got, total)
	}
	for _, u := range r.h.Turns() {
		if got := u.Message.Text; !strings.Contains(got, "question") {
			r.t.Errorf("turn %s was started by %q, which nobody said", u.ID, got)
		}
	}
}

func (s Suite) answers(t *testing.T) {
	r := s.rig(t)
	for range 8 {
		for c := range 8 {
			r.say(chat(c))
		}
	}
	r.answered()
}

// Platforms hand over at least once: at once, later, and to another process.
func (s Suite) duplicates(t *testing.T) {
	r := s.rig(t)
	hold := make(chan struct{})
	answer := r.h.Script
	r.h.Script = func(u *Turn) string {
		select {
		case <-hold:
		case <-u.Over():
		}
		return answer(u)
	}
	id, _ := r.say(chat(0))
	r.eventually(func() string { return fewer(len(r.h.Turns()), 1, "turns") })
	r.p.Again(chat(0), id) // while its turn runs
	r.eventually(func() string { return fewer(r.h.Repeats(), 1, "repeats") })
	close(hold)
	r.answered()
	r.p.Again(chat(0), id) // when it was answered
	r.eventually(func() string { return fewer(r.h.Repeats(), 2, "repeats") })
	r.k.Kill()
	r.p.Again(chat(0), id) // to a process that knows nothing of it
	r.eventually(func() string { return fewer(r.h.Repeats(), 3, "repeats") })
	r.say(chat(0))
	r.answered()
}

func fewer(got, want int, what string) string {
	if got < want {
		return fmt.Sprintf("%d %s, want %d", got, what, want)
	}
	return ""
}

func (s Suite) killed(t *testing.T, step Step) {
	for after := range 2 {
		t.Run(fmt.Sprintf("at pass %d", after+1), func(t *testing.T) {
			r := s.rig(t)
			if !r.h.pushed() && (step == BeforeDeliver || step == AfterDeliver) {
				t.Skip("nothing is delivered to the platform")
			}
			r.h.At(step, after, r.k.Kill)
			for range 3 {
				r.say(chat(0))
				r.say(chat(1))
			}
			r.answered()
			if left := r.h.Pending(); len(left) > 0 {
				t.Errorf("%s was never passed, so nothing was tested", left)
			}
		})
	}
}

func (h *Host) pushed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.push
}

func (s Suite) killedAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("GATEWAYTEST_SEED"); given != "" {
		n, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("GATEWAYTEST_SEED=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	messages := s.Messages
	if messages == 0 {
		messages = 60
	}
	r := s.rig(t)
	answer := r.h.Script
	r.h.Script = func(u *Turn) string { // slow enough to be met by a kill
		u.Say("let me see ")
		select {
		case <-time.After(20 * time.Millisecond):
		case <-u.Over():
		}
		u.NextStep()
		return answer(u)
	}
	for i := range messages {
		r.say(chat(dice.IntN(6)))
		if i%6 == 5 {
			time.Sleep(time.Duration(dice.IntN(150)) * time.Millisecond) // when the blow falls, is chance
			r.k.Kill()
		}
	}
	r.answered()
}

// The frame waits for what runs; what is left over is taken up by the successor.
func (s Suite) drain(t *testing.T) {
	r := s.rig(t)
	begun, hold := make(chan struct{}), make(chan struct{})
	answer := r.h.Script
	var once sync.Once
	r.h.Script = func(u *Turn) string {
		u.Say("wait ")
		once.Do(func() { close(begun) })
		select {
		case <-hold:
		case <-u.Over():
		}
		u.NextStep()
		return answer(u)
	}
	r.say(chat(0))
	<-begun
	w := r.k.Worker()
	stopped := make(chan int)
	go func() { stopped <- w.Stop() }()
	close(hold)
	if code := <-stopped; code != 0 {
		t.Errorf("the worker left with %d, want 0: nothing was unfinished\n%s", code, w.Log())
	}
	r.answered()
}

func (s Suite) orphan(t *testing.T) {
	p := s.New(t)
	t.Cleanup(p.Close)
	h := NewHost(t, s.Name)
	h.Secrets = p.Secrets()
	w, err := h.Start(t, p.Settings(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.Abandon() // returns when it has ended
}
