package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesNameKeysAndNeverSecrets(t *testing.T) {
	home := t.TempDir()
	read := func(text, env string) *Config {
		t.Helper()
		for name, content := range map[string]string{FileName: text, EnvFileName: env} {
			if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := Load(home)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a := read("model: {provider: offline}\nsupervisor: {workers: {tools: {fds: 100}}}\n", "API_SERVER_KEY=first-secret\n")
	b := read("model: {provider: offline}\nagent: {max_turns: 5}\nsupervisor: {log_level: warn}\n", "API_SERVER_KEY=other-secret\nX=y\n")
	want := []Change{
		{"agent.max_turns", "90", "5"},
		{"secrets_set", `["API_SERVER_KEY"]`, `["API_SERVER_KEY","X"]`},
		{"supervisor.log_level", `"info"`, `"warn"`},
		{"supervisor.workers.tools.fds", "100", ""},
	}
	got := a.Changes(b)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range got {
		if strings.Contains(c.From+c.To, "-secret") {
			t.Errorf("a secret is in %+v", c)
		}
	}
	if again := b.Changes(b); len(again) != 0 {
		t.Errorf("from itself: %v", again)
	}
}
