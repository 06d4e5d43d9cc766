package config

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Values of Model.Provider. Auto is only in the file; Resolve turns every name into offline or openai.
const (
	ProviderAuto    = "auto"
	ProviderOffline = "offline" // the built-in stand-in
	ProviderOpenAI  = "openai"  // any OpenAI-compatible endpoint
)

// A provider is an OpenAI-compatible endpoint with a name of its own.
type provider struct {
	name    string
	baseURL string
	keys    []string // variables that may hold its key, the first one that is set is used
	model   string   // used when model.default is not set; the endpoint's first one for a local server
	local   bool
}

// providers in the order in which auto takes them. One key for many models comes first; local servers last, as
// one may answer that was not meant.
var providers = []provider{
	{name: "openrouter", baseURL: "https://openrouter.ai/api/v1", keys: []string{"OPENROUTER_API_KEY"}, model: "openrouter/auto"},
	{name: "openai", baseURL: "https://api.openai.com/v1", keys: []string{"OPENAI_API_KEY"}, model: "gpt-5-mini"},
	{name: "anthropic", baseURL: "https://api.anthropic.com/v1", keys: []string{"ANTHROPIC_API_KEY"}, model: "claude-sonnet-4-5"},
	{name: "gemini", baseURL: "https://generativelanguage.googleapis.com/v1beta/openai", keys: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}, model: "gemini-2.5-flash"},
	{name: "deepseek", baseURL: "https://api.deepseek.com/v1", keys: []string{"DEEPSEEK_API_KEY"}, model: "deepseek-chat"},
	{name: "mistral", baseURL: "https://api.mistral.ai/v1", keys: []string{"MISTRAL_API_KEY"}, model: "mistral-medium-latest"},
	{name: "xai", baseURL: "https://api.x.ai/v1", keys: []string{"XAI_API_KEY"}, model: "grok-4"},
	{name: "ollama", baseURL: "http://127.0.0.1:11434/v1", local: true},
	{name: "llamacpp", baseURL: "http://127.0.0.1:8080/v1", local: true},
	{name: "vllm", baseURL: "http://127.0.0.1:8000/v1", local: true},
	{name: "lmstudio", baseURL: "http://127.0.0.1:1234/v1", local: true},
}

// providerCustom is Hermes' name for an endpoint that only base_url names.
const providerCustom = "custom"

