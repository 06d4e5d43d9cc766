package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// loadText reads text as the config.yaml of a new home whose .env has all tokens.
func loadText(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	home := t.TempDir()
	for name, content := range map[string]string{
		config.FileName:    text,
		config.EnvFileName: "API_SERVER_KEY=k\nTELEGRAM_BOT_TOKEN=1:k\nOPENAI_API_KEY=k\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(home)
}

// TestExamplesOfConfigurationLoad reads each yaml block of the README and of docs: what is taught must work, without a
// warning.
func TestExamplesOfConfigurationLoad(t *testing.T) {
	pages, _ := filepath.Glob("docs/*.md")
	blocks := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			blocks++
			c, err := loadText(t, m[1])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if len(c.Warnings) > 0 {
				t.Errorf("%s: warnings %v", page, c.Warnings)
			}
		}
	}
	if blocks == 0 {
		t.Error("no example was found")
	}
}

// TestEveryKeyIsDocumented looks for each key that `config show` prints.
func TestEveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	c, err := loadText(t, "model: {provider: offline}")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	notKeys := []string{"home", "secrets_set"} // say something about the home
	for _, m := range regexp.MustCompile(`(?m)^ *([a-z_]+):`).FindAllStringSubmatch(string(shown), -1) {
		if !slices.Contains(notKeys, m[1]) && !strings.Contains(string(page), m[1]+":") {
			t.Errorf("docs/config.md does not tell of %s", m[1])
		}
	}
}

// TestKeysOfAdaptersAreKnown compares what each adapter reads with what the configuration accepts and the page tells.
func TestKeysOfAdaptersAreKnown(t *testing.T) {
	page, err := os.ReadFile("docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []string{"api", "telegram"} {
		keys := settingsKeys(t, filepath.Join("workers", "gateway", platform))
		if len(keys) < 3 {
			t.Fatalf("%s: found only the keys %v", platform, keys)
		}
		for _, key := range keys {
			_, err := loadText(t, fmt.Sprintf("adapters: {%s: {%s: '127.0.0.1:1'}}", platform, key))
			if err != nil && strings.Contains(err.Error(), "is not a key") {
				t.Errorf("%v", err)
			}
			if !strings.Contains(string(page), "[ "+key+":") {
				t.Errorf("docs/config.md does not tell of adapters.%s.%s", platform, key)
			}
		}
	}
}

// settingsKeys returns the json names of the fields of the type settings in a folder.
func settingsKeys(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "settings" {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					if f.Tag == nil {
						continue
					}
					name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
					keys = append(keys, name)
				}
			}
			return false
		})
	}
	return keys
}

// TestLinksLeadSomewhere follows the relative links of all pages.
func TestLinksLeadSomewhere(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("not a checkout:", err)
	}
	for _, page := range strings.Fields(string(out)) {
		text, err := os.ReadFile(page)
		if err != nil {
			continue // removed and not yet committed
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %s leads nowhere", page, m[1])
			}
		}
	}
}

// TestCommandsInPagesExist runs --help of each command that a page names.
func TestCommandsInPagesExist(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binaries")
	}
	bin := filepath.Join(build(t), "hermes-supervisor")
	pages, _ := filepath.Glob("docs/*.md")
	seen := map[string]bool{}
	for _, page := range append(pages, "README.md", "ARCHITECTURE.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(?:hermes-supervisor )?((?:ctl|kanban|config|systemd) [a-z]+)").FindAllStringSubmatch(string(text), -1) {
			if seen[m[1]] {
				continue
			}
			seen[m[1]] = true
			args := append(strings.Fields(m[1]), "--help")
			if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil || !strings.Contains(string(out), "Usage:\n  hermes-supervisor "+m[1]) {
				t.Errorf("%s: %s: %v", page, m[1], err)
			}
		}
	}
	if len(seen) < 8 {
		t.Errorf("found only %v", seen)
	}
}
