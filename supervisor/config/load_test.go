package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "rewrite the .want files")

// load reads text as the config.yaml of a new home.
func load(t *testing.T, text, env string) (*Config, error) {
	t.Helper()
	isolate(t)
	home := t.TempDir()
	write(t, filepath.Join(home, FileName), text)
	write(t, filepath.Join(home, EnvFileName), env)
	return Load(home)
}

// isolate hides the variables of the machine that runs the test.
func isolate(t *testing.T) {
	for _, p := range providers {
		for _, k := range p.keys {
			t.Setenv(k, "")
		}
	}
	for _, k := range []string{"API_SERVER_KEY", "API_SERVER_HOST", "API_SERVER_PORT", "OPENAI_BASE_URL", "TELEGRAM_BOT_TOKEN", "TELEGRAM_HOME_CHANNEL", "TELEGRAM_GROUP_ALLOWED_CHATS"} {
		t.Setenv(k, "")
	}
	for k := range otherTokens {
		t.Setenv(k, "")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFiles reads each file of testdata: a good one is compared with what it means, a bad one with its message.
func TestFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.yaml")
	if len(files) < 20 {
		t.Fatalf("found only %d files", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := load(t, string(text), "")
			if bad := strings.HasSuffix(file, ".bad.yaml"); bad != (err != nil) {
				t.Fatalf("error %v", err)
			}
			got := ""
			if err != nil {
				if !errors.Is(err, ErrInvalid) {
					t.Errorf("%v is not an ErrInvalid", err)
				}
				got = err.Error() + "\n"
			} else {
				got = outcome(t, c)
			}
			compare(t, strings.TrimSuffix(file, ".yaml")+".want", got)
		})
	}
}

// outcome is all that a good file led to.
func outcome(t *testing.T, c *Config) string {
	t.Helper()
	cwd, _ := os.Getwd()
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(strings.NewReplacer(c.Home, "HOME", cwd, "CWD").Replace(string(text)))
	for _, w := range c.Warnings {
		b.WriteString("warning: " + w + "\n")
	}
	for _, u := range c.Unused {
		b.WriteString("unused: " + u + "\n")
	}
	return b.String()
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		write(t, golden, got)
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v (run go test -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", golden, diff)
	}
}

func TestALineProblemKeepsItsPlace(t *testing.T) {
	_, err := load(t, "\n\nsupervisor:\n  limits:\n    memory: 64Q\n", "")
	if want := `config.yaml:5: supervisor.limits.memory: "64Q" is not a size (try 64MiB)`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	home := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		c := defaults()
		c.Home = home
		c.Secrets = newSecrets(nil, nil)
		r := newReader()
		c.read(r, text)
		if len(r.problems) > 0 {
			return
		}
		// What was accepted is usable: limits are set and it can be shown.
		if l := c.Supervisor.Limits; l.FDs < 64 || l.Memory < 64<<20 || len(c.Supervisor.Restart.SlowLane) == 0 {
			t.Errorf("accepted %+v", c.Supervisor)
		}
		if _, err := c.JSON(); err != nil {
			t.Error(err)
		}
	})
}
