// Package gatewaytest is what adapters are tested with: a stand-in of the supervisor (Host), a way to run an adapter
// as a process of its own that can be killed (Worker), and the conformance suite that every adapter runs (Run) over a
// stand-in of its platform.
package gatewaytest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	adapterv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/adapter/v1"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

// A Step is a moment on the way of a message at which a test can do something, kill the worker as a rule.
type Step string

// The steps, in the order in which a message meets them.
const (
	BeforeAccept  Step = "before accept"  // the adapter asked, nothing is stored
	AfterAccept   Step = "after accept"   // stored, the adapter does not know yet
	TurnRuns      Step = "turn runs"      // the first text was said
	BeforeDeliver Step = "before deliver" // the answer is stored and about to be handed to the adapter
	AfterDeliver  Step = "after deliver"  // the adapter reported, and the report is lost

	AfterAnswer Step = "after answer" // a person's yes is stored, the adapter does not know yet
	BeforeDone  Step = "before done"  // its command is carried out, which is not stored yet
)

// A Host is a supervisor that keeps all in memory. It outlives the adapters that are started against it.
type Host struct {
	// Script runs a turn and returns the answer. It may be replaced before the first message.
	Script func(*Turn) string
	// Secrets are what Config.Secret hands out.
	Secrets map[string]string
	// Desk is what chats ask of the supervisor besides.
	Desk *Desk

	platform string
	socket   string
	server   *grpc.Server
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	turns   []*Turn
	byID    map[string]*Turn
	queues  map[string]*queue // turns of a session, rows of a chat
	hooks   map[Step]*hook
	events  []*hostv1.PublishRequest
	adapter *attached
	push    bool  // the platform is pushed to; known once an adapter was attached
	started int   // workers so far
	owed    int64 // outbox rows so far
	repeats int   // accepts answered as duplicates
}

type hook struct {
	after int // passes before it acts
	do    func()
}

// NewHost starts a host for adapters of one platform. Its default script answers "answer to " and the text.
func NewHost(t testing.TB, platform string) *Host {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{
		Script:   func(u *Turn) string { u.Say(Answer(u.Text())); return Answer(u.Text()) },
		Secrets:  map[string]string{},
		Desk:     NewDesk(),
		platform: platform, socket: filepath.Join(dir, "host"), changed: make(chan struct{}),
		byID:   map[string]*Turn{},
		queues: map[string]*queue{}, hooks: map[Step]*hook{},
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.server = grpc.NewServer(append(ipc.ServerOptions(h.identify, nil), grpc.WaitForHandlers(true))...)
	hostv1.RegisterInboxServer(h.server, &inboxService{h: h})
	hostv1.RegisterTurnsServer(h.server, &turnsService{h: h})
	hostv1.RegisterConfigServer(h.server, &configService{h: h})
	hostv1.RegisterEventsServer(h.server, &eventsService{h: h})
	hostv1.RegisterSessionsServer(h.server, h.Desk.Sessions())
	hostv1.RegisterConfirmationsServer(h.server, &hookedConfirmations{h.Desk.Confirmations(), h})
	hostv1.RegisterPairingServer(h.server, h.Desk.Pairing())
	hostv1.RegisterLifecycleServer(h.server, h.Desk.Lifecycle())
	listener, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	h.running.Go(func() { _ = h.server.Serve(listener) }) // ended by Stop
	t.Cleanup(func() {
		h.stop()
		h.server.Stop()
		h.running.Wait()
		_ = os.RemoveAll(dir)
	})
	return h
}

// Answer is what the default script answers.
func Answer(text string) string { return "answer to " + text }

func (h *Host) identify(context.Context) (ipc.Identity, error) {
	return ipc.Identity{Worker: "gateway-" + h.platform, Role: ipc.RoleGateway, Platform: h.platform}, nil
}

// Connect returns the host as a worker sees it, for an adapter in the test's own process.
func (h *Host) Connect(t testing.TB) *workers.Host {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+h.socket, append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return workers.NewHost(conn, "gateway-"+h.platform, 1, hclog.NewNullLogger())
}

// At makes do run once, when a message has passed step as many times as after says. What was to follow the step
// follows when do has returned, as far as there is still somebody to do it.
func (h *Host) At(step Step, after int, do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hooks[step] = &hook{after: after, do: do}
}

// pass runs the hook of a step, and says whether there was one.
func (h *Host) pass(step Step) bool {
	h.mu.Lock()
	k := h.hooks[step]
	if k != nil {
		if k.after > 0 {
			k.after--
			k = nil
		} else {
			delete(h.hooks, step)
		}
	}
	h.mu.Unlock()
	if k == nil {
		return false
	}
	k.do()
	return true
}

// Pending returns the hooks that have not run.
func (h *Host) Pending() []Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	var steps []Step
	for s := range h.hooks {
		steps = append(steps, s)
	}
	slices.Sort(steps)
	return steps
}

// Turns returns all turns, in the order in which their messages were accepted.
func (h *Host) Turns() []*Turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.turns)
}

// Repeats counts the messages that were handed over again.
func (h *Host) Repeats() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.repeats
}

// Events returns what was put on the timeline: "kind: message".
func (h *Host) Events() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, e := range h.events {
		all = append(all, e.Kind+": "+e.Message)
	}
	return all
}

// change wakes all that wait for one. With mu held.
func (h *Host) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// wait returns when holds does, asked again after each change. It returns false if ctx ends first.
func (h *Host) wait(ctx context.Context, holds func() bool) bool {
	for {
		h.mu.Lock()
		ok, changed := holds(), h.changed
		h.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// A queue does things one after the other.
type queue struct {
	jobs    []func()
	working bool
}

// enqueue adds a job to a queue by its name. With mu held.
func (h *Host) enqueue(name string, job func()) {
	q, ok := h.queues[name]
	if !ok {
		q = &queue{}
		h.queues[name] = q
	}
	q.jobs = append(q.jobs, job)
	if q.working || h.ctx.Err() != nil {
		return
	}
	q.working = true
	h.running.Go(func() {
		for {
			h.mu.Lock()
			if len(q.jobs) == 0 || h.ctx.Err() != nil {
				q.working = false
				h.mu.Unlock()
				return
			}
			next := q.jobs[0]
			q.jobs = q.jobs[1:]
			h.mu.Unlock()
			next()
		}
	})
}

// attached is the adapter that is reached now.
type attached struct {
	client adapterv1.AdapterClient
	push   bool
	ctx    context.Context // ends when it is detached
	mu     sync.Mutex
	show   grpc.ClientStreamingClient[adapterv1.ShowRequest, adapterv1.ShowResponse]
}

// Attach makes the host deliver to the adapter at the other end of conn, until detach.
func (h *Host) Attach(conn grpc.ClientConnInterface) (detach func(), err error) {
	a := &attached{client: adapterv1.NewAdapterClient(conn)}
	s, err := a.client.Status(h.ctx, &adapterv1.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("attach adapter: %w", err)
	}
	a.push = s.Push
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(h.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.adapter, h.push = a, a.push
	for _, t := range h.turns {
		if t.final == nil && a.push {
			h.showTurn(a, t)
		}
	}
	h.change()
	return func() {
		cancel()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.adapter == a {
			h.adapter = nil
			h.change()
		}
	}, nil
}
