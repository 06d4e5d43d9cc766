package turn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// A trap is a fault of the supervisor: it panics where it is set, as often as it is set.
type trap struct {
	mu     sync.Mutex
	at     string
	times  int
	sprung int
	log    bytes.Buffer
}

func (p *trap) set(at string, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.times, p.sprung = at, times, 0
}

func (p *trap) pass(at string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at == p.at && p.times > 0 {
		p.times--
		p.sprung++
		panic("trapped at " + at)
	}
}

func (p *trap) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sprung
}

func (p *trap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// wantLogged says that each panic of the hub's own work was logged with its stack.
func (p *trap) wantLogged(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := strings.Count(p.log.String(), "panic in the hub"); n != p.sprung {
		t.Errorf("%d panics, logged are %d:\n%s", p.sprung, n, p.log.String())
	}
	wantContains(t, p.log.String(), "panic_test.go")
}

// A trapStore and a trapConn are traps in every call of the store and of workers.
type trapStore struct {
	Store
	*trap
}

func (s *trapStore) Accept(ctx context.Context, in store.Inbound) (store.Accepted, error) {
	a, err := s.Store.Accept(ctx, in)
	if in.Text == "unanswered" {
		return store.Accepted{}, errNoAnswer
	}
	return a, err
}

func (s *trapStore) Open(ctx context.Context) ([]store.Turn, error) {
	s.pass("Open")
	return s.Store.Open(ctx)
}

func (s *trapStore) Lease(ctx context.Context, id, worker string) (store.Turn, error) {
	s.pass("Lease")
	t, err := s.Store.Lease(ctx, id, worker)
	s.pass("after Lease")
	return t, err
}

func (s *trapStore) Requeue(ctx context.Context, id string, fence uint64) (store.Turn, error) {
	s.pass("Requeue")
	return s.Store.Requeue(ctx, id, fence)
}

func (s *trapStore) FinishTurn(ctx context.Context, f store.Finish) (store.Turn, error) {
	s.pass("FinishTurn")
	return s.Store.FinishTurn(ctx, f)
}

func (s *trapStore) BeginCall(ctx context.Context, fence uint64, c store.Call) (store.Call, bool, error) {
	s.pass("BeginCall")
	return s.Store.BeginCall(ctx, fence, c)
}

func (s *trapStore) SetCall(ctx context.Context, c store.Call) error {
	s.pass("SetCall " + string(c.State))
	return s.Store.SetCall(ctx, c)
}

func (s *trapStore) DueOutbox(ctx context.Context, now time.Time, limit int, platforms ...string) ([]store.OutboxRow, error) {
	s.pass("DueOutbox")
	return s.Store.DueOutbox(ctx, now, limit, platforms...)
}

func (s *trapStore) BeginSend(ctx context.Context, id int64) (store.OutboxRow, error) {
	s.pass("BeginSend")
	return s.Store.BeginSend(ctx, id)
}

func (s *trapStore) ReportSend(ctx context.Context, id int64, r store.OutboxReport) error {
	s.pass("ReportSend")
	return s.Store.ReportSend(ctx, id, r)
}

type trapConn struct {
	grpc.ClientConnInterface
	*trap
}

func (c *trapConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.pass(method[strings.LastIndex(method, "/")+1:])
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c *trapConn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.pass(d.StreamName)
	return c.ClientConnInterface.NewStream(ctx, d, method, opts...)
}

// trapped runs a test on a hub with a trap at every place where it works for somebody.
func trapped(t *testing.T, test func(t *testing.T, r *rig, p *trap)) {
	t.Helper()
	p := &trap{}
	cfg := Config{
		Log: hclog.New(&hclog.LoggerOptions{Output: p}),
		Now: func() time.Time {
			p.pass("Now")
			return time.Now()
		},
	}
	bubbleWith(t, cfg, func(t *testing.T, r *rig) {
		r.wrap = func(s Store) Store { return &trapStore{s, p} }
		r.wire = func(c grpc.ClientConnInterface) grpc.ClientConnInterface { return &trapConn{c, p} }
		r.restart()
		test(t, r, p)
	})
}

// wantAtRest says that nothing is held by work that is over: no turn, lease, call, delivery or ticket.
func (r *rig) wantAtRest(workers ...string) {
	r.t.Helper()
	r.eventually("the hub is at rest", func() bool {
		busy, _ := r.hub.running()
		for _, w := range workers {
			busy += r.hub.Busy(w)
		}
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		for _, a := range r.hub.agents {
			busy += a.load
		}
		return busy == 0 && len(r.hub.turns) == 0 && r.hub.tickets.hold == 0 && len(r.hub.tickets.open) == 0
	})
}

// A panic wherever the hub works on a turn, a call or a delivery costs that piece of work. Every message has its answer, and
// the workers have their hands free for the next.
func TestAPanicCostsOnlyWhatItMet(t *testing.T) {
	for _, at := range []string{
		"Lease", "after Lease", "Run", // a run
		"BeginCall", "Check", "SetCall running", "Invoke", "SetCall done", "Describe", // a call
		"DueOutbox", "BeginSend", "Deliver", "ReportSend", "Show", // a delivery
	} {
		t.Run(at, func(t *testing.T) {
			trapped(t, func(t *testing.T, r *rig, p *trap) {
				p.set(at, 1)
				to := &platform{}
				g := r.gateway("gateway", to)
				tools := guarded()
				r.tools("tools", map[string]scriptedTool{"work": tools["safe"]})
				r.agent("agent-1", lively(obey(never)))
				for _, c := range []string{"a", "b"} {
					g.from(c, "1", "call:work")
					g.from(c, "2", "next")
				}
				for _, c := range []string{"a", "b"} {
					r.eventually("chat "+c+" is answered", func() bool { return len(to.texts(c)) >= 2 })
				}
				r.wantAtRest("agent-1", "tools", "gateway")
				if n := p.count(); n != 1 {
					t.Fatalf("the trap was sprung %d times", n)
				}
				p.wantLogged(t)
			})
		})
	}
}

// A panic after the loss of a run leaves a turn that is leased in the store alone. It is run again.
func TestAPanicOverALostRunCostsNoTurn(t *testing.T) {
	trapped(t, func(t *testing.T, r *rig, p *trap) {
		p.set("Requeue", 1)
		r.agent("agent-1", func(a *agentRun) error {
			if a.req.Attempt == 1 {
				return errors.New("lost")
			}
			return a.finish(1, "done")
		})
		a := r.accept("main", "m", "hi")
		if got := r.final(a.TurnID).Text; got != "done" {
			t.Errorf("final text %q", got)
		}
		r.wantAtRest("agent-1")
		p.wantLogged(t)
	})
}

// A turn that has the supervisor panic each time is given up as one that kills its agents is.
func TestATurnThatAlwaysPanicsIsParked(t *testing.T) {
	for _, at := range []string{"Run", "Lease"} {
		t.Run(at, func(t *testing.T) {
			trapped(t, func(t *testing.T, r *rig, p *trap) {
				p.set(at, parkShared)
				r.agent("agent-1", obey(never))
				a := r.accept("main", "m", "hi")
				f := r.final(a.TurnID)
				if f.Outcome != turnv1.Outcome_OUTCOME_PARKED {
					t.Errorf("final is %v", f)
				}
				wantContains(t, f.Text, "internal error of the supervisor")
				p.set("", 0)
				if _, read := r.one("next"); read != "next" {
					t.Errorf("the next message got %q", read)
				}
			})
		})
	}
}

// A row whose delivery panics each time holds up its chat no longer than one whose outcome is unknown each time.
func TestADeliveryThatAlwaysPanicsLetsOthersPass(t *testing.T) {
	trapped(t, func(t *testing.T, r *rig, p *trap) {
		p.set("Deliver", orderedUnknown+1)
		to := &platform{}
		g := r.gateway("gateway", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "one")
		r.eventually("it is tried", func() bool { return p.count() > 0 })
		g.from("a", "2", "two")
		r.eventually("both are there", func() bool { return len(to.texts("a")) == 2 })
		if got := to.texts("a"); fmt.Sprint(got) != "[two one]" {
			t.Errorf("sent are %v", got)
		}
		r.wantAtRest("gateway")
	})
}

func TestAPanicAtTheEndOfATurnIsTriedAgain(t *testing.T) {
	for _, at := range []string{"Lease", "FinishTurn"} {
		t.Run(at, func(t *testing.T) {
			trapped(t, func(t *testing.T, r *rig, p *trap) {
				p.set(at, 3)
				a := r.accept("main", "m", "hi")
				r.interrupt(a.TurnID)
				if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
					t.Errorf("final is %v", f)
				}
				r.wantAtRest()
				p.wantLogged(t)
			})
		})
	}
}

