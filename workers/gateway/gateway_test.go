package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

// paper is an adapter of a platform that keeps what it is given.
type paper struct {
	setup gateway.Setup
	bell  gateway.Bell // nil: none

	mu      sync.Mutex
	status  gateway.Status
	looks   int
	sent    []gateway.Delivery
	data    []string // contents of files sent
	shown   []*turnv1.TurnEvent
	answer  func(context.Context, gateway.Delivery) gateway.Delivered
	drained bool
	closed  bool
	end     chan error // what Run is to return
}

func (p *paper) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.end:
		return err
	}
}

func (p *paper) Status() gateway.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	return p.status
}

// looked returns how often its status was asked for.
func (p *paper) looked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.looks
}

func (p *paper) set(s gateway.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = s
}

func (p *paper) Deliver(ctx context.Context, d gateway.Delivery) gateway.Delivered {
	p.mu.Lock()
	answer := p.answer
	for _, f := range d.Files {
		data, _ := io.ReadAll(f)
		p.data = append(p.data, string(data))
	}
	p.sent = append(p.sent, d)
	p.mu.Unlock()
	return answer(ctx, d)
}

func (p *paper) Show(_ context.Context, _ gateway.To, e *turnv1.TurnEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = append(p.shown, e)
}

// Changed makes it a Teller; without a bell it is one that is asked each second.
func (p *paper) Changed() gateway.Bell { return p.bell }

func (p *paper) Drain(context.Context) int { p.drained = true; return 2 }
func (p *paper) Close()                    { p.closed = true }

// quiet is an adapter without any of the optional abilities.
type quiet struct{}

func (quiet) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (quiet) Status() gateway.Status        { return gateway.Status{State: gateway.StateConnecting} }

// stage is a gateway around an adapter, between a host and a client that is the supervisor's end.
type stage struct {
	role   *gateway.Gateway
	paper  *paper
	h      *gatewaytest.Host
	host   *workers.Host
	conn   *grpc.ClientConn
	client adapterv1.AdapterClient
	exits  chan int
}

func newStage(t *testing.T, settings map[string]any) *stage {
	t.Helper()
	s := &stage{h: gatewaytest.NewHost(t, "paper"), exits: make(chan int, 1)}
	s.host = s.h.Connect(t)
	s.role = gateway.NewForTest(gateway.Adapters{
		"quiet": func(context.Context, gateway.Setup) (gateway.Adapter, error) { return quiet{}, nil },
		"paper": func(_ context.Context, setup gateway.Setup) (gateway.Adapter, error) {
			s.paper = &paper{
				setup: setup, end: make(chan error, 1), status: gateway.Status{State: gateway.StateConnected, LastReceive: time.UnixMilli(42)},
				answer: func(context.Context, gateway.Delivery) gateway.Delivered { return gateway.Sent("m1") },
			}
			return s.paper, nil
		},
		"bell": func(_ context.Context, setup gateway.Setup) (gateway.Adapter, error) {
			s.paper = &paper{setup: setup, bell: gateway.NewBell(), end: make(chan error, 1), status: gateway.Status{State: gateway.StateConnected}}
			return s.paper, nil
		},
		"broken": func(context.Context, gateway.Setup) (gateway.Adapter, error) { return nil, errors.New("no token") },
	}, func(code int) { s.exits <- code })

	server := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	s.role.Register(server)
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }() // ended by Stop
	conn, err := grpc.NewClient("passthrough:bufconn", append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	s.conn, s.client = conn, adapterv1.NewAdapterClient(conn)
	t.Cleanup(func() {
		s.role.Close()
		_ = conn.Close()
		server.Stop()
	})
	if settings != nil {
		if err := s.start(t, "paper", settings); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *stage) start(t *testing.T, platform string, settings map[string]any) error {
	t.Helper()
	config, err := json.Marshal(ipc.GatewayConfig{Platform: platform, Settings: settings, Dir: filepath.Join(t.TempDir(), "gateway")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return s.role.Start(ctx, s.host, config)
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, platform string
		settings       map[string]any
		want           string
	}{
		{"an adapter that is not there", "telegraph", nil, "this gateway has bell, broken, paper, quiet"},
		{"an adapter that refuses", "broken", nil, "adapter broken: no token"},
		{"a relative folder", "paper", map[string]any{"send_from": []string{"out"}}, `send_from: "out" is not an absolute path`},
		{"folders that are none", "paper", map[string]any{"send_from": 3}, "send_from"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newStage(t, nil).start(t, c.platform, c.settings)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Start() = %v, want %q", err, c.want)
			}
		})
	}
	if err := newStage(t, nil).role.Start(context.Background(), nil, []byte("{")); err == nil {
		t.Error("Start() took a configuration that is no JSON")
	}
}

