// Package turn is the hub: every message, tool call and reply passes through it, and what happened is stored before
// anybody is told. It accepts messages, gives their turns to agents, makes the tool calls of those turns, asks people for
// their yes, and hands replies to gateways.
//
// Rules: the store holds the truth and the hub only what runs now, so a new hub on the same store goes on where the last
// one ended. A turn is ended by Turns.Finish or by the hub itself, never by a lost connection. Writes carry the fence of
// their lease. A call with effects is made at most once. No lock is held over a store or network call. DESIGN.md beside
// this file says what happens at each limit.
package turn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// PlatformTerminal is the platform of chats over the control socket. It is the one whose notices are fetched with
// Notices instead of being delivered by a gateway.
const PlatformTerminal = "terminal"

const (
	// beat is how often the dispatch loop turns when nothing wakes it. It bounds how late a turn is retried after a
	// store failure, and is well under any watchdog interval.
	beat = time.Second
	// defaultTurnsPerAgent is what one agent process runs side by side; each turn costs it about a provider connection.
	defaultTurnsPerAgent = 32
	// defaultIdleRun is six times the interval at which an agent must show activity.
	defaultIdleRun = time.Minute
	// defaultApprovalTimeout is how long the existing system's prompt waits.
	defaultApprovalTimeout = time.Minute
)

// ApprovalPolicy says what happens to a call that a person must allow.
type ApprovalPolicy struct {
	Manual  bool          // false: such a call is made without asking; a refused one is refused all the same
	Timeout time.Duration // silence until then means no; 0 means a minute
}

// Config is what a Hub works with. Store is required; everything else has a use without it.
type Config struct {
	Store      Store
	Boards     func(slug string) (Board, error) // "" is the default board; nil: there are no boards
	BoardNames func() ([]string, error)         // boards whose events are told; nil: the default one
	Now        func() time.Time                 // nil: time.Now
	Log        hclog.Logger                     // nil: silent
	Event      func(store.Event)                // journal, must not block; nil: none is kept

	// Spill keeps a whole output that is too long for a model and that its tool has not kept; nil: it is lost.
	Spill func(tool, content string) (path string, err error)

	Approvals     ApprovalPolicy
	TurnsPerAgent int             // 0: 32
	IdleRun       time.Duration   // a run silent for this long has lost its lease; 0: a minute
	Platforms     []string        // those that a notice can be sent to; nil: any
	Pull          map[string]bool // platforms whose clients fetch their replies; nil: terminal and api
}

// A Hub runs turns. Its exported methods are safe for concurrent use.
type Hub struct {
	cfg   Config
	store Store
	log   hclog.Logger

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // everything the hub started and every call that writes

	kick  chan struct{} // wakes the dispatch loop
	beats atomic.Uint64

	tools  *catalogue
	outbox *outbox
	ended  *endings

	mu       sync.Mutex
	started  bool
	closed   bool
	draining bool // for good: the supervisor stops
	paused   bool // until Resume
	limits   limits
	stale    bool // turns may be in the store that are not here
	waiting  bool // for the store to take what the last hub left
	turns    map[string]*live
	lines    map[string][]*live // open turns of each session in order
	tickets  tickets
	agents   map[string]*agent
	picks    uint64
	homes    homes
	gateways map[string]*gateway // by platform
	idle     chan struct{}       // closed and replaced when a turn stops running
	failure  error               // why the store takes nothing until a person has done something
	failed   chan struct{}       // closed with failure set
}

// New returns a hub that does nothing before Start.
func New(cfg Config) *Hub {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	if cfg.Event == nil {
		cfg.Event = func(store.Event) {}
	}
	if cfg.IdleRun <= 0 {
		cfg.IdleRun = defaultIdleRun
	}
	if cfg.Pull == nil {
		cfg.Pull = map[string]bool{PlatformTerminal: true, "api": true}
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &Hub{
		cfg: cfg, store: cfg.Store, log: cfg.Log, ctx: ctx, stop: stop,
		kick:  make(chan struct{}, 1),
		turns: map[string]*live{}, lines: map[string][]*live{},
		agents: map[string]*agent{}, gateways: map[string]*gateway{},
		idle: make(chan struct{}), failed: make(chan struct{}), ended: &endings{},
	}
	h.Adjust(cfg.Approvals, cfg.TurnsPerAgent, cfg.Platforms)
	h.tools = newCatalogue(h)
	h.outbox = newOutbox(h)
	return h
}

// Start takes over the turns that the store holds open: leases of the last hub are void, their turns wait again. Then it
// begins to dispatch. A store that takes no writes is waited for, after the start.
func (h *Hub) Start(ctx context.Context) error {
	resumed, err := h.recover(ctx)
	if err != nil && !mayPass(err) {
		return fmt.Errorf("start turn queue: %w", err)
	}
	h.tools.begin()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.started {
		return fmt.Errorf("start turn queue: %w", ipc.ErrRefused)
	}
	h.started = true
	h.spawn("dispatch", h.loop, nil)
	h.spawn("outbox", h.outbox.loop, nil)
	if err == nil {
		h.spawn("words of a restart", func() { h.tellOfRestart(h.ctx, resumed, resumedText) }, nil)
		return nil
	}
	h.log.Error("the store takes no writes; open turns wait until it does", "error", err)
	h.waiting = true
	h.spawn("takeover", h.takeOver, nil)
	return nil
}

// takeOver is what Start does with a store that took no writes then.
func (h *Hub) takeOver() {
	for sleep(h.ctx, storePause) {
		var resumed []store.Turn
		err := errPanicked
		h.guard("takeover", func() { resumed, err = h.recover(h.ctx) }, nil)
		if err != nil {
			continue
		}
		h.mu.Lock()
		h.waiting = false
		h.mu.Unlock()
		h.wake()
		h.tellOfRestart(h.ctx, resumed, resumedText)
		return
	}
}

// Release gives the turns that run back to the store, to be taken up at the next start. The end of the supervisor is no
// fault of theirs, so it counts no lost lease. One that makes a tool call at this moment may be what ends the supervisor: it
// stays leased, as does what the store does not take before ctx ends.
func (h *Hub) Release(ctx context.Context) {
	h.mu.Lock()
	var running []store.Turn
	for _, l := range h.turns {
		if l.lease != nil && !l.done && len(l.calls) == 0 {
			l.released = true
			running = append(running, l.turn)
		}
	}
	h.mu.Unlock()
	for _, t := range running {
		if _, err := h.store.Release(ctx, t.ID, t.Fence); err != nil && !errors.Is(err, store.ErrLeaseLost) {
			h.log.Warn("a turn stays leased over the end of the supervisor", "turn", t.ID, "error", err)
			continue
		}
		h.event("turn_released", t.Worker, t.ID, "the supervisor ends; it goes on after the next start", nil)
	}
}

// Close ends everything the hub runs and waits for it. Turns that were running and not released stay leased in the store.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
	h.wg.Wait()
}

