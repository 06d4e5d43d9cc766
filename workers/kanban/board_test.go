package kanban

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// board is the supervisor's side: subscriptions with cursors over a list of events, and an outbox.
type board struct {
	hostv1.UnimplementedBoardsServer
	mu      sync.Mutex
	events  []*hostv1.Unseen // each for one subscription
	cursors map[string]int64
	told    []string        // "chat: text" in order
	fail    map[string]bool // chats that cannot be told
	down    error           // Unseen fails
	reads   int             // calls of Unseen
	looking int
	overlap bool
	gate    chan struct{} // if set, Unseen waits for it
}

func newBoard() *board { return &board{cursors: map[string]int64{}, fail: map[string]bool{}} }

func (b *board) add(chat, kind, payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := int64(len(b.events) + 1)
	b.events = append(b.events, &hostv1.Unseen{
		EventId: id, Kind: kind, PayloadJson: payload,
		Subscription: &hostv1.Subscription{TaskId: "t_1", Platform: "terminal", ChatId: chat},
		Task:         &hostv1.Task{Id: "t_1", Board: "default", Title: "Mend the roof"},
	})
}

func (b *board) Unseen(ctx context.Context, r *hostv1.UnseenRequest) (*hostv1.UnseenResponse, error) {
	b.mu.Lock()
	b.reads++
	b.looking++
	b.overlap = b.overlap || b.looking > 1
	gate := b.gate
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.looking--
		b.mu.Unlock()
	}()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down != nil {
		return nil, b.down
	}
	out := &hostv1.UnseenResponse{}
	for _, e := range b.events {
		if e.EventId > b.cursors[e.Subscription.ChatId] && uint32(len(out.Items)) < r.Limit {
			out.Items = append(out.Items, e)
		}
	}
	return out, nil
}

func (b *board) Notify(_ context.Context, r *hostv1.NotifyRequest) (*hostv1.NotifyResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	chat := r.Subscription.ChatId
	if b.fail[chat] {
		return nil, fmt.Errorf("no such chat: %w", ipc.ErrInvalid)
	}
	if r.Text != "" {
		b.told = append(b.told, chat+": "+r.Text)
	}
	b.cursors[chat] = max(b.cursors[chat], r.EventId)
	return &hostv1.NotifyResponse{}, nil
}

func (b *board) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *board) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.told...)
}

// handClock ticks when a test says so.
type handClock struct{ ticks chan time.Time }

func (c handClock) After(time.Duration) (<-chan time.Time, func()) { return c.ticks, func() {} }

// tick makes the notifier look and returns when it takes the next tick, so that the look before has ended.
func (c handClock) tick() { c.ticks <- time.Time{} }

// newNotifier starts a notifier that reaches the board over a real socket, as the kanban worker and nobody else.
func newNotifier(t *testing.T, b *board) (*Notifier, handClock, *workers.Host) {
	t.Helper()
	identity := func(context.Context) (ipc.Identity, error) {
		return ipc.Identity{Worker: "kanban", Role: ipc.RoleKanban}, nil
	}
	server := grpc.NewServer(ipc.ServerOptions(identity, nil)...)
	hostv1.RegisterBoardsServer(server, b)
	path := filepath.Join(t.TempDir(), "host.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // ended by Stop
	conn, err := grpc.NewClient("unix:"+path, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	host := workers.NewHost(conn, "kanban", 1, hclog.NewNullLogger())
	clock := handClock{make(chan time.Time)}
	n := New(clock)
	ctx, cancel := context.WithCancel(context.Background())
	config, _ := json.Marshal(ipc.KanbanConfig{Interval: time.Second})
	if err := n.Start(ctx, host, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Close()
		cancel()
		_ = conn.Close()
		server.Stop()
	})
	return n, clock, host
}
