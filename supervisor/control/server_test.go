package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts are the parts of a supervisor behind the socket, each as far as a test needs it.
type parts struct {
	accepted []store.Inbound
	follow   func(ctx context.Context, send func(*turnv1.TurnEvent) error) error
	stopped  chan struct{}
}

func (p *parts) Accept(_ context.Context, in store.Inbound) (store.Accepted, error) {
	p.accepted = append(p.accepted, in)
	return store.Accepted{TurnID: "turn-1", SessionID: "session-1"}, nil
}

func (p *parts) Follow(ctx context.Context, _ string, send func(*turnv1.TurnEvent) error) error {
	return p.follow(ctx, send)
}

func (p *parts) Interrupt(context.Context, string, string) (bool, error) { return true, nil }

func (p *parts) Decide(_ context.Context, id string, approve bool, by string) (bool, bool, error) {
	if id != "a-1" {
		return false, false, fmt.Errorf("approval %q: %w", id, ipc.ErrNotFound)
	}
	return approve && by == "user", false, nil
}

func (p *parts) Notices(ctx context.Context, chat string, send func(store.OutboxRow) error) error {
	if err := send(store.OutboxRow{ID: 7, Text: "for " + chat}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p *parts) Acknowledge(context.Context, int64) error { return nil }

func (p *parts) Status() []*controlv1.WorkerStatus {
	return []*controlv1.WorkerStatus{{Name: "agent-1", State: "ready"}}
}

func (p *parts) one(name string) (*controlv1.WorkerStatus, error) {
	if name != "agent-1" {
		return nil, ErrNoWorker(name, []string{"agent-1"})
	}
	return p.Status()[0], nil
}

func (p *parts) Restart(_ context.Context, name string) (*controlv1.WorkerStatus, error) {
	return p.one(name)
}
func (p *parts) Stop(_ context.Context, name string) (*controlv1.WorkerStatus, error) {
	return p.one(name)
}
func (p *parts) Start(_ context.Context, name string) (*controlv1.WorkerStatus, error) {
	return p.one(name)
}

func (p *parts) Fds(name string) (*controlv1.FdsResponse, error) {
	_, err := p.one(name)
	return &controlv1.FdsResponse{Worker: name}, err
}

// serve returns a connection to a control server over a real socket, and the server.
func serve(t *testing.T, p *parts) (*grpc.ClientConn, *Server) {
	t.Helper()
	return serveWith(t, p, nil)
}

func serveWith(t *testing.T, p *parts, journal Journal) (*grpc.ClientConn, *Server) {
	t.Helper()
	return serveAll(t, p, journal, book(nil))
}

func serveAll(t *testing.T, p *parts, journal Journal, logs Logs) (*grpc.ClientConn, *Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs-ctl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "ctl.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	p.stopped = make(chan struct{})
	server := Serve(l, Services{
		Workers: p, Hub: p, Journal: journal, Logs: logs,
		Status: func(context.Context) (*controlv1.StatusResponse, error) {
			return &controlv1.StatusResponse{Supervisor: &controlv1.Supervisor{State: "ready"}}, nil
		},
		Shutdown: func(string) { close(p.stopped) },
	}, hclog.NewNullLogger())
	conn, err := grpc.NewClient("unix://"+path, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Close()
	})
	return conn, server
}

func TestTheSocketIsForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ctl.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, c := range []struct {
		own, peer int
		want      bool
	}{{1000, 1000, true}, {1000, 0, true}, {1000, 1001, false}, {0, 1000, false}} {
		if got := admits(c.own, c.peer); got != c.want {
			t.Errorf("uid %d to a supervisor of uid %d: admitted %v", c.peer, c.own, got)
		}
	}
}

