package turn

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestRepeatedMessageIsAnsweredOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first := r.accept("main", "m1", "hello")
		if again := r.accept("main", "m1", "hello"); !again.Duplicate || again.TurnID != first.TurnID {
			t.Fatalf("repeated message got %+v, the first %+v", again, first)
		}
		r.agent("agent-1", obey(never))
		if got := r.final(first.TurnID).Text; got != "hello" {
			t.Fatalf("final text %q", got)
		}
		if again := r.accept("main", "m1", "hello"); !again.Duplicate || again.TurnID != first.TurnID {
			t.Fatalf("message repeated after the answer got %+v", again)
		}
		r.wantTranscript(first.SessionID, "user: hello", "assistant: hello")
	})
}

func TestTurnsOfASessionRunInOrderAndOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		running, most := map[string]int{}, map[string]int{}
		r.agent("agent-1", func(a *agentRun) error {
			mu.Lock()
			running[a.req.SessionId]++
			running[""]++
			most[a.req.SessionId] = max(most[a.req.SessionId], running[a.req.SessionId])
			most[""] = max(most[""], running[""])
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running[a.req.SessionId]--
			running[""]--
			mu.Unlock()
			return obey(never)(a)
		})
		var turns, want []string
		var session string
		for i := range 4 {
			text := fmt.Sprint("message ", i)
			a := r.accept("one", text, text)
			r.accept("two", text, text)
			turns, session = append(turns, a.TurnID), a.SessionID
			want = append(want, "user: "+text, "assistant: "+text)
		}
		for _, id := range turns {
			r.final(id)
		}
		r.wantTranscript(session, want...)
		if most[session] != 1 || most[""] != 2 {
			t.Fatalf("%d turns of one session side by side, want 1; %d of two sessions, want 2", most[session], most[""])
		}
	})
}

// Accepts that overlap may be answered in another order than they were stored in; turns must run in the stored one.
func TestOverlappingAcceptsKeepTheStoredOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		const n = 40
		turns := make([]string, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				a, err := r.hub.Accept(t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: fmt.Sprint(i), Text: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
				}
				turns[i] = a.TurnID
			})
		}
		wg.Wait()
		var stored []store.Turn
		for _, id := range turns {
			r.final(id)
			stored = append(stored, r.turn(id))
		}
		slices.SortFunc(stored, func(a, b store.Turn) int { return int(a.Seq - b.Seq) })
		var want []string
		for _, u := range stored {
			want = append(want, "user: "+u.MessageID, "assistant: "+u.MessageID)
		}
		r.wantTranscript(stored[0].SessionID, want...)
	})
}

func TestSessionStaysOnItsAgentAndMovesWhenThatDies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		ran := map[string]string{} // turn → worker
		script := func(a *agentRun) error {
			mu.Lock()
			ran[a.req.TurnId] = a.id.Worker
			mu.Unlock()
			return obey(never)(a)
		}
		procs := map[string]*process{"agent-1": r.agent("agent-1", script), "agent-2": r.agent("agent-2", script)}
		on := func(chat, message string) string {
			a := r.accept(chat, message, "hi")
			r.final(a.TurnID)
			mu.Lock()
			defer mu.Unlock()
			return ran[a.TurnID]
		}
		home := on("one", "1")
		if other := on("two", "1"); other == home {
			t.Fatalf("both sessions went to %s", home)
		}
		for i := range 3 {
			if got := on("one", fmt.Sprint("again ", i)); got != home {
				t.Fatalf("session moved from %s to %s", home, got)
			}
		}
		procs[home].kill()
		if got := on("one", "after"); got == home {
			t.Fatalf("session stayed on dead %s", home)
		}
	})
}

func TestAgentGetsNoMoreTurnsThanItsLimit(t *testing.T) {
	bubbleWith(t, Config{TurnsPerAgent: 2}, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		running, most := 0, 0
		r.agent("agent-1", func(a *agentRun) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return obey(never)(a)
		})
		var turns []string
		for i := range 6 {
			turns = append(turns, r.accept(fmt.Sprint("chat ", i), "m", "hi").TurnID)
		}
		r.eventually("two turns run", func() bool { return r.hub.Busy("agent-1") == 2 })
		for _, id := range turns {
			r.final(id)
		}
		if most != 2 {
			t.Fatalf("%d turns ran side by side, want 2", most)
		}
		r.eventually("the agent is idle", func() bool { return r.hub.Busy("agent-1") == 0 })
	})
}

func TestAnIdleQueueSleepsUntilItIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		time.Sleep(10 * beat) // what the start left to do is done
		before := r.hub.Progress()
		time.Sleep(time.Hour)
		if after := r.hub.Progress(); after != before {
			t.Errorf("%d beats in an hour in which nothing happened", after-before)
		}
		r.hub.Ping()
		synctest.Wait()
		if after := r.hub.Progress(); after == before {
			t.Error("it does not show that it would work")
		}
	})
}

// A turn that another program removed from the store must not block its session for ever.
func TestTurnThatIsNotInTheStoreIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		if err := r.hub.Follow(t.Context(), "turn_none", nil); err == nil {
			t.Fatal("following no turn succeeded")
		}
		l := func() *live {
			r.hub.mu.Lock()
			defer r.hub.mu.Unlock()
			return r.hub.insert(store.Turn{ID: "turn_gone", SessionID: "s", Seq: 1, State: store.TurnQueued}, 0)
		}()
		r.agent("agent-1", obey(never))
		r.eventually("it is given up", func() bool {
			r.hub.mu.Lock()
			defer r.hub.mu.Unlock()
			return l.done
		})
		if len(r.eventsOf("turn_vanished")) != 1 {
			t.Fatal("nothing was said of it")
		}
	})
}

func TestHomesForgetTheOldest(t *testing.T) {
	var m homes
	a := &agent{}
	for i := range 3 * homesKept {
		m.put(fmt.Sprint(i), a)
	}
	if m.get("0") != nil {
		t.Error("the oldest session is still known")
	}
	if m.get(fmt.Sprint(3*homesKept-1)) != a {
		t.Error("the newest session is forgotten")
	}
	if n := len(m.young) + len(m.old); n > 2*homesKept {
		t.Errorf("%d sessions are kept, at most %d may be", n, 2*homesKept)
	}
}
