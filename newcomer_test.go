package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A newcomer follows a page to the letter: writes its files, types its commands, and looks whether they print what it says.
type newcomer struct {
	t     *testing.T
	dir   string // where the newcomer is
	trail string // a file that tells where the last commands have led
	env   []string
	said  string // by the last commands
}

// marked are the blocks of a page that are meant to be followed. Their marks are not seen where the page is read.
var marked = regexp.MustCompile("(?s)<!-- (file: \\S+|run|run in another terminal|prints) -->\n```\\w*\n(.*?)```\n")

// TestANewcomerCanFollowThePageOnPlugins does what docs/plugins.md says, in a clean directory and with a clean home.
func TestANewcomerCanFollowThePageOnPlugins(t *testing.T) {
	if testing.Short() {
		t.Skip("builds plugins and starts real processes")
	}
	page, err := os.ReadFile("docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	n := arrive(t)
	done := map[string]int{}
	for _, block := range marked.FindAllSubmatch(page, -1) {
		mark, text := string(block[1]), string(block[2])
		what, name, _ := strings.Cut(mark, ": ")
		done[what]++
		switch what {
		case "file":
			if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		case "run":
			n.types(text)
		case "run in another terminal":
			n.starts(text)
		case "prints":
			n.sees(text)
		}
		if t.Failed() {
			return
		}
	}
	if done["file"] < 2 || done["run"] < 6 || done["run in another terminal"] != 1 || done["prints"] < 4 {
		t.Errorf("of the page was followed: %v", done)
	}
}

// arrive makes the newcomer: a home without anything, the programs in the PATH, and a checkout of the source.
func arrive(t *testing.T) *newcomer {
	t.Helper()
	bin := build(t)
	home := t.TempDir()
	run, err := os.MkdirTemp("", "hs-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	checkout, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	n := &newcomer{t: t, dir: filepath.Join(home, "work"), trail: filepath.Join(run, "trail")}
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + run, "CHECKOUT=" + checkout}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOSUMDB"} { // or all of it is fetched again
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		n.env = append(n.env, name+"="+strings.TrimSpace(string(out)))
	}
	return n
}

// types types commands, answers y where one asks, and stays where they lead.
func (n *newcomer) types(commands string) {
	n.t.Helper()
	cmd := exec.Command("sh", "-ec", commands+"pwd > "+n.trail)
	cmd.Dir, cmd.Env, cmd.Stdin = n.dir, n.env, strings.NewReader("y\n")
	out, err := cmd.CombinedOutput()
	n.said = string(out)
	if err != nil {
		n.t.Fatalf("%s%v\n%s", commands, err, out)
	}
	where, err := os.ReadFile(n.trail)
	if err != nil {
		n.t.Fatal(err)
	}
	n.dir = strings.TrimSpace(string(where))
}

// starts starts what goes on in another terminal, and waits until it is up.
func (n *newcomer) starts(command string) {
	n.t.Helper()
	var log bytes.Buffer
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.dir, n.env, &log, &log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer guard.Stop()
		if err := cmd.Wait(); err != nil || n.t.Failed() {
			n.t.Errorf("%s%v\n%s", command, err, log.String())
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		status := exec.Command("sh", "-c", "hermes-supervisor ctl status")
		status.Env = n.env
		if out, err := status.Output(); err == nil && strings.Contains(string(out), "ready") {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s is not ready within %v", command, patience)
		}
	}
}

// sees looks for each line of a text in what the last commands printed. In the text … stands for anything.
func (n *newcomer) sees(text string) {
	n.t.Helper()
	for line := range strings.Lines(text) {
		var words []string
		for _, w := range strings.Fields(line) {
			words = append(words, strings.ReplaceAll(regexp.QuoteMeta(w), "…", ".*"))
		}
		if re := regexp.MustCompile(`(?m)^\s*` + strings.Join(words, `\s+`) + `\s*$`); !re.MatchString(n.said) {
			n.t.Errorf("the page says that it prints\n%swhat it prints is\n%s", line, n.said)
		}
	}
}
