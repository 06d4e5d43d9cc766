package turn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// A Guest is a tool plugin as the hub knows it. Its tools are what it declared when it was added, so they are there
// whether or not its process runs, and a process that describes itself in another way changes nothing.
type Guest struct {
	Plugin string             // its name, for people
	Worker string             // whose process serves its calls
	Tools  []*toolv1.ToolSpec // as declared
	// Blocked says why its tools are not to be had (disabled, quarantined). Empty: they are.
	Blocked string
	// Calls run side by side, Queue more wait, the rest is refused as busy. Both are positive.
	Calls, Queue int
	// Wake starts its process if it rests. It must not block.
	Wake func()
	// Why says what is wrong with its process, empty if nothing is known. It must not block.
	Why func() string
	// Died says how its process ended last, empty if it has not. It must not block.
	Died func() string
	// Spill returns the path of a file with a whole output as others can read it, empty if the plugin may not name it.
	Spill func(path string) string
}

// Host takes a plugin in, or replaces what was known of it. Calls that run go on with the process that they were given.
// A tool that somebody else offers is left out; the error says which, and whose it is.
func (h *Hub) Host(g Guest) error { return h.tools.host(g) }

// Dismiss forgets a plugin. Calls that run go on.
func (h *Hub) Dismiss(plugin string) { h.tools.dismiss(plugin) }

// Retire takes the process of a plugin out of service if it has had no call for that long, and says whether it did. The
// next call wakes it.
func (h *Hub) Retire(worker string, idle time.Duration) bool { return h.tools.retire(worker, idle) }

func (c *catalogue) host(g Guest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.worker(g.Worker)
	for _, old := range c.workers {
		if old != w && old.guest != nil && old.guest.Plugin == g.Plugin {
			c.drop(old, nil)
			old.guest = nil
		}
	}
	w.guest, w.described = &g, true
	mine := map[string]bool{}
	var problems []error
	for _, s := range g.Tools {
		if err := checkSpec(s); err != nil {
			problems = append(problems, err)
			continue
		}
		if o := c.offers[s.Name]; o != nil && o.worker != w {
			problems = append(problems, c.clash(s.Name, o.worker, w))
			continue
		}
		mine[s.Name] = true
		c.offers[s.Name] = &offer{spec: s, worker: w}
	}
	c.drop(w, mine)
	c.notify()
	return errors.Join(problems...)
}

// server returns whose process serves a tool, with the plugin if it is of one.
func (c *catalogue) server(tool string) (worker string, guest *Guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.offers[tool]; o != nil {
		return o.worker.name, o.worker.guest
	}
	return "", nil
}

// clash records that two workers offer a tool, and returns it as an error. c.mu must be held.
func (c *catalogue) clash(tool string, owner, other *toolWorker) error {
	text := fmt.Sprintf("tool %s is offered by %s and by %s; %s keeps it", tool, owner.name, other.name, owner.name)
	c.hub.event("tool_clash", other.name, "", text, map[string]string{"tool": tool, "owner": owner.name, "other": other.name})
	return fmt.Errorf("%s: %w", text, ipc.ErrExists)
}

// worker returns what is known of a worker by name. c.mu must be held.
func (c *catalogue) worker(name string) *toolWorker {
	w := c.workers[name]
	if w == nil {
		w = &toolWorker{name: name}
		c.workers[name] = w
	}
	return w
}

// drop takes a worker's offers away but for those to keep. c.mu must be held.
func (c *catalogue) drop(w *toolWorker, keep map[string]bool) {
	for name, o := range c.offers {
		if o.worker == w && !keep[name] {
			delete(c.offers, name)
		}
	}
}

func (c *catalogue) dismiss(plugin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, w := range c.workers {
		if w.guest == nil || w.guest.Plugin != plugin {
			continue
		}
		c.drop(w, nil)
		w.guest = nil
		if !w.attached && w.calls == 0 {
			delete(c.workers, name)
		}
	}
	c.notify()
}

func (c *catalogue) retire(worker string, idle time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[worker]
	now := c.hub.now()
	if w == nil || w.guest == nil || !w.attached || w.calls > 0 || w.waiting > 0 || now.Sub(w.used) < idle {
		return false
	}
	w.attached, w.left = false, now
	c.notify()
	return true
}

