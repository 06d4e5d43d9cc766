package ipc

import (
	"encoding/json"
	"time"
)

// The configuration that a worker gets in Init, as JSON, one type a role. None holds a secret: those are asked
// for by name with Config.Secret.

// AgentConfig configures an agent worker.
type AgentConfig struct {
	Provider   string `json:"provider"` // offline | openai
	Model      string `json:"model"`
	BaseURL    string `json:"base_url"`
	APIKeyName string `json:"api_key_name"` // name for Config.Secret, empty if the provider needs none
	// Proxies are the names of HTTP_PROXY and its kin that are set, for Config.Secret.
	Proxies             []string `json:"proxies,omitempty"`
	MaxTurns            int      `json:"max_turns"` // provider calls a turn (agent.max_turns)
	APIRetries          int      `json:"api_max_retries"`
	ToolsAtOnce         int      `json:"tools_at_once"` // parallel tool calls a turn
	Home                string   `json:"home"`          // for SOUL.md and memories
	ContextFileMaxChars int      `json:"context_file_max_chars"`
	MemoryCharLimit     int      `json:"memory_char_limit"` // what the prompt says of MEMORY.md's size; 0: the default
	UserCharLimit       int      `json:"user_char_limit"`   // the same of USER.md
	// StreamIdle is how long a provider may be silent; 0: 120 s, and 30 min for one on this machine or network.
	StreamIdle time.Duration `json:"stream_idle"`
}

// ToolsConfig configures the built-in tools worker.
type ToolsConfig struct {
	Home             string        `json:"home"`      // memories live there
	WorkDir          string        `json:"work_dir"`  // terminal.cwd
	SpillDir         string        `json:"spill_dir"` // whole outputs that were cut
	TerminalTimeout  time.Duration `json:"terminal_timeout"`
	MaxOutputChars   int           `json:"max_output_chars"` // tool_output.max_bytes
	FileReadMaxChars int           `json:"file_read_max_chars"`
	MemoryCharLimit  int           `json:"memory_char_limit"`
	UserCharLimit    int           `json:"user_char_limit"`
	EnvPassthrough   []string      `json:"env_passthrough"`
}

// PluginConfig configures a third-party tool plugin.
type PluginConfig struct {
	ScratchDir     string          `json:"scratch_dir"`      // parent of the calls' own directories; empty: the system's
	SpillDir       string          `json:"spill_dir"`        // whole outputs that were cut
	MaxResultChars int             `json:"max_result_chars"` // 0: the SDK's default
	Settings       json.RawMessage `json:"settings"`         // the plugin's own, from plugins.<name>.settings
}

// GatewayConfig configures one gateway worker.
type GatewayConfig struct {
	Platform string         `json:"platform"`
	Settings map[string]any `json:"settings"`          // the adapter's own, from adapters.<platform>
	Dir      string         `json:"dir"`               // for this platform alone: small durable things, files from chats
	Proxies  []string       `json:"proxies,omitempty"` // names of HTTP_PROXY and its kin that are set, for Config.Secret
}

// KanbanConfig configures the kanban worker.
type KanbanConfig struct {
	Interval time.Duration `json:"interval"` // between looks for unseen events
}
