// Package kanban is the worker that tells chats what became of the tasks they follow. It looks for events past the
// cursor of each subscription, writes a line for each, and hands it to the supervisor, which puts it into the outbox
// and moves the cursor. It looks when the supervisor says that a board has changed (Tick), and by itself only while
// something could not be told.
//
// Rules: looks never overlap. Events of one subscription are told in order, and a failure stops that subscription,
// and only that one, until the next look. The worker keeps nothing: what was told is known by the cursor.
package kanban

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	kanbanv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/kanban/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers"
)

const (
	// defaultInterval is the existing system's.
	defaultInterval = 5 * time.Second
	// seldom is between two looks that nobody asked for: what a file system does not tell of is found in the end.
	seldom = 5 * time.Minute
	// telling is the shortest interval that the supervisor's word is relied on for: it sees a change within that time.
	telling = time.Second
	// firstPage is how many events are asked for at once. A page full of events that cannot be told is asked for
	// again twice as large, up to largestPage, so that they do not hide those behind them.
	firstPage, largestPage = 100, 1600
	// maxPages bounds a look; what is left is told by the next one.
	maxPages = 50
)

// A Clock waits, so that tests decide when it is time.
type Clock interface {
	// After returns a channel that delivers once after d, and what ends the wait.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

// WallClock is the machine's clock.
type WallClock struct{}

// After waits to the next round multiple of d: what turns at a beat wakes the processor together.
func (WallClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d - time.Duration(time.Now().UnixNano())%d)
	return t.C, func() { t.Stop() }
}

// A Notifier is the role of the kanban worker.
type Notifier struct {
	kanbanv1.UnimplementedKanbanServer
	clock Clock
	host  atomic.Pointer[workers.Host]
	turn  chan struct{} // holds one token; who has it looks

	ticking sync.WaitGroup
	drain   sync.Once
	drained chan struct{} // closed: no look begins any more
	trouble chan struct{} // something could not be told: it is tried again soon

	mu     sync.Mutex
	cancel context.CancelFunc // nil before Start
	broken map[string]string  // by subscription: the error of its last event, as it was logged
	failed error              // of the last look as a whole
}

var (
	_ workers.Role     = (*Notifier)(nil)
	_ workers.Reporter = (*Notifier)(nil)
)

// New returns the role.
func New(clock Clock) *Notifier {
	n := &Notifier{clock: clock, turn: make(chan struct{}, 1), drained: make(chan struct{}), trouble: make(chan struct{}, 1), broken: map[string]string{}}
	n.turn <- struct{}{}
	return n
}

// Register adds the Kanban service.
func (n *Notifier) Register(s *grpc.Server) { kanbanv1.RegisterKanbanServer(s, n) }

// Start begins to look, the first time after one interval: at a start of everything, gateways come up meanwhile.
func (n *Notifier) Start(ctx context.Context, host *workers.Host, config json.RawMessage) error {
	var c ipc.KanbanConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if c.Interval < 0 {
		return fmt.Errorf("configuration: interval is %s, it must be longer than 0: %w", c.Interval, ipc.ErrInvalid)
	}
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	n.host.Store(host)
	ctx, cancel := context.WithCancel(ctx)
	n.mu.Lock()
	n.cancel = cancel
	n.mu.Unlock()
	n.ticking.Go(func() { n.loop(ctx, c.Interval) })
	return nil
}

// loop looks once after the start, then after each interval in which something could not be told, and else seldom.
func (n *Notifier) loop(ctx context.Context, interval time.Duration) {
	for wait := interval; ; {
		c, stop := n.clock.After(wait)
		select {
		case <-ctx.Done():
			stop()
			return
		case <-n.drained:
			stop()
			return
		case <-n.trouble:
			stop()
			wait = interval
			continue
		case <-c:
		}
		_, _ = n.look(ctx) // settle has logged what failed
		if wait = interval; interval >= telling && !n.troubled() {
			wait = max(interval, seldom)
		}
	}
}

func (n *Notifier) troubled() bool {
	degraded, _ := n.Report()
	return degraded
}

// Tick looks now.
func (n *Notifier) Tick(ctx context.Context, _ *kanbanv1.TickRequest) (*kanbanv1.TickResponse, error) {
	if n.host.Load() == nil {
		return nil, fmt.Errorf("tick: %w: not initialised", ipc.ErrRefused)
	}
	notices, err := n.look(ctx)
	if n.troubled() {
		select {
		case n.trouble <- struct{}{}:
		default:
		}
	}
	if err != nil {
		return nil, err
	}
	return &kanbanv1.TickResponse{Notices: uint32(notices)}, nil
}

