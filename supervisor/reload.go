package supervisor

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/event"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/turn"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// Effects of a change, as `ctl reload` shows them.
const (
	effectApplied   = "applied"
	effectAdded     = "worker_added"
	effectRemoved   = "worker_removed"
	effectRestarted = "worker_restarted"
	effectFailed    = "failed"
	// effectNeedsRestart is of what only a restart or the service manager can change.
	effectNeedsRestart = "needs_restart"
)

// Events of a reload.
const (
	kindReloaded      = "configuration_reloaded"
	kindReplaced      = "worker_replaced"
	kindReloadRefused = "configuration_refused"
)

// Reload reads the configuration again and applies it. A configuration that cannot be read changes nothing. It returns when
// every worker that it concerns has been replaced, one after the other and each after its turns, or when ctx ends: then the
// rest keeps its old settings until the next reload.
func (s *supervisor) Reload(ctx context.Context) ([]*controlv1.Change, error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.say(s.notify.Reloading("reloading the configuration"))
	defer func() { s.say(s.notify.Reloaded(s.statusLine())) }()
	next, list, err := s.read(ctx)
	if err != nil {
		s.log.Error("configuration not reloaded, the old one holds", "error", err)
		s.record(kindReloadRefused, "the old configuration holds: "+err.Error())
		return nil, err
	}
	before := s.config()
	changes := keyChanges(before, next)
	s.adopt(next)
	changes = append(changes, s.replaceWorkers(ctx, before, next, list)...)
	for _, misfit := range s.misfits() {
		changes = append(changes, &controlv1.Change{What: "unit", Detail: misfit, Effect: effectNeedsRestart})
	}
	s.record(kindReloaded, wording.Count(len(changes), "change", "changes"))
	for _, c := range changes {
		s.log.Info("configuration changed", "what", c.What, "detail", c.Detail, "effect", c.Effect)
	}
	return changes, nil
}

// read loads the new configuration and what workers it asks for.
func (s *supervisor) read(ctx context.Context) (*config.Config, []worker.Spec, error) {
	next, err := s.o.Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, err := specs(next)
	if err == nil {
		err = s.roomFor(list)
	}
	return next, list, err
}

// roomFor refuses, as a start does, more workers than the limit of open files is enough for.
func (s *supervisor) roomFor(list []worker.Spec) error {
	if now, err := specs(s.config()); err == nil && len(list) <= len(now) {
		return nil
	}
	limit, err := s.openFiles()
	if err != nil {
		return err
	}
	return enoughDescriptors(limit, len(list)+enabledPlugins(s.plugins.cat))
}

// adopt makes a configuration the one in force for all that asks for it when it needs it.
func (s *supervisor) adopt(c *config.Config) {
	s.current.Store(c)
	s.secrets.add(c.Secrets.Values())
	s.book.SetLevel(hclog.LevelFromString(c.Supervisor.LogLevel))
	s.hub.Adjust(approvalPolicy(c), c.Supervisor.TurnsPerAgent, platforms(c))
	s.adapters.keep(c.EnabledAdapters())
}

// platforms are where chats can be.
func platforms(c *config.Config) []string {
	return append([]string{turn.PlatformTerminal}, c.EnabledAdapters()...)
}

func approvalPolicy(c *config.Config) turn.ApprovalPolicy {
	return turn.ApprovalPolicy{Manual: c.Approvals.Mode == config.ApprovalsManual, Timeout: c.Approvals.Timeout}
}

// atStart are the keys that are only looked at when the supervisor starts.
var atStart = []string{"supervisor.total_memory", "supervisor.plugins"}

// keyChanges lists what the file says differently.
func keyChanges(before, next *config.Config) []*controlv1.Change {
	var list []*controlv1.Change
	for _, c := range before.Changes(next) {
		detail := fmt.Sprintf("%s → %s", orNone(c.From), orNone(c.To))
		effect := effectApplied
		for _, key := range atStart {
			if c.Key == key || strings.HasPrefix(c.Key, key+".") {
				effect = effectNeedsRestart
			}
		}
		list = append(list, &controlv1.Change{What: c.Key, Detail: detail, Effect: effect})
	}
	return list
}

