package main

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite deps.txt")

const (
	module = "github.com/hermes-supervisor/hermes-supervisor"
	tags   = "sqlite_fts5,sqlite_omit_load_extension"
)

// dependencies lists all packages that a build of the patterns links, without the standard library.
func dependencies(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-tags", tags, "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	list := strings.Fields(string(out))
	slices.Sort(list)
	return list
}

// under says whether a package is one of the prefixes or below it.
func under(pkg string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
}

// TestTheSupervisorIsSmall is the promise that it links no model client, no chat library, no tool and no terminal UI: what
// it does not link cannot break it, and costs no memory.
func TestTheSupervisorIsSmall(t *testing.T) {
	banned := map[string]string{
		module + "/workers":                   "workers are processes of their own",
		module + "/plugins/examples":          "plugins are processes of their own",
		"github.com/sashabaranov/go-openai":   "a model client belongs into the agent worker",
		"github.com/openai/openai-go":         "a model client belongs into the agent worker",
		"github.com/anthropics":               "a model client belongs into the agent worker",
		"github.com/go-telegram/bot":          "a chat library belongs into the gateway worker",
		"github.com/mymmrac/telego":           "a chat library belongs into the gateway worker",
		"github.com/bwmarrin/discordgo":       "a chat library belongs into the gateway worker",
		"github.com/slack-go/slack":           "a chat library belongs into the gateway worker",
		"maunium.net":                         "a chat library belongs into the gateway worker",
		"github.com/yuin/goldmark":            "rendering belongs into the gateway worker",
		"github.com/google/jsonschema-go":     "tool schemas belong into the tools worker",
		"mvdan.cc/sh":                         "judging commands belongs into the tools worker",
		"github.com/creack/pty":               "terminals belong into the tools worker",
		"github.com/modelcontextprotocol":     "tool protocols belong into workers",
		"golang.org/x/term":                   "terminal UI belongs into hermes-terminal",
		"charm.land":                          "terminal UI belongs into hermes-terminal",
		"github.com/charmbracelet":            "terminal UI belongs into hermes-terminal",
		"github.com/prometheus/client_golang": "metrics are served by a worker",
		"github.com/google/go-cmp":            "for tests only",
		"github.com/rogpeppe/go-internal":     "for tests only",
		"go.uber.org/goleak":                  "for tests only",
		"github.com/stretchr/testify":         "for tests only",
		"go.opentelemetry.io/otel/exporters":  "exporters belong into a worker",
	}
	for _, pkg := range dependencies(t, ".") {
		for prefix, why := range banned {
			if under(pkg, prefix) {
				t.Errorf("the supervisor links %s: %s", pkg, why)
			}
		}
	}
}

// TestWorkersHaveNoStore is the promise of one writer, in the import graph: what cannot open a database does not.
func TestWorkersHaveNoStore(t *testing.T) {
	for _, pkg := range dependencies(t, "./workers/...") {
		if under(pkg, module+"/store", module+"/supervisor", "github.com/mattn/go-sqlite3") {
			t.Errorf("a worker links %s: only the supervisor opens databases", pkg)
		}
	}
}

// TestLayers holds the direction of imports.
func TestLayers(t *testing.T) {
	for layer, banned := range map[string][]string{
		"./ipc/...":     {module + "/store", module + "/supervisor", module + "/workers", module + "/systemd", module + "/plugins"},
		"./store/...":   {module + "/ipc", module + "/supervisor", module + "/workers", module + "/systemd", module + "/plugins"},
		"./systemd/...": {module + "/ipc", module + "/store", module + "/supervisor", module + "/workers", module + "/plugins"},
	} {
		for _, pkg := range dependencies(t, layer) {
			if under(pkg, banned...) {
				t.Errorf("%s depends on %s", layer, pkg)
			}
		}
	}
}

// TestDependenciesAreListed makes a new dependency of the supervisor show in review.
func TestDependenciesAreListed(t *testing.T) {
	var list []string
	for _, pkg := range dependencies(t, ".") {
		if !under(pkg, module) && !strings.Contains(pkg, "/internal/") && !strings.HasSuffix(pkg, "/internal") {
			list = append(list, pkg)
		}
	}
	got := strings.Join(list, "\n") + "\n"
	if *update {
		if err := os.WriteFile("deps.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	before := strings.Fields(string(want))
	for _, pkg := range list {
		if !slices.Contains(before, pkg) {
			t.Errorf("new dependency of the supervisor: %s (is it worth it? then run make gen)", pkg)
		}
	}
	for _, pkg := range before {
		if !slices.Contains(list, pkg) {
			t.Errorf("deps.txt lists %s, which is no dependency any more (run make gen)", pkg)
		}
	}
}

// packages calls f with each folder of Go code of the repository and its parsed files that are not tests.
func packages(t *testing.T, f func(dir string, files []*ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); dir != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
			return filepath.SkipDir
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		var files []*ast.File
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		if len(files) > 0 {
			f(dir, files)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryPackageSaysWhatItIsFor wants one package comment a package, in the usual form.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	packages(t, func(dir string, files []*ast.File) {
		documented := 0
		for _, f := range files {
			if f.Doc == nil {
				continue
			}
			documented++
			first := f.Doc.Text()
			if !strings.HasPrefix(first, "Package "+f.Name.Name+" ") && !(f.Name.Name == "main" && strings.HasPrefix(first, "Command ")) {
				t.Errorf("%s: the package comment begins %.40q", dir, first)
			}
		}
		if documented != 1 {
			t.Errorf("%s: %d package comments, want 1", dir, documented)
		}
	})
}

// maxFileLines and maxFunctionLines are the limits of the house: what is longer is two things.
const (
	maxFileLines     = 500
	maxFunctionLines = 60
)

// TestFilesAndFunctionsAreShort holds the limits for code that people wrote.
func TestFilesAndFunctionsAreShort(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		set := token.NewFileSet()
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if n := set.Position(file.End()).Line; n > maxFileLines {
			t.Errorf("%s has %d lines, the limit is %d", path, n, maxFileLines)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				if n := lines(string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])); n > maxFunctionLines {
					t.Errorf("%s: %s has %d lines, the limit is %d", path, f.Name.Name, n, maxFunctionLines)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// lines counts the lines that are not blank.
func lines(text string) int {
	n := 0
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) != "" {
			n++
		}
	}
	return n
}

// TestGeneratedCodeIsCurrent makes the code of the .proto files again and compares.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the generators")
	}
	cmd := exec.Command("go", "run", ".", "-check")
	cmd.Dir = "ipc/protogen"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
