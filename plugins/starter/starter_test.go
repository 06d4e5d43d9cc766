package starter

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAStarterPassesItsOwnTest does what its README says.
func TestAStarterPassesItsOwnTest(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a plugin from nothing")
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "my_weather")
	files, err := Write(dir, "my_weather", Options{Checkout: checkout})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"README.md", "go.mod", "main.go", "main_test.go"}; !slices.Equal(files, want) {
		t.Errorf("wrote %v", files)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.Split(string(readme), "```")[1]
	cmd := exec.Command("sh", "-exc", commands)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), `{"text":"hi hi hi"}`+"\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("not formatted: %s, %v", out, err)
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, "weather", Options{}); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("error %v", err)
	}
	if _, err := Write(filepath.Join(dir, "main.go"), "weather", Options{}); err == nil {
		t.Error("a file was taken for a folder")
	}
	for _, name := range []string{"", "Weather", "1st", "a-b", "../x", strings.Repeat("n", 40)} {
		if _, err := Write(filepath.Join(dir, "new"), name, Options{}); err == nil || !strings.Contains(err.Error(), "must be lower case") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestNothingIsWrittenThatCannotBeBuilt(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.org/other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		o    Options
		want string
	}{
		{"a build between releases", Options{Version: "v0.1.0-3-g0ff4922"}, "version v0.1.0-3-g0ff4922 is no release"},
		{"a build of no version", Options{Version: "(devel)"}, "--checkout FOLDER"},
		{"a folder that is not there", Options{Checkout: filepath.Join(other, "none")}, "none is no checkout of the source"},
		{"another module", Options{Checkout: other}, "its go.mod is not that of github.com/hermes-supervisor/hermes-supervisor"},
	} {
		dir := filepath.Join(t.TempDir(), "x")
		if _, err := Write(dir, "x", row.o); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the folder is there: %v", row.name, err)
		}
	}
}

func TestAPublishedVersionNeedsNoCheckout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if _, err := Write(dir, "x", Options{Version: "v1.2.3", Module: "example.org/me/x"}); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(mod); !strings.Contains(text, "hermes-supervisor v1.2.3\n") || strings.Contains(text, "replace") || !strings.HasPrefix(text, "module example.org/me/x\n") {
		t.Errorf("go.mod:\n%s", text)
	}
}
