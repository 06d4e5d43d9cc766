package turn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

const (
	// callsAtOnce is how many calls of one turn run side by side, approvals included; more wait.
	callsAtOnce = 8
	// maxResult bounds what a model reads of one call; the whole output is in the tool's spill file.
	maxResult = 256 << 10
	// readAttempts is how often a read-only call is made if its worker dies each time: it may be what kills it. One of a plugin is
	// made pluginAttempts times, as each death brings that nearer to its quarantine.
	readAttempts   = 3
	pluginAttempts = 2
	maxSummary     = 200     // one line for a person
	maxProgress    = 4 << 10 // one line of progress
	// watched is how many lines of progress wait for an agent that does not read; more are dropped.
	watched = 16
)

// A callRequest is what an agent asks for.
type callRequest struct {
	id, tool, arguments string
	seq                 uint32
}

// A call is a tool call that runs. It belongs to the hub and not to the agent that asked for it: the agent may die, and
// its successor attaches by asking again under the same id.
type call struct {
	hub   *Hub
	live  *live
	req   callRequest
	fence uint64

	done    chan struct{} // closed when the end is stored
	result  *toolv1.Result
	err     error // the call has no result: the store failed, the lease is lost, the hub closes
	decided chan store.Approval
	unheard chan struct{} // its question may have been answered without a word of it

	began time.Time
	shown bool  // followers were told
	last  *hold // whose process it was given to last, nil for none

	mu       sync.Mutex
	watchers map[chan string]struct{}
}

// call makes a tool call of a running turn, or attaches to it if it runs, and sends progress and its result.
func (h *Hub) call(ctx context.Context, l *live, ls *lease, req callRequest, progress func(string) error) (*toolv1.Result, error) {
	for {
		c, err := h.startCall(l, ls, req)
		if err != nil {
			return nil, err
		}
		res, err := h.attend(ctx, c, ls, progress)
		if c.fence != ls.fence && ls.ctx.Err() == nil && errors.Is(err, ipc.ErrLeaseLost) {
			continue // begun under the lease before, which was lost before the intent was stored
		}
		return res, err
	}
}

// attend stays with a call until it ends, or its agent may no longer see that.
func (h *Hub) attend(ctx context.Context, c *call, ls *lease, progress func(string) error) (*toolv1.Result, error) {
	lines, leave := c.watch()
	defer leave()
	for {
		select {
		case line := <-lines:
			if err := progress(line); err != nil {
				return nil, err
			}
		case <-c.done:
			return c.result, c.err
		case <-ls.ctx.Done():
			return nil, fmt.Errorf("turn %s: %w", c.live.id, errNotHeld)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *Hub) startCall(l *live, ls *lease, req callRequest) (*call, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosing
	}
	if c := l.calls[req.id]; c != nil {
		if c.req != req {
			return nil, errOtherCall(req.id)
		}
		return c, nil
	}
	c := &call{
		hub: h, live: l, req: req, fence: ls.fence, began: h.now(),
		done: make(chan struct{}), decided: make(chan store.Approval, 1), unheard: make(chan struct{}, 1), watchers: map[chan string]struct{}{},
	}
	l.calls[req.id] = c
	h.spawn("call "+c.req.id+" of turn "+l.id, c.run, nil)
	return c, nil
}

func errOtherCall(id string) error {
	return fmt.Errorf("call id %q names another call of this turn: %w", id, ipc.ErrInvalid)
}

// run makes the call to its end.
func (c *call) run() {
	defer func() {
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		delete(c.live.calls, c.req.id) // a repeat is answered from the store from now on
		close(c.done)
	}()
	c.err = fmt.Errorf("call %s: %w", c.req.id, errPanicked) // if it comes to no other end
	c.result, c.err = c.make()
}

// make stores the intent and goes on from where an earlier attempt of this or another hub stopped.
func (c *call) make() (*toolv1.Result, error) {
	row, err := c.begin()
	if err != nil {
		if c.live.ctx.Err() != nil {
			return c.cancelled()
		}
		return nil, err
	}
	switch {
	case row.Tool != c.req.tool || row.Arguments != c.req.arguments || row.Seq != c.req.seq:
		return nil, errOtherCall(c.req.id)
	case row.State == store.CallDone || row.State == store.CallUnknown:
		return storedResult(row), nil
	case row.State == store.CallRunning && !row.ReadOnly:
		return c.settle(row, unknownResult(row.Tool, "the supervisor ended while it ran"))
	case row.State == store.CallRunning && c.madeEnough(row):
		return c.settle(row, c.tooDeadly(row))
	}
	select {
	case c.live.slots <- struct{}{}:
		defer func() { <-c.live.slots }()
	case <-c.live.ctx.Done():
		return c.end(row, nil, nil)
	}
	if row.State != store.CallRunning {
		if res, err := c.permit(&row); res != nil || err != nil {
			return c.end(row, res, err)
		}
	}
	res, err := c.perform(&row)
	return c.end(row, res, err)
}

// begin stores the intent, or finds the call as it was left.
func (c *call) begin() (row store.Call, err error) {
	intent := store.Call{
		TurnID: c.live.id, CallID: c.req.id, Seq: c.req.seq, Tool: c.req.tool, Arguments: c.req.arguments,
		State: store.CallIntent, ReadOnly: c.hub.tools.lookup(c.req.tool).GetReadOnly(),
	}
	err = c.hub.persist(c.live.ctx, "begin call", func(ctx context.Context) (err error) {
		row, _, err = c.hub.store.BeginCall(ctx, c.fence, intent)
		return err
	})
	return row, wrap(err, "begin call %s of turn %s", c.req.id, c.live.id)
}

// end stores how the call ended, unless it did not: then its row stays for the next hub to judge.
func (c *call) end(row store.Call, res *toolv1.Result, err error) (*toolv1.Result, error) {
	switch {
	case c.hub.ctx.Err() != nil:
		return nil, errClosing
	case c.live.ctx.Err() != nil && res == nil:
		res, _ = c.cancelled()
	case err != nil:
		return nil, err
	}
	return c.settle(row, res)
}

// cancelled is the result of a call that was stopped with its turn.
func (c *call) cancelled() (*toolv1.Result, error) {
	if c.hub.ctx.Err() != nil {
		return nil, errClosing
	}
	return failure(toolv1.ToolError_KIND_CANCELLED, "The call was cancelled because the turn was interrupted; what it had started was stopped."), nil
}

// settle stores the result, shows that the call ended, and returns the result.
func (c *call) settle(row store.Call, res *toolv1.Result) (*toolv1.Result, error) {
	row.State, row.Result, row.SpillPath = store.CallDone, res.Content, res.SpillPath
	if res.Error != nil {
		row.ErrorKind, row.Error = res.Error.Kind.String(), res.Error.Message
		if res.Error.Kind == toolv1.ToolError_KIND_UNKNOWN_EFFECT {
			row.State = store.CallUnknown
		}
		c.tellOfFailure(row, res.Error)
	}
	if err := c.save(row); err != nil {
		return nil, err
	}
	c.show("")
	c.live.feed.toolFinished(&turnv1.ToolFinished{
		CallId: c.req.id, Tool: c.req.tool, Ok: res.Error == nil, DurationMs: c.hub.now().Sub(c.began).Milliseconds(),
	})
	return res, nil
}

func (c *call) save(row store.Call) error {
	err := c.hub.persist(c.hub.ctx, "store call", func(ctx context.Context) error { return c.hub.store.SetCall(ctx, row) })
	return wrap(err, "store call %s of turn %s", row.CallID, row.TurnID)
}

// show tells followers, once, that the call has begun.
func (c *call) show(summary string) {
	if c.shown {
		return
	}
	c.shown = true
	if summary == "" {
		summary = summaryOf(c.req.arguments)
	}
	c.live.feed.toolStarted(&turnv1.ToolStarted{CallId: c.req.id, Tool: c.req.tool, Summary: oneLine(summary, maxSummary)})
}

func summaryOf(arguments string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(arguments)) == nil {
		return b.String()
	}
	return arguments
}