func providerNames() []string {
	names := []string{ProviderAuto, ProviderOffline, providerCustom}
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

func findProvider(name string) (provider, bool) {
	for _, p := range providers {
		if p.name == name {
			return p, true
		}
	}
	return provider{}, false
}

// Resolve decides which provider answers and says why in Model.Reason. It asks local servers and takes no longer
// than a second; it never fails, because the offline provider always works.
func (c *Config) Resolve(ctx context.Context) {
	resolver{probe: probeModels}.resolve(ctx, c)
}

// probeTimeout is what a local server gets to answer: it is on this machine, and the start waits for it.
const probeTimeout = 300 * time.Millisecond

type resolver struct {
	probe func(ctx context.Context, baseURL string) (models []string, ok bool)
}

func (r resolver) resolve(ctx context.Context, c *Config) {
	configured := c.Model.Provider
	switch {
	case configured == ProviderOffline:
		c.Model = Model{Provider: ProviderOffline, Default: ProviderOffline, Reason: "set in " + FileName}
	case configured == ProviderAuto && c.Model.BaseURL == "":
		r.auto(ctx, c)
	default:
		r.named(ctx, c, configured)
	}
}

// named uses the provider that the file names, or the endpoint of base_url.
func (r resolver) named(ctx context.Context, c *Config, name string) {
	p, _ := findProvider(name)
	c.Model.Reason = fmt.Sprintf("model.provider is %s", name)
	if c.Model.BaseURL != "" {
		c.Model.Reason = fmt.Sprintf("model.base_url is %s", redactURL(c.Model.BaseURL))
		p = byHost(c.Model.BaseURL, p)
	}
	p.baseURL = or(c.Model.BaseURL, p.baseURL)
	if name == "openai" && c.Model.BaseURL == "" {
		// Hermes and every OpenAI client know this variable.
		if v, ok := c.Secrets.Lookup("OPENAI_BASE_URL"); ok {
			p.baseURL, p.model = v, ""
		}
	}
	r.use(ctx, c, p)
	if len(p.keys) > 0 && c.Model.APIKeyName == "" {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s: model.provider: %s needs a key: set %s in %s", FileName, name, p.keys[0], EnvFileName))
	}
}

// byHost finds whose endpoint a base URL is, so that the key of one provider is never sent to another.
func byHost(baseURL string, named provider) provider {
	host := hostOf(baseURL)
	for _, p := range providers {
		if !p.local && hostOf(p.baseURL) == host {
			return p
		}
	}
	if named.local {
		return provider{local: true}
	}
	return provider{local: isLoopback(host)}
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// use sets the model to p, with its key and a model name.
func (r resolver) use(ctx context.Context, c *Config, p provider) {
	m := &c.Model
	m.Provider, m.BaseURL = ProviderOpenAI, strings.TrimRight(p.baseURL, "/")
	m.APIKeyName = ""
	keys := p.keys
	if len(keys) == 0 && !strings.HasPrefix(m.Reason, "a local server") {
		keys = []string{"OPENAI_API_KEY"} // what OpenAI-compatible servers are given
	}
	for _, k := range keys {
		if c.Secrets.Has(k) {
			m.APIKeyName = k
			break
		}
	}
	m.Default = or(m.Default, p.model)
	if m.Default != "" {
		return
	}
	if models, ok := r.probe(ctx, m.BaseURL); ok && len(models) > 0 {
		m.Default = models[0]
		m.Reason += ", which serves " + m.Default
		return
	}
	c.Warnings = append(c.Warnings, fmt.Sprintf("%s: model.default: is not set, and %s did not say what it serves", FileName, redactURL(m.BaseURL)))
}

// auto takes the first provider that can work: a key, a local server, the stand-in.
func (r resolver) auto(ctx context.Context, c *Config) {
	for _, p := range providers {
		for _, k := range p.keys {
			if c.Secrets.Has(k) {
				c.Model.Reason = fmt.Sprintf("%s is set (%s)", k, p.name)
				r.use(ctx, c, p)
				return
			}
		}
	}
	if p, models, ok := r.firstLocal(ctx); ok {
		c.Model.Reason = fmt.Sprintf("a local server answers at %s (%s)", p.baseURL, p.name)
		if len(models) > 0 {
			p.model = models[0]
		}
		r.use(ctx, c, p)
		return
	}
	c.Model = Model{Provider: ProviderOffline, Default: ProviderOffline,
		Reason: "no key is set and no local server answers (ports 11434, 8080, 8000, 1234)"}
}

// firstLocal asks all usual ports at once and takes the first in order that answers.
func (r resolver) firstLocal(ctx context.Context) (provider, []string, bool) {
	type answer struct {
		models []string
		ok     bool
	}
	answers := make([]chan answer, len(providers))
	for i, p := range providers {
		answers[i] = make(chan answer, 1)
		if !p.local {
			answers[i] <- answer{}
			continue
		}
		go func() {
			models, ok := r.probe(ctx, p.baseURL)
			answers[i] <- answer{models, ok}
		}()
	}
	found := -1
	var models []string
	for i := range providers {
		// All are waited for, so that no goroutine outlives the call.
		if a := <-answers[i]; a.ok && found < 0 {
			found, models = i, a.models
		}
	}
	if found < 0 {
		return provider{}, nil, false
	}
	return providers[found], models, true
}

// probeModels asks an endpoint for its models. Only an answer of the right shape counts: other programs use the
// same ports.
func probeModels(ctx context.Context, baseURL string) ([]string, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(baseURL, "/")+"/models", nil)
	if err != nil {
		return nil, false
	}
	// No proxy and no kept connection: this is asked once, of this machine.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&list) != nil || list.Data == nil {
		return nil, false
	}
	models := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		if m.ID != "" {
			models = append(models, m.ID)
		}
	}
	return models, true
}

// redactURL drops user, password and query of a URL before it is shown.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "a URL that cannot be read"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
