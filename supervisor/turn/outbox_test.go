package turn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const push = "telegram"

// A platform is a chat platform and what arrived there, over all lives of its gateway.
type platform struct {
	mu      sync.Mutex
	sent    map[string][]string // chat → texts
	tries   []*adapterv1.DeliverRequest
	times   []time.Time
	shown   []*adapterv1.ShowRequest
	sending map[string]int
	overlap bool
	breaks  int // streams of events that end after their first
	// deliver answers a try; nil: it is sent.
	deliver func(ctx context.Context, p *process, r *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error)
}

type adapterServer struct {
	adapterv1.UnimplementedAdapterServer
	proc *process
	to   *platform
}

// gateway starts the gateway of a push platform.
func (r *rig) gateway(name string, to *platform) *process {
	r.t.Helper()
	return r.start(ipc.Identity{Worker: name, Role: ipc.RoleGateway, Platform: push}, func(p *process, s *grpc.Server) {
		adapterv1.RegisterAdapterServer(s, &adapterServer{proc: p, to: to})
	})
}

func (a *adapterServer) Deliver(ctx context.Context, r *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
	p := a.to
	p.mu.Lock()
	if p.sending == nil {
		p.sending, p.sent = map[string]int{}, map[string][]string{}
	}
	p.tries, p.times = append(p.tries, r), append(p.times, time.Now())
	if p.sending[r.To.ChatId]++; p.sending[r.To.ChatId] > 1 {
		p.overlap = true
	}
	deliver := p.deliver
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sending[r.To.ChatId]--
	}()
	if deliver != nil {
		resp, err := deliver(ctx, a.proc, r)
		if resp != nil || err != nil {
			return resp, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[r.To.ChatId] = append(p.sent[r.To.ChatId], r.Text)
	return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_SENT, MessageIds: []string{fmt.Sprint("id-", r.OutboxId)}}, nil
}

func (a *adapterServer) Show(stream grpc.ClientStreamingServer[adapterv1.ShowRequest, adapterv1.ShowResponse]) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		a.to.mu.Lock()
		a.to.shown = append(a.to.shown, r)
		a.to.breaks--
		broken := a.to.breaks >= 0
		a.to.mu.Unlock()
		if broken {
			return errKilled
		}
	}
}

func (p *platform) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tries)
}

func (p *platform) texts(chat string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent[chat])
}

// from hands a message over by the gateway, as an adapter does.
func (p *process) from(chat, id, text string) *hostv1.AcceptResponse {
	p.rig.t.Helper()
	a, err := p.inbox().Accept(p.rig.t.Context(), &hostv1.AcceptRequest{ChatId: chat, MessageId: id, Text: text})
	if err != nil {
		p.rig.t.Fatal(err)
	}
	return a
}

func (r *rig) outbox(chat string) []store.OutboxRow {
	r.t.Helper()
	rows, err := r.state.PendingOutbox(r.t.Context(), push, chat, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

func TestRepliesAreDeliveredInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{deliver: func(context.Context, *process, *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			time.Sleep(time.Second)
			return nil, nil
		}}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		var want []string
		for i := range 10 {
			for _, chat := range []string{"a", "b"} {
				g.from(chat, fmt.Sprint(i), fmt.Sprint("text ", i))
			}
			want = append(want, fmt.Sprint("text ", i))
		}
		for _, chat := range []string{"a", "b"} {
			r.eventually("all is sent", func() bool { return len(to.texts(chat)) == 10 })
			if got := to.texts(chat); !slices.Equal(got, want) {
				t.Errorf("chat %s got %q", chat, got)
			}
			r.eventually("nothing is owed", func() bool { return len(r.outbox(chat)) == 0 })
		}
		if to.overlap {
			t.Error("two deliveries to one chat at once")
		}
		if d := to.tries[0]; d.To.ReplyTo != "0" || d.Attempt != 1 || d.TurnId == "" {
			t.Errorf("the first delivery is %v", d)
		}
	})
}

func TestRetryAfterIsHonouredAndKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{}
		to.deliver = func(context.Context, *process, *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			if to.count() == 1 {
				return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_RETRY, RetryAfterMs: 40_000, Detail: "slow down"}, nil
			}
			return nil, nil
		}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "first")
		g.from("a", "2", "second")
		r.eventually("both are sent", func() bool { return len(to.texts("a")) == 2 })
		if got := to.texts("a"); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("the chat got %q", got)
		}
		if pause := to.times[1].Sub(to.times[0]); pause < 40*time.Second || pause > 46*time.Second {
			t.Errorf("tried again after %v", pause)
		}
		if to.tries[1].Attempt != 2 {
			t.Errorf("the second try is %v", to.tries[1])
		}
	})
}