func TestNothingIsServedBeforeTheStart(t *testing.T) {
	s := newStage(t, nil)
	ctx := context.Background()
	_, deliver := s.client.Deliver(ctx, &adapterv1.DeliverRequest{})
	_, status := s.client.Status(ctx, &adapterv1.StatusRequest{})
	stream, err := s.client.Show(ctx)
	if err == nil {
		_, err = stream.CloseAndRecv()
	}
	for _, err := range []error{deliver, status, err} {
		if !errors.Is(err, ipc.ErrRefused) {
			t.Errorf("call before the start = %v, want refused", err)
		}
	}
	if degraded, _ := s.role.Report(); !degraded {
		t.Error("a gateway that was not started reports to be well")
	}
	if got := s.role.Drain(ctx); got != 0 {
		t.Errorf("Drain() = %d", got)
	}
}

func TestDelivery(t *testing.T) {
	dir := t.TempDir()
	s := newStage(t, map[string]any{"send_from": []string{dir}, "own": 1})
	if len(s.paper.setup.Settings) != 1 || s.paper.setup.Dir == "" || filepath.Dir(s.paper.setup.FilesDir) != s.paper.setup.Dir {
		t.Errorf("setup = %+v", s.paper.setup)
	}
	for _, c := range []struct {
		outcome gateway.Delivered
		state   adapterv1.DeliverResponse_State
	}{
		{gateway.Sent("m1", "m2"), adapterv1.DeliverResponse_STATE_SENT},
		{gateway.Retry(3*time.Second, "flood", "m1"), adapterv1.DeliverResponse_STATE_RETRY},
		{gateway.Rejected("blocked"), adapterv1.DeliverResponse_STATE_REJECTED},
		{gateway.Unknown("no answer"), adapterv1.DeliverResponse_STATE_UNKNOWN},
		{gateway.Delivered{}, adapterv1.DeliverResponse_STATE_UNKNOWN},
	} {
		s.paper.answer = func(context.Context, gateway.Delivery) gateway.Delivered { return c.outcome }
		r, err := s.client.Deliver(context.Background(), &adapterv1.DeliverRequest{
			OutboxId: 7, To: &adapterv1.Address{ChatId: "1", ThreadId: "2", ReplyTo: "3"}, Text: "hello", Attempt: 2, MessageIds: []string{"p"}, TurnId: "t",
		})
		if err != nil || r.State != c.state || !slices.Equal(r.MessageIds, c.outcome.MessageIDs) || r.RetryAfterMs != c.outcome.RetryAfter.Milliseconds() || r.Detail != c.outcome.Detail {
			t.Errorf("Deliver() = %v, %v; want %+v", r, err, c.outcome)
		}
	}
	d := s.paper.sent[0]
	if d.ID != 7 || d.To != (gateway.To{ChatID: "1", ThreadID: "2", ReplyTo: "3"}) || d.Text != "hello" || d.Attempt != 2 || d.MessageIDs[0] != "p" || d.TurnID != "t" {
		t.Errorf("delivered %+v", d)
	}
	if progress, _, _ := s.host.Work.Counts(); progress < 5 {
		t.Errorf("%d units of work, want one for each delivery", progress)
	}
}

