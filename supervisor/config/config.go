// Package config reads a home: config.yaml, .env, and where its run directory is. It knows every key, its type,
// default and limits, and says what is wrong with file, line, key and a way to mend it.
//
// Rules: keys of Hermes Agent keep their names, places and meaning, so an existing home loads; what only this
// system has is under supervisor: and adapters:, where an unknown key is an error, because a limit that is
// misspelt is a limit that does not hold. Elsewhere an unknown key is a warning. Secrets are read from .env and
// the environment and never printed.
package config

import (
	"time"
)

// A Config is a home as read: every field is set, checked and in its unit.
type Config struct {
	Home string // absolute path
	Path string // of config.yaml, which need not exist

	Model      Model
	Agent      Agent
	Terminal   Terminal
	ToolOutput ToolOutput
	Memory     Memory
	Approvals  Approvals
	Adapters   map[string]Adapter
	Kanban     Kanban
	Database   Database
	Supervisor Supervisor

	// FileReadMaxChars bounds what read_file returns, ContextFileMaxChars what of a context file is put into
	// the prompt.
	FileReadMaxChars    int
	ContextFileMaxChars int

	// Warnings are for a person: what was accepted but will not do what it seems to say.
	Warnings []string
	// Unused are keys of Hermes Agent that are valid there and have no effect here.
	Unused []string

	Secrets Secrets

	busy string // display.busy_input_mode: what adapters that have the key busy do if it is not set
}

// A Model says who answers. Load fills in what the file says; Resolve replaces it by what will be used.
type Model struct {
	Provider   string // as configured, after Resolve: offline or openai
	Default    string // model name
	BaseURL    string
	APIKeyName string // of the secret, empty if the provider needs none
	Reason     string // why this provider, for a person; set by Resolve
}

// Agent bounds a turn.
type Agent struct {
	MaxTurns      int // provider calls a turn
	APIMaxRetries int // of one provider call
}

// Terminal configures the shell of the tools.
type Terminal struct {
	Cwd            string // absolute
	Timeout        time.Duration
	EnvPassthrough []string
}

// ToolOutput bounds what one tool call may return to the model.
type ToolOutput struct {
	MaxBytes      int
	MaxLines      int
	MaxLineLength int
}

// Memory bounds the memory files.
type Memory struct {
	Enabled            bool
	UserProfileEnabled bool
	CharLimit          int
	UserCharLimit      int
}

// Values of Approvals.Mode.
const (
	ApprovalsManual = "manual" // a person is asked
	ApprovalsOff    = "off"    // what would be asked about is allowed
)

// Approvals says what happens when a tool call needs a person's yes.
type Approvals struct {
	Mode    string
	Timeout time.Duration // silence until then means no
}

// An Adapter is one chat platform.
type Adapter struct {
	Enabled  bool
	Reason   string         // why it is enabled or not, for a person
	Settings map[string]any // its own keys, without enabled
	Secrets  []string       // names that its worker may ask for
}

// Journal modes of the stores.
const (
	JournalWAL    = "wal"
	JournalDelete = "delete"
)

// Database says how the stores are kept.
type Database struct {
	JournalMode string `json:"journal_mode" yaml:"journal_mode"` // wal, or delete for a rollback journal
}

// Kanban configures the notifier of the boards.
type Kanban struct {
	Interval time.Duration // at least, between looks for unseen events
}

// Supervisor is what Hermes Agent has nothing of.
type Supervisor struct {
	AgentInstances int
	TurnsPerAgent  int // running turns one agent worker takes
	ToolsAtOnce    int // parallel tool calls of one turn
	DrainTimeout   time.Duration
	// SnapshotInterval is the time between two snapshots of the home, 0 for none; SnapshotKeep is how many of them stay.
	SnapshotInterval time.Duration
	SnapshotKeep     int
	HealthInterval   time.Duration
	Retention        time.Duration // of the books of turns that have ended; 0: for ever
	Limits           Limits
	TotalMemory      int64          // bytes that all workers together may hold; 0: three quarters of the machine's
	Workers          map[string]Own // by worker name or role
	Restart          Restart
	Libexec          string            // folder of the worker binaries, empty to search
	Plugins          map[string]Plugin // by name, and DefaultPlugin; zero fields mean those of the latter
	LogLevel         string            // debug, info, warn or error: lines below are not kept
}

// Limits bound one worker. Zero means no limit of ours.
type Limits struct {
	FDs    uint64
	Memory int64 // bytes, of the worker and its descendants
	// Processes and threads, of the worker and its descendants. Those of plugins are in Plugin.
	Processes int
}

// Own is what one worker, or all of a role, has instead of the common values. Zero fields mean those.
type Own struct {
	Limits
	Restart Restart
	Spares  int // warm processes that take over at a death
}

// Restart is the policy for workers that end by themselves.
type Restart struct {
	MaxDelay time.Duration   // the backoff does not grow beyond it
	Burst    int             // failures that are restarted before the slow lane
	Window   time.Duration   // of health with work, after which a failure weighs half
	SlowLane []time.Duration // delays of the slow lane, the last one repeats
	Recycles int             // planned replacements an hour before the slow lane
}