// An agent that cannot be told to stop loses its lease instead.
func TestAPanicOverAnInterruptionLeavesNoTurnRunning(t *testing.T) {
	trapped(t, func(t *testing.T, r *rig, p *trap) {
		p.set("Interrupt", 1)
		r.agent("agent-1", lively(func(a *agentRun) error {
			<-a.ctx.Done()
			return a.ctx.Err()
		}))
		a := r.accept("main", "m", "hi")
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		r.interrupt(a.TurnID)
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
			t.Errorf("final is %v", f)
		}
		r.wantAtRest("agent-1")
		p.wantLogged(t)
	})
}

// While open turns are read again nothing is given out. A panic in that must not keep it so.
func TestAPanicOverTheReadingOfOpenTurnsIsTriedAgain(t *testing.T) {
	trapped(t, func(t *testing.T, r *rig, p *trap) {
		r.agent("agent-1", obey(never))
		p.set("Open", 3)
		_, err := r.hub.Accept(t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "1", Text: "unanswered"})
		if !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		second := r.accept("main", "2", "two")
		if got := r.final(second.TurnID).Text; got != "two" {
			t.Errorf("final text %q", got)
		}
		r.wantTranscript(second.SessionID, "user: unanswered", "assistant: unanswered", "user: two", "assistant: two")
		r.wantAtRest("agent-1")
		p.wantLogged(t)
	})
}