func TestDeliveryBringsFiles(t *testing.T) {
	s := newStage(t, map[string]any{})
	path := filepath.Join(s.paper.setup.FilesDir, "a.txt")
	writeFile(t, path, "inside")
	if _, err := s.client.Deliver(context.Background(), &adapterv1.DeliverRequest{Text: "here\nMEDIA: " + path}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.paper.data, []string{"inside"}) || s.paper.sent[0].Text != "here" {
		t.Errorf("sent %+v with %q", s.paper.sent, s.paper.data)
	}
	if _, err := s.paper.sent[0].Files[0].Read(make([]byte, 1)); err == nil {
		t.Error("the file is open after its delivery")
	}
}

func TestDeliveryThatCannotBeginIsNotUnknown(t *testing.T) {
	s := newStage(t, map[string]any{})
	busy, release := make(chan struct{}), make(chan struct{})
	s.paper.answer = func(context.Context, gateway.Delivery) gateway.Delivered {
		close(busy)
		<-release
		return gateway.Sent()
	}
	req := &adapterv1.DeliverRequest{To: &adapterv1.Address{ChatId: "1"}, MessageIds: []string{"p"}}
	first := make(chan error)
	go func() {
		_, err := s.client.Deliver(context.Background(), req)
		first <- err
	}()
	<-busy
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond) // the frame keeps a second of it
	defer cancel()
	r, err := s.client.Deliver(ctx, req)
	if err != nil || r.State != adapterv1.DeliverResponse_STATE_RETRY || !slices.Equal(r.MessageIds, req.MessageIds) {
		t.Errorf("Deliver() = %v, %v; want to be told to try again", r, err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestPlatformThatAsksIsSentNothing(t *testing.T) {
	s := newStage(t, nil)
	if err := s.start(t, "quiet", nil); err != nil {
		t.Fatal(err)
	}
	r, err := s.client.Deliver(context.Background(), &adapterv1.DeliverRequest{Text: "x"})
	if err != nil || r.State != adapterv1.DeliverResponse_STATE_REJECTED || r.Detail == "" {
		t.Errorf("Deliver() = %v, %v; want rejected with a reason", r, err)
	}
	st, err := s.client.Status(context.Background(), &adapterv1.StatusRequest{})
	if err != nil || st.Push || st.State != "connecting" || st.LastReceiveMs != 0 {
		t.Errorf("Status() = %v, %v", st, err)
	}
	if degraded, detail := s.role.Report(); !degraded || detail != "connecting" {
		t.Errorf("Report() = %v, %q; connecting is not well", degraded, detail)
	}
	stream, err := s.client.Show(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&adapterv1.ShowRequest{Event: &turnv1.TurnEvent{}})
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Errorf("Show() = %v", err)
	}
}

func TestEventsReachTheAdapter(t *testing.T) {
	s := newStage(t, map[string]any{})
	stream, err := s.client.Show(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	send := func(e *turnv1.TurnEvent) {
		if err := stream.Send(&adapterv1.ShowRequest{To: &adapterv1.Address{ChatId: "1"}, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	send(&turnv1.TurnEvent{TurnId: "t", Event: &turnv1.TurnEvent_Text{Text: &turnv1.TextDelta{Text: "a"}}})
	send(&turnv1.TurnEvent{TurnId: "t", Event: &turnv1.TurnEvent_Final{Final: &turnv1.Final{Text: "a"}}})
	send(&turnv1.TurnEvent{TurnId: "t", Event: &turnv1.TurnEvent_Notice{Notice: &turnv1.Notice{Text: "n"}}})
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		s.paper.mu.Lock()
		defer s.paper.mu.Unlock()
		return len(s.paper.shown) == 2 && s.paper.shown[0].GetText().GetSnapshot() && s.paper.shown[1].GetNotice() != nil
	})
}

func TestStatusAndItsChangesAreTold(t *testing.T) {
	s := newStage(t, map[string]any{})
	r, err := s.client.Status(context.Background(), &adapterv1.StatusRequest{})
	if err != nil || r.Platform != "paper" || r.State != "connected" || !r.Push || r.LastReceiveMs != 42 {
		t.Errorf("Status() = %v, %v", r, err)
	}
	if degraded, _ := s.role.Report(); degraded {
		t.Error("a connected adapter reports to be unwell")
	}
	s.paper.set(gateway.Status{State: gateway.StateConflict, Detail: "somebody else polls"})
	if degraded, detail := s.role.Report(); !degraded || detail != "conflict: somebody else polls" {
		t.Errorf("Report() = %v, %q", degraded, detail)
	}
	waitFor(t, func() bool {
		return slices.Contains(s.h.Events(), "adapter_conflict: paper: conflict: somebody else polls")
	})
}

// What a bell is for: nobody is woken while nothing happens, and a change is told when it rings, however often it does.
func TestAStateIsLookedAtWhenTheBellRingsAndNotBefore(t *testing.T) {
	s := newStage(t, nil)
	if err := s.start(t, "bell", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return s.paper.looked() == 1 }) // the first look needs no bell
	s.paper.set(gateway.Status{State: gateway.StateConflict, Detail: "somebody else polls"})
	if looks := s.paper.looked(); looks != 1 {
		t.Errorf("%d looks before the bell", looks)
	}
	for range 1000 {
		s.paper.bell.Ring() // never waits, though nobody may be listening
	}
	waitFor(t, func() bool {
		return slices.Contains(s.h.Events(), "adapter_conflict: bell: conflict: somebody else polls")
	})
	s.paper.set(gateway.Status{State: gateway.StateConnected})
	s.paper.bell.Ring()
	waitFor(t, func() bool {
		return slices.ContainsFunc(s.h.Events(), func(e string) bool { return strings.HasPrefix(e, "adapter_connected: bell: ") })
	})
}

// Rings that nobody has heard yet are one, and none of them is lost.
func TestRingsOfABellThatNobodyHeardAreOne(t *testing.T) {
	b := gateway.NewBell()
	b.Ring()
	b.Ring()
	<-b
	select {
	case <-b:
		t.Error("two rings were heard as two")
	default:
	}
	b.Ring()
	<-b
}

func TestAdapterThatEndsEndsTheWorker(t *testing.T) {
	for name, err := range map[string]error{"with an error": errors.New("lock lost"), "without one": nil} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, map[string]any{})
			s.paper.end <- err
			if code := <-s.exits; code != ipc.ExitFailed {
				t.Errorf("exit code %d, want %d", code, ipc.ExitFailed)
			}
		})
	}
}

