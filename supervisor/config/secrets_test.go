package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecretsNeverPrint(t *testing.T) {
	c, err := load(t, "", "OPENAI_API_KEY=sk-live-1234\n")
	if err != nil {
		t.Fatal(err)
	}
	inJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown, _ := c.YAML()
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "secrets", c.Secrets)
	for name, text := range map[string]string{
		"%v": fmt.Sprintf("%v", c), "%+v": fmt.Sprintf("%+v", *c), "%#v": fmt.Sprintf("%#v", *c),
		"%s": fmt.Sprint(c.Secrets), "%q": fmt.Sprintf("%q", c.Secrets),
		"json": string(inJSON), "yaml": string(shown), "slog": log.String(),
	} {
		if strings.Contains(text, "sk-live") {
			t.Errorf("%s shows the secret: %s", name, text)
		}
	}
	if v, ok := c.Secrets.Lookup("OPENAI_API_KEY"); !ok || v != "sk-live-1234" {
		t.Errorf("Lookup = %q, %v", v, ok)
	}
}

func TestSecretsOfTheFileComeBeforeTheEnvironment(t *testing.T) {
	t.Setenv("HS_TEST_A", "environment")
	t.Setenv("HS_TEST_B", "environment")
	c, err := load(t, "", "HS_TEST_A=file\nHS_TEST_B=\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HS_TEST_A": "file", "HS_TEST_B": "environment"} {
		if got, _ := c.Secrets.Lookup(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if c.Secrets.Has("HS_TEST_C") {
		t.Error("HS_TEST_C is set nowhere")
	}
}

func TestSettingsThatLookSecretAreMasked(t *testing.T) {
	got := redactSettings(map[string]any{
		"listen": "x", "api_key": "sk",
		"nested": map[string]any{"bot_token": "t", "list": []any{map[string]any{"password": "p"}}},
	})
	want := map[string]any{
		"listen": "x", "api_key": mask,
		"nested": map[string]any{"bot_token": mask, "list": []any{map[string]any{"password": mask}}},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
