package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// An adapter that is in the state it is told to be in.
type statefulAdapter struct {
	adapterv1.UnimplementedAdapterServer
	state string
}

func (a *statefulAdapter) Status(context.Context, *adapterv1.StatusRequest) (*adapterv1.StatusResponse, error) {
	if a.state == "" {
		return nil, errors.New("no idea")
	}
	return &adapterv1.StatusResponse{Platform: "telegram", State: a.state, Detail: "seen from 10.0.0.9", LastReceiveMs: 1_780_000_000_000}, nil
}

// serve returns a connection to an adapter.
func serve(t *testing.T, a adapterv1.AdapterServer) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/a.sock")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	adapterv1.RegisterAdapterServer(s, a)
	go func() { _ = s.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+l.Addr().String(), append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); s.Stop() })
	return conn
}

func TestAConflictOfAnAdapterIsShownAndToldOnceToTheHomeChat(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	var events, told []string
	w := &adapterWatch{
		now: func() time.Time { return now }, record: func(e store.Event) { events = append(events, e.Message) },
		notice: func(_ context.Context, r store.OutboxRow, kind string, pause time.Duration) (bool, error) {
			told = append(told, fmt.Sprint(r.Platform, " ", r.ChatID, " ", kind, " ", pause))
			return true, nil
		},
		home: func(string) string { return "42" }, list: map[string]*adapterState{"telegram": {worker: "gateway-telegram", since: now}},
	}
	ctx := t.Context()
	if got := w.status(ctx); len(got) != 1 || got[0].State != "down" {
		t.Fatalf("%v", got)
	}
	a := &statefulAdapter{state: "connected"}
	detach := w.attach(ipc.Identity{Worker: "gateway-telegram", Role: ipc.RoleGateway, Platform: "telegram"}, serve(t, a))
	if got := w.status(ctx)[0]; got.State != "connected" || got.LastReceive != 1_780_000_000 {
		t.Errorf("%v", got)
	}
	a.state = "conflict"
	for range 20 {
		w.look(ctx)
		now = now.Add(adapterLook)
	}
	if want := []string{"telegram 42 conflict 1h0m0s"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
	a.state = "connected"
	w.look(ctx)
	detach()
	if got := w.status(ctx)[0]; got.State != "down" || got.LastReceive != 1_780_000_000 || got.Worker != "gateway-telegram" {
		t.Errorf("%v", got)
	}
	if len(events) != 0 {
		t.Errorf("what the gateway and the worker's end have told already is told again: %q", events)
	}
}

// A gateway tells itself how its platform is reached, and the journal has each end of a worker. What is left to the watch is a
// gateway that is there and says nothing.
func TestOnlyTheSilenceOfAGatewayIsToldByTheWatch(t *testing.T) {
	var events []string
	w := &adapterWatch{
		now: func() time.Time { return time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC) },
		record: func(e store.Event) {
			events = append(events, fmt.Sprint(e.Kind, " ", e.Worker, ": ", e.Message, " ", e.Fields["before"], "→", e.Fields["state"]))
		},
		list: map[string]*adapterState{"telegram": {worker: "gateway-telegram"}},
	}
	id := ipc.Identity{Worker: "gateway-telegram", Role: ipc.RoleGateway, Platform: "telegram"}
	expect := func(when string, want ...string) {
		t.Helper()
		w.look(t.Context())
		if !slices.Equal(events, want) {
			t.Errorf("%s: %q, want %q", when, events, want)
		}
		events = nil
	}
	expect("before the gateway is there")
	a := &statefulAdapter{state: "connecting"}
	detach := w.attach(id, serve(t, a))
	expect("at its start")
	a.state = "connected"
	expect("once it is connected")
	a.state = ""
	expect("when it does not answer", "adapter_state gateway-telegram: telegram: does not answer: no idea connected→down")
	expect("as long as it does not")
	a.state = "connected"
	expect("when it answers again", "adapter_state gateway-telegram: telegram: answers again, connected down→connected")
	a.state = ""
	expect("a second time", "adapter_state gateway-telegram: telegram: does not answer: no idea connected→down")
	detach()
	expect("when it has ended")
	w.attach(id, serve(t, &statefulAdapter{state: "connected"}))
	expect("when the next one is there")
	conn := serve(t, &statefulAdapter{state: "connected"})
	w.attach(id, conn)
	_ = conn.Close()
	expect("when it dies and nobody has noticed yet")
	w.keep(nil)
	w.note(t.Context(), "telegram", nil, &adapterv1.StatusResponse{State: "connected"}, nil)
	expect("an answer that comes after the adapter was turned off")
}

