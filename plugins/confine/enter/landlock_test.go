package enter_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
)

// older builds the program so that it uses no later version of Landlock: this kernel stands for one that has no more.
func older(t *testing.T, abi int) string {
	t.Helper()
	return build(t, "-X github.com/hermes-supervisor/hermes-supervisor/plugins/confine/enter.most="+strconv.Itoa(abi))
}

// What is reported as enforced has to be: the first version of Landlock is that of kernels which are much in use.
func TestOlderKernelsEnforceWhatIsReported(t *testing.T) {
	need(t, 6)
	for _, abi := range []int{0, 1, 4} { // none; the first; the first with ports
		t.Run(strconv.Itoa(abi), func(t *testing.T) {
			c := newCell(t)
			c.confine = older(t, abi)
			enforced := map[string]bool{}
			r := reportOf(t, c.confine)
			for _, l := range r.Layers {
				enforced[l.Name] = l.Enforced
			}
			if r.ABI != abi {
				t.Fatalf("it uses Landlock %d", r.ABI)
			}
			kill := "kill " + strconv.Itoa(os.Getpid())
			environ := "read /proc/" + strconv.Itoa(os.Getpid()) + "/environ"
			own := filepath.Join(c.policy.Data, "note")
			got := c.try("read "+c.secret, "dial tcp 127.0.0.1:1", kill, environ, "write "+own)
			for layer, try := range map[string]string{"files": "read " + c.secret, "tcp": "dial tcp 127.0.0.1:1", "signals": kill, "other processes": environ} {
				if denied := strings.Contains(got[try], "permission denied") || strings.Contains(got[try], "not permitted"); enforced[layer] && !denied {
					t.Errorf("%s is reported as enforced, and %s is %q", layer, try, got[try])
				}
			}
			if read := got["read "+c.secret]; read == "secret" != (abi == 0) || got["write "+own] != "ok" {
				t.Errorf("the secret: %q; its own folder: %q", read, got["write "+own])
			}
		})
	}
}

// A path that is granted may lead elsewhere by the time that it is opened: what counts is where it leads then.
func TestAGrantThatLeadsHomeIsRefusedWhenItIsOpened(t *testing.T) {
	c := newCell(t)
	home := filepath.Dir(c.secret)
	c.policy.Closed = []string{home}
	link := filepath.Join(t.TempDir(), "link")
	for _, target := range []string{home, c.secret, filepath.Dir(home), "/"} {
		_ = os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		for _, grant := range []func(*confine.Policy){
			func(p *confine.Policy) { p.Read, p.Write = []string{link}, nil },
			func(p *confine.Policy) { p.Read, p.Write = nil, []string{link} },
		} {
			grant(&c.policy)
			out, err := c.command("read " + c.secret).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "which no plugin may see") {
				t.Errorf("%s: %v, %s", target, err, out)
			}
		}
	}
}
