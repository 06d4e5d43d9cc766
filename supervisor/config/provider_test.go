package config

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		yaml, env string
		serves    map[string][]string // base URL → models
		want      Model
		warning   string
	}{
		"nothing": {want: Model{Provider: "offline", Default: "offline", Reason: "no key is set and no local server answers (ports 11434, 8080, 8000, 1234)"}},
		"offline": {yaml: "model: {provider: offline}", env: "OPENAI_API_KEY=k", want: Model{Provider: "offline", Default: "offline", Reason: "set in config.yaml"}},
		"a key": {env: "OPENAI_API_KEY=k",
			want: Model{Provider: "openai", Default: "gpt-5-mini", BaseURL: "https://api.openai.com/v1", APIKeyName: "OPENAI_API_KEY", Reason: "OPENAI_API_KEY is set (openai)"}},
		"two keys": {env: "OPENAI_API_KEY=k\nOPENROUTER_API_KEY=k", yaml: "model: a/b",
			want: Model{Provider: "openai", Default: "a/b", BaseURL: "https://openrouter.ai/api/v1", APIKeyName: "OPENROUTER_API_KEY", Reason: "OPENROUTER_API_KEY is set (openrouter)"}},
		"the second name of a key": {env: "GOOGLE_API_KEY=k",
			want: Model{Provider: "openai", Default: "gemini-2.5-flash", BaseURL: "https://generativelanguage.googleapis.com/v1beta/openai", APIKeyName: "GOOGLE_API_KEY", Reason: "GOOGLE_API_KEY is set (gemini)"}},
		"local servers": {serves: map[string][]string{"http://127.0.0.1:8000/v1": {"v"}, "http://127.0.0.1:8080/v1": {"tiny", "big"}},
			want: Model{Provider: "openai", Default: "tiny", BaseURL: "http://127.0.0.1:8080/v1", Reason: "a local server answers at http://127.0.0.1:8080/v1 (llamacpp)"}},
		"a local server without models": {serves: map[string][]string{"http://127.0.0.1:11434/v1": {}},
			want:    Model{Provider: "openai", BaseURL: "http://127.0.0.1:11434/v1", Reason: "a local server answers at http://127.0.0.1:11434/v1 (ollama)"},
			warning: "model.default: is not set, and http://127.0.0.1:11434/v1 did not say what it serves"},
		"named without a key": {yaml: "model: {provider: openrouter}",
			want:    Model{Provider: "openai", Default: "openrouter/auto", BaseURL: "https://openrouter.ai/api/v1", Reason: "model.provider is openrouter"},
			warning: "openrouter needs a key: set OPENROUTER_API_KEY in .env"},
		"openai at another address": {yaml: "model: {provider: openai, default: m}", env: "OPENAI_API_KEY=k\nOPENAI_BASE_URL=http://10.0.0.1/v1/",
			want: Model{Provider: "openai", Default: "m", BaseURL: "http://10.0.0.1/v1", APIKeyName: "OPENAI_API_KEY", Reason: "model.provider is openai"}},
		"base_url with auto": {yaml: "model: {base_url: 'http://127.0.0.1:9/v1'}", serves: map[string][]string{"http://127.0.0.1:9/v1": {"m"}},
			want: Model{Provider: "openai", Default: "m", BaseURL: "http://127.0.0.1:9/v1", Reason: "model.base_url is http://127.0.0.1:9/v1, which serves m"}},
		"base_url of another provider takes that one's key": {yaml: "model: {provider: openai, default: m, base_url: 'https://openrouter.ai/api/v1'}", env: "OPENAI_API_KEY=k\nOPENROUTER_API_KEY=k",
			want: Model{Provider: "openai", Default: "m", BaseURL: "https://openrouter.ai/api/v1", APIKeyName: "OPENROUTER_API_KEY", Reason: "model.base_url is https://openrouter.ai/api/v1"}},
		"custom with a key": {yaml: "model: {provider: custom, default: m, base_url: 'http://user:pw@host:1/v1'}", env: "OPENAI_API_KEY=k",
			want: Model{Provider: "openai", Default: "m", BaseURL: "http://user:pw@host:1/v1", APIKeyName: "OPENAI_API_KEY", Reason: "model.base_url is http://host:1/v1"}},
		"ollama elsewhere": {yaml: "model: {provider: ollama, default: m, base_url: 'http://box:11434/v1'}", env: "ANTHROPIC_API_KEY=k",
			want: Model{Provider: "openai", Default: "m", BaseURL: "http://box:11434/v1", Reason: "model.base_url is http://box:11434/v1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, tt.yaml, tt.env)
			if err != nil {
				t.Fatal(err)
			}
			r := resolver{probe: func(_ context.Context, baseURL string) ([]string, bool) {
				models, ok := tt.serves[baseURL]
				return models, ok
			}}
			r.resolve(t.Context(), c)
			if diff := cmp.Diff(tt.want, c.Model); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if warned := strings.Join(c.Warnings, "\n"); (tt.warning == "") != (warned == "") || !strings.Contains(warned, tt.warning) {
				t.Errorf("warnings %q, want %q", warned, tt.warning)
			}
		})
	}
}

func TestProbeTakesOnlyAListOfModels(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   []string
		ok     bool
	}{
		"models":          {200, `{"object":"list","data":[{"id":"a"},{"id":""},{"id":"b"}]}`, []string{"a", "b"}, true},
		"none":            {200, `{"data":[]}`, []string{}, true},
		"another program": {200, `{"status":"ok"}`, nil, false},
		"a web page":      {200, `<html>`, nil, false},
		"not found":       {404, `{"data":[{"id":"a"}]}`, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/models" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer s.Close()
			got, ok := probeModels(t.Context(), s.URL+"/v1/")
			if ok != tt.ok || !cmp.Equal(got, tt.want) {
				t.Errorf("models %v, %v; want %v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestProbeGivesUpOnASilentServer(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	if models, ok := probeModels(t.Context(), s.URL); ok {
		t.Errorf("models %v", models)
	}
	if models, ok := probeModels(t.Context(), "http://127.0.0.1:1/v1"); ok {
		t.Errorf("nobody listens, models %v", models)
	}
	if _, ok := probeModels(t.Context(), "::not a url"); ok {
		t.Error("not a URL")
	}
}