func TestAWorkerThatPublishesInALoopCannotFillTheJournal(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	var kept []store.Event
	h := &hostServices{now: func() time.Time { return now }, record: func(e store.Event) { kept = append(kept, e) }}
	publish := func(worker string) error {
		ctx := ipc.WithIdentity(context.Background(), ipc.Identity{Worker: worker})
		_, err := h.Publish(ctx, &hostv1.PublishRequest{Kind: "x"})
		return err
	}
	var err error
	for range 10_000 {
		err = publish("loop")
	}
	if !errors.Is(err, ipc.ErrBusy) || len(kept) != eventsAtOnce {
		t.Errorf("%d events were kept, then: %v", len(kept), err)
	}
	if err := publish("another"); err != nil {
		t.Error("another worker pays for it: ", err)
	}
	now = now.Add(time.Second)
	kept = nil
	for range 100 {
		_ = publish("loop")
	}
	if len(kept) != eventsPerSecond+1 || kept[0].Kind != "events_lost" || !strings.HasPrefix(kept[0].Message, "9800 ") {
		t.Errorf("a second later %d, the first %+v", len(kept), kept[0])
	}
}

func TestProxiesOfDotEnvReachTheWorkersThatTalkToTheWorld(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"} {
		t.Setenv(name, "")
	}
	if err := os.WriteFile(home+"/.env", []byte("TELEGRAM_BOT_TOKEN=1:x\nTELEGRAM_PROXY=socks5://u:p@proxy:1080\nHTTPS_PROXY=http://proxy:3128\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		spec worker.Spec
		may  bool
		want []string
	}{
		{gatewaySpec(c, "telegram"), true, []string{"HTTPS_PROXY", "TELEGRAM_PROXY"}},
		{agentSpec(c, 1), true, []string{"HTTPS_PROXY"}},
		{toolsSpec(c), false, []string{"HTTPS_PROXY", "TELEGRAM_PROXY"}},
	} {
		for _, name := range s.want {
			if slices.Contains(s.spec.Secrets, name) != s.may || strings.Contains(string(s.spec.Config), name) != s.may {
				t.Errorf("%s and %s: %q, %s", s.spec.Name, name, s.spec.Secrets, s.spec.Config)
			}
		}
		if len(s.spec.Env) != 0 || strings.Contains(string(s.spec.Config), "proxy:1080") {
			t.Errorf("%s carries a value: %q, %s", s.spec.Name, s.spec.Env, s.spec.Config)
		}
	}
}

func TestARestartIsRefusedWhereNothingWouldStartTheSupervisorAgain(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("SYSTEMD_EXEC_PID", "1")
	l := &lifecycleService{supervisor: &supervisor{}}
	ctx := ipc.WithIdentity(context.Background(), ipc.Identity{Worker: "gateway-telegram", Role: ipc.RoleGateway, Platform: "telegram"})
	_, err := l.Restart(ctx, &hostv1.RestartRequest{ChatId: "7", MessageId: "1"})
	if !errors.Is(err, ipc.ErrRefused) || !strings.Contains(err.Error(), "hermes-supervisor run") {
		t.Error(err)
	}
}