// Drain stops leasing and waits until no turn runs and the replies of this hub are on their way, or until ctx ends.
// It returns the number of turns still running: they stay leased and are taken up by the next Start.
func (h *Hub) Drain(ctx context.Context) (unfinished int) {
	h.mu.Lock()
	h.draining = true
	started := h.started
	h.mu.Unlock()
	for {
		running, idle := h.running()
		if running == 0 && started {
			h.outbox.settle(ctx)
		}
		if running == 0 {
			return 0
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return running
		case <-h.ctx.Done():
			return running
		}
	}
}

// Settle waits until no reply is being handed to a gateway, or ctx ends: a send that is cut off may have happened.
func (h *Hub) Settle(ctx context.Context) { h.outbox.settle(ctx) }

// Progress counts the turns of the dispatch loop. It stands still only if the loop hangs or panics: a closed hub has none,
// and counts how often it is asked.
func (h *Hub) Progress() uint64 {
	if h.ctx.Err() != nil {
		return h.beats.Add(1)
	}
	return h.beats.Load()
}

// Ping has an idle dispatch loop turn once more, so that it can be seen that it would.
func (h *Hub) Ping() { h.wake() }

// Busy returns how much a worker holds: turns of an agent, calls of a tools worker, deliveries of a gateway.
func (h *Hub) Busy(worker string) int {
	h.mu.Lock()
	n := 0
	for _, l := range h.turns {
		if l.lease != nil && l.lease.agent.id.Worker == worker {
			n++
		}
	}
	h.mu.Unlock()
	return n + h.tools.busy(worker) + h.outbox.busy(worker)
}

// Attach takes a worker into service by its role. detach ends that: nothing new is given to it, and what it runs goes
// on until its connection ends.
func (h *Hub) Attach(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
	var leave func()
	switch id.Role {
	case ipc.RoleAgent:
		leave = h.attachAgent(id, conn)
	case ipc.RoleTools, ipc.RolePlugin:
		leave = h.tools.attach(id, conn)
	case ipc.RoleGateway:
		leave = h.attachGateway(id, conn)
	default:
		return func() {}
	}
	return sync.OnceFunc(leave)
}

// Leaving says that the end of a worker is planned: a turn that does not finish before it counts no lost lease, or three
// replacements in a row would park it.
func (h *Hub) Leaving(id ipc.Identity) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.agents[id.Worker]; a != nil && a.id.Incarnation == id.Incarnation {
		a.leaving = true
	}
}

// Register adds the hub's services to the server of one worker. The server must put the worker's identity into the
// context of each call (ipc.ServerOptions).
func (h *Hub) Register(s *grpc.Server) {
	hostv1.RegisterInboxServer(s, &inboxService{hub: h})
	hostv1.RegisterToolsServer(s, &toolsService{hub: h})
	h.RegisterConversations(s)
	hostv1.RegisterConfirmationsServer(s, &confirmationsService{hub: h})
	h.RegisterBoards(s)
}

// RegisterConversations adds what chats ask of their conversations: of a gateway's platform on its server, of the terminal's
// on the control socket.
func (h *Hub) RegisterConversations(s *grpc.Server) {
	hostv1.RegisterTurnsServer(s, &turnsService{hub: h})
	hostv1.RegisterSessionsServer(s, &sessionsService{hub: h})
}

// enter begins a call from outside that writes; Close waits for its end.
func (h *Hub) enter() (leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosing
	}
	h.wg.Add(1)
	return h.wg.Done, nil
}

// spawn does work, guarded, as part of the hub. h.mu must be held; after Close it does nothing.
func (h *Hub) spawn(what string, work, undo func()) {
	if !h.closed {
		h.wg.Go(func() { h.guard(what, work, undo) })
	}
}

// launch is spawn for callers that do not hold h.mu.
func (h *Hub) launch(what string, work, undo func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spawn(what, work, undo)
}

// wake makes the dispatch loop look again.
func (h *Hub) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *Hub) now() time.Time { return h.cfg.Now() }

func (h *Hub) event(kind, worker, turnID, message string, fields map[string]string) {
	h.cfg.Event(store.Event{Time: h.now(), Kind: kind, Worker: worker, TurnID: turnID, Message: message, Fields: fields})
}

// pushed says whether replies of a platform are delivered by its gateway.
func (h *Hub) pushed(platform string) bool { return !h.cfg.Pull[platform] }