func TestDrainWaitsForWhatRuns(t *testing.T) {
	s := newStage(t, map[string]any{})
	end := s.paper.setup.Services.Begin()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if got := s.role.Drain(ended); got != 3 || !s.paper.drained {
		t.Errorf("Drain() = %d, want 3: two of the adapter, one unit of work", got)
	}
	end()
	if got := s.role.Drain(context.Background()); got != 2 {
		t.Errorf("Drain() = %d, want the adapter's 2", got)
	}
	s.role.Close()
	if !s.paper.closed {
		t.Error("the adapter was not closed")
	}
}

func TestServices(t *testing.T) {
	s := newStage(t, map[string]any{})
	s.h.Secrets["TOKEN"] = "secret"
	services, ctx := s.paper.setup.Services, context.Background()

	first, err := services.Accept(ctx, gateway.Message{ChatID: "1", ID: "m1", Text: "hello", Fingerprint: "a"})
	if err != nil || first.Duplicate || first.TurnID == "" || first.SessionID == "" {
		t.Fatalf("Accept() = %+v, %v", first, err)
	}
	again, err := services.Accept(ctx, gateway.Message{ChatID: "1", ID: "m1", Text: "hello", Fingerprint: "a"})
	if err != nil || !again.Duplicate || again.TurnID != first.TurnID {
		t.Errorf("Accept() again = %+v, %v", again, err)
	}
	if _, err := services.Accept(ctx, gateway.Message{ChatID: "1", ID: "m1", Text: "bye", Fingerprint: "b"}); !errors.Is(err, ipc.ErrExists) {
		t.Errorf("Accept() of another message under the same id = %v", err)
	}
	fresh, err := services.Accept(ctx, gateway.Message{ChatID: "1", ID: "m2", Text: "new", NewSession: true})
	if err != nil || fresh.SessionID == first.SessionID {
		t.Errorf("Accept() with a new session = %+v, %v", fresh, err)
	}
	if _, err := services.Accept(ctx, gateway.Message{ChatID: "1", ID: "m3", Text: strings.Repeat("x", ipc.MaxMessageBytes)}); !errors.Is(err, gateway.ErrTooLarge) {
		t.Errorf("Accept() of too much = %v", err)
	}
	final, err := services.Follow(ctx, first.TurnID, func(*turnv1.TurnEvent) error { return nil })
	if err != nil || final.Text != "answer to hello" {
		t.Errorf("Follow() = %v, %v", final, err)
	}
	if _, err := services.Follow(ctx, "none", nil); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("Follow() of no turn = %v", err)
	}
	if ok, err := services.Interrupt(ctx, first.TurnID, "x"); ok || err != nil {
		t.Errorf("Interrupt() of an ended turn = %v, %v", ok, err)
	}
	if _, _, err := services.Decide(ctx, "none", true); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("Decide() on nothing = %v", err)
	}
	if v, err := services.Secret(ctx, "TOKEN"); v != "secret" || err != nil {
		t.Errorf("Secret() = %q, %v", v, err)
	}
	if v, err := services.Secret(ctx, "OTHER"); v != "" || err != nil {
		t.Errorf("Secret() that is not set = %q, %v", v, err)
	}
	services.Publish(ctx, "kind", "message", nil)
	if !slices.Contains(s.h.Events(), "kind: message") {
		t.Errorf("events = %q", s.h.Events())
	}
}

