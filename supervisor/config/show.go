package config

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/goccy/go-yaml"
)

// A document is the effective configuration under the names of config.yaml, without secrets.
type document struct {
	Home                string                    `json:"home" yaml:"home"`
	Model               modelDoc                  `json:"model" yaml:"model"`
	Agent               agentDoc                  `json:"agent" yaml:"agent"`
	Terminal            terminalDoc               `json:"terminal" yaml:"terminal"`
	ToolOutput          toolOutputDoc             `json:"tool_output" yaml:"tool_output"`
	Database            Database                  `json:"database" yaml:"database"`
	Memory              memoryDoc                 `json:"memory" yaml:"memory"`
	Approvals           approvalsDoc              `json:"approvals" yaml:"approvals"`
	FileReadMaxChars    int                       `json:"file_read_max_chars" yaml:"file_read_max_chars"`
	ContextFileMaxChars int                       `json:"context_file_max_chars" yaml:"context_file_max_chars"`
	Adapters            map[string]map[string]any `json:"adapters" yaml:"adapters"`
	Supervisor          supervisorDoc             `json:"supervisor" yaml:"supervisor"`
	Secrets             []string                  `json:"secrets_set" yaml:"secrets_set"`
}

type modelDoc struct {
	Provider string `json:"provider" yaml:"provider"`
	Default  string `json:"default,omitempty" yaml:"default,omitempty"`
	BaseURL  string `json:"base_url,omitempty" yaml:"base_url,omitempty"`
	Key      string `json:"api_key_from,omitempty" yaml:"api_key_from,omitempty"`
	Reason   string `json:"reason,omitempty" yaml:"reason,omitempty"`
}

type agentDoc struct {
	MaxTurns      int `json:"max_turns" yaml:"max_turns"`
	APIMaxRetries int `json:"api_max_retries" yaml:"api_max_retries"`
}

type terminalDoc struct {
	Cwd            string   `json:"cwd" yaml:"cwd"`
	Timeout        string   `json:"timeout" yaml:"timeout"`
	EnvPassthrough []string `json:"env_passthrough" yaml:"env_passthrough,flow"`
}

type toolOutputDoc struct {
	MaxBytes      int `json:"max_bytes" yaml:"max_bytes"`
	MaxLines      int `json:"max_lines" yaml:"max_lines"`
	MaxLineLength int `json:"max_line_length" yaml:"max_line_length"`
}

type memoryDoc struct {
	Enabled            bool `json:"memory_enabled" yaml:"memory_enabled"`
	UserProfileEnabled bool `json:"user_profile_enabled" yaml:"user_profile_enabled"`
	CharLimit          int  `json:"memory_char_limit" yaml:"memory_char_limit"`
	UserCharLimit      int  `json:"user_char_limit" yaml:"user_char_limit"`
}

type approvalsDoc struct {
	Mode    string `json:"mode" yaml:"mode"`
	Timeout string `json:"timeout" yaml:"timeout"`
}

type supervisorDoc struct {
	AgentInstances int                  `json:"agent_instances" yaml:"agent_instances"`
	TurnsPerAgent  int                  `json:"turns_per_agent" yaml:"turns_per_agent"`
	ToolsAtOnce    int                  `json:"tools_at_once" yaml:"tools_at_once"`
	DrainTimeout   string               `json:"drain_timeout" yaml:"drain_timeout"`
	HealthInterval string               `json:"health_interval" yaml:"health_interval"`
	NotifyInterval string               `json:"notify_interval" yaml:"notify_interval"`
	Retention      string               `json:"retention" yaml:"retention"`
	Libexec        string               `json:"libexec,omitempty" yaml:"libexec,omitempty"`
	Limits         limitsDoc            `json:"limits" yaml:"limits"`
	TotalMemory    string               `json:"total_memory,omitempty" yaml:"total_memory,omitempty"`
	Workers        map[string]ownDoc    `json:"workers,omitempty" yaml:"workers,omitempty"`
	Restart        restartDoc           `json:"restart" yaml:"restart"`
	Plugins        map[string]pluginDoc `json:"plugins,omitempty" yaml:"plugins,omitempty"`
	LogLevel       string               `json:"log_level" yaml:"log_level"`

	SnapshotInterval string `json:"snapshot_interval" yaml:"snapshot_interval"`
	SnapshotKeep     int    `json:"snapshot_keep" yaml:"snapshot_keep"`
}

type limitsDoc struct {
	FDs       uint64 `json:"fds,omitempty" yaml:"fds,omitempty"`
	Memory    string `json:"memory,omitempty" yaml:"memory,omitempty"`
	Processes int    `json:"processes,omitempty" yaml:"processes,omitempty"`
}

type ownDoc struct {
	FDs       uint64      `json:"fds,omitempty" yaml:"fds,omitempty"`
	Memory    string      `json:"memory,omitempty" yaml:"memory,omitempty"`
	Processes int         `json:"processes,omitempty" yaml:"processes,omitempty"`
	Spares    int         `json:"spares,omitempty" yaml:"spares,omitempty"`
	Restart   *restartDoc `json:"restart,omitempty" yaml:"restart,omitempty"`
}

type pluginDoc struct {
	Idle      string         `json:"idle,omitempty" yaml:"idle,omitempty"`
	Calls     int            `json:"calls,omitempty" yaml:"calls,omitempty"`
	Queue     int            `json:"queue,omitempty" yaml:"queue,omitempty"`
	Processes int            `json:"processes,omitempty" yaml:"processes,omitempty"`
	User      string         `json:"user,omitempty" yaml:"user,omitempty"`
	Settings  map[string]any `json:"settings,omitempty" yaml:"settings,omitempty"`
}