func TestTheKernelIsAskedWhoConnects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, info, err := peerCredentials{uid: os.Getuid()}.ServerHandshake(conn)
	if err != nil || info.(peerInfo).pid != os.Getpid() {
		t.Errorf("own process: %v %v", info, err)
	}
	if os.Getuid() == 0 {
		t.Log("runs as root, whom every supervisor admits: the refusal is shown by the table of TestTheSocketIsForItsOwnerOnly")
		return
	}
	if _, _, err := (peerCredentials{uid: os.Getuid() + 1}).ServerHandshake(conn); !errors.Is(err, errForeignPeer) {
		t.Errorf("another user's process: %v", err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ctl.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestStatusCarriesTheWorkers(t *testing.T) {
	conn, _ := serve(t, &parts{})
	s, err := controlv1.NewControlClient(conn).Status(t.Context(), &controlv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Supervisor.State != "ready" || len(s.Workers) != 1 || s.Workers[0].Name != "agent-1" {
		t.Errorf("got %v", s)
	}
}

func TestAnUnknownWorkerIsNamedWithThoseThatExist(t *testing.T) {
	conn, _ := serve(t, &parts{})
	client := controlv1.NewControlClient(conn)
	_, err := client.RestartWorker(t.Context(), &controlv1.RestartWorkerRequest{Name: "agnet-1"})
	if !errors.Is(err, ipc.ErrNotFound) || !strings.Contains(err.Error(), `worker "agnet-1": not found, did you mean agent-1? workers are agent-1`) {
		t.Errorf("got %v", err)
	}
}

// A book holds a line each of some workers.
type book []string

func (b book) Voices() []string { return b }

func (b book) Read(_ context.Context, worker string, _ int, _ bool, send func(*controlv1.LogLine) error) error {
	return send(&controlv1.LogLine{Worker: worker, Message: "a line"})
}

func TestTheLogOfAWorkerThatIsNoMoreCanBeRead(t *testing.T) {
	conn, _ := serveAll(t, &parts{}, nil, book{"plugin-weather"})
	client := controlv1.NewControlClient(conn)
	read := func(name string) (*controlv1.LogLine, error) {
		stream, err := client.Logs(t.Context(), &controlv1.LogsRequest{Worker: name})
		if err != nil {
			return nil, err
		}
		return stream.Recv()
	}
	if l, err := read("plugin-weather"); err != nil || l.Message != "a line" {
		t.Errorf("got %v, %v", l, err)
	}
	_, err := read("weather")
	if !errors.Is(err, ipc.ErrNotFound) || !strings.Contains(err.Error(), `did you mean plugin-weather? workers are agent-1, plugin-weather, supervisor`) {
		t.Errorf("a plugin by its own name: %v", err)
	}
}

func TestNobodysLogIsNotFollowed(t *testing.T) {
	conn, _ := serve(t, &parts{})
	stream, err := controlv1.NewControlClient(conn).Logs(t.Context(), &controlv1.LogsRequest{Worker: "agnet-1", Follow: true})
	if err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, ipc.ErrNotFound) || !strings.Contains(err.Error(), `did you mean agent-1? workers are agent-1, supervisor`) {
		t.Errorf("got %v", err)
	}
}

func TestANameThatIsLikeNoneIsNotGuessed(t *testing.T) {
	if err := ErrNoWorker("nobody", []string{"tools", "agent-1"}); err.Error() != `worker "nobody": not found; workers are tools, agent-1` {
		t.Error(err)
	}
}

// rows is a journal of a few events.
type rows []store.Event

func (r rows) Read(_ context.Context, f store.EventFilter, _ bool, send func(store.Event) error) error {
	var found []store.Event
	for _, e := range r {
		if f.Selects(e) {
			found = append(found, e)
		}
	}
	if f.AfterID == 0 { // the newest, else those that follow
		found = found[max(0, len(found)-f.Limit):]
	}
	for _, e := range found[:min(len(found), f.Limit)] {
		if err := send(e); err != nil {
			return err
		}
	}
	return nil
}

func TestEventsOfNobodyAreRefusedAndThoseOfAFormerWorkerShown(t *testing.T) {
	conn, _ := serveWith(t, &parts{}, rows{{ID: 1, Worker: "gateway-old", Kind: "worker_exited"}, {ID: 2, Kind: "supervisor_ready"}})
	client := controlv1.NewControlClient(conn)
	for _, tt := range []struct {
		ask  *controlv1.EventsRequest
		want int
		err  error
	}{
		{&controlv1.EventsRequest{Worker: "nobody", Limit: 10}, 0, ipc.ErrNotFound},
		{&controlv1.EventsRequest{Worker: "gateway-old", Limit: 10}, 1, nil},
		{&controlv1.EventsRequest{Worker: "agent-1", Limit: 10}, 0, nil},
		{&controlv1.EventsRequest{Limit: 10}, 2, nil},
		{&controlv1.EventsRequest{NoneBefore: true}, 0, nil},
		{&controlv1.EventsRequest{NoneBefore: true, Follow: true, Limit: 10}, 0, nil},
	} {
		stream, err := client.Events(t.Context(), tt.ask)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; err == nil; n++ {
			_, err = stream.Recv()
		}
		if n-1 != tt.want || tt.err == nil && !errors.Is(err, io.EOF) || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%v: %d events, %v", tt.ask, n-1, err)
		}
	}
}

func TestAMessageNeedsAnId(t *testing.T) {
	p := &parts{}
	conn, _ := serve(t, p)
	chat := controlv1.NewChatClient(conn)
	if _, err := chat.Send(t.Context(), &controlv1.SendRequest{Text: "hello"}); !errors.Is(err, ipc.ErrInvalid) {
		t.Errorf("without id: %v", err)
	}
	r, err := chat.Send(t.Context(), &controlv1.SendRequest{Text: "hello", MessageId: "m-1"})
	if err != nil || r.TurnId != "turn-1" {
		t.Fatalf("%v %v", r, err)
	}
	if in := p.accepted[0]; in.Platform != PlatformTerminal || in.ChatID != DefaultChat || in.MessageID != "m-1" {
		t.Errorf("accepted %+v", in)
	}
}

func TestADecisionIsPassedOn(t *testing.T) {
	conn, _ := serve(t, &parts{})
	chat := controlv1.NewChatClient(conn)
	if r, err := chat.Decide(t.Context(), &controlv1.DecideRequest{ApprovalId: "a-1", Approve: true}); err != nil || !r.Approved {
		t.Errorf("%v %v", r, err)
	}
	if _, err := chat.Decide(t.Context(), &controlv1.DecideRequest{ApprovalId: "a-2"}); !errors.Is(err, ipc.ErrNotFound) {
		t.Errorf("unknown approval: %v", err)
	}
}

func TestClosingTellsFollowersToComeBackLater(t *testing.T) {
	following := make(chan struct{})
	conn, server := serve(t, &parts{follow: func(ctx context.Context, _ func(*turnv1.TurnEvent) error) error {
		close(following)
		<-ctx.Done()
		return ctx.Err()
	}})
	s, err := controlv1.NewChatClient(conn).Follow(t.Context(), &controlv1.FollowRequest{TurnId: "turn-1"})
	if err != nil {
		t.Fatal(err)
	}
	<-following
	closed := make(chan struct{})
	go func() { defer close(closed); server.Close() }()
	_, err = s.Recv()
	if !errors.Is(err, ipc.ErrGone) {
		t.Errorf("follower was told %v", err)
	}
	<-closed
}

func TestNoticesStreamAndShutdownReturnsAtOnce(t *testing.T) {
	p := &parts{}
	conn, _ := serve(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := controlv1.NewChatClient(conn).Notices(ctx, &controlv1.NoticesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Recv(); err != nil || n.OutboxId != 7 || n.Text != "for main" {
		t.Errorf("%v %v", n, err)
	}
	if _, err := controlv1.NewControlClient(conn).Shutdown(ctx, &controlv1.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.stopped:
	case <-ctx.Done():
		t.Error("shutdown was not passed on")
	}
	cancel()
	if _, err := s.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after the reader left: %v", err)
	}
}

func TestWhatAllWorkersHoldHasTheirSparesAndWhatIsBelowThem(t *testing.T) {
	m := together([]*controlv1.WorkerStatus{
		{Pid: 1, RssBytes: 100, AnonBytes: 10, SparePid: 2, SpareRssBytes: 50, SpareAnonBytes: 5},
		{Pid: 3, RssBytes: 1000, AnonBytes: 900, BelowProcesses: 4, BelowRssBytes: 7, BelowAnonBytes: 6},
		{},
	}, 5000)
	want := &controlv1.WorkersMemory{RssBytes: 1157, AnonBytes: 921, LimitBytes: 5000, Processes: 7, Spares: 1, SpareRssBytes: 50, SpareAnonBytes: 5}
	if !proto.Equal(m, want) {
		t.Errorf("%v, want %v", m, want)
	}
}

func TestTheTimelineOfNobodyIsRefused(t *testing.T) {
	conn, _ := serveWith(t, &parts{}, rows{{ID: 1, Worker: "gateway-old", Kind: "worker_exited"}})
	client := controlv1.NewTimelineClient(conn)
	for worker, want := range map[string]error{"nobody": ipc.ErrNotFound, "gateway-old": nil, "agent-1": nil, "": nil} {
		if _, err := client.Tell(t.Context(), &controlv1.TellRequest{Worker: worker}); want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%q: %v", worker, err)
		}
	}
}

// What is told of the last hour needs what was before it: who held a turn, and that a supervisor ran which was killed.
func TestAPartOfTheTimelineKnowsWhatWasBefore(t *testing.T) {
	night := time.Date(2026, 3, 1, 22, 51, 0, 0, time.UTC)
	at := func(id int64, minutes float64, e store.Event) store.Event {
		e.ID, e.Time = id, night.Add(time.Duration(minutes*float64(time.Minute)))
		return e
	}
	chat := map[string]string{"platform": "telegram", "chat": "4711"}
	conn, _ := serveWith(t, &parts{}, rows{
		at(1, -900, store.Event{Kind: "supervisor_started"}),
		at(2, -1, store.Event{Kind: "worker_exited", Worker: "tools", Fields: map[string]string{"cause": "crashed"}}),
		at(3, -0.5, store.Event{Kind: "turn_leased", Worker: "agent-1", TurnID: "t-1", Fields: chat}),
		at(4, 11, store.Event{Kind: "supervisor_started", Message: "version 1"}),
		at(5, 12, store.Event{Kind: "turn_leased", Worker: "agent-2", TurnID: "t-1", Fields: chat}),
	})
	told, err := controlv1.NewTimelineClient(conn).Tell(t.Context(), &controlv1.TellRequest{Since: unixSeconds(night)})
	if err != nil || len(told.Stories) != 2 || told.Stories[0].Worker != "tools" { // gone until the supervisor started again
		t.Fatalf("%v, %v", told, err)
	}
	s := told.Stories[1]
	if !strings.Contains(s.Message, "was killed") || !strings.HasSuffix(s.Message, "last heard of 11m30s before") {
		t.Errorf("%q", s.Message)
	}
	if len(s.Turns) != 1 || s.Turns[0].Seen != "taken up by agent-2 after 1m0s, not answered yet" || s.Turns[0].Platform != "telegram" || s.Turns[0].Chat != "4711" {
		t.Errorf("%v", s.Turns)
	}
}

// A silence that began earlier is part of the answer to "why was the bot silent since then?".
func TestAnOutageThatLastsIsToldThoughItBeganBefore(t *testing.T) {
	night := time.Date(2026, 3, 1, 22, 51, 0, 0, time.UTC)
	event := func(id int64, minutes int, kind, state string) store.Event {
		return store.Event{ID: id, Time: night.Add(time.Duration(minutes) * time.Minute), Kind: kind, Worker: "gateway-telegram",
			Message: "telegram: " + state + ": no route", Fields: map[string]string{"state": state}}
	}
	conn, _ := serveWith(t, &parts{}, rows{
		event(1, -99, "adapter_conflict", "conflict"), event(2, -90, "adapter_connected", "connected"),
		event(3, -10, "adapter_degraded", "degraded"), event(4, 11, "adapter_connected", "connected"),
		event(5, 20, "worker_ready", ""),
	})
	told, err := controlv1.NewTimelineClient(conn).Tell(t.Context(), &controlv1.TellRequest{Since: unixSeconds(night)})
	if err != nil || len(told.Stories) != 1 || told.Stories[0].Kind != "adapter_degraded" || told.Stories[0].Next != "connected again after 21m0s" {
		t.Errorf("%v, %v", told, err)
	}
}

// What went on when the time began is told, however quiet it was since, and however much was done in between.
func TestAnOutageThatGoesOnIsToldOfALaterTime(t *testing.T) {
	night := time.Date(2026, 3, 1, 22, 51, 0, 0, time.UTC)
	for name, turns := range map[string]int{"nothing since": 0, "many turns since": 2000, "more turns than are read": 9000} {
		t.Run(name, func(t *testing.T) {
			events := rows{
				{ID: 1, Time: night.Add(-time.Hour), Kind: "supervisor_ready"},
				{ID: 2, Time: night.Add(-time.Hour), Kind: "adapter_degraded", Worker: "gateway-telegram", Message: "telegram: no route", Fields: map[string]string{"state": "degraded"}},
				{ID: 3, Time: night.Add(-time.Hour), Kind: "worker_exited", Worker: "tools", Fields: map[string]string{"cause": "crashed"}},
			}
			for i := range turns {
				events = append(events, store.Event{ID: int64(4 + i), Time: night.Add(time.Duration(i-turns/2) * time.Second / 10), Kind: "turn_finished", Worker: "agent-1", TurnID: "t"})
			}
			conn, _ := serveWith(t, &parts{}, events)
			told, err := controlv1.NewTimelineClient(conn).Tell(t.Context(), &controlv1.TellRequest{Since: unixSeconds(night)})
			if err != nil || len(told.Stories) != 2 || told.Stories[0].Next != "not over yet" || told.Stories[1].Kind != "death" {
				t.Errorf("%v, %v", told, err)
			}
		})
	}
}