// Report says that chats are not told, and why.
func (n *Notifier) Report() (degraded bool, detail string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.failed != nil:
		return true, "no events can be read: " + n.failed.Error()
	case len(n.broken) > 0:
		return true, fmt.Sprintf("%d subscriptions cannot be told", len(n.broken))
	}
	return false, ""
}

// Drain ends the ticking and waits for a look that runs.
func (n *Notifier) Drain(ctx context.Context) int {
	n.drain.Do(func() { close(n.drained) })
	select {
	case <-n.turn:
		n.turn <- struct{}{}
		return 0
	case <-ctx.Done():
		return 1
	}
}

// Close ends the ticking.
func (n *Notifier) Close() {
	n.mu.Lock()
	cancel := n.cancel
	n.mu.Unlock()
	if cancel != nil {
		cancel()
		n.ticking.Wait()
	}
}

// look tells all events that can be told, and returns how many chats got a line.
func (n *Notifier) look(ctx context.Context) (notices int, err error) {
	select {
	case <-n.turn:
		defer func() { n.turn <- struct{}{} }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-n.drained:
		return 0, fmt.Errorf("look for events: %w: the worker is draining", ipc.ErrRefused)
	default:
	}
	host := n.host.Load()
	defer host.Work.Begin()()
	l := look{host: host, broken: map[string]string{}, told: map[string]bool{}}
	err = l.run(ctx)
	n.settle(ctx, host.Log, &l, err)
	return l.notices, err
}

// settle keeps what failed, and logs what is new in it.
func (n *Notifier) settle(ctx context.Context, log hclog.Logger, l *look, err error) {
	if ctx.Err() != nil {
		return // ended from outside, which says nothing about the board
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil && (n.failed == nil || n.failed.Error() != err.Error()):
		log.Warn("events not read", "error", err)
	case err == nil && n.failed != nil:
		log.Info("events are read again")
	}
	n.failed = err
	for key, why := range l.broken {
		if n.broken[key] != why {
			log.Warn("subscription not told, tried again at every look", "subscription", key, "error", why)
		}
		n.broken[key] = why
	}
	for key := range n.broken {
		if _, still := l.broken[key]; !still && (err == nil || l.told[key]) {
			log.Info("subscription is told again", "subscription", key)
			delete(n.broken, key)
		}
	}
}

// A look is one pass over the unseen events.
type look struct {
	host    *workers.Host
	notices int
	broken  map[string]string // subscriptions that failed in this look
	told    map[string]bool
}

func (l *look) run(ctx context.Context) error {
	page := uint32(firstPage)
	for range maxPages {
		r, err := l.host.Boards.Unseen(ctx, &hostv1.UnseenRequest{Limit: page})
		if err != nil {
			return fmt.Errorf("unseen events: %w", err)
		}
		moved := 0
		for _, e := range r.Items {
			if l.tell(ctx, e) {
				moved++
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case uint32(len(r.Items)) < page:
			return nil
		case moved == 0 && page == largestPage:
			return nil
		case moved == 0:
			page = min(2*page, largestPage)
		}
	}
	return nil
}

// tell hands one event over. It returns false if its subscription is stuck.
func (l *look) tell(ctx context.Context, e *hostv1.Unseen) bool {
	key := subscriptionKey(e.Subscription)
	if _, stuck := l.broken[key]; stuck || ctx.Err() != nil {
		return false
	}
	text := Text(e)
	_, err := l.host.Boards.Notify(ctx, &hostv1.NotifyRequest{Subscription: e.Subscription, EventId: e.EventId, Text: text})
	if err != nil {
		if !errors.Is(err, ipc.ErrCancelled) || ctx.Err() == nil {
			l.broken[key] = err.Error()
		}
		return false
	}
	l.told[key] = true
	if text != "" {
		l.notices++
	}
	l.host.Work.Step()
	return true
}

func subscriptionKey(s *hostv1.Subscription) string {
	return fmt.Sprintf("%q/%q/%q/%q/%q", s.GetBoard(), s.GetTaskId(), s.GetPlatform(), s.GetChatId(), s.GetThreadId())
}