func TestAPanicOverTheTakeoverIsTriedAgain(t *testing.T) {
	trapped(t, func(t *testing.T, r *rig, p *trap) {
		a := r.accept("main", "m", "hi")
		r.close()
		disk := &fullDisk{}
		disk.full.Store(true)
		r.wrap = func(s Store) Store {
			disk.Store = s
			return &trapStore{&unreadable{disk}, p}
		}
		r.open()
		p.set("Open", 3)
		disk.full.Store(false)
		r.agent("agent-1", obey(never))
		if got := r.final(a.TurnID).Text; got != "hi" {
			t.Errorf("final text %q", got)
		}
		r.wantAtRest("agent-1")
		p.wantLogged(t)
	})
}

// unreadable is a full disk that gives out no open turns either.
type unreadable struct{ *fullDisk }

func (u *unreadable) Open(ctx context.Context) ([]store.Turn, error) {
	if err := u.refuse(); err != nil {
		return nil, err
	}
	return u.Store.Open(ctx)
}

// A dispatch that panics gives nothing out: the watchdog must see that, and no beat.
func TestADispatchThatPanicsCountsNoBeat(t *testing.T) {
	trapped(t, func(t *testing.T, r *rig, p *trap) {
		a := r.accept("main", "m", "hi") // with an open turn the loop turns each second
		time.Sleep(2 * time.Second)
		p.set("Now", 10)
		time.Sleep(2 * time.Second)
		before := r.hub.Progress()
		time.Sleep(4 * time.Second)
		if n := r.hub.Progress(); n != before {
			t.Errorf("%d beats of a loop that only panics", n-before)
		}
		r.eventually("the loop beats again", func() bool { return r.hub.Progress() > before })
		r.agent("agent-1", obey(never))
		if got := r.final(a.TurnID).Text; got != "hi" {
			t.Errorf("final text %q", got)
		}
		p.wantLogged(t)
	})
}