func orNone(s string) string {
	if s == "" {
		return "not set"
	}
	return s
}

// replaceWorkers compares what the two configurations ask for. Workers that neither knows of (plugins) are left alone.
func (s *supervisor) replaceWorkers(ctx context.Context, before, next *config.Config, list []worker.Spec) []*controlv1.Change {
	old := map[string]worker.Spec{}
	was, err := specs(before)
	if err != nil { // its binaries are gone, but what it asked for is known
		was = s.fleet.specs()
	}
	for _, spec := range was {
		old[spec.Name] = spec
	}
	var changes []*controlv1.Change
	for _, spec := range list {
		known, there := old[spec.Name]
		delete(old, spec.Name)
		switch {
		case !there:
			changes = append(changes, s.bring(ctx, spec, effectAdded, s.fleet.add(spec)))
		case mustRestart(known, spec) || newSecret(before, next, spec.Secrets):
			changes = append(changes, s.replace(ctx, spec))
		default:
			s.fleet.tune(spec)
		}
	}
	for name := range old {
		c := &controlv1.Change{What: "worker " + name, Effect: effectRemoved}
		if err := s.fleet.remove(ctx, name, "the configuration asks for it no more"); err != nil {
			c.Effect, c.Detail = effectFailed, err.Error()
		} else {
			s.journal.Record(store.Event{Kind: event.KindWorkerRemoved, Worker: name, Message: "the configuration asks for it no more"})
		}
		changes = append(changes, c)
	}
	return changes
}

// mustRestart says whether two specs differ in what a process is given at its start.
func mustRestart(a, b worker.Spec) bool {
	a.Policy, a.Drain, a.HealthInterval = b.Policy, b.Drain, b.HealthInterval
	a.Required = b.Required
	return !reflect.DeepEqual(a, b)
}

// newSecret says whether a secret that a worker has asked for is another one now.
func newSecret(before, next *config.Config, names []string) bool {
	for _, name := range names {
		a, _ := before.Secrets.Lookup(name)
		if b, _ := next.Secrets.Lookup(name); a != b {
			return true
		}
	}
	return false
}

// replace ends a worker after what it runs, and starts it with its new settings.
func (s *supervisor) replace(ctx context.Context, spec worker.Spec) *controlv1.Change {
	s.journal.Record(store.Event{Kind: kindReplaced, Worker: spec.Name, Message: "its settings have changed; it ends after what it runs"})
	down, err := s.fleet.replace(ctx, spec, "its settings have changed")
	if down && err == nil {
		return &controlv1.Change{What: "worker " + spec.Name, Detail: "it was stopped by hand and stays so", Effect: effectApplied}
	}
	return s.bring(ctx, spec, effectRestarted, err)
}

// bring waits until a worker that was added to the fleet, unless with an error, serves or cannot.
func (s *supervisor) bring(ctx context.Context, spec worker.Spec, effect string, added error) *controlv1.Change {
	c := &controlv1.Change{What: "worker " + spec.Name, Effect: effect}
	if added != nil {
		c.Effect, c.Detail = effectFailed, added.Error()
		return c
	}
	m, err := s.fleet.member(spec.Name)
	if err != nil {
		return c // removed again since
	}
	waiting, cancel := context.WithTimeout(ctx, settleAfter)
	defer cancel()
	select {
	case <-m.Ready():
		return c
	case <-m.gone:
	case <-waiting.Done():
	}
	c.Effect, c.Detail = effectFailed, fmt.Sprintf("it is %s and does not serve after %v: %s", m.State(), settleAfter, m.Status().Detail)
	return c
}

// reloadOnRequest reloads whenever asked asks, until ctx ends. What is wrong is in the log and on the timeline.
func (s *supervisor) reloadOnRequest(ctx context.Context, asked <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			limited, cancel := context.WithTimeout(ctx, reloadBudget)
			_, _ = s.Reload(limited)
			cancel()
		}
	}
}

// reloadBudget bounds a reload that nobody waits for.
const reloadBudget = 15 * time.Minute
