package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/plugintest"
)

// corpus holds the sources of plugins, and of the SDKs that they were written with, as they once were. Nobody who has
// such a plugin is told to build it again.
const corpus = "../plugins/testdata/compat"

var freeze = flag.String("freeze", "", "put the SDK of this checkout into the corpus, as this `version`")

// TestFreeze writes an archive of the SDK as it is, with what it is made of and its examples, if -freeze asks for it.
func TestFreeze(t *testing.T) {
	if *freeze == "" {
		t.Skip("-freeze VERSION writes one")
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{if and .Module .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`, "./plugins")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	files := append(strings.Fields(string(out)), filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum"))
	examples, _ := filepath.Glob(filepath.Join(root, "plugins", "examples", "*", "main.go"))
	a := txtar.Archive{Comment: []byte("The SDK of tool plugins, version " + *freeze + ", with what it was made of and its examples. Its plugins must go on\nworking. Nothing in here is ever changed.\n")}
	for _, path := range append(files, examples...) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		a.Files = append(a.Files, txtar.File{Name: filepath.ToSlash(name), Data: data})
	}
	if err := os.WriteFile(filepath.Join(corpus, "sdk-"+*freeze+".txtar"), txtar.Format(&a), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unpack writes an archive of the corpus into a folder.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join(corpus, archive))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range a.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// buildOld builds a program of an unpacked archive, with the versions of libraries that it was written with.
func buildOld(t *testing.T, dir, pkg string, set ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	flags := "-s -w"
	for _, s := range set {
		flags += " -X " + s
	}
	cmd := exec.Command("go", "build", "-ldflags", flags, "-o", path, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s of %s: %v\n%s", pkg, dir, err, out)
	}
	return path
}

// TestPluginsOfOlderVersionsPassTheSuiteOfToday runs what an author runs, with the host's side of today.
func TestPluginsOfOlderVersionsPassTheSuiteOfToday(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plugins from nothing")
	}
	for _, row := range []struct {
		archive, pkg string
		options      plugintest.Options
		example      plugintest.Example
	}{
		{"sdk-0.1.0.txtar", "./plugins/examples/hello", plugintest.Options{}, plugintest.Example{Tool: "hello", Arguments: `{"name":"Ann"}`, Want: "Hello, Ann!"}},
		{"sdk-0.1.0.txtar", "./plugins/examples/stream", plugintest.Options{}, plugintest.Example{Tool: "countdown", Arguments: `{"from":1000,"pause_ms":10000}`, Slow: true}},
		{"sdk-0.1.0.txtar", "./plugins/examples/raw", plugintest.Options{NoCommandLine: true}, plugintest.Example{Tool: "reverse", Arguments: `{"text":"abc"}`, Want: "cba"}},
		{"protocol-1.txtar", ".", plugintest.Options{NoCommandLine: true, Plain: true}, plugintest.Example{Tool: "upper", Arguments: `{"text":"abc"}`, Want: "ABC"}},
	} {
		t.Run(row.archive+"/"+filepath.Base(row.pkg), func(t *testing.T) {
			plugintest.Run(t, buildOld(t, unpack(t, row.archive), row.pkg), row.options, row.example)
		})
	}
}

// TestPluginsOfOlderVersionsServeTheSystemOfToday adds them, grants a secret to one that knew no permissions, and calls.
func TestPluginsOfOlderVersionsServeTheSystemOfToday(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plugins from nothing")
	}
	c := &court{system: newSystem(t, "supervisor: {agent_instances: 1}")}
	if err := os.WriteFile(filepath.Join(c.home, ".env"), []byte("WEATHER_API_KEY=k-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.chat = &socketChat{sys: c.system, id: "compat"}
	c.start()
	old := unpack(t, "sdk-0.1.0.txtar")
	c.must("plugins", "add", "--yes", buildOld(t, old, "./plugins/examples/hello"))
	if answer := c.ask(`call: hello {"name":"Ann"}`); !strings.Contains(answer, "Hello, Ann!") {
		t.Errorf("the SDK 0.1.0: %s", answer)
	}
	c.must("plugins", "add", "--yes", "--secret", "WEATHER_API_KEY", "--connect", "8090", buildOld(t, old, "./plugins/examples/secret"))
	// That it got the key is known by how far it came: nobody serves its weather.
	if answer := c.ask(`call: temperature {"city":"Oslo"}`); !strings.Contains(answer, "connection refused") {
		t.Errorf("a secret by the SDK 0.1.0: %s", answer)
	}
	byHand := unpack(t, "protocol-1.txtar")
	c.must("plugins", "add", "--yes", buildOld(t, byHand, "."))
	if answer := c.ask(`call: upper {"text":"abc"}`); !strings.Contains(answer, "ABC") {
		t.Errorf("the first protocol, by hand: %s", answer)
	}
	for _, name := range []string{"plugin-hello", "plugin-byhand"} {
		if _, errs, code := c.command(nil, "ctl", "profile", name, "heap", "--output", "-"); code != 1 || !strings.Contains(errs, "profiles are not served by its program: a plugin in Go has them when it is built anew") {
			t.Errorf("the profile of %s: exit %d, %s", name, code, errs)
		}
	}
	c.must("plugins", "add", "--yes", plugintest.Build(t, "../plugins/examples/hello"))
	if answer := c.ask(`call: hello {"name":"Bob"}`); !strings.Contains(answer, "Hello, Bob!") {
		t.Errorf("built anew: %s", answer)
	}
	if out := c.must("ctl", "profile", "plugin-hello", "heap", "--output", "-"); !strings.HasPrefix(out, "\x1f\x8b") {
		t.Errorf("the profile of one built anew: %.100q", out)
	}
}

// TestAPluginOfANewerProtocolWorksIfItSpeaksOursToo and is refused otherwise, with both versions.
func TestAPluginOfANewerProtocolWorksIfItSpeaksOursToo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plugins from nothing")
	}
	s := newSystem(t, "")
	dir := unpack(t, "protocol-1.txtar")
	if out, errs, code := s.command(nil, "plugins", "add", "--yes", buildOld(t, dir, ".", "main.speaks=1,2")); code != 0 {
		t.Errorf("speaks 1 and 2: %d %s%s", code, out, errs)
	}
	_, errs, code := s.command(nil, "plugins", "add", "--yes", buildOld(t, dir, ".", "main.speaks=2,3"))
	if code != 1 || !strings.Contains(errs, "it speaks worker protocol 3, this supervisor speaks 1") {
		t.Errorf("speaks 2 and 3: %d %s", code, errs)
	}
	if list, _, _ := s.command(nil, "plugins", "list", "-o", "json"); strings.Count(list, `"name"`) != 1 {
		t.Errorf("listed are %s", list)
	}
}

// TestTheWholeCorpusIsRun fails when an archive is added that nobody builds.
func TestTheWholeCorpusIsRun(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	if want := []string{"protocol-1.txtar", "sdk-0.1.0.txtar"}; !slices.Equal(names, want) {
		t.Errorf("the corpus is %v; each archive is built and run above, as are %v", names, want)
	}
}
