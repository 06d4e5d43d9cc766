package config

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// FileName and EnvFileName are the names inside a home.
	FileName    = "config.yaml"
	EnvFileName = ".env"
	// maxFileBytes bounds both. The largest real ones have some 30 KiB, and the parser's time grows with the square
	// of the nesting.
	maxFileBytes = 256 << 10
)

// Load reads config.yaml and .env of a home. A home or a file that does not exist means defaults. The error is an
// *Error with all problems, or says what is wrong with the home.
func Load(home string) (*Config, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return nil, invalid("home %s: %v", home, err)
	}
	if err := checkHome(home); err != nil {
		return nil, err
	}
	c := defaults()
	c.Home, c.Path = home, filepath.Join(home, FileName)
	text, err := readFile(c.Path)
	if err != nil {
		return nil, err
	}
	env, err := readFile(filepath.Join(home, EnvFileName))
	if err != nil {
		return nil, err
	}
	r := newReader()
	c.Secrets = newSecrets(parseEnv(env, r), os.LookupEnv)
	c.read(r, text)
	byLine := func(a, b Problem) int { return a.Line - b.Line }
	slices.SortStableFunc(r.problems, byLine)
	slices.SortStableFunc(r.warnings, byLine)
	if len(r.problems) > 0 {
		return nil, &Error{Problems: r.problems}
	}
	for _, w := range r.warnings {
		c.Warnings = append(c.Warnings, w.String())
	}
	c.Unused = r.unused
	return c, nil
}

// readFile returns the text of a file of the home, "" if there is none.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", invalid("cannot read %s: %v", path, reason(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return "", invalid("cannot read %s: %v", path, reason(err))
	}
	if len(b) > maxFileBytes {
		return "", invalid("%s is larger than %s; is it the right file?", path, FormatSize(maxFileBytes))
	}
	return strings.TrimPrefix(string(b), "\ufeff"), nil
}

// reason drops the operation and path that os errors carry, where the message names them already.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// read fills c from the text of config.yaml.
func (c *Config) read(r *reader, text string) {
	root := r.parse(text)
	if root == nil {
		root = &section{r: r}
	}
	if len(r.problems) > 0 {
		return
	}
	c.readModel(root)
	c.readHermes(root)
	c.readAdapters(root)
	c.readSupervisor(root)
	root.unusedKeys(hermesTop...)
	root.warnRest()
	c.finish(r)
}

// parse returns the top of the file as a section, nil if the file is empty or broken.
func (r *reader) parse(text string) *section {
	file, err := parseYAML(text)
	if err != nil {
		r.syntax(err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if body != nil {
			r.problem(lineOf(doc.Body), "", "begins a second document (---); only one is read")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		return nil
	}
	r.findAnchors(body)
	list, ok := r.entries(body, 0)
	if !ok {
		r.problem(lineOf(body), "", "is %s, not a table of keys (key: value)", kindOf(r.resolve(body)))
		return nil
	}
	return &section{r: r, list: list}
}

// parseYAML turns a panic of the parser into an error: a broken file must never end a supervisor.
func parseYAML(text string) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be parsed: %v", p)
		}
	}()
	return parser.ParseBytes([]byte(text), 0)
}

// twice is how the parser reports a repeated key.
var twice = regexp.MustCompile(`^mapping key "(.*)" already defined at \[(\d+):\d+\]$`)

// syntax reports what the parser said, in words for a person where its own are about YAML's grammar.
func (r *reader) syntax(err error) {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil || e.GetToken().Position == nil {
		r.problem(0, "", "%v", err)
		return
	}
	text, _, _ := strings.Cut(strings.TrimSpace(e.GetMessage()), "\n")
	switch m := twice.FindStringSubmatch(text); {
	case m != nil:
		text = fmt.Sprintf("%s is set twice (first in line %s)", m[1], m[2])
	case strings.Contains(text, "'\t'"):
		text = "begins with a tab; YAML is indented with spaces"
	case text == "value is not allowed in this context":
		text = "does not fit here (is it indented as the lines around it?)"
	}
	r.problem(e.GetToken().Position.Line, "", "%s", text)
}

