package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A platform is what this build knows of one adapter.
type platform struct {
	secrets []string // its worker may ask for these; the first one enables it without an entry
	always  bool     // enabled without a secret too
	keys    []string // of its table, besides those of every adapter
	check   func(c *Config, r *reader, s *section, settings map[string]any)
}

var platforms = map[string]platform{
	"api": {
		secrets: []string{"API_SERVER_KEY"}, always: true, check: checkAPI,
		keys: []string{"listen", "max_concurrent_runs", "keep_alive", "allowed_hosts", "allowed_origins"},
	},
	"telegram": {
		secrets: []string{"TELEGRAM_BOT_TOKEN", "TELEGRAM_ALLOWED_USERS"}, check: checkTelegram,
		keys: []string{
			"base_url", "allowed_users", "allowed_chats", "strangers", "require_mention", "free_chats", "groups_per_user",
			"topics_per_user", "home_chat", "max_age", "busy", "busy_notice", "confirm", "reply", "streaming", "edit_interval", "menu", "messages_per_second",
			"poll_timeout", "retry_first", "retry_longest", "proxy", "lock_dir", "keep_files",
		},
	},
}

// tokens of platforms that Hermes Agent serves and this build does not, so that a person learns why the bot is
// silent.
var otherTokens = map[string]string{
	"DISCORD_BOT_TOKEN": "discord", "SLACK_BOT_TOKEN": "slack",
	"MATRIX_ACCESS_TOKEN": "matrix", "SIGNAL_HTTP_URL": "signal", "MATTERMOST_TOKEN": "mattermost",
}

// DefaultAPIListen is where the api adapter listens, as Hermes' API server does.
const DefaultAPIListen = "127.0.0.1:8642"

// readAdapters reads the adapters: table and enables those that need no entry.
func (c *Config) readAdapters(root *section) {
	s := root.section("adapters")
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		p := platforms[name]
		a := Adapter{Settings: map[string]any{}, Secrets: p.secrets}
		a.Enabled, a.Reason = p.byDefault(c.Secrets)
		table := s.section(name)
		if _, ok := s.get(name); ok && table != nil {
			a.Enabled, a.Reason = true, "set in "+FileName
			table.boolean("enabled", &a.Enabled)
		}
		table.settings(append([]string{"send_from"}, p.keys...), a.Settings)
		table.refuseRest()
		if c.busy != "" && a.Settings["busy"] == nil && slices.Contains(p.keys, "busy") {
			a.Settings["busy"] = c.busy
		}
		if a.Enabled {
			p.check(c, root.r, table, a.Settings)
		}
		c.Adapters[name] = a
	}
	for _, e := range s.rest() {
		s.r.problem(e.line, s.key(e.key), "%s", s.noAdapter(e.key))
	}
	for _, variable := range slices.Sorted(maps.Keys(otherTokens)) {
		name := otherTokens[variable]
		if _, served := platforms[name]; !served && c.Secrets.Has(variable) {
			root.r.warnings = append(root.r.warnings, Problem{File: EnvFileName, Key: variable, Text: "is set, but this version has no " + name + " adapter"})
		}
	}
}

func (p platform) byDefault(s Secrets) (bool, string) {
	if len(p.secrets) > 0 && s.Has(p.secrets[0]) {
		return true, p.secrets[0] + " is set"
	}
	if p.always {
		return true, "enabled by default"
	}
	return false, p.secrets[0] + " is not set"
}

func (s *section) noAdapter(name string) string {
	if near := Suggest(name, s.asked); near != "" {
		return fmt.Sprintf("is not an adapter of this version (did you mean %s?)", near)
	}
	return "is not an adapter of this version; it has " + strings.Join(s.asked, ", ")
}

// settings copies the adapter's own keys as they are.
func (s *section) settings(keys []string, into map[string]any) {
	for _, k := range keys {
		e, ok := s.get(k)
		if !ok {
			continue
		}
		v, err := s.r.plain(e.node, 0)
		if err != nil {
			s.r.problem(e.line, s.key(k), "%s", err)
			continue
		}
		into[k] = v
	}
}

// checkAPI fills in where the api adapter listens and refuses an open door without a key. Hermes' variables
// count where the table says nothing.
func checkAPI(c *Config, r *reader, s *section, settings map[string]any) {
	line := 0
	if e, ok := s.get("listen"); ok {
		line = e.line
	}
	if settings["listen"] == nil {
		settings["listen"] = apiListenFromEnv(c.Secrets)
	}
	text := fmt.Sprint(settings["listen"])
	problem := func(format string, args ...any) {
		r.problem(line, "adapters.api.listen", format, args...)
	}
	host, port, err := net.SplitHostPort(text)
	if n, portErr := strconv.Atoi(port); err != nil || portErr != nil || n < 0 || n > 65535 {
		problem("%q is not an address to listen on (try %s)", text, DefaultAPIListen)
		return
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && !c.Secrets.Has("API_SERVER_KEY") {
		problem("%q can be reached from other machines, which needs a key: set API_SERVER_KEY in %s, or listen on %s", text, EnvFileName, DefaultAPIListen)
	}
}

func apiListenFromEnv(s Secrets) string {
	host, port, _ := net.SplitHostPort(DefaultAPIListen)
	if v, ok := s.Lookup("API_SERVER_HOST"); ok {
		host = v
	}
	if v, ok := s.Lookup("API_SERVER_PORT"); ok {
		port = v
	}
	return net.JoinHostPort(host, port)
}

// checkTelegram wants a token, and takes over what Hermes has in .env and is no secret.
func checkTelegram(c *Config, r *reader, s *section, settings map[string]any) {
	if !c.Secrets.Has("TELEGRAM_BOT_TOKEN") {
		line := 0
		if s != nil && len(s.list) > 0 {
			line = s.list[0].line
		}
		r.problem(line, "adapters.telegram", "needs a token: put the one that @BotFather gave you into %s as TELEGRAM_BOT_TOKEN, or set enabled: false", EnvFileName)
	}
	for key, variable := range map[string]string{"home_chat": "TELEGRAM_HOME_CHANNEL", "allowed_chats": "TELEGRAM_GROUP_ALLOWED_CHATS"} {
		if v, ok := c.Secrets.Lookup(variable); ok && settings[key] == nil {
			settings[key] = v
		}
	}
	// An id is a number to YAML and a text to the adapter.
	if v := settings["home_chat"]; v != nil {
		settings["home_chat"] = fmt.Sprint(v)
	}
}

// EnabledAdapters lists the enabled ones by name.
func (c *Config) EnabledAdapters() []string {
	var names []string
	for name, a := range c.Adapters {
		if a.Enabled {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// workerNames lists what may be named under supervisor.workers: roles, and the workers that will run.
func (c *Config) workerNames() []string {
	names := []string{"agent", "tools", "gateway", "kanban", "plugin"}
	for i := range c.Supervisor.AgentInstances {
		names = append(names, fmt.Sprintf("agent-%d", i+1))
	}
	for _, a := range slices.Sorted(maps.Keys(platforms)) {
		names = append(names, "gateway-"+a)
	}
	return names
}
