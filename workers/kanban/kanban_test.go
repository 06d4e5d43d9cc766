package kanban

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	kanbanv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/kanban/v1"
)

func tick(t *testing.T, n *Notifier) uint32 {
	t.Helper()
	r, err := n.Tick(context.Background(), &kanbanv1.TickRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Notices
}

func TestEventsAreToldInOrderAndOnce(t *testing.T) {
	b := newBoard()
	n, _, _ := newNotifier(t, b)
	b.add("a", "blocked", `{"reason":"no ladder"}`)
	b.add("b", "completed", `{"summary":"done well"}`)
	b.add("a", "unblocked", ``)
	b.add("a", "completed", `{"summary":"roof is tight"}`)

	if got := tick(t, n); got != 3 {
		t.Errorf("first look told %d, want 3: the unblocking is silent", got)
	}
	if got := tick(t, n); got != 0 {
		t.Errorf("second look told %d, want 0", got)
	}
	want := []string{
		"a: ⏸ Kanban t_1 blocked: no ladder",
		"b: ✔ Kanban t_1 done — Mend the roof\ndone well",
		"a: ✔ Kanban t_1 done — Mend the roof\nroof is tight",
	}
	if got := b.lines(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if b.cursors["a"] != 4 {
		t.Errorf("cursor of a is %d, want 4: silent events move it too", b.cursors["a"])
	}
}

// Each transition into blocked is told.
func TestEachBlockIsTold(t *testing.T) {
	b := newBoard()
	n, _, _ := newNotifier(t, b)
	for range 2 {
		b.add("a", "blocked", `{"reason":"x"}`)
		b.add("a", "unblocked", ``)
	}
	if got := tick(t, n); got != 2 {
		t.Errorf("told %d, want 2", got)
	}
}

// A failure holds up its own subscription only, and is made good in order.
func TestFailureStopsOnlyItsSubscription(t *testing.T) {
	b := newBoard()
	n, _, _ := newNotifier(t, b)
	b.fail["bad"] = true
	b.add("bad", "blocked", `{"reason":"1"}`)
	b.add("good", "blocked", `{"reason":"2"}`)
	b.add("bad", "blocked", `{"reason":"3"}`)
	b.add("good", "blocked", `{"reason":"4"}`)
	tick(t, n)
	want := []string{"good: ⏸ Kanban t_1 blocked: 2", "good: ⏸ Kanban t_1 blocked: 4"}
	if got := b.lines(); !slices.Equal(got, want) {
		t.Fatalf("told %q, want %q", got, want)
	}
	if degraded, detail := n.Report(); !degraded || !strings.Contains(detail, "1 subscription") {
		t.Errorf("Report() = %v, %q; a subscription that cannot be told must show", degraded, detail)
	}

	b.set(func() { b.fail["bad"] = false })
	tick(t, n)
	want = append(want, "bad: ⏸ Kanban t_1 blocked: 1", "bad: ⏸ Kanban t_1 blocked: 3")
	if got := b.lines(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if degraded, detail := n.Report(); degraded {
		t.Errorf("Report() = degraded, %q after the recovery", detail)
	}
}

func TestPageOfStuckEventsHidesNothing(t *testing.T) {
	b := newBoard()
	n, _, _ := newNotifier(t, b)
	b.fail["bad"] = true
	for range firstPage * 3 {
		b.add("bad", "crashed", "")
	}
	b.add("good", "crashed", "")
	if got := tick(t, n); got != 1 {
		t.Errorf("told %d, want the one behind %d stuck events", got, firstPage*3)
	}
}

func TestManyEventsTakeOneLook(t *testing.T) {
	b := newBoard()
	n, _, _ := newNotifier(t, b)
	for i := range 950 {
		b.add(fmt.Sprint("chat", i%7), "crashed", "")
	}
	if got := tick(t, n); got != 950 {
		t.Errorf("told %d, want 950", got)
	}
}

func TestLookThatCannotReadIsSaidAndRepeated(t *testing.T) {
	b := newBoard()
	n, _, _ := newNotifier(t, b)
	b.add("a", "crashed", "")
	b.set(func() { b.down = status.Error(codes.Unavailable, "board file is locked") })
	if _, err := n.Tick(context.Background(), &kanbanv1.TickRequest{}); !errors.Is(err, ipc.ErrGone) {
		t.Errorf("Tick() = %v, want what the board said", err)
	}
	if degraded, detail := n.Report(); !degraded || !strings.Contains(detail, "board file is locked") {
		t.Errorf("Report() = %v, %q", degraded, detail)
	}
	b.set(func() { b.down = nil })
	if got := tick(t, n); got != 1 {
		t.Errorf("told %d after the recovery, want 1", got)
	}
}

func TestLooksNeverOverlap(t *testing.T) {
	b := newBoard()
	n, clock, host := newNotifier(t, b)
	b.add("a", "crashed", "")
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() { _, _ = n.Tick(context.Background(), &kanbanv1.TickRequest{}) })
	}
	for range 8 {
		clock.tick()
	}
	calls.Wait()
	if b.overlap {
		t.Error("two looks ran at the same time")
	}
	if got := b.lines(); len(got) != 1 {
		t.Errorf("told %q, want one line", got)
	}
	if progress, _, _ := host.Work.Counts(); progress < 16 {
		t.Errorf("%d units of work, want one for each look at least", progress)
	}
}

func TestTickWaitsNoLongerThanItsCaller(t *testing.T) {
	b := newBoard()
	b.gate = make(chan struct{})
	n, clock, _ := newNotifier(t, b)
	clock.tick() // looks, and stands at the gate
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := n.Tick(ctx, &kanbanv1.TickRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Tick() = %v, want the end of its context", err)
	}
	close(b.gate)
}

func TestDrainWaitsForTheLookAndBeginsNone(t *testing.T) {
	b := newBoard()
	b.gate = make(chan struct{})
	n, clock, _ := newNotifier(t, b)
	b.add("a", "crashed", "")
	clock.tick()
	for { // until the look is at the gate
		b.mu.Lock()
		at := b.looking
		b.mu.Unlock()
		if at > 0 {
			break
		}
		runtime.Gosched()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if got := n.Drain(ended); got != 1 {
		t.Errorf("Drain() = %d while a look runs, want 1", got)
	}
	close(b.gate)
	if got := n.Drain(context.Background()); got != 0 {
		t.Errorf("Drain() = %d, want 0", got)
	}
	if got := b.lines(); len(got) != 1 {
		t.Errorf("told %q, want the line of the look that ran", got)
	}
	if _, err := n.Tick(context.Background(), &kanbanv1.TickRequest{}); !errors.Is(err, ipc.ErrRefused) {
		t.Errorf("Tick() after a drain = %v, want refused", err)
	}
}

func TestStartRefusesBadConfiguration(t *testing.T) {
	for name, config := range map[string]string{"no JSON": "{", "negative": `{"interval":-1}`, "a text": `{"interval":"soon"}`} {
		t.Run(name, func(t *testing.T) {
			if err := New(WallClock{}).Start(context.Background(), nil, []byte(config)); err == nil {
				t.Error("Start() took it")
			}
		})
	}
	if _, err := New(WallClock{}).Tick(context.Background(), nil); !errors.Is(err, ipc.ErrRefused) {
		t.Errorf("Tick() before Start = %v, want refused", err)
	}
}

func TestWallClockTicks(t *testing.T) {
	c, stop := WallClock{}.After(time.Microsecond)
	defer stop()
	<-c
}

func TestTenThousandTicksLeaveNothingBehind(t *testing.T) {
	b := newBoard()
	n, clock, _ := newNotifier(t, b)
	for range 100 {
		clock.tick()
	}
	tick(t, n)
	fds, goroutines := openFDs(t), runtime.NumGoroutine()
	for i := range 10_000 {
		if i%1000 == 0 {
			b.add("a", "crashed", "")
		}
		clock.tick()
	}
	tick(t, n)
	if got := b.lines(); len(got) != 10 {
		t.Errorf("told %d lines, want 10", len(got))
	}
	if got := openFDs(t); got != fds {
		t.Errorf("%d descriptors after 10,000 ticks, %d before", got, fds)
	}
	// A call that has just ended may still have one; a leak would be thousands.
	if got := runtime.NumGoroutine(); got > goroutines+5 {
		t.Errorf("%d goroutines after 10,000 ticks, %d before", got, goroutines)
	}
	if b.reads < 10_000 {
		t.Errorf("%d reads of the board, want one for each tick", b.reads)
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("cannot count descriptors: %v", err)
	}
	return len(list)
}