func (c *Config) readModel(root *section) {
	e, ok := root.get("model")
	if !ok {
		return
	}
	if name, isText := scalar(e.node); isText { // Hermes' short form: model: NAME
		c.Model.Default = name
		return
	}
	m := root.sub(e)
	m.choice("provider", &c.Model.Provider, providerNames()...)
	m.text("default", &c.Model.Default)
	m.text("name", &c.Model.Default)
	m.text("model", &c.Model.Default)
	m.text("base_url", &c.Model.BaseURL)
	if e, ok := m.get("api_key"); ok {
		root.r.warn(e.line, "model.api_key", "is not read here: put the key into .env, where other programs do not see it")
	}
	m.unusedKeys(hermesModel...)
	m.warnRest()
	if c.Model.BaseURL != "" && !strings.HasPrefix(c.Model.BaseURL, "http://") && !strings.HasPrefix(c.Model.BaseURL, "https://") {
		e, _ := m.get("base_url")
		root.r.problem(e.line, "model.base_url", "%q is not a URL (try http://127.0.0.1:11434/v1)", c.Model.BaseURL)
	}
}

// readHermes reads the other keys that Hermes Agent has too.
func (c *Config) readHermes(root *section) {
	const many = math.MaxInt32
	root.integer("context_file_max_chars", &c.ContextFileMaxChars, 0, many)
	root.integer("file_read_max_chars", &c.FileReadMaxChars, 1000, many)

	agent := root.section("agent")
	agent.integer("max_turns", &c.Agent.MaxTurns, 1, 10_000)
	agent.integer("api_max_retries", &c.Agent.APIMaxRetries, 0, 100)
	agent.unusedKeys(hermesAgent...)
	agent.warnRest()

	root.section("display").choice("busy_input_mode", &c.busy, "interrupt", "queue", "steer")

	c.readTerminal(root.section("terminal"))

	out := root.section("tool_output")
	out.integer("max_bytes", &c.ToolOutput.MaxBytes, 1000, many)
	out.integer("max_lines", &c.ToolOutput.MaxLines, 1, many)
	out.integer("max_line_length", &c.ToolOutput.MaxLineLength, 1, many)
	out.warnRest()

	memory := root.section("memory")
	memory.boolean("memory_enabled", &c.Memory.Enabled)
	memory.boolean("user_profile_enabled", &c.Memory.UserProfileEnabled)
	memory.integer("memory_char_limit", &c.Memory.CharLimit, 1, many)
	memory.integer("user_char_limit", &c.Memory.UserCharLimit, 1, many)
	memory.unusedKeys(hermesMemory...)
	memory.warnRest()

	c.readApprovals(root.section("approvals"))

	database := root.section("database")
	database.choice("journal_mode", &c.Database.JournalMode, JournalWAL, JournalDelete)
	database.unusedKeys(hermesDatabase...)
	database.warnRest()
}

func (c *Config) readTerminal(s *section) {
	s.text("cwd", &c.Terminal.Cwd)
	s.duration("timeout", &c.Terminal.Timeout, time.Second, time.Hour)
	s.texts("env_passthrough", &c.Terminal.EnvPassthrough)
	// A person who set docker expects commands to be shut in; to run them in the open instead would be worse
	// than to refuse.
	if e, ok := s.get("backend"); ok {
		if v, _ := scalar(e.node); v != "local" {
			s.r.problem(e.line, "terminal.backend", "%s is not available here; commands would run on this machine as this user (set local to accept that)", describe(e.node))
		}
	}
	s.unusedKeys(hermesTerminal...)
	s.warnRest()
}

func (c *Config) readApprovals(s *section) {
	e, _ := s.get("mode")
	if v, _ := scalar(e.node); v == "false" { // off, as YAML 1.1 reads it
		c.Approvals.Mode = ApprovalsOff
	} else {
		s.choice("mode", &c.Approvals.Mode, ApprovalsManual, ApprovalsOff, "smart")
	}
	if c.Approvals.Mode == "smart" {
		s.r.warn(e.line, "approvals.mode", "smart is not available here; manual is used, which asks you")
		c.Approvals.Mode = ApprovalsManual
	}
	s.duration("timeout", &c.Approvals.Timeout, time.Second, 24*time.Hour)
	s.unusedKeys(hermesApprovals...)
	s.warnRest()
}