// A guestError says why a call of a plugin's tool was not made. Nothing happened.
type guestError struct {
	text string
	kind error
}

func (e *guestError) Error() string { return e.text }
func (e *guestError) Unwrap() error { return e.kind }

// admit decides about one more call of a plugin. It returns no error and false for a call that has to wait. c.mu must be
// held.
func (c *catalogue) admit(w *toolWorker, q *waiting) (bool, error) {
	g := w.guest
	switch {
	case g == nil:
		return true, nil
	case w.calls < g.Calls:
		return true, nil
	case q.in == w && !q.late:
		return false, nil
	case q.in == nil && w.waiting < g.Queue:
		q.in = w
		w.waiting++
		return false, nil
	}
	return false, &guestError{fmt.Sprintf("plugin %s is busy: %d calls run and %d wait; try again later", g.Plugin, w.calls, w.waiting), ipc.ErrBusy}
}

// away is what is said of a plugin whose process did not come.
func (w *toolWorker) away() error {
	if w.guest == nil {
		return errToolsAway
	}
	text := "plugin " + w.guest.Plugin + " did not start"
	if why := w.guest.Why(); why != "" {
		text += ": " + why
	}
	return &guestError{text, ipc.ErrGone}
}

// A waiting is one call that waits for its tool.
type waiting struct {
	late bool        // it has waited enough
	in   *toolWorker // in whose queue it is
}

// leave takes a call out of its queue.
func (c *catalogue) leave(q *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.in != nil {
		q.in.waiting--
		q.in = nil
	}
}

// taken is a result as the supervisor hands it on: bounded, and naming no file of a plugin's choice.
func (c *call) taken(h *hold, r *toolv1.Result) *toolv1.Result {
	res := capResult(r)
	if h.guest == nil || r == nil {
		return res
	}
	if res.SpillPath != "" {
		res.SpillPath = h.guest.Spill(res.SpillPath)
	}
	if res.SpillPath == "" && len(r.Content) > maxResult && c.hub.cfg.Spill != nil {
		if path, err := c.hub.cfg.Spill(c.req.tool, r.Content); err == nil {
			res.SpillPath = path
			res.Content += "\n[the whole of it is in " + path + "]"
		}
	}
	return res
}

// tellOfFailure puts on the timeline that the effect of a call is unknown, or that a plugin's call failed. That it was
// asked for the wrong thing, or stopped by a person, is no fault of the plugin.
func (c *call) tellOfFailure(row store.Call, e *toolv1.ToolError) {
	worker, plugin := "", false
	if c.last != nil {
		worker, plugin = c.last.worker, c.last.guest != nil
	}
	kind := ""
	switch e.Kind {
	case toolv1.ToolError_KIND_UNKNOWN_EFFECT:
		kind = "call_unknown"
	case toolv1.ToolError_KIND_FAILED, toolv1.ToolError_KIND_TIMEOUT, toolv1.ToolError_KIND_PANIC:
		if plugin {
			kind = "call_failed"
		}
	}
	if kind == "" {
		return
	}
	why := strings.ToLower(strings.TrimPrefix(e.Kind.String(), "KIND_"))
	c.hub.event(kind, worker, c.live.id, oneLine(e.Message, maxTold), map[string]string{"tool": row.Tool, "call": row.CallID, "why": why})
}

// maxTold bounds what the timeline tells of one call.
const maxTold = 500

// outOfProtocol says in words what gRPC says of a message that it could not take; empty for any other error. What gRPC
// finds itself, at this end, begins with its name.
func outOfProtocol(plugin string, err error) string {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "grpc: received message larger than max"):
		return fmt.Sprintf("Plugin %s sent a message larger than max, which is %d MiB: a larger output belongs into a file", plugin, ipc.MaxMessageBytes>>20)
	case strings.HasPrefix(text, "grpc: "):
		return fmt.Sprintf("Plugin %s sent what is not what the protocol says: %s", plugin, cut(text, maxToolError))
	}
	return ""
}

// blocked says whether an offer is not to be had.
func (o *offer) blocked() bool { return o.worker.guest != nil && o.worker.guest.Blocked != "" }

// offered returns the names of the tools that can be called, sorted. c.mu must be held.
func (c *catalogue) offered() []string {
	var names []string
	for n, o := range c.offers {
		if !o.blocked() {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}