func TestFollowerThatFailsEndsItsFollowing(t *testing.T) {
	s := newStage(t, map[string]any{})
	s.h.Script = func(u *gatewaytest.Turn) string {
		u.Say("x")
		<-u.Over()
		return ""
	}
	a, err := s.paper.setup.Services.Accept(context.Background(), gateway.Message{ChatID: "1", ID: "m", Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	enough := fmt.Errorf("enough: %w", ipc.ErrBusy) // not to be taken for a follower that fell behind
	if _, err := s.paper.setup.Services.Follow(context.Background(), a.TurnID, func(*turnv1.TurnEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Follow() = %v, want the follower's own error", err)
	}
}

func TestAPersonsYesReachesTheTurn(t *testing.T) {
	s := newStage(t, map[string]any{})
	s.h.Script = func(u *gatewaytest.Turn) string { return fmt.Sprint(u.Ask("terminal", "rm -r x")) }
	services := s.paper.setup.Services
	a, err := services.Accept(context.Background(), gateway.Message{ChatID: "1", ID: "m", Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	final, err := services.Follow(context.Background(), a.TurnID, func(e *turnv1.TurnEvent) error {
		if q := e.GetApproval(); q != nil {
			_, _, err := services.Decide(context.Background(), q.ApprovalId, true)
			return err
		}
		return nil
	})
	if err != nil || final.Text != "true" {
		t.Errorf("Follow() = %v, %v; want the yes", final, err)
	}
}
