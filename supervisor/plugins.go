package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/turn"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// Kinds of journal entries about plugins.
const (
	kindPluginAdded       = "plugin_added"
	kindPluginRemoved     = "plugin_removed"
	kindPluginEnabled     = "plugin_enabled"
	kindPluginDisabled    = "plugin_disabled"
	kindPluginQuarantined = "plugin_quarantined"
)

const (
	// removeBudget bounds how long a change waits for the end of an old process, which goes on after it.
	removeBudget = 2 * time.Minute
	// quickEnd is what a process with nothing to do gets to end before its successor is made beside it.
	quickEnd = 5 * time.Second
	// settleLook is how often a process that is to go is looked at for calls.
	settleLook = 50 * time.Millisecond
)

// A pluginHost runs the plugins of the catalogue: each as a lazy worker of the fleet, known to the hub with the tools
// that it declared. It is safe for concurrent use; changes are made one after the other.
type pluginHost struct {
	cat    *catalogue.Catalogue
	broken error // why the catalogue cannot be used
	config *config.Config
	fleet  *fleet
	hub    *turn.Hub
	log    hclog.Logger
	record func(store.Event)
	shut   []string // folders that no grant opens

	confine string // path of the program that shuts plugins in, empty if it is missing
	missing error  // why

	idle    chan struct{} // a plugin may be put to rest
	changes sync.Mutex    // held during a change
	work    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	guests map[string]*guest     // by plugin
	owners map[string]string     // plugin by worker, old workers among them
	notes  map[string]*watchNote // by worker
}

// A guest is a plugin that may run.
type guest struct {
	entry    catalogue.Entry
	worker   string
	problems string // tools that it lost to others
}

// newPluginHost returns a host that knows of no plugin yet.
func (s *supervisor) newPluginHost(cat *catalogue.Catalogue, broken error) *pluginHost {
	if broken != nil {
		s.log.Error("no plugin is run", "error", broken)
		s.o.Config.Warnings = append(s.o.Config.Warnings, "no plugin is run: "+broken.Error())
	}
	h := &pluginHost{
		cat: cat, broken: broken, config: s.o.Config, hub: s.hub, log: s.log.Named("plugins"), record: s.journal.Record,
		shut:   []string{s.o.Config.Home, s.o.RunDir},
		guests: map[string]*guest{}, owners: map[string]string{}, notes: map[string]*watchNote{}, idle: make(chan struct{}, 1),
	}
	h.confine, h.missing = FindBinary(confineName, s.o.Config.Supervisor.Libexec)
	return h
}

// begin takes in all plugins of the catalogue. Nothing is started.
func (h *pluginHost) begin(f *fleet) {
	h.fleet = f
	if h.broken != nil {
		return
	}
	h.changes.Lock()
	defer h.changes.Unlock()
	for _, e := range h.cat.List() {
		if _, err := h.cat.TakeTemp(e.Name); err != nil { // of a supervisor that was killed
			h.log.Warn("temporary files of a plugin stay", "plugin", e.Name, "error", err)
		}
		if err := h.take(e); err != nil {
			h.log.Error("a plugin cannot be taken in", "plugin", e.Name, "error", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spawn(h.sweepTemp)
}

// beat is called after each round of samples. Where no plugin serves it wakes nobody.
func (h *pluginHost) beat(time.Time) {
	h.mu.Lock()
	var workers []string
	for _, g := range h.guests {
		workers = append(workers, g.worker)
	}
	h.mu.Unlock()
	if slices.ContainsFunc(workers, h.serves) {
		select {
		case h.idle <- struct{}{}:
		default:
		}
	}
}

func (h *pluginHost) serves(name string) bool {
	m, err := h.fleet.member(name)
	return err == nil && m.State() == worker.Ready
}

// run looks at the plugins, until ctx ends, and then waits for what it has under way.
func (h *pluginHost) run(ctx context.Context) {
	defer h.finish()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.idle:
			h.look(time.Now())
		}
	}
}

// finish waits for what is under way and begins nothing any more.
func (h *pluginHost) finish() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.work.Wait()
}

// spawn runs f as part of the host, unless that ends. h.mu must be held.
func (h *pluginHost) spawn(f func()) {
	if !h.closed {
		h.work.Go(f)
	}
}

