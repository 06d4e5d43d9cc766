package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

const (
	// toolsWait is how long a call waits for its tools worker to come back: a restart takes well under a second, a
	// few failed ones in a row with their backoff fit, and a person who waits does not give up yet.
	toolsWait = 15 * time.Second
	// listWait is under the deadline of Tools.List.
	listWait = 4 * time.Second
	// describePause is between two tries to ask a worker for its tools.
	describePause = time.Second

	maxTools       = 256      // of one worker
	maxDescription = 16 << 10 // what the model reads of each tool, with every call
	maxSchema      = 64 << 10
	defaultInvoke  = 10 * time.Minute
	longestInvoke  = 24 * time.Hour
)

// toolName is what every provider accepts as the name of a function.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// A catalogue knows which worker offers which tool. A worker that is away keeps its tools: the list that models see must
// not change because a process is restarted. It is safe for concurrent use.
type catalogue struct {
	hub *Hub

	mu      sync.Mutex
	since   time.Time // when the hub started
	workers map[string]*toolWorker
	offers  map[string]*offer
	changed chan struct{} // closed and replaced with every change
}

// A toolWorker is a tools or plugin worker over all its lives.
type toolWorker struct {
	name      string
	builtin   bool              // one of ours, not a plugin
	client    toolv1.ToolClient // of its present life
	life      int               // counts attachments
	attached  bool
	described bool // in this life
	left      time.Time
	calls     int
	guest     *Guest    // of a plugin that the supervisor knows
	waiting   int       // calls that wait for others to end
	used      time.Time // when the last call ended
}

// An offer is one tool.
type offer struct {
	spec   *toolv1.ToolSpec
	worker *toolWorker
}

func newCatalogue(h *Hub) *catalogue {
	return &catalogue{hub: h, workers: map[string]*toolWorker{}, offers: map[string]*offer{}, changed: make(chan struct{})}
}

func (c *catalogue) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = c.hub.now()
}

// notify wakes all who wait for a change. c.mu must be held.
func (c *catalogue) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *catalogue) attach(id ipc.Identity, conn grpc.ClientConnInterface) (detach func()) {
	c.mu.Lock()
	w := c.worker(id.Worker)
	w.life++
	w.builtin, w.used = id.Role == ipc.RoleTools, c.hub.now()
	w.client, w.attached, w.described = toolv1.NewToolClient(conn), true, w.guest != nil
	c.notify()
	life, client, known := w.life, w.client, w.guest != nil
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.hub.ctx)
	if !known {
		c.hub.launch("tools of "+id.Worker, func() { c.describe(ctx, w, life, client) }, nil)
	}
	return func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.life == life {
			w.attached, w.left = false, c.hub.now()
			c.notify()
		}
	}
}

// describe asks a worker for its tools until it answers or is gone.
func (c *catalogue) describe(ctx context.Context, w *toolWorker, life int, client toolv1.ToolClient) {
	for said := false; ; said = true {
		err := errPanicked
		c.hub.guard("tools of "+w.name, func() { err = c.learn(ctx, w, life, client) }, nil)
		if err == nil {
			return
		}
		if !said && ctx.Err() == nil {
			c.hub.event("tools_unknown", w.name, "", "cannot ask for its tools: "+err.Error(), nil)
		}
		if !sleep(ctx, describePause) {
			return
		}
	}
}

// learn asks a worker for its tools once.
func (c *catalogue) learn(ctx context.Context, w *toolWorker, life int, client toolv1.ToolClient) error {
	r, err := client.Describe(ctx, &toolv1.DescribeRequest{})
	if err == nil {
		c.enrol(w, life, r.Tools)
	}
	return err
}

// enrol replaces what a worker offers.
func (c *catalogue) enrol(w *toolWorker, life int, specs []*toolv1.ToolSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.life != life {
		return
	}
	mine := map[string]bool{}
	for i, s := range specs {
		if err := checkSpec(s); err != nil || i >= maxTools {
			if err == nil {
				err = fmt.Errorf("more than %d tools", maxTools)
			}
			c.hub.event("tool_refused", w.name, "", err.Error(), map[string]string{"tool": cut(s.GetName(), maxID)})
			continue
		}
		if o := c.offers[s.Name]; o != nil && o.worker != w {
			switch {
			case o.worker.guest != nil && w.builtin:
				_ = c.clash(s.Name, w, o.worker) // what comes with the system is what people mean by the name
			case o.worker.guest != nil || c.keeps(o.worker):
				_ = c.clash(s.Name, o.worker, w)
				continue
			}
		}
		mine[s.Name] = true
		c.offers[s.Name] = &offer{spec: s, worker: w}
	}
	c.drop(w, mine)
	w.described = true
	c.notify()
}

// keeps says whether a worker still owns its names: while it serves, and long enough after to be restarted.
func (c *catalogue) keeps(w *toolWorker) bool {
	return w.attached || c.hub.now().Sub(w.left) < toolsWait
}

