package config

import (
	"math"
	"time"
)

// DefaultPlugin is the name under supervisor.plugins whose values hold for all plugins that have none of their own.
const DefaultPlugin = "default"

// A Plugin says how the supervisor runs a tool plugin.
type Plugin struct {
	Idle  time.Duration // without a call, until its process is ended; it is started again by the next one
	Calls int           // side by side
	Queue int           // that wait for them
	// Processes and threads that it may have, with those below it: one that has more is ended.
	Processes int
	User      string         // it runs as; empty: as the supervisor
	Settings  map[string]any // its own
}

const (
	// A start costs some 60 ms of processor time, an idle process some 12 MiB: ten minutes outlive a conversation.
	defaultPluginIdle = 10 * time.Minute
	// As many as one turn makes at once.
	defaultPluginCalls = 8
	// Four times that wait, each at most for the time that a call waits for its tool anyway.
	defaultPluginQueue = 32
	// A Python interpreter with gRPC has some thirty, a Go program a dozen; a browser that is driven has a few hundred.
	defaultPluginProcesses = 512
)

// PluginFor returns how a plugin is run, field by field: what is set for it, else for all, else the defaults.
func (s *Supervisor) PluginFor(name string) Plugin {
	p := Plugin{Idle: defaultPluginIdle, Calls: defaultPluginCalls, Queue: defaultPluginQueue, Processes: defaultPluginProcesses}
	for _, key := range []string{DefaultPlugin, name} {
		own := s.Plugins[key]
		if own.Idle != 0 {
			p.Idle = own.Idle
		}
		if own.Calls != 0 {
			p.Calls = own.Calls
		}
		if own.Queue != 0 {
			p.Queue = own.Queue
		}
		if own.Processes != 0 {
			p.Processes = own.Processes
		}
		if own.User != "" {
			p.User = own.User
		}
		if own.Settings != nil {
			p.Settings = own.Settings
		}
	}
	return p
}

// PluginWorker is the name of a plugin's worker, as under supervisor.workers.
func PluginWorker(plugin string) string { return pluginWorker + plugin }

const pluginWorker = "plugin-"

func (c *Config) readPlugins(s *section) {
	if s == nil {
		return
	}
	c.Supervisor.Plugins = map[string]Plugin{}
	for _, e := range s.list {
		s.asked = append(s.asked, e.key)
		var p Plugin
		if sub := s.sub(e); sub != nil {
			sub.duration("idle", &p.Idle, time.Second, 365*24*time.Hour)
			sub.integer("calls", &p.Calls, 1, 1000)
			sub.integer("queue", &p.Queue, 1, math.MaxInt32)
			sub.integer("processes", &p.Processes, 16, 1<<20)
			sub.text("user", &p.User)
			table := map[string]any{}
			if sub.settings([]string{"settings"}, table); table["settings"] != nil {
				if p.Settings, _ = table["settings"].(map[string]any); p.Settings == nil {
					s.r.problem(e.line, s.key(e.key)+".settings", "is not a table of keys (key: value)")
				}
			}
			sub.refuseRest()
		}
		c.Supervisor.Plugins[e.key] = p
	}
}
