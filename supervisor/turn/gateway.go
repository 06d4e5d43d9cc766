package turn

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// showPause is how long events are dropped after a gateway broke its stream of them.
const showPause = time.Second

// A gateway is one life of a gateway process of a platform that replies are pushed to.
type gateway struct {
	hub    *Hub
	id     ipc.Identity
	client adapterv1.AdapterClient
	ctx    context.Context // ends when it is detached

	mu     sync.Mutex // held while an event is sent: followers of other turns wait and coalesce
	stream grpc.ClientStreamingClient[adapterv1.ShowRequest, adapterv1.ShowResponse]
	end    context.CancelFunc // of the stream
	paused time.Time
}

func (h *Hub) attachGateway(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
	if id.Platform == "" || !h.pushed(id.Platform) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(h.ctx)
	g := &gateway{hub: h, id: id, client: adapterv1.NewAdapterClient(conn), ctx: ctx}
	h.mu.Lock()
	h.gateways[id.Platform] = g
	for _, l := range h.turns {
		if l.platform == id.Platform {
			g.show(l)
		}
	}
	h.mu.Unlock()
	h.outbox.wake()
	return func() {
		cancel()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.gateways[id.Platform] == g {
			delete(h.gateways, id.Platform)
		}
	}
}

// gateway returns the one that serves a platform, nil if none does.
func (h *Hub) gateway(platform string) *gateway {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gateways[platform]
}

// served returns the platforms that have a gateway now.
func (h *Hub) served() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.gateways))
}

// show passes the events of a turn to the gateway until the final one, which is delivered from the outbox instead.
// Hub.mu must be held.
func (g *gateway) show(l *live) {
	to := &adapterv1.Address{ChatId: l.turn.ChatID, ThreadId: l.turn.ThreadID, ReplyTo: l.turn.MessageID}
	g.hub.spawn("showing turn "+l.id, func() {
		for {
			err := g.hub.pump(g.ctx, l.feed, nil, func(ev *turnv1.TurnEvent) error {
				if ev.GetFinal() == nil {
					g.send(&adapterv1.ShowRequest{To: to, Event: ev})
				}
				return g.ctx.Err()
			})
			if err == nil || g.ctx.Err() != nil {
				return
			}
			// Too slow: what it missed comes as a snapshot.
		}
	}, nil)
}

// send is best effort: while the stream is broken events are dropped.
func (g *gateway) send(r *adapterv1.ShowRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stream == nil && !g.open() {
		return
	}
	if err := g.stream.Send(r); err != nil {
		g.end() // a broken stream is let go of only by its context
		g.stream, g.paused = nil, g.hub.now().Add(showPause)
	}
}

// open begins a stream of events. g.mu must be held.
func (g *gateway) open() bool {
	if g.hub.now().Before(g.paused) {
		return false
	}
	ctx, end := context.WithCancel(g.ctx)
	s, err := g.client.Show(ctx)
	if err != nil {
		end()
		g.paused = g.hub.now().Add(showPause)
		return false
	}
	g.stream, g.end = s, end
	return true
}