func checkSpec(s *toolv1.ToolSpec) error {
	switch {
	case !toolName.MatchString(s.GetName()):
		return fmt.Errorf("tool name %q is not made of 1 to 64 letters, digits, _ and -", cut(s.GetName(), 80))
	case len(s.Description) > maxDescription:
		return fmt.Errorf("description of %s is over %d bytes", s.Name, maxDescription)
	case len(s.InputSchemaJson) > maxSchema:
		return fmt.Errorf("schema of %s is over %d bytes", s.Name, maxSchema)
	case s.DefaultTimeoutMs < 0 || s.MaxTimeoutMs < 0:
		return fmt.Errorf("timeouts of %s are negative", s.Name)
	}
	var schema map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s.InputSchemaJson), &schema); err != nil {
		return fmt.Errorf("schema of %s is not a JSON object: %w", s.Name, err)
	}
	return nil
}

// list returns all tools by name. At the start of the supervisor it waits a little for the first ones, because a turn
// keeps the list it began with.
func (c *catalogue) list(ctx context.Context) ([]*toolv1.ToolSpec, error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	for {
		c.mu.Lock()
		wait, changed := c.unsettled(), c.changed
		specs := make([]*toolv1.ToolSpec, 0, len(c.offers))
		for _, o := range c.offers {
			if !o.blocked() {
				specs = append(specs, o.spec)
			}
		}
		c.mu.Unlock()
		if !wait || ctx.Err() != nil {
			slices.SortFunc(specs, func(a, b *toolv1.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
			return specs, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-c.hub.ctx.Done():
			return nil, errClosing
		}
	}
}

// unsettled says that tools may appear that are not known yet. c.mu must be held.
func (c *catalogue) unsettled() bool {
	for _, w := range c.workers {
		if w.attached && !w.described {
			return true
		}
	}
	for _, o := range c.offers {
		if o.worker.guest == nil {
			return false
		}
	}
	return c.hub.now().Sub(c.since) < toolsWait
}

// lookup returns what is known of a tool, nil if nothing.
func (c *catalogue) lookup(tool string) *toolv1.ToolSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.offers[tool]; o != nil {
		return o.spec
	}
	return nil
}

var (
	errNoTool     = fmt.Errorf("there is no such tool: %w", ipc.ErrNotFound)
	errToolsAway  = fmt.Errorf("its worker is not running: %w", ipc.ErrGone)
	errToolsStuck = fmt.Errorf("its worker does not say what it offers: %w", ipc.ErrGone)
)

// A hold keeps a worker busy with a call.
type hold struct {
	spec   *toolv1.ToolSpec
	client toolv1.ToolClient
	worker string
	// builtin says that the worker is ours: it refuses a call only because it drains.
	builtin bool
	guest   *Guest // nil for what comes with the system
	give    func()
}

// acquire returns the worker of a tool, waiting for one that is being restarted.
func (c *catalogue) acquire(ctx context.Context, tool string) (*hold, error) {
	limit := time.NewTimer(toolsWait)
	defer limit.Stop()
	q := &waiting{}
	defer c.leave(q)
	for {
		h, changed, err := c.try(tool, q)
		if h != nil || err != nil {
			return h, err
		}
		select {
		case <-changed:
		case <-limit.C:
			q.late = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try is one look of acquire. Without a result the caller waits for changed.
func (c *catalogue) try(tool string, q *waiting) (*hold, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.offers[tool]
	switch {
	case o != nil && o.blocked():
		return nil, nil, &guestError{o.worker.guest.Blocked, ipc.ErrRefused}
	case o != nil && o.worker.attached && o.worker.described:
		if ok, err := c.admit(o.worker, q); !ok {
			return nil, c.changed, err
		}
		return c.hold(o), nil, nil
	case o == nil && len(c.offers) > 0 && (q.late || !c.unsettled() && c.allBack()):
		return nil, nil, errNoTool
	case o == nil && q.late:
		return nil, nil, errToolsAway
	case q.late && o.worker.attached:
		return nil, nil, errToolsStuck
	case q.late:
		return nil, nil, o.worker.away()
	}
	if o != nil && o.worker.guest != nil {
		o.worker.guest.Wake()
	}
	return nil, c.changed, nil
}

// hold makes the worker of an offer busy with one more call. c.mu must be held.
func (c *catalogue) hold(o *offer) *hold {
	w := o.worker
	w.calls++
	return &hold{spec: o.spec, client: w.client, worker: w.name, builtin: w.builtin, guest: w.guest, give: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		w.calls--
		w.used = c.hub.now()
		if w.guest != nil {
			c.notify() // another may have waited for it
		}
	}}
}

// allBack says that no worker may be about to come back with tools of its own. c.mu must be held.
func (c *catalogue) allBack() bool {
	if c.hub.now().Sub(c.since) < toolsWait {
		return false // others may not have come yet for the first time
	}
	for _, w := range c.workers {
		if !w.attached && c.keeps(w) {
			return false
		}
	}
	return true
}

// names returns the tools that can be called, for a model that asked for another.
func (c *catalogue) names() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.offered(), ", ")
}

func (c *catalogue) busy(worker string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[worker]; w != nil {
		return w.calls
	}
	return 0
}

// deadlineOf is how long Invoke of a tool may take.
func deadlineOf(s *toolv1.ToolSpec) time.Duration {
	if s.MaxTimeoutMs == 0 {
		return defaultInvoke
	}
	return time.Duration(min(s.MaxTimeoutMs, longestInvoke.Milliseconds())) * time.Millisecond
}