// watch returns the lines of progress from now on. Lines are dropped for a watcher that does not read.
func (c *call) watch() (lines <-chan string, leave func()) {
	ch := make(chan string, watched)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[ch] = struct{}{}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, ch)
	}
}

func (c *call) progress(line string) {
	line = cut(line, maxProgress)
	c.live.feed.toolProgress(c.req.id, line)
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.watchers {
		select {
		case ch <- line:
		default:
		}
	}
}

// storedResult is the result of a call that ended before.
func storedResult(row store.Call) *toolv1.Result {
	res := &toolv1.Result{Content: row.Result, SpillPath: row.SpillPath}
	if row.ErrorKind != "" {
		res.Error = &toolv1.ToolError{Kind: toolv1.ToolError_Kind(toolv1.ToolError_Kind_value[row.ErrorKind]), Message: row.Error}
	}
	return res
}

// failure is a result that is an error: the model reads the same text as the person.
func failure(kind toolv1.ToolError_Kind, text string) *toolv1.Result {
	return &toolv1.Result{Content: text, Error: &toolv1.ToolError{Kind: kind, Message: text}}
}

func unknownResult(tool, why string) *toolv1.Result {
	return failure(toolv1.ToolError_KIND_UNKNOWN_EFFECT, unknownText(tool, why))
}

func unknownText(tool, why string) string {
	return fmt.Sprintf("It is unknown whether this call of %s had its effect: %s. It was not repeated. "+
		"Look at the present state before you decide whether to do it again.", tool, why)
}

// madeEnough says that a read-only call is not made again.
func (c *call) madeEnough(row store.Call) bool {
	if _, guest := c.hub.tools.server(row.Tool); guest != nil {
		return row.Attempt >= pluginAttempts
	}
	return row.Attempt >= readAttempts
}

func (c *call) tooDeadly(row store.Call) *toolv1.Result {
	who := "its worker"
	worker, guest := c.hub.tools.server(row.Tool)
	switch {
	case guest != nil:
		who = "plugin " + guest.Plugin
	case worker != "":
		who += " " + worker
	}
	text := fmt.Sprintf("The call of %s was made %d times and %s ended each time. It is not tried again.", row.Tool, row.Attempt, who)
	if guest != nil && guest.Died != nil {
		// Of its newest death it may not be known yet.
		if why := guest.Died(); why != "" {
			text += " What is known of its end: " + oneLine(why, maxSummary)
		}
	}
	return failure(toolv1.ToolError_KIND_FAILED, text)
}

// unavailable is the result of a call whose tool is not to be had.
func (c *call) unavailable(err error) *toolv1.Result {
	if errors.Is(err, ipc.ErrNotFound) {
		return failure(toolv1.ToolError_KIND_BAD_ARGUMENTS, fmt.Sprintf("There is no tool %q. The tools are: %s.", cut(c.req.tool, maxID), c.hub.tools.names()))
	}
	if guest := (*guestError)(nil); errors.As(err, &guest) {
		return failure(toolv1.ToolError_KIND_FAILED, fmt.Sprintf("The call of %s was not made: %v.", c.req.tool, err))
	}
	return failure(toolv1.ToolError_KIND_FAILED, fmt.Sprintf("The call of %s was not made: %v. It was waited for %v.", c.req.tool, err, toolsWait))
}