// take makes a plugin known to the hub and, if it is enabled, to the fleet. h.changes must be held.
func (h *pluginHost) take(e catalogue.Entry) error {
	name := h.freeWorker(e.Name)
	g := &guest{entry: e, worker: name}
	if e.State == catalogue.Enabled {
		spec, err := h.spec(e, name)
		if err != nil {
			return err
		}
		if err := h.fleet.add(spec); err != nil {
			return err
		}
	}
	h.mu.Lock()
	h.guests[e.Name], h.owners[name] = g, e.Name
	h.mu.Unlock()
	if err := h.hub.Host(h.known(e, name)); err != nil {
		h.mu.Lock()
		g.problems = err.Error()
		h.mu.Unlock()
		h.log.Warn("tools of a plugin are not offered", "plugin", e.Name, "error", err)
	}
	return nil
}

// freeWorker is the name of a plugin's next worker. The old one of an upgrade keeps its name until its calls have ended.
func (h *pluginHost) freeWorker(plugin string) string {
	name := config.PluginWorker(plugin)
	for n := 2; ; n++ {
		if _, err := h.fleet.member(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", config.PluginWorker(plugin), n)
	}
}

// known is what the hub is told of a plugin.
func (h *pluginHost) known(e catalogue.Entry, name string) turn.Guest {
	set := h.config.Supervisor.PluginFor(e.Name)
	g := turn.Guest{
		Plugin: e.Name, Worker: name, Tools: specsOf(e.Tools), Calls: set.Calls, Queue: set.Queue,
		Wake: func() {
			if m, err := h.fleet.member(name); err == nil {
				m.Wake()
			}
		},
		Why: func() string {
			m, err := h.fleet.member(name)
			if err != nil {
				return "it has no worker"
			}
			return whyAway(m.Status())
		},
		Died: func() string {
			m, err := h.fleet.member(name)
			if err != nil {
				return ""
			}
			return m.Status().LastExit.GetMessage()
		},
		Spill: h.spillOf(e.Name, set.User != ""),
	}
	if e.State != catalogue.Enabled {
		g.Blocked = fmt.Sprintf("plugin %s is %s", e.Name, e.State)
		if e.Reason != "" {
			g.Blocked += ": " + e.Reason
		}
	}
	return g
}

// whyAway says in what state a worker is that does not serve, and why.
func whyAway(st *controlv1.WorkerStatus) string {
	why := st.Detail
	if why == "" && st.LastExit != nil {
		return st.State + "; the last time " + st.LastExit.Message
	}
	return strings.TrimSpace(st.State + " " + why)
}

// leave ends the worker of a plugin in the background: calls that run go on until they end or the drain does.
func (h *pluginHost) leave(g *guest, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeBudget)
		defer cancel()
		h.settle(ctx, g.worker)
		if err := h.fleet.remove(ctx, g.worker, why); err != nil {
			h.log.Debug("the worker of a plugin has no end to wait for", "worker", g.worker, "error", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if now := h.guests[g.entry.Name]; now == nil || now.worker != g.worker {
			delete(h.owners, g.worker)
		}
	})
}

// settle waits until no call runs in a worker that gets none any more, for as long as a drain may take. What a plugin answers
// to its own drain is not enough: one without the SDK may answer at once.
func (h *pluginHost) settle(ctx context.Context, workerName string) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Supervisor.DrainTimeout)
	defer cancel()
	look := time.NewTicker(settleLook)
	defer look.Stop()
	for h.hub.Busy(workerName) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// put adds a plugin or replaces it.
func (h *pluginHost) put(e catalogue.Entry) error {
	if h.broken != nil {
		return h.broken
	}
	h.changes.Lock()
	defer h.changes.Unlock()
	if err := h.cat.Put(e); err != nil {
		return err
	}
	h.event(kindPluginAdded, e, fmt.Sprintf("version %s, sha256 %s, granted: %s", e.Version, e.SHA256, said(e.Granted)))
	return h.replace(e, "plugin "+e.Name+" was added again")
}

// replace exchanges what runs of a plugin; why says what for. h.changes must be held.
func (h *pluginHost) replace(e catalogue.Entry, why string) error {
	h.mu.Lock()
	old := h.guests[e.Name]
	h.mu.Unlock()
	if old != nil && h.free(old) {
		// Nothing runs in it: its successor gets its name.
		ctx, cancel := context.WithTimeout(context.Background(), quickEnd)
		_ = h.fleet.remove(ctx, old.worker, why) // what it did not reach goes on, and the name is another's
		cancel()
	}
	if err := h.take(e); err != nil {
		return err
	}
	h.mu.Lock()
	same := old == nil || h.guests[e.Name].worker == old.worker
	h.mu.Unlock()
	if !same {
		h.leave(old, why)
	}
	return nil
}

// free says whether a plugin's process has nothing to do, and gives it nothing any more if so.
func (h *pluginHost) free(g *guest) bool {
	m, err := h.fleet.member(g.worker)
	return err == nil && (m.State() != worker.Ready || h.hub.Retire(g.worker, 0))
}