func (c *Config) readSupervisor(root *section) {
	s := root.section("supervisor")
	v := &c.Supervisor
	s.integer("agent_instances", &v.AgentInstances, 1, 64)
	s.integer("turns_per_agent", &v.TurnsPerAgent, 1, 1000)
	s.integer("tools_at_once", &v.ToolsAtOnce, 1, 64)
	s.duration("drain_timeout", &v.DrainTimeout, 0, time.Hour)
	s.duration("snapshot_interval", &v.SnapshotInterval, 0, 30*24*time.Hour)
	s.integer("snapshot_keep", &v.SnapshotKeep, 1, 1000)
	s.duration("health_interval", &v.HealthInterval, 100*time.Millisecond, 5*time.Minute)
	s.duration("retention", &v.Retention, 0, 100*365*24*time.Hour)
	s.duration("notify_interval", &c.Kanban.Interval, 100*time.Millisecond, time.Hour)
	s.text("libexec", &v.Libexec)
	s.choice("log_level", &v.LogLevel, "debug", "info", "warn", "error")
	limits(s.section("limits"), &v.Limits)
	s.size("total_memory", &v.TotalMemory, 128<<20)
	c.readWorkers(s.section("workers"))
	c.readPlugins(s.section("plugins"))
	restart(s.section("restart"), &v.Restart)
	s.refuseRest()
}

func restart(s *section, r *Restart) {
	s.duration("max_delay", &r.MaxDelay, 100*time.Millisecond, time.Hour)
	s.integer("burst", &r.Burst, 1, 1_000_000)
	s.duration("window", &r.Window, time.Second, 24*time.Hour)
	s.durations("slow_lane", &r.SlowLane, time.Second, 24*time.Hour)
	s.integer("recycles", &r.Recycles, 1, 3600)
	s.refuseRest()
}

// limits reads one table of limits.
func limits(s *section, l *Limits) {
	limitKeys(s, l)
	s.refuseRest()
}

// limitKeys reads the keys of limits. The least values are what a worker needs to start at all.
func limitKeys(s *section, l *Limits) {
	fds := int(l.FDs)
	s.integer("fds", &fds, 64, 1<<20)
	l.FDs = uint64(fds)
	s.size("memory", &l.Memory, 64<<20)
	s.integer("processes", &l.Processes, 64, 1<<20)
}

func (c *Config) readWorkers(s *section) {
	if s == nil {
		return
	}
	names := c.workerNames()
	for _, e := range s.list {
		s.asked = append(s.asked, e.key)
		if !slices.Contains(names, e.key) && !strings.HasPrefix(e.key, pluginWorker) {
			hint := strings.Join(names, ", ")
			if near := Suggest(e.key, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			s.r.problem(e.line, s.key(e.key), "is not a worker (%s)", hint)
			continue
		}
		var own Own
		if sub := s.sub(e); sub != nil {
			limitKeys(sub, &own.Limits)
			sub.integer("spares", &own.Spares, 0, 1)
			restart(sub.section("restart"), &own.Restart)
			sub.refuseRest()
		}
		if own.Processes > 0 && (e.key == "plugin" || strings.HasPrefix(e.key, pluginWorker)) {
			s.r.problem(e.line, s.key(e.key)+".processes", "is set by supervisor.plugins.NAME.processes")
		}
		c.Supervisor.Workers[e.key] = own
	}
}

// finish makes paths absolute and checks what only the whole file shows.
func (c *Config) finish(r *reader) {
	checkEnvMode(c.Home, r)
	for _, p := range []*string{&c.Terminal.Cwd, &c.Supervisor.Libexec} {
		if *p == "" {
			continue
		}
		abs, err := expand(*p)
		if err != nil {
			r.problem(0, "", "%v", err)
			continue
		}
		*p = abs
	}
	if !isDir(c.Terminal.Cwd) {
		r.warn(0, "terminal.cwd", "%s is not a folder; commands will fail until it is", c.Terminal.Cwd)
	}
	if c.Model.Provider == providerCustom && c.Model.BaseURL == "" {
		r.problem(0, "model.base_url", "is not set, and provider custom has no other (try http://127.0.0.1:11434/v1)")
	}
}
