package turn

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

var (
	walkSeed = flag.Uint64("walk.seed", 0, "seed of the random walk; 0 takes a new one")
	walks    = flag.Int("walk.runs", 3, "random walks to take")
)

// A walk hands over messages and kills everything at random moments.
type walk struct {
	*rig
	rnd      *rand.Rand
	mu       sync.Mutex // guards rnd, which scripts use too
	platform *platform
	sent     map[string][]string // chat → message ids in the order they were handed over
	turns    map[string]string   // chat/message → turn
	texts    map[string]string   // chat/message → text
	agents   []*process
	toolsP   *process
	gate     *process
}

func (w *walk) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.Float64() < p
}

func (w *walk) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// Every message is answered exactly once and in order, every reply delivered in order, and no effect happens twice,
// whatever is killed when.
func TestRandomKills(t *testing.T) {
	for range *walks {
		seed := *walkSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(_ *testing.T, r *rig) {
				w := &walk{
					rig: r, rnd: rand.New(rand.NewPCG(seed, 0)), platform: &platform{},
					sent: map[string][]string{}, turns: map[string]string{}, texts: map[string]string{},
				}
				w.platform.deliver = w.deliver
				w.run()
			})
		})
	}
}

func (w *walk) run() {
	w.respawn(true)
	for step := range 120 {
		w.talk(step)
		w.disturb()
		time.Sleep(time.Duration(w.below(4000)) * time.Millisecond)
		w.respawn(w.chance(0.5))
	}
	w.settle()
	w.judge()
}

// talk hands a message over, as the terminal or as the gateway, sometimes twice.
func (w *walk) talk(step int) {
	if !w.chance(0.4) {
		return
	}
	chat := fmt.Sprint("chat", w.below(4))
	platform := PlatformTerminal
	if chat >= "chat2" {
		platform = push
	}
	id, text := fmt.Sprint(step), fmt.Sprint("m", step)
	for range w.below(3) {
		text += " call:" + []string{"work", "look", "quick"}[w.below(3)]
	}
	in := store.Inbound{Platform: platform, ChatID: chat, MessageID: id, Text: text}
	for range 1 + w.below(2) {
		a, err := w.hub.Accept(w.t.Context(), in)
		if err != nil {
			w.t.Fatal(err)
		}
		key := chat + "/" + id
		if known := w.turns[key]; known != "" && known != a.TurnID {
			w.t.Fatalf("message %s has turns %s and %s", key, known, a.TurnID)
		} else if known == "" {
			w.turns[key], w.texts[key] = a.TurnID, text
			w.sent[chat] = append(w.sent[chat], id)
		}
	}
}

// disturb kills something, mostly nothing.
func (w *walk) disturb() {
	switch w.below(12) {
	case 0, 1:
		if len(w.agents) > 0 {
			w.agents[w.below(len(w.agents))].kill()
		}
	case 2:
		w.toolsP.kill()
	case 3:
		w.gate.kill()
	case 4:
		w.restart()
	case 5:
		ctx, cancel := contextFor(w.t, time.Duration(w.below(3000))*time.Millisecond)
		w.hub.Drain(ctx)
		cancel()
		w.restart()
	}
}

func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// respawn starts what is dead, as the supervisor does, sometimes only after a while.
func (w *walk) respawn(now bool) {
	if !now {
		return
	}
	w.agents = slices.DeleteFunc(w.agents, func(p *process) bool { return !p.alive() })
	for _, name := range []string{"agent-1", "agent-2"} {
		if !slices.ContainsFunc(w.agents, func(p *process) bool { return p.id.Worker == name }) {
			w.agents = append(w.agents, w.agent(name, lively(obey(w.crash))))
		}
	}
	if !w.toolsP.alive() {
		w.toolsP = w.tools("tools", map[string]scriptedTool{
			"work": {invoke: w.work}, "look": {readOnly: true, invoke: w.work}, "quick": {invoke: ok("quick")},
		})
	}
	if !w.gate.alive() {
		w.gate = w.gateway("gateway-telegram", w.platform)
	}
}

func (w *walk) crash(_ *agentRun, at string) bool {
	return at != "during call" && w.chance(0.03)
}

func (w *walk) work(ctx context.Context, in *invocation) (*toolv1.Result, error) {
	if !sleep(ctx, time.Duration(w.below(3000))*time.Millisecond) {
		return nil, ctx.Err()
	}
	if w.chance(0.05) {
		in.kill()
		return nil, errKilled
	}
	return &toolv1.Result{Content: in.req.Tool}, nil
}

func (w *walk) deliver(ctx context.Context, p *process, _ *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
	sleep(ctx, time.Duration(w.below(500))*time.Millisecond)
	switch w.below(20) {
	case 0:
		p.kill()
		return nil, errKilled
	case 1:
		return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_RETRY, RetryAfterMs: int64(w.below(5000))}, nil
	}
	return nil, ctx.Err()
}

