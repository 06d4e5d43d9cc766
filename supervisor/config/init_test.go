package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInitMakesAHomeThatMeansTheDefaults(t *testing.T) {
	isolate(t)
	home := filepath.Join(t.TempDir(), "new", "home")
	files, err := Init(home)
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]os.FileMode{FileName: 0o600, EnvFileName: 0o600, "SOUL.md": 0o644}
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil || !f.Created || info.Mode().Perm() != modes[filepath.Base(f.Path)] {
			t.Errorf("%+v: %v, %v", f, info, err)
		}
	}
	if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("home: %v, %v", info, err)
	}
	c, err := Load(home)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	empty.Home, empty.Path = c.Home, c.Path
	want, _ := empty.YAML()
	got, _ := c.YAML()
	if diff := cmp.Diff(string(want), string(got)); diff != "" || len(c.Warnings) > 0 {
		t.Errorf("warnings %v, (-defaults +template):\n%s", c.Warnings, diff)
	}
}

// TestTemplateExamplesAreValid takes the comment signs of the examples away: what the template teaches must load.
func TestTemplateExamplesAreValid(t *testing.T) {
	text, err := templates.ReadFile("template/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range strings.Split(string(text), "\n") {
		rest, ok := strings.CutPrefix(l, "  # ")
		key, _, isKey := strings.Cut(strings.TrimSpace(rest), ":")
		if ok && isKey && !strings.Contains(key, " ") {
			l = "  " + rest
		}
		lines = append(lines, l)
	}
	c, err := load(t, strings.Join(lines, "\n"), "TELEGRAM_BOT_TOKEN=1:a\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Model.Default != "some-model" || c.Adapters["api"].Reason != "set in config.yaml" ||
		c.Adapters["telegram"].Settings["allowed_users"] == nil || c.Supervisor.Workers["tools"].Memory != 2<<30 {
		t.Errorf("not all examples were read: %+v", c)
	}
}

func TestInitNeverOverwrites(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, EnvFileName), "A=mine\n")
	files, err := Init(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want := filepath.Base(f.Path) != EnvFileName; f.Created != want {
			t.Errorf("%s: created %v", f.Path, f.Created)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(home, EnvFileName)); string(text) != "A=mine\n" {
		t.Errorf(".env is now %q", text)
	}
}
