package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
	"github.com/hermes-supervisor/hermes-supervisor/workers/proxy"
)

// A Gateway is the role of a gateway worker: it runs one adapter, chosen by its configuration.
type Gateway struct {
	adapterv1.UnimplementedAdapterServer
	adapters Adapters
	exit     func(code int)
	frame    atomic.Pointer[frame] // nil before Start
}

var (
	_ workers.Role     = (*Gateway)(nil)
	_ workers.Reporter = (*Gateway)(nil)
)

// New returns the role over a table of adapters.
func New(adapters Adapters) *Gateway { return &Gateway{adapters: adapters, exit: os.Exit} }

// Register adds the Adapter service.
func (g *Gateway) Register(s *grpc.Server) { adapterv1.RegisterAdapterServer(s, g) }

// Start opens the configured adapter and lets it run.
func (g *Gateway) Start(ctx context.Context, host *workers.Host, config json.RawMessage) error {
	var c ipc.GatewayConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	open, ok := g.adapters[c.Platform]
	if !ok {
		return fmt.Errorf("adapter %q: %w: this gateway has %s", c.Platform, ipc.ErrNotFound,
			strings.Join(slices.Sorted(maps.Keys(g.adapters)), ", "))
	}
	setup, sendFrom, err := prepare(ctx, host, c)
	if err != nil {
		return fmt.Errorf("adapter %s: %w", c.Platform, err)
	}
	adapter, err := open(ctx, setup)
	if err != nil {
		return fmt.Errorf("adapter %s: %w", c.Platform, err)
	}
	g.frame.Store(startFrame(ctx, adapter, setup, host.Work, sendFrom, g.exit))
	return nil
}

// prepare makes the setup of an adapter, and the list of folders that its files may come from.
func prepare(ctx context.Context, host *workers.Host, c ipc.GatewayConfig) (Setup, []string, error) {
	s := Setup{
		Platform: c.Platform, Services: NewServices(host), Settings: Settings(c.Settings).own(),
		Log: host.Log.With("platform", c.Platform),
	}
	var err error
	if s.Proxies, err = proxy.Ask(ctx, host.Config, c.Proxies); err != nil {
		return s, nil, err
	}
	var own struct {
		SendFrom []string `json:"send_from"`
	}
	if dirs, ok := c.Settings["send_from"]; ok {
		if err := (Settings{"send_from": dirs}).Decode(&own); err != nil {
			return s, nil, err
		}
	}
	for _, dir := range own.SendFrom {
		if !filepath.IsAbs(dir) {
			return s, nil, fmt.Errorf("settings: send_from: %q is not an absolute path", dir)
		}
	}
	if c.Dir == "" {
		return s, own.SendFrom, nil
	}
	s.Dir, s.FilesDir = c.Dir, filepath.Join(c.Dir, "files")
	if err := os.MkdirAll(s.FilesDir, 0o700); TakesNoWrites(err) {
		s.Log.Warn("files cannot be kept: the home takes no writes", "error", err)
	} else if err != nil {
		return s, nil, fmt.Errorf("make folder: %w", err)
	}
	return s, append(own.SendFrom, s.FilesDir), nil
}

// TakesNoWrites says that a file system refuses a write for now: it is read-only, or full.
func TakesNoWrites(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Deliver sends one outbox row, after what is sent or shown in the same chat now.
func (g *Gateway) Deliver(ctx context.Context, req *adapterv1.DeliverRequest) (*adapterv1.DeliverResponse, error) {
	f := g.frame.Load()
	if f == nil {
		return nil, fmt.Errorf("deliver: %w: not initialised", ipc.ErrRefused)
	}
	return response(f.deliver(ctx, req)), nil
}

// Show passes events to the adapter without ever making the supervisor wait.
func (g *Gateway) Show(stream grpc.ClientStreamingServer[adapterv1.ShowRequest, adapterv1.ShowResponse]) error {
	f := g.frame.Load()
	if f == nil {
		return fmt.Errorf("show: %w: not initialised", ipc.ErrRefused)
	}
	for {
		req, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return stream.SendAndClose(&adapterv1.ShowResponse{})
		case err != nil:
			return err
		}
		f.lanes.show(toOf(req.To), req.Event)
	}
}

// Status reports how the platform is reached.
func (g *Gateway) Status(context.Context, *adapterv1.StatusRequest) (*adapterv1.StatusResponse, error) {
	f := g.frame.Load()
	if f == nil {
		return nil, fmt.Errorf("status: %w: not initialised", ipc.ErrRefused)
	}
	_, push := f.adapter.(Sender)
	s := f.adapter.Status()
	r := &adapterv1.StatusResponse{Platform: f.platform, State: string(s.State), Detail: s.Detail, Push: push}
	if !s.LastReceive.IsZero() {
		r.LastReceiveMs = s.LastReceive.UnixMilli()
	}
	return r, nil
}

// Report makes every state but connected a degraded worker.
func (g *Gateway) Report() (degraded bool, detail string) {
	f := g.frame.Load()
	if f == nil {
		return true, "not initialised"
	}
	s := f.adapter.Status()
	if s.State == StateConnected {
		return false, s.Detail
	}
	return true, strings.TrimSuffix(string(s.State)+": "+s.Detail, ": ")
}

// Drain stops the way in and waits for what runs. Deliveries are still taken: the answers of turns that end
// meanwhile have to get out.
func (g *Gateway) Drain(ctx context.Context) int {
	f := g.frame.Load()
	if f == nil {
		return 0
	}
	return f.drain(ctx)
}

// Close ends the adapter.
func (g *Gateway) Close() {
	if f := g.frame.Load(); f != nil {
		f.close()
	}
}

func toOf(a *adapterv1.Address) To {
	return To{ChatID: a.GetChatId(), ThreadID: a.GetThreadId(), ReplyTo: a.GetReplyTo()}
}

// response translates an outcome. One that is not set is unknown, which is the careful reading.
func response(d Delivered) *adapterv1.DeliverResponse {
	states := map[DeliveryState]adapterv1.DeliverResponse_State{
		StateSent:     adapterv1.DeliverResponse_STATE_SENT,
		StateRetry:    adapterv1.DeliverResponse_STATE_RETRY,
		StateRejected: adapterv1.DeliverResponse_STATE_REJECTED,
	}
	state, ok := states[d.State]
	if !ok {
		state = adapterv1.DeliverResponse_STATE_UNKNOWN
	}
	return &adapterv1.DeliverResponse{
		State: state, MessageIds: d.MessageIDs, RetryAfterMs: d.RetryAfter.Milliseconds(), Detail: d.Detail,
	}
}