type restartDoc struct {
	MaxDelay string   `json:"max_delay,omitempty" yaml:"max_delay,omitempty"`
	Burst    int      `json:"burst,omitempty" yaml:"burst,omitempty"`
	Window   string   `json:"window,omitempty" yaml:"window,omitempty"`
	SlowLane []string `json:"slow_lane,omitempty" yaml:"slow_lane,flow,omitempty"`
	Recycles int      `json:"recycles,omitempty" yaml:"recycles,omitempty"`
}

// YAML returns the effective configuration as config.yaml would say it, without any secret.
func (c *Config) YAML() ([]byte, error) { return yaml.Marshal(c.document()) }

// JSON is YAML for programs.
func (c *Config) JSON() ([]byte, error) { return json.MarshalIndent(c.document(), "", "  ") }

func (c *Config) document() document {
	d := document{
		Home:       c.Home,
		Model:      modelDoc{c.Model.Provider, c.Model.Default, redactURL(c.Model.BaseURL), c.Model.APIKeyName, c.Model.Reason},
		Agent:      agentDoc(c.Agent),
		Terminal:   terminalDoc{c.Terminal.Cwd, FormatDuration(c.Terminal.Timeout), c.Terminal.EnvPassthrough},
		ToolOutput: toolOutputDoc(c.ToolOutput), Database: c.Database,
		Memory:    memoryDoc(c.Memory),
		Approvals: approvalsDoc{c.Approvals.Mode, FormatDuration(c.Approvals.Timeout)},

		FileReadMaxChars: c.FileReadMaxChars, ContextFileMaxChars: c.ContextFileMaxChars,
		Adapters:   map[string]map[string]any{},
		Supervisor: c.Supervisor.document(),
		Secrets:    c.Secrets.Names(),
	}
	d.Supervisor.NotifyInterval = FormatDuration(c.Kanban.Interval)
	for name, a := range c.Adapters {
		settings := redactSettings(a.Settings).(map[string]any)
		settings["enabled"] = a.Enabled
		d.Adapters[name] = settings
	}
	return d
}

func (s *Supervisor) document() supervisorDoc {
	d := supervisorDoc{
		AgentInstances: s.AgentInstances, TurnsPerAgent: s.TurnsPerAgent, ToolsAtOnce: s.ToolsAtOnce,
		DrainTimeout: FormatDuration(s.DrainTimeout), HealthInterval: FormatDuration(s.HealthInterval), Retention: FormatDuration(s.Retention),
		Libexec: s.Libexec, LogLevel: s.LogLevel, Limits: s.Limits.document(), Workers: map[string]ownDoc{},
		Restart: s.Restart.document(),

		SnapshotInterval: FormatDuration(s.SnapshotInterval), SnapshotKeep: s.SnapshotKeep,
	}
	if s.TotalMemory > 0 {
		d.TotalMemory = FormatSize(s.TotalMemory)
	}
	for name, own := range s.Workers {
		l := own.Limits.document()
		o := ownDoc{FDs: l.FDs, Memory: l.Memory, Processes: l.Processes, Spares: own.Spares}
		if r := own.Restart.document(); r.set() {
			o.Restart = &r
		}
		d.Workers[name] = o
	}
	for name, p := range s.Plugins {
		if d.Plugins == nil {
			d.Plugins = map[string]pluginDoc{}
		}
		d.Plugins[name] = p.document()
	}
	return d
}

func (p Plugin) document() pluginDoc {
	d := pluginDoc{Calls: p.Calls, Queue: p.Queue, Processes: p.Processes, User: p.User}
	if p.Idle > 0 {
		d.Idle = FormatDuration(p.Idle)
	}
	if p.Settings != nil {
		d.Settings, _ = redactSettings(p.Settings).(map[string]any)
	}
	return d
}

func (r Restart) document() restartDoc {
	d := restartDoc{Burst: r.Burst, SlowLane: formatAll(r.SlowLane), Recycles: r.Recycles}
	if r.MaxDelay > 0 {
		d.MaxDelay = FormatDuration(r.MaxDelay)
	}
	if r.Window > 0 {
		d.Window = FormatDuration(r.Window)
	}
	return d
}

func (d restartDoc) set() bool {
	return d.MaxDelay != "" || d.Burst > 0 || d.Window != "" || len(d.SlowLane) > 0 || d.Recycles > 0
}

func (l Limits) document() limitsDoc {
	d := limitsDoc{FDs: l.FDs, Processes: l.Processes}
	if l.Memory > 0 {
		d.Memory = FormatSize(l.Memory)
	}
	return d
}

func formatAll(list []time.Duration) []string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = FormatDuration(d)
	}
	return texts
}

// secretKey matches names of settings that hold a secret although .env is the place for them.
var secretKey = regexp.MustCompile(`(?i)(key|token|secret|password|passwd|credential)s?$`)

// redactSettings copies settings of an adapter with secrets masked.
func redactSettings(v any) any {
	switch t := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, inner := range t {
			if secretKey.MatchString(k) {
				m[k] = mask
				continue
			}
			m[k] = redactSettings(inner)
		}
		return m
	case []any:
		list := make([]any, len(t))
		for i, inner := range t {
			list[i] = redactSettings(inner)
		}
		return list
	}
	return v
}