func TestPausesGrowToALimit(t *testing.T) {
	for attempt := range 100 {
		for range 50 {
			d := resendAfter(attempt, 0)
			most := min(firstResend<<max(min(attempt, 20)-1, 0), longestResend)
			if d < most/2 || d > most {
				t.Fatalf("pause %v after attempt %d, limit %v", d, attempt, most)
			}
		}
	}
	if d := resendAfter(1, askedPause(1<<62)); d > longestRetryAfter+longestRetryAfter/10+1 {
		t.Errorf("a platform may ask for %v", d)
	}
}

// A platform that is down for an hour gets every reply after, and is not asked all the time.
func TestPlatformThatIsDownIsAskedNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		up := time.Now().Add(50 * time.Minute)
		to := &platform{deliver: func(context.Context, *process, *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			if time.Now().Before(up) {
				return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_RETRY}, nil
			}
			return nil, nil
		}}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "first")
		r.eventually("it is sent", func() bool { return len(to.texts("a")) == 1 })
		if n := to.count(); n < 15 || n > 50 {
			t.Errorf("%d tries in 50 minutes", n)
		}
	})
}

func TestUnknownDeliveryIsMadeAgainWithWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{}
		to.deliver = func(_ context.Context, p *process, _ *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			switch to.count() {
			case 1:
				return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_UNKNOWN, MessageIds: []string{"placeholder"}}, nil
			case 2:
				p.kill()
				return nil, errKilled
			}
			return nil, nil
		}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "first")
		<-g.dead
		r.gateway("gateway-telegram", to)
		r.eventually("it is sent", func() bool { return len(to.texts("a")) == 1 })
		last := to.tries[2]
		if last.Attempt != 3 || !slices.Equal(last.MessageIds, []string{"placeholder"}) {
			t.Errorf("the last try is %v", last)
		}
		if n := len(r.eventsOf("outbox_unknown")); n != 2 {
			t.Errorf("%d events of unknown deliveries", n)
		}
	})
}

func TestReplyThatStaysUnknownLetsTheNextPassInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{deliver: func(_ context.Context, _ *process, d *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			if d.Text == "stuck" {
				return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_UNKNOWN}, nil
			}
			return nil, nil
		}}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "stuck")
		g.from("a", "2", "good")
		r.eventually("the second is sent", func() bool { return len(to.texts("a")) == 1 })
		if n := to.count(); n != orderedUnknown+2 {
			t.Errorf("it took %d tries", n)
		}
		if owed := r.outbox("a"); len(owed) != 1 || owed[0].State != store.OutboxUnknown {
			t.Errorf("owed are %+v", owed)
		}
		r.eventually("the first is tried again", func() bool { return to.count() > orderedUnknown+4 })
	})
}

func TestRejectedReplyLetsTheNextPass(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{deliver: func(_ context.Context, _ *process, d *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			if d.Text == "bad" {
				return &adapterv1.DeliverResponse{State: adapterv1.DeliverResponse_STATE_REJECTED, Detail: "chat not found"}, nil
			}
			return nil, nil
		}}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "bad")
		g.from("a", "2", "good")
		r.eventually("the second is sent", func() bool { return len(to.texts("a")) == 1 })
		if n := to.count(); n != 2 {
			t.Errorf("%d tries", n)
		}
		wantContains(t, r.eventsOf("outbox_rejected")[0].Message, "chat not found")
	})
}

// The reply and what is owed are one transaction: a supervisor that dies during a delivery makes it again.
func TestDeliveryCutShortIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		reached := make(chan struct{}, 1)
		hang := &platform{deliver: func(ctx context.Context, _ *process, _ *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			reached <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		g := r.gateway("gateway-telegram", hang)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "first")
		<-reached
		r.restart()
		to := &platform{}
		g = r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "2", "second")
		r.eventually("both are sent", func() bool { return len(to.texts("a")) == 2 })
		if got := to.texts("a"); !slices.Equal(got, []string{"first", "second"}) || to.tries[0].Attempt != 2 {
			t.Errorf("the chat got %q, the first try is %v", got, to.tries[0])
		}
	})
}

func TestFrozenGatewayIsUnknownAfterItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{}
		to.deliver = func(ctx context.Context, _ *process, _ *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			if to.count() == 1 {
				<-ctx.Done()
			}
			return nil, ctx.Err()
		}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		g.from("a", "1", "first")
		r.eventually("it is tried again", func() bool { return to.count() == 2 })
		if pause := to.times[1].Sub(to.times[0]); pause < 30*time.Second || pause > 32*time.Second {
			t.Errorf("tried again after %v", pause)
		}
	})
}

func TestDeliveriesOfAGatewayAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		running, most := 0, 0
		to := &platform{deliver: func(context.Context, *process, *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil, nil
		}}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", obey(never))
		for i := range 3 * sendsAtOnce {
			g.from(fmt.Sprint("chat ", i), "1", "hi")
		}
		r.eventually("all are sent", func() bool { return to.count() == 3*sendsAtOnce })
		r.eventually("the gateway is idle", func() bool { return r.hub.Busy("gateway-telegram") == 0 })
		mu.Lock()
		defer mu.Unlock()
		if most != sendsAtOnce {
			t.Errorf("%d deliveries at once, want %d", most, sendsAtOnce)
		}
	})
}

func TestDrainDeliversWhatItFinished(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{deliver: func(context.Context, *process, *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
			time.Sleep(5 * time.Second)
			return nil, nil
		}}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", func(a *agentRun) error {
			time.Sleep(10 * time.Second)
			return obey(never)(a)
		})
		g.from("a", "1", "hi")
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		ctx, cancel := contextFor(t, time.Minute)
		defer cancel()
		if n := r.hub.Drain(ctx); n != 0 {
			t.Errorf("%d turns unfinished", n)
		}
		if got := to.texts("a"); !slices.Equal(got, []string{"hi"}) {
			t.Errorf("after the drain the chat has %q", got)
		}
	})
}

func TestEventsAreShownToTheGateway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{}
		g := r.gateway("gateway-telegram", to)
		again := make(chan struct{})
		r.agent("agent-1", func(a *agentRun) error {
			a.say(1, "one ")
			<-again
			a.say(1, "two ")
			time.Sleep(time.Second)
			return a.finish(1, "one two")
		})
		g.from("a", "1", "hi")
		time.Sleep(time.Second)
		g.kill()
		second := &platform{}
		r.gateway("gateway-telegram", second)
		time.Sleep(time.Second)
		close(again)
		r.eventually("the reply is sent", func() bool { return len(second.texts("a")) == 1 })
		text := func(p *platform) (text string, kinds []string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, s := range p.shown {
				if s.To.ChatId != "a" || s.To.ReplyTo != "1" {
					t.Errorf("shown to %v", s.To)
				}
				kinds = append(kinds, kindOf(s.Event))
				text += s.Event.GetText().GetText()
			}
			return text, kinds
		}
		if got, kinds := text(to); got != "one " || slices.Contains(kinds, "final") {
			t.Errorf("the first gateway was shown %q by %v", got, kinds)
		}
		if got, kinds := text(second); got != "one two " || slices.Contains(kinds, "final") {
			t.Errorf("the second gateway was shown %q by %v", got, kinds)
		}
	})
}

// A gateway that ends its stream of events gets another one, and the present as a snapshot.
func TestBrokenShowIsOpenedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{breaks: 1}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", func(a *agentRun) error {
			for i := range 20 {
				a.say(1, fmt.Sprint(i, " "))
				time.Sleep(time.Second)
			}
			return a.finish(1, "end")
		})
		g.from("a", "1", "hi")
		r.eventually("the reply is sent", func() bool { return len(to.texts("a")) == 1 })
		to.mu.Lock()
		defer to.mu.Unlock()
		if last := to.shown[len(to.shown)-1].Event.GetText().GetText(); last != "19 " {
			t.Errorf("shown last was %q", last)
		}
	})
}

func TestPullPlatformsOweNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		a := r.accept("main", "1", "hi")
		r.final(a.TurnID)
		rows, err := r.state.PendingOutbox(t.Context(), PlatformTerminal, "main", 10)
		if err != nil || len(rows) != 0 {
			t.Fatalf("owed are %v, %v", rows, err)
		}
	})
}

func TestFinalTextOfPushPlatformIsWhatIsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		to := &platform{}
		g := r.gateway("gateway-telegram", to)
		r.agent("agent-1", func(a *agentRun) error {
			_, err := a.turns().Finish(a.ctx, &hostv1.FinishRequest{
				TurnId: a.req.TurnId, Fence: a.req.Fence, Outcome: turnv1.Outcome_OUTCOME_FAILED,
				Reply: &turnv1.Message{Seq: 1}, Error: "the provider said 401",
			})
			return err
		})
		g.from("a", "1", "hi")
		r.eventually("something is sent", func() bool { return to.count() == 1 })
		if got := strings.Join(to.texts("a"), ""); got != "the provider said 401" {
			t.Errorf("the chat got %q", got)
		}
	})
}