// Defaults, each with its reason. Those of Hermes' keys are Hermes' own.
const (
	defaultMaxTurns      = 90
	defaultAPIMaxRetries = 3
	defaultCwd           = "."
	defaultTermTimeout   = 180 * time.Second
	defaultMaxBytes      = 50_000
	defaultMaxLines      = 2000
	defaultMaxLineLength = 2000
	defaultCharLimit     = 2200
	defaultUserCharLimit = 1375
	defaultApprovalWait  = 60 * time.Second
	defaultFileReadMax   = 100_000
	defaultContextMax    = 20_000

	// Two, so that one can be replaced while the other takes turns.
	defaultAgentInstances = 2
	// A turn mostly waits for its provider; 32 of them cost an agent worker a few MiB.
	defaultTurnsPerAgent = 32
	// More parallel calls of one turn than this come from models that loop.
	defaultToolsAtOnce = 8
	// Long enough for most replies, short enough for a reboot: systemd's own default to stop is 90 s.
	defaultDrainTimeout = 60 * time.Second
	// A week of days: what was damaged or deleted is often noticed after the weekend. A snapshot is about as large as
	// the store, and none is made that would leave less than 1 GiB.
	defaultSnapshotInterval = 24 * time.Hour
	defaultSnapshotKeep     = 7
	// Three missed make a worker frozen: found within 6 s, at a cost of one small RPC a worker.
	defaultHealthInterval = 2 * time.Second
	// A platform delivers a message again for days at most; a person asks what became of one for weeks.
	defaultRetention = 90 * 24 * time.Hour
	// A worker uses about 15; 4096 leaves room for a burst and still lets a leak be seen early.
	defaultFDs = 4096
	// A worker idles at 15 to 35 MiB; 1 GiB is a shell child's build, not an agent's prompt.
	defaultMemory = 1 << 30
	// A build uses some hundreds, a Java program as many threads; what a service may have in all is 4915 on most machines
	// (TasksMax), and without any left the supervisor cannot go on either.
	defaultProcesses = 2048

	defaultLogLevel = "info"

	defaultMaxDelay = 30 * time.Second
	defaultBurst    = 5
	defaultWindow   = 60 * time.Second
	// A leak that fills a limit in less than five minutes is not kept up with in silence.
	defaultRecycles = 12
	// As often as Hermes' own notifier looks.
	defaultNotifyInterval = 5 * time.Second
)

var defaultSlowLane = []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute}

// defaults returns the configuration of a home without config.yaml.
func defaults() *Config {
	return &Config{
		Model:      Model{Provider: ProviderAuto},
		Agent:      Agent{MaxTurns: defaultMaxTurns, APIMaxRetries: defaultAPIMaxRetries},
		Terminal:   Terminal{Cwd: defaultCwd, Timeout: defaultTermTimeout},
		ToolOutput: ToolOutput{MaxBytes: defaultMaxBytes, MaxLines: defaultMaxLines, MaxLineLength: defaultMaxLineLength},
		Memory:     Memory{Enabled: true, UserProfileEnabled: true, CharLimit: defaultCharLimit, UserCharLimit: defaultUserCharLimit},
		Approvals:  Approvals{Mode: ApprovalsManual, Timeout: defaultApprovalWait},
		Adapters:   map[string]Adapter{},
		Kanban:     Kanban{Interval: defaultNotifyInterval},
		Database:   Database{JournalMode: JournalWAL},
		Supervisor: Supervisor{
			AgentInstances: defaultAgentInstances,
			TurnsPerAgent:  defaultTurnsPerAgent,
			ToolsAtOnce:    defaultToolsAtOnce,
			DrainTimeout:   defaultDrainTimeout,

			SnapshotInterval: defaultSnapshotInterval,
			SnapshotKeep:     defaultSnapshotKeep,
			HealthInterval:   defaultHealthInterval,
			Retention:        defaultRetention,
			Limits:           Limits{FDs: defaultFDs, Memory: defaultMemory, Processes: defaultProcesses},
			Workers:          map[string]Own{},
			Restart:          Restart{MaxDelay: defaultMaxDelay, Burst: defaultBurst, Window: defaultWindow, SlowLane: defaultSlowLane, Recycles: defaultRecycles},
			LogLevel:         defaultLogLevel,
		},
		FileReadMaxChars:    defaultFileReadMax,
		ContextFileMaxChars: defaultContextMax,
	}
}

// LimitsFor returns the limits of a worker: those under its name, else those under its role, else the common
// ones, field by field.
func (s *Supervisor) LimitsFor(name, role string) Limits {
	l := s.Limits
	for _, key := range []string{role, name} {
		if own := s.Workers[key]; own.FDs != 0 {
			l.FDs = own.FDs
		}
		if own := s.Workers[key]; own.Memory != 0 {
			l.Memory = own.Memory
		}
		if own := s.Workers[key]; own.Processes != 0 {
			l.Processes = own.Processes
		}
	}
	return l
}

// RestartFor returns the restart policy of a worker, field by field as LimitsFor.
func (s *Supervisor) RestartFor(name, role string) Restart {
	r := s.Restart
	for _, key := range []string{role, name} {
		own := s.Workers[key].Restart
		if own.MaxDelay != 0 {
			r.MaxDelay = own.MaxDelay
		}
		if own.Burst != 0 {
			r.Burst = own.Burst
		}
		if own.Window != 0 {
			r.Window = own.Window
		}
		if len(own.SlowLane) > 0 {
			r.SlowLane = own.SlowLane
		}
		if own.Recycles != 0 {
			r.Recycles = own.Recycles
		}
	}
	return r
}

// SparesFor returns how many warm processes a worker has, as LimitsFor.
func (s *Supervisor) SparesFor(name, role string) int {
	if n := s.Workers[name].Spares; n != 0 {
		return n
	}
	return s.Workers[role].Spares
}
