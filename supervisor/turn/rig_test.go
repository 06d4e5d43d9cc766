package turn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a hub on a real store, with workers that are gRPC servers in this process. Time is a synctest bubble's:
// everything that waits does so at no cost.
type rig struct {
	t     testing.TB
	path  string
	state *store.State
	hub   *Hub
	cfg   Config
	wrap  func(Store) Store // what the next hub uses instead of the store itself, if it is set
	// wire is what the hub calls the next workers over instead of their connections, if it is set.
	wire func(grpc.ClientConnInterface) grpc.ClientConnInterface

	world effects

	mu     sync.Mutex
	events []store.Event
	procs  []*process
}

func (r *rig) reached(tool string) <-chan struct{} { return r.world.invoked(tool) }

// bubble runs a test on a rig in a bubble of its own time.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	bubbleWith(t, Config{Approvals: ApprovalPolicy{Manual: true}}, test)
}

func bubbleWith(t *testing.T, cfg Config, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, path: filepath.Join(t.TempDir(), "state.db"), cfg: cfg}
		r.open()
		defer r.close()
		test(t, r)
	})
}

// open makes a new hub on the store, as a start of the supervisor does.
func (r *rig) open() {
	r.t.Helper()
	state, err := store.OpenState(r.t.Context(), r.path, store.Options{Now: time.Now, Readers: 2})
	if err != nil {
		r.t.Fatal(err)
	}
	r.state = state
	cfg := r.cfg
	cfg.Store, cfg.Event = state, r.record
	if r.wrap != nil {
		cfg.Store = r.wrap(state)
	}
	r.hub = New(cfg)
	if err := r.hub.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// close ends the hub and all workers without a drain, as a kill of the supervisor does: the workers go with it and not before,
// or it would have the time to give their turns back.
func (r *rig) close() {
	r.hub.Close()
	for _, p := range r.all() {
		p.kill()
	}
	if err := r.state.Close(); err != nil {
		r.t.Error(err)
	}
}

// restart kills the supervisor with all its workers and starts it again.
func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.open()
}

func (r *rig) record(e store.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *rig) eventsOf(kind string) []store.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e store.Event) bool { return e.Kind != kind })
}

func (r *rig) all() []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.procs
	r.procs = nil
	return all
}

// A process is one life of a worker: its own server, and a connection to the hub's services under its identity.
type process struct {
	rig    *rig
	id     ipc.Identity
	server *grpc.Server
	conn   *grpc.ClientConn // supervisor → worker
	host   *grpc.ClientConn // worker → supervisor
	hosts  *grpc.Server
	detach func()
	once   sync.Once
	ready  chan struct{} // closed when detach is set
	dead   chan struct{}
}

// start runs a worker that serves what register adds, and attaches it to the hub.
func (r *rig) start(id ipc.Identity, register func(p *process, s *grpc.Server)) *process {
	r.t.Helper()
	p := &process{rig: r, id: id, ready: make(chan struct{}), dead: make(chan struct{})}
	p.hosts = grpc.NewServer(ipc.ServerOptions(func(context.Context) (ipc.Identity, error) { return id, nil }, nil)...)
	r.hub.Register(p.hosts)
	p.host = r.dial(p.hosts)
	p.server = grpc.NewServer(ipc.ServerOptions(nil, nil)...)
	register(p, p.server)
	p.conn = r.dial(p.server)
	var conn grpc.ClientConnInterface = p.conn
	if r.wire != nil {
		conn = r.wire(conn)
	}
	p.detach = r.hub.Attach(id, conn)
	close(p.ready)
	r.mu.Lock()
	r.procs = append(r.procs, p)
	r.mu.Unlock()
	return p
}

// dial serves s in memory and connects to it.
func (r *rig) dial(s *grpc.Server) *grpc.ClientConn {
	r.t.Helper()
	l := bufconn.Listen(64 << 10)
	go func() { _ = s.Serve(l) }()
	opts := append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///bufconn", opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// kill ends the process at once. The hub learns of it by the broken connection and then by the detachment, as it does
// of a real one.
func (p *process) kill() {
	p.once.Do(func() {
		close(p.dead)
		<-p.ready
		_ = p.host.Close()
		// Stop waits for handlers, and the caller may be one.
		go p.server.Stop()
		go p.hosts.Stop()
		p.detach()
		_ = p.conn.Close()
	})
}

// accept hands a message over by the hub's own method, as the control socket does.
func (r *rig) accept(chat, id, text string) store.Accepted {
	r.t.Helper()
	a, err := r.hub.Accept(r.t.Context(), store.Inbound{Platform: PlatformTerminal, ChatID: chat, MessageID: id, Text: text})
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// final follows a turn to its end.
func (r *rig) final(turnID string) *turnv1.Final {
	r.t.Helper()
	all := r.follow(turnID)
	return all[len(all)-1].GetFinal()
}

// follow returns all events of a turn.
func (r *rig) follow(turnID string) []*turnv1.TurnEvent {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Hour)
	defer cancel()
	var all []*turnv1.TurnEvent
	err := r.hub.Follow(ctx, turnID, func(e *turnv1.TurnEvent) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		r.t.Fatalf("follow turn %s: %v (had %d events: %v)", turnID, err, len(all), all)
	}
	return all
}

// turn returns a turn as it is stored.
func (r *rig) turn(id string) store.Turn {
	r.t.Helper()
	u, err := r.state.Turn(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

// transcript is the conversation of a session as lines "role: content".
func (r *rig) transcript(session string) []string {
	r.t.Helper()
	rows, err := r.state.Conversation(r.t.Context(), session)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	for _, m := range rows {
		line := m.Role + ": " + m.Content
		for _, c := range m.ToolCalls {
			line += fmt.Sprintf(" [%s %s]", c.ID, c.Name)
		}
		lines = append(lines, line)
	}
	return lines
}

// eventually waits, in the bubble's time, until a condition holds.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	for range 36_000 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.t.Fatalf("never: %s", what)
}

func (r *rig) wantTranscript(session string, want ...string) {
	r.t.Helper()
	if got := r.transcript(session); !slices.Equal(got, want) {
		r.t.Fatalf("conversation is\n%q, want\n%q", got, want)
	}
}

// host clients of a process
func (p *process) turns() hostv1.TurnsClient   { return hostv1.NewTurnsClient(p.host) }
func (p *process) tools() hostv1.ToolsClient   { return hostv1.NewToolsClient(p.host) }
func (p *process) inbox() hostv1.InboxClient   { return hostv1.NewInboxClient(p.host) }
func (p *process) boards() hostv1.BoardsClient { return hostv1.NewBoardsClient(p.host) }

var errKilled = errors.New("killed")

func wantContains(t *testing.T, s, want string) {
	t.Helper()
	if !strings.Contains(s, want) {
		t.Errorf("%q does not contain %q", s, want)
	}
}
