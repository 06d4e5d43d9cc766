package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAdaptersAndTheirVariables(t *testing.T) {
	usual := map[string]any{"listen": DefaultAPIListen}
	tests := map[string]struct {
		yaml, env string
		want      Adapter
		warning   string
		problem   string
	}{
		"nothing is set": {want: Adapter{Enabled: true, Reason: "enabled by default", Settings: usual}},
		"a key":          {env: "API_SERVER_KEY=k", want: Adapter{Enabled: true, Reason: "API_SERVER_KEY is set", Settings: usual}},
		"an entry wins": {env: "API_SERVER_PORT=1", yaml: "adapters: {api: {listen: 'localhost:2', max_concurrent_runs: 3}}",
			want: Adapter{Enabled: true, Reason: "set in config.yaml", Settings: map[string]any{"listen": "localhost:2", "max_concurrent_runs": uint64(3)}}},
		"disabled": {yaml: "adapters: {api: {enabled: false}}", env: "API_SERVER_KEY=k",
			want: Adapter{Enabled: false, Reason: "set in config.yaml", Settings: map[string]any{}}},
		"Hermes' variables": {env: "API_SERVER_HOST=0.0.0.0\nAPI_SERVER_PORT=9000\nAPI_SERVER_KEY=k",
			want: Adapter{Enabled: true, Reason: "API_SERVER_KEY is set", Settings: map[string]any{"listen": "0.0.0.0:9000"}}},
		"open without a key": {env: "API_SERVER_HOST=0.0.0.0", problem: "needs a key: set API_SERVER_KEY"},
		"a token of an adapter that is not there": {env: "DISCORD_BOT_TOKEN=x",
			warning: ".env: DISCORD_BOT_TOKEN: is set, but this version has no discord adapter",
			want:    Adapter{Enabled: true, Reason: "enabled by default", Settings: usual}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, tt.yaml, tt.env)
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Secrets = []string{"API_SERVER_KEY"}
			if diff := cmp.Diff(tt.want, c.Adapters["api"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tt.warning != "" && !cmp.Equal(c.Warnings, []string{tt.warning}) {
				t.Errorf("warnings %v", c.Warnings)
			}
		})
	}
}

func TestTelegram(t *testing.T) {
	tests := map[string]struct {
		yaml, env string
		want      Adapter
		problem   string
	}{
		"nothing is set": {want: Adapter{Reason: "TELEGRAM_BOT_TOKEN is not set", Settings: map[string]any{}}},
		"a token": {env: "TELEGRAM_BOT_TOKEN=1:a\nTELEGRAM_HOME_CHANNEL=5\nTELEGRAM_GROUP_ALLOWED_CHATS=-1,-2",
			want: Adapter{Enabled: true, Reason: "TELEGRAM_BOT_TOKEN is set", Settings: map[string]any{"home_chat": "5", "allowed_chats": "-1,-2"}}},
		"an entry": {env: "TELEGRAM_BOT_TOKEN=1:a\nTELEGRAM_HOME_CHANNEL=5", yaml: "adapters: {telegram: {allowed_users: [123, '@ada'], home_chat: -100}}",
			want: Adapter{Enabled: true, Reason: "set in config.yaml", Settings: map[string]any{"home_chat": "-100", "allowed_users": []any{uint64(123), "@ada"}}}},
		"what Hermes does to a running turn": {env: "TELEGRAM_BOT_TOKEN=1:a", yaml: "display: {busy_input_mode: steer, skin: x}",
			want: Adapter{Enabled: true, Reason: "TELEGRAM_BOT_TOKEN is set", Settings: map[string]any{"busy": "steer"}}},
		"its own way with a running turn": {env: "TELEGRAM_BOT_TOKEN=1:a", yaml: "{display: {busy_input_mode: steer}, adapters: {telegram: {busy: queue}}}",
			want: Adapter{Enabled: true, Reason: "set in config.yaml", Settings: map[string]any{"busy": "queue"}}},
		"disabled with a token": {env: "TELEGRAM_BOT_TOKEN=1:a", yaml: "adapters: {telegram: {enabled: false}}",
			want: Adapter{Reason: "set in config.yaml", Settings: map[string]any{}}},
		"an entry without a token": {yaml: "adapters:\n  telegram:\n    streaming: true", problem: "config.yaml:3: adapters.telegram: needs a token"},
		"a misspelt key":           {env: "TELEGRAM_BOT_TOKEN=1:a", yaml: "adapters: {telegram: {allowed_user: 1}}", problem: "did you mean adapters.telegram.allowed_users?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, tt.yaml, tt.env)
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Secrets = []string{"TELEGRAM_BOT_TOKEN", "TELEGRAM_ALLOWED_USERS"}
			if diff := cmp.Diff(tt.want, c.Adapters["telegram"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimitsOfAWorker(t *testing.T) {
	s := Supervisor{Limits: Limits{FDs: 100, Memory: 1000, Processes: 64}, Workers: map[string]Own{
		"agent": {Limits: Limits{FDs: 200}}, "agent-2": {Limits: Limits{Memory: 3000}}, "tools": {Limits: Limits{FDs: 1, Memory: 2, Processes: 3}},
	}}
	for _, tt := range []struct {
		name, role string
		want       Limits
	}{
		{"agent-1", "agent", Limits{200, 1000, 64}},
		{"agent-2", "agent", Limits{200, 3000, 64}},
		{"tools", "tools", Limits{1, 2, 3}},
		{"kanban", "kanban", Limits{100, 1000, 64}},
	} {
		if got := s.LimitsFor(tt.name, tt.role); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestRestartPolicyOfAWorker(t *testing.T) {
	common := Restart{MaxDelay: time.Second, Burst: 5, Window: time.Minute, SlowLane: []time.Duration{time.Hour}, Recycles: 12}
	s := Supervisor{Restart: common, Workers: map[string]Own{
		"agent":   {Restart: Restart{Burst: 9}, Spares: 1},
		"agent-2": {Restart: Restart{Window: time.Second, Recycles: 1}},
	}}
	own := common
	own.Burst = 9
	if got := s.RestartFor("agent-1", "agent"); !reflect.DeepEqual(got, own) {
		t.Errorf("of its role: %+v", got)
	}
	own.Window, own.Recycles = time.Second, 1
	if got := s.RestartFor("agent-2", "agent"); !reflect.DeepEqual(got, own) {
		t.Errorf("of its role and name: %+v", got)
	}
	if got := s.RestartFor("tools", "tools"); !reflect.DeepEqual(got, common) {
		t.Errorf("common: %+v", got)
	}
	if s.SparesFor("agent-2", "agent") != 1 || s.SparesFor("tools", "tools") != 0 {
		t.Error("spares")
	}
}
