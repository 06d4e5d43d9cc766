package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nobody owns nothing on any machine.
const nobody = 65534

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run something as another user")
	}
}

// ordinary makes a system that of an ordinary user.
func (s *system) ordinary() {
	s.t.Helper()
	s.user = nobody
	err := filepath.WalkDir(filepath.Dir(s.home), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// olderConfine is a folder with a program that shuts plugins in on a kernel with no more than this version of Landlock.
func olderConfine(t *testing.T, abi int) string {
	t.Helper()
	dir := public(t)
	set := fmt.Sprintf("-X github.com/hermes-supervisor/hermes-supervisor/plugins/confine/enter.most=%d", abi)
	if out, err := exec.Command("go", "build", "-ldflags", set, "-o", filepath.Join(dir, "hermes-confine"), "../workers/cmd/hermes-confine").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestAPluginOfAnOrdinaryUserCanOnlyHurtItself repeats, where no kernel helps that only root may ask, what the powers of
// root could have hidden.
func TestAPluginOfAnOrdinaryUserCanOnlyHurtItself(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	needRoot(t)
	c := convene(t, courtConfig, true)
	c.ask("call: neighbour_fine {}")
	time.Sleep(time.Second) // every loop has turned once
	from := slices.IndexFunc(crimes, func(cr crime) bool { return cr.name == "opens state.db" })
	for i, cr := range crimes {
		if i >= from || slices.Contains([]string{"exits in its handshake", "forks away", "fork-bombs", "returns 1 GB"}, cr.name) {
			t.Run(cr.name, func(t *testing.T) { c.try(t, cr) })
		}
	}
}

// TestWithoutLandlockItIsSaidWhatIsNotEnforced and what is enforced without it holds.
func TestWithoutLandlockItIsSaidWhatIsNotEnforced(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	c := convene(t, fmt.Sprintf("supervisor: {agent_instances: 1, libexec: %q}", olderConfine(t, 0)), false)
	_, errs, code := c.command(nil, "plugins", "add", "--yes", buildHostile(t, "hostile"))
	if code != 0 || !strings.Contains(errs, "not enforced by this kernel: files, file modes, truncation, other processes, signals, tcp,") {
		t.Errorf("exit %d: %s", code, errs)
	}
	info := c.must("plugins", "info", "hostile")
	for layer, state := range map[string]string{"files": "NOT ENFORCED", "signals": "NOT ENFORCED", "environment": "enforced", "no new privileges": "enforced"} {
		if !regexp.MustCompile(`(?m)^` + layer + ` +` + state + ` `).MatchString(info) {
			t.Errorf("%s is not said to be %s in\n%s", layer, state, info)
		}
	}
	for call, want := range map[string]string{
		`call: read {"path": "$STATE"}`:   "SQLite format", // as was said
		`call: dial {"path": "$CONTROL"}`: "connected, but not answered|broken pipe|connection reset",
		`call: signal {"n": $SUPERVISOR}`: "signalled",
		`call: who {}`:                    `"Terminal":false,"Foreign":null`,
	} {
		if answer := c.ask(c.fill(call)); !regexp.MustCompile(want).MatchString(answer) {
			t.Errorf("%s: %s", call, answer)
		}
	}
}

// TestAPluginWithAUserOfItsOwnNeedsNoLandlock to be kept from what is the supervisor's.
func TestAPluginWithAUserOfItsOwnNeedsNoLandlock(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	needRoot(t)
	c := convene(t, fmt.Sprintf("supervisor: {agent_instances: 1, libexec: %q, plugins: {hostile: {user: nobody, processes: 64}}}", olderConfine(t, 0)), false)
	for call, want := range map[string]string{
		`call: who {}`:                                     `"UID":65534,"GID":65534,"Groups":\[65534\],"Session":true,"Terminal":false,"Foreign":null`,
		`call: read {"path": "$STATE"}`:                    "state.db: permission denied",
		`call: read {"path": "/proc/$SUPERVISOR/environ"}`: "environ: permission denied",
		`call: trace {"n": $SUPERVISOR}`:                   "operation not permitted",
		`call: signal {"n": $SUPERVISOR}`:                  "operation not permitted",
		`call: dial {"path": "$CONTROL"}`:                  "permission denied",
		`call: overwrite {"path": "$PROGRAM"}`:             "permission denied",
		`call: open_to_others {"path": "$PROGRAM"}`:        "permission denied|not permitted",
		`call: forks {"n": 100}`:                           "of 100 were started.*resource temporarily unavailable",
		`call: long_result {}`:                             regexp.QuoteMeta(filepath.Join(c.home, "tool-plugins", "data", "hostile", "outputs")),
	} {
		if answer := c.ask(c.fill(call)); !regexp.MustCompile(`(?s)` + want).MatchString(answer) {
			t.Errorf("%s: %.1000s", call, answer)
		}
	}
	files := 0
	err := filepath.WalkDir(filepath.Join(c.home, "tool-plugins", "data", "hostile"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		files++
		if st.Sys().(*syscall.Stat_t).Uid != nobody || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v and belongs to %d", path, st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
		}
		return nil
	})
	if err != nil || files < 4 {
		t.Errorf("%d files and folders of its own: %v", files, err)
	}
	if info := c.must("plugins", "info", "hostile"); !regexp.MustCompile(`(?m)^user +enforced +it runs as nobody`).MatchString(info) {
		t.Errorf("info says\n%s", info)
	}
}