// remove takes a plugin out and returns when its process is gone.
func (h *pluginHost) remove(ctx context.Context, name string, data bool) error {
	if h.broken != nil {
		return h.broken
	}
	h.changes.Lock()
	defer h.changes.Unlock()
	e, err := h.cat.Get(name)
	if err != nil {
		return err
	}
	h.mu.Lock()
	g := h.guests[name]
	delete(h.guests, name)
	h.mu.Unlock()
	h.hub.Dismiss(name)
	if g != nil {
		h.settle(ctx, g.worker)
		if err := h.fleet.remove(ctx, g.worker, "plugin "+name+" was removed"); err != nil && ctx.Err() != nil {
			return err
		}
		h.mu.Lock()
		delete(h.owners, g.worker)
		h.mu.Unlock()
	}
	if err := h.cat.Remove(name, data); err != nil {
		return errors.Join(err, h.take(e)) // it is there still, and what is there can be enabled, disabled and called
	}
	h.event(kindPluginRemoved, e, "")
	return nil
}

// set enables or disables a plugin. Enabling one gives it its restarts back.
func (h *pluginHost) set(name, state string) error {
	if h.broken != nil {
		return h.broken
	}
	h.changes.Lock()
	defer h.changes.Unlock()
	before, err := h.cat.Get(name)
	if err != nil || before.State == state {
		return err
	}
	e, err := h.cat.SetState(name, state, "")
	if err != nil {
		return err
	}
	kind := kindPluginEnabled
	if state == catalogue.Disabled {
		kind = kindPluginDisabled
	}
	h.event(kind, e, "")
	return h.replace(e, "plugin "+name+" was "+state)
}

// watch sees every event of a worker and quarantines a plugin that is out of restarts or cannot
// start as it is. It does not block.
func (h *pluginHost) watch(e store.Event) {
	h.record(e)
	if e.Kind == worker.KindExited && h.broken == nil {
		h.clearTemp(e.Worker)
	}
	if e.Kind != worker.KindDegraded && e.Message != worker.CannotStart {
		return
	}
	// Later it may be on its way again, and have nothing to say.
	reason := e.Message
	if m, err := h.fleet.member(e.Worker); err == nil {
		reason = m.Status().Detail
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name, ok := h.owners[e.Worker]
	if g := h.guests[name]; !ok || g == nil || g.worker != e.Worker {
		return
	}
	h.spawn(func() { h.quarantine(name, e.Worker, reason) })
}

// quarantine keeps a plugin down until a person has looked at it.
func (h *pluginHost) quarantine(name, workerName, reason string) {
	h.changes.Lock()
	defer h.changes.Unlock()
	h.mu.Lock()
	g := h.guests[name]
	h.mu.Unlock()
	if g == nil || g.worker != workerName || g.entry.State != catalogue.Enabled {
		return // somebody was faster
	}
	e, err := h.cat.SetState(name, catalogue.Quarantined, reason)
	if err != nil {
		// It is quarantined all the same, until the supervisor ends.
		h.log.Error("a quarantine cannot be stored", "plugin", name, "error", err)
		e = g.entry
		e.State, e.Reason = catalogue.Quarantined, reason
	}
	h.event(kindPluginQuarantined, e, reason)
	h.log.Error("a plugin is quarantined; `plugins enable "+name+"` lets it run again", "plugin", name, "reason", reason)
	if err := h.replace(e, "plugin "+name+" was quarantined"); err != nil {
		h.log.Error("a quarantined plugin cannot be replaced", "plugin", name, "error", err)
	}
}

func (h *pluginHost) event(kind string, e catalogue.Entry, message string) {
	h.record(store.Event{Kind: kind, Worker: config.PluginWorker(e.Name), Message: message, Fields: map[string]string{
		"plugin": e.Name, "version": e.Version, "sha256": e.SHA256,
	}})
}

// enabledPlugins counts the plugins that may have a process.
func enabledPlugins(cat *catalogue.Catalogue) int {
	n := 0
	if cat == nil {
		return n
	}
	for _, e := range cat.List() {
		if e.State == catalogue.Enabled {
			n++
		}
	}
	return n
}

func said(p catalogue.Permissions) string {
	if p.None() {
		return "nothing"
	}
	return strings.Join(p.Words(), ", ")
}

// confined is the program that shuts plugins in.
func (h *pluginHost) confined() (string, error) {
	if h.missing != nil {
		return "", fmt.Errorf("plugins are not run in the open: %w: %w", h.missing, ipc.ErrRefused)
	}
	return h.confine, nil
}