// settle lets everything come to its end undisturbed.
func (w *walk) settle() {
	w.eventually("every turn ends and every reply is sent", func() bool {
		w.respawn(true)
		open, err := w.state.Open(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		owed := 0
		for chat := range w.sent {
			owed += len(w.rig.outbox(chat))
		}
		return len(open) == 0 && owed == 0
	})
}

func (w *walk) judge() {
	parked := 0
	for chat, ids := range w.sent {
		var lines []string
		var answers []string
		for _, id := range ids {
			key := chat + "/" + id
			u := w.turn(w.turns[key])
			if len(lines) == 0 {
				lines = w.transcript(u.SessionID)
			}
			w.judgeTurn(key, u)
			if u.Outcome == store.OutcomeParked {
				parked++
			}
			answers = append(answers, u.Final)
			if f := w.final(u.ID); f.Text != u.Final {
				w.t.Errorf("%s: followers see %q, stored is %q", key, f.Text, u.Final)
			}
		}
		w.judgeConversation(chat, lines, answers)
		got := slices.DeleteFunc(w.platform.texts(chat), func(text string) bool { return strings.HasPrefix(text, "♻ I was restarted") })
		if chat >= "chat2" && !slices.Equal(dedup(got), dedup(answers)) {
			w.t.Errorf("%s was sent\n%q, want\n%q", chat, got, answers)
		}
	}
	w.t.Logf("%d messages, %d parked", len(w.turns), parked)
}

// judgeTurn holds one turn against what its message asked for.
func (w *walk) judgeTurn(key string, u store.Turn) {
	if u.State != store.TurnDone {
		w.t.Errorf("%s is %s", key, u.State)
	}
	for i, word := range strings.Fields(w.texts[key]) {
		tool, ok := strings.CutPrefix(word, "call:")
		n := w.world.of(u.ID, fmt.Sprint("c", i))
		switch {
		case !ok:
			if u.Outcome == store.OutcomeCompleted && !strings.HasPrefix(u.Final, word) {
				w.t.Errorf("%s asked %q and was answered %q", key, word, u.Final)
			}
		case tool != "look" && n > 1:
			w.t.Errorf("%s: call %d of %s was made %d times", key, i, tool, n)
		case u.Outcome == store.OutcomeCompleted && n == 0 && !strings.Contains(u.Final, "not made") && !strings.Contains(u.Final, "unknown whether"):
			w.t.Errorf("%s: call %d of %s was never made; the answer is %q", key, i, tool, u.Final)
		}
	}
}

// judgeConversation finds each answer once and in order, and a result behind each call.
func (w *walk) judgeConversation(chat string, lines, answers []string) {
	var got []string
	open := 0
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "assistant:  ["):
			open++
		case strings.HasPrefix(line, "tool: "):
			open--
		case strings.HasPrefix(line, "assistant: "):
			got = append(got, strings.TrimPrefix(line, "assistant: "))
		}
		if open < 0 || open > 1 || open == 1 && strings.HasPrefix(line, "user: ") {
			w.t.Errorf("%s: calls and results do not match at %q", chat, line)
		}
	}
	if !slices.Equal(got, answers) {
		w.t.Errorf("%s: the conversation has the answers\n%q, the turns\n%q", chat, got, answers)
	}
}

// dedup removes repeats that follow each other: a delivery whose outcome is unknown may be made twice.
func dedup(s []string) []string { return slices.Compact(slices.Clone(s)) }

// Text deltas, drops and resumed attempts in any order: a follower ends with the text that the agent sent.
func FuzzFeed(f *testing.F) {
	f.Add([]byte("abcABC123"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Fuzz(func(t *testing.T, ops []byte) {
		feed := newFeed("turn")
		feed.started(1, "agent-1")
		want, attempt := map[uint32]string{}, uint32(1)
		followers, screens := []*follower{feed.join()}, []*screen{{t: t}}
		for _, op := range ops {
			step := uint32(op>>3) % 4
			switch op % 8 {
			case 0:
				attempt++
				feed.started(attempt, "agent-1")
				want = map[uint32]string{}
			case 1:
				feed.text(&turnv1.TextDelta{Seq: step, Text: "new", Snapshot: true})
				want[step] = "new"
			case 2:
				followers, screens = append(followers, feed.join()), append(screens, &screen{t: t})
			case 3:
				i := int(op) % len(followers)
				screens[i].drain(feed, followers[i])
			case 4:
				feed.toolStarted(&turnv1.ToolStarted{CallId: fmt.Sprint(op)})
			default:
				feed.text(&turnv1.TextDelta{Seq: step, Text: string(rune('a' + op%26))})
				want[step] += string(rune('a' + op%26))
			}
		}
		feed.finish(&turnv1.Final{Text: "end"})
		for i, w := range followers {
			screens[i].drain(feed, w)
			for step, text := range want {
				if screens[i].steps[step] != text {
					t.Fatalf("follower %d shows %q for step %d, want %q", i, screens[i].steps[step], step, text)
				}
			}
			if screens[i].final.GetText() != "end" {
				t.Fatalf("follower %d was sent no final", i)
			}
		}
	})
}
