package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func TestTheLifeOfAToolCall(t *testing.T) {
	ctx, clock := context.Background(), storetest.NewClock()
	s := storetest.State(t, store.Options{Now: clock.Now})
	u := lease(t, s, accept(t, s, "1").TurnID)
	want := store.Call{TurnID: u.ID, CallID: "c1", Seq: 1, Tool: "terminal", Arguments: `{"command":"date"}`, State: store.CallIntent, ReadOnly: true}
	c, created, err := s.BeginCall(ctx, u.Fence, store.Call{TurnID: u.ID, CallID: "c1", Seq: 1, Tool: "terminal", Arguments: `{"command":"date"}`, ReadOnly: true})
	if err != nil || !created || c != want {
		t.Fatalf("%+v, %v, %v", c, created, err)
	}
	again, created, err := s.BeginCall(ctx, u.Fence, store.Call{TurnID: u.ID, CallID: "c1", Tool: "another"})
	if err != nil || created || again != want {
		t.Errorf("a repeated call: %+v, %v, %v", again, created, err)
	}
	get := func() store.Call {
		list, err := s.Calls(ctx, u.ID)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	set := func(c store.Call) {
		if err := s.SetCall(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	set(store.Call{TurnID: u.ID, CallID: "c1", State: store.CallApproval})
	if c := get(); c.State != store.CallApproval || !c.StartedAt.IsZero() || c.Tool != "terminal" {
		t.Errorf("waiting call is %+v", c)
	}
	set(store.Call{TurnID: u.ID, CallID: "c1", State: store.CallRunning, Attempt: 1})
	running := get()
	if running.State != store.CallRunning || running.StartedAt.IsZero() || !running.EndedAt.IsZero() || running.Attempt != 1 {
		t.Errorf("running call is %+v", running)
	}
	clock.Advance(time.Minute)
	set(store.Call{TurnID: u.ID, CallID: "c1", State: store.CallUnknown, Attempt: 1, Result: "unknown", ErrorKind: "KIND_UNKNOWN_EFFECT"})
	if c := get(); c.State != store.CallUnknown || c.EndedAt.IsZero() || c.StartedAt != running.StartedAt {
		t.Errorf("call of unknown effect is %+v", c)
	}
	set(store.Call{TurnID: u.ID, CallID: "c1", State: store.CallDone, Attempt: 2, Result: "noon", Error: "", SpillPath: "/spill"})
	done := get()
	if done.State != store.CallDone || done.Result != "noon" || done.SpillPath != "/spill" || done.ErrorKind != "" || done.Attempt != 2 {
		t.Errorf("finished call is %+v", done)
	}
	set(store.Call{TurnID: u.ID, CallID: "c1", State: store.CallUnknown, Result: "lost"})
	if c := get(); c != done {
		t.Errorf("a result that may have been read became %+v", c)
	}
}

func TestCallsOfATurnStandInOrder(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	u := lease(t, s, accept(t, s, "1").TurnID)
	for _, id := range []string{"z", "a", "m"} {
		if _, _, err := s.BeginCall(ctx, u.Fence, store.Call{TurnID: u.ID, CallID: id, Tool: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Calls(ctx, u.ID)
	if err != nil || len(list) != 3 || list[0].CallID != "z" || list[1].CallID != "a" || list[2].CallID != "m" {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.Calls(ctx, "another"); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestCallsThatCannotBe(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	u := lease(t, s, accept(t, s, "1").TurnID)
	for _, c := range []struct {
		call  store.Call
		fence uint64
		want  error
	}{
		{store.Call{TurnID: u.ID, Tool: "t"}, u.Fence, store.ErrInvalid},
		{store.Call{TurnID: u.ID, CallID: "c"}, u.Fence, store.ErrInvalid},
		{store.Call{TurnID: "nothing", CallID: "c", Tool: "t"}, u.Fence, store.ErrNotFound},
		{store.Call{TurnID: u.ID, CallID: "c", Tool: "t"}, u.Fence + 1, store.ErrLeaseLost},
	} {
		if _, _, err := s.BeginCall(ctx, c.fence, c.call); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, not %v", c.call, err, c.want)
		}
	}
	if err := s.SetCall(ctx, store.Call{TurnID: u.ID, CallID: "nothing", State: store.CallDone}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a call that was never begun: %v", err)
	}
}

func TestOneCallBegunByManyIsCreatedOnce(t *testing.T) {
	s := storetest.State(t, store.Options{})
	u := lease(t, s, accept(t, s, "1").TurnID)
	var wg sync.WaitGroup
	created := make([]bool, 20)
	for i := range created {
		wg.Go(func() {
			var err error
			if _, created[i], err = s.BeginCall(context.Background(), u.Fence, store.Call{TurnID: u.ID, CallID: "c", Tool: "t"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(slices.DeleteFunc(created, func(b bool) bool { return !b })); n != 1 {
		t.Errorf("created %d times", n)
	}
}

func TestTheLifeOfAnApproval(t *testing.T) {
	ctx, clock := context.Background(), storetest.NewClock()
	s := storetest.State(t, store.Options{Now: clock.Now})
	u := lease(t, s, accept(t, s, "1").TurnID)
	deadline := clock.Now().Add(time.Minute).Truncate(time.Microsecond)
	a, err := s.RequestApproval(ctx, store.Approval{TurnID: u.ID, CallID: "c", Tool: "terminal", Summary: "rm -rf /", Reason: "deletes", Deadline: deadline})
	if err != nil || a.ID == "" || a.Decided || !a.Deadline.Equal(deadline) || a.Summary != "rm -rf /" || a.Reason != "deletes" {
		t.Fatalf("%+v, %v", a, err)
	}
	later := deadline.Add(time.Hour)
	again, err := s.RequestApproval(ctx, store.Approval{TurnID: u.ID, CallID: "c", Tool: "other", Deadline: later})
	if err != nil || again.ID != a.ID || !again.Deadline.Equal(later) || again.Tool != "terminal" {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	if _, err := s.RequestApproval(ctx, store.Approval{TurnID: u.ID, CallID: "d"}); err != nil {
		t.Fatal(err)
	}
	for turn, want := range map[string]int{u.ID: 2, "": 2, "another": 0} {
		if list, err := s.Approvals(ctx, turn); err != nil || len(list) != want {
			t.Errorf("waiting of %q: %+v, %v", turn, list, err)
		}
	}
	yes, before, err := s.DecideApproval(ctx, a.ID, true, "user")
	if err != nil || before || !yes.Decided || !yes.Approved || yes.By != "user" || yes.DecidedAt.IsZero() {
		t.Errorf("decided: %+v, %v, %v", yes, before, err)
	}
	no, before, err := s.DecideApproval(ctx, a.ID, false, "timeout")
	if err != nil || !before || no != yes {
		t.Errorf("decided again: %+v, %v, %v", no, before, err)
	}
	asked, err := s.RequestApproval(ctx, store.Approval{TurnID: u.ID, CallID: "c", Deadline: later.Add(time.Hour)})
	if err != nil || asked != yes {
		t.Errorf("asked after the decision: %+v, %v", asked, err)
	}
	finish(t, s, u, "reply")
	if list, err := s.Approvals(ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("nobody listens to %+v, %v", list, err)
	}
	if _, _, err := s.DecideApproval(ctx, "nothing", true, "user"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown approval: %v", err)
	}
	if _, err := s.RequestApproval(ctx, store.Approval{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an approval of nothing: %v", err)
	}
}
