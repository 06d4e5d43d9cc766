package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

var (
	_ Store = (*store.State)(nil)
	_ Board = (*store.Board)(nil)
)

// A fullDisk is a store whose writes are refused while it is full.
type fullDisk struct {
	Store
	full    atomic.Bool
	broken  atomic.Bool // for good
	refused atomic.Int32
}

func (f *fullDisk) refuse() error {
	if f.broken.Load() {
		return fmt.Errorf("%w: state.db is damaged", store.ErrFailed)
	}
	if f.full.Load() {
		f.refused.Add(1)
		return store.ErrDiskFull
	}
	return nil
}

func (f *fullDisk) Accept(ctx context.Context, in store.Inbound) (store.Accepted, error) {
	if err := f.refuse(); err != nil {
		return store.Accepted{}, err
	}
	return f.Store.Accept(ctx, in)
}

func (f *fullDisk) Lease(ctx context.Context, id, worker string) (store.Turn, error) {
	if err := f.refuse(); err != nil {
		return store.Turn{}, err
	}
	return f.Store.Lease(ctx, id, worker)
}

func (f *fullDisk) Requeue(ctx context.Context, id string, fence uint64) (store.Turn, error) {
	if err := f.refuse(); err != nil {
		return store.Turn{}, err
	}
	return f.Store.Requeue(ctx, id, fence)
}

func (f *fullDisk) Restarted(ctx context.Context, id string, fence uint64, window time.Duration) (store.Turn, error) {
	if err := f.refuse(); err != nil {
		return store.Turn{}, err
	}
	return f.Store.Restarted(ctx, id, fence, window)
}

func (f *fullDisk) Release(ctx context.Context, id string, fence uint64) (store.Turn, error) {
	if err := f.refuse(); err != nil {
		return store.Turn{}, err
	}
	return f.Store.Release(ctx, id, fence)
}

func (f *fullDisk) AppendSteps(ctx context.Context, id string, fence uint64, steps []store.Message, prompt string) ([]int64, error) {
	if err := f.refuse(); err != nil {
		return nil, err
	}
	return f.Store.AppendSteps(ctx, id, fence, steps, prompt)
}

func (f *fullDisk) FinishTurn(ctx context.Context, fin store.Finish) (store.Turn, error) {
	if err := f.refuse(); err != nil {
		return store.Turn{}, err
	}
	return f.Store.FinishTurn(ctx, fin)
}

func (f *fullDisk) SetCall(ctx context.Context, c store.Call) error {
	if err := f.refuse(); err != nil {
		return err
	}
	return f.Store.SetCall(ctx, c)
}

// A store that has failed for good cannot store the answer. Who waits for one is told so, instead of waiting for ever.
func TestAFailedStoreIsToldToWhoeverWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		disk := &fullDisk{}
		r.wrap = func(s Store) Store {
			disk.Store = s
			return disk
		}
		r.restart()
		a := r.accept("main", "m", "hello")
		disk.broken.Store(true)
		r.agent("agent-1", lively(obey(func(*agentRun, string) bool { return false })))
		err := r.hub.Follow(t.Context(), a.TurnID, func(*turnv1.TurnEvent) error { return nil })
		if !errors.Is(err, ipc.ErrRefused) || !strings.Contains(err.Error(), "state.db is damaged") || !strings.Contains(err.Error(), "waits until the store is well") {
			t.Errorf("follow: %v", err)
		}
		if list := r.eventsOf("store_failed"); len(list) != 1 {
			t.Errorf("events: %+v", list)
		}
		disk.broken.Store(false)
		r.restart()
		r.agent("agent-1", lively(obey(func(*agentRun, string) bool { return false })))
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
			t.Errorf("final is %v", f)
		}
	})
}

// What a gateway shows is not told that the store has failed: it waits, and goes on when the store is well.
func TestAFailedStoreDoesNotHaveEventsShownOverAndOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		disk := &fullDisk{}
		r.wrap = func(s Store) Store {
			disk.Store = s
			return disk
		}
		r.restart()
		to := &platform{}
		g := r.gateway("gateway-telegram", to)
		g.from("a", "1", "hello")
		disk.broken.Store(true)
		r.agent("agent-1", lively(obey(never)))
		r.eventually("the store has failed", func() bool { return len(r.eventsOf("store_failed")) == 1 })
		time.Sleep(10 * time.Second)
		to.mu.Lock()
		shown := len(to.shown)
		to.mu.Unlock()
		if shown > 5 {
			t.Errorf("%d events of a turn that does not move were shown", shown)
		}
		disk.broken.Store(false)
		r.eventually("the chat is answered", func() bool { return len(to.texts("a")) == 1 })
	})
}

// A supervisor that was killed may come back to a store that takes no writes. It starts all the same, and goes on with what
// was left when the store does.
func TestAStartOnAStoreThatTakesNoWritesIsFinishedLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		disk := &fullDisk{}
		r.wrap = func(s Store) Store {
			disk.Store = s
			return disk
		}
		r.restart()
		a := r.accept("main", "m", "hello")
		r.agent("agent-1", lively(obey(func(*agentRun, string) bool { time.Sleep(30 * time.Second); return true })))
		time.Sleep(time.Second) // the turn is leased
		disk.full.Store(true)
		r.restart()
		r.agent("agent-1", lively(obey(func(*agentRun, string) bool { return false })))
		time.Sleep(time.Minute)
		if list := r.eventsOf("turn_leased"); len(list) != 1 {
			t.Errorf("leased while nothing can be stored: %+v", list)
		}
		disk.full.Store(false)
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
			t.Errorf("final is %v", f)
		}
	})
}

// A disk that is full for half an hour loses nothing, parks nothing and makes no call twice.
func TestFullDiskIsWaitedFor(t *testing.T) {
	for name, when := range map[string]string{
		"before the lease": "", "before a step": "before append", "before the end": "before finish", "before the result is stored": "in the call",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				disk := &fullDisk{}
				r.wrap = func(s Store) Store {
					disk.Store = s
					return disk
				}
				r.restart()
				var once atomic.Bool
				fill := func(at string) {
					if at == when && once.CompareAndSwap(false, true) {
						disk.full.Store(true)
						time.AfterFunc(time.Hour/2, func() { disk.full.Store(false) })
					}
				}
				r.tools("tools", map[string]scriptedTool{"work": {invoke: func(ctx context.Context, in *invocation) (*toolv1.Result, error) {
					fill("in the call")
					return ok("done")(ctx, in)
				}}})
				a := r.accept("main", "m", "call:work")
				fill("")
				r.agent("agent-1", lively(obey(func(_ *agentRun, at string) bool {
					fill(at)
					return false
				})))
				r.eventually("writes are refused", func() bool { return disk.refused.Load() > 0 })
				_, err := r.hub.Accept(t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: "other", MessageID: "1", Text: "hi"})
				if ipc.ExitCode(err) != ipc.ExitTryAgain {
					t.Errorf("a message during it: %v", err)
				}
				if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED || f.Text != "done" {
					t.Errorf("final is %v", f)
				}
				if n := r.world.of(a.TurnID, "c0"); n != 1 {
					t.Errorf("the call was made %d times", n)
				}
				if n := disk.refused.Load(); n > 5000 {
					t.Errorf("the full disk was tried %d times in half an hour", n)
				}
				r.wantTranscript(a.SessionID, "user: call:work", "assistant:  [c0 work]", "tool: done", "assistant: done")
			})
		})
	}
}
