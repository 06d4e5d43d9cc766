package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// keepers are two plugins, each with a user and a secret of its own. The values are like nothing that anybody writes by chance.
var keepers = []struct{ name, user, secret, value string }{
	{"keeper", "nobody", "KEEPER_KEY", "3f9a-open-the-first-door-b771"},
	{"rival", "daemon", "RIVAL_KEY", "c04d-open-the-other-door-91e2"},
}

// TestAPluginWithAUserOfItsOwnReadsItsSecretAndNobodyElseDoes whether it is made with the SDK or in a language that knows less.
func TestAPluginWithAUserOfItsOwnReadsItsSecretAndNobodyElseDoes(t *testing.T) {
	needRoot(t)
	for kind, plain := range map[string]string{"of the SDK": "", "plain": "yes"} {
		t.Run(kind, func(t *testing.T) {
			c := &court{system: newSystem(t, "supervisor: {agent_instances: 1, plugins: {keeper: {user: nobody}, rival: {user: daemon}}}")}
			c.chat = &socketChat{sys: c.system, id: "secrets"}
			dotEnv := filepath.Join(c.home, ".env")
			if err := os.WriteFile(dotEnv, []byte(fmt.Sprintf("%s=%s\n%s=%s\n", keepers[0].secret, keepers[0].value, keepers[1].secret, keepers[1].value)), 0o600); err != nil {
				t.Fatal(err)
			}
			c.start()
			for _, k := range keepers {
				c.must("plugins", "add", "--yes", buildKeeper(t, k.name, k.secret, plain))
			}
			for n, k := range keepers {
				other := keepers[1-n]
				sum := sha256.Sum256([]byte(k.value))
				c.answers(fmt.Sprintf(`call: %s_sum {"what":%q}`, k.name, k.secret), hex.EncodeToString(sum[:]))
				c.answers(fmt.Sprintf(`call: %s_sum {"what":%q}`, k.name, other.secret), "not allowed")
			}
			for n, k := range keepers {
				pid := c.worker("plugin-" + keepers[1-n].name).Pid
				for _, path := range []string{dotEnv, fmt.Sprintf("/proc/%d/environ", pid), fmt.Sprintf("/proc/%d/mem", pid), fmt.Sprintf("/proc/%d/root%s", pid, dotEnv)} {
					c.answers(fmt.Sprintf(`call: %s_read {"what":%q}`, k.name, path), "permission denied")
				}
			}
			c.holdsNoSecret(dotEnv)
		})
	}
}

func buildKeeper(t *testing.T, name, secret, plain string) string {
	t.Helper()
	path := filepath.Join(public(t), name)
	flags := fmt.Sprintf("-s -w -X main.name=%s -X main.wants=%s -X main.plain=%s", name, secret, plain)
	if out, err := exec.Command("go", "build", "-ldflags", flags, "-o", path, "./testdata/keeper").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// answers makes a call whose answer has to have the words.
func (c *court) answers(call, words string) {
	c.t.Helper()
	if answer := c.ask(call); !strings.Contains(answer, words) {
		c.t.Errorf("%s: %.500s", call, answer)
	}
}

// holdsNoSecret looks at what anybody could find later, or in the list of processes: command lines, environments, logs, the home.
func (c *court) holdsNoSecret(but string) {
	c.t.Helper()
	look := func(where string, text []byte) {
		for _, k := range keepers {
			if bytes.Contains(text, []byte(k.value)) {
				c.t.Errorf("%s is in %s", k.secret, where)
			}
		}
	}
	look("the log", []byte(c.out.String()))
	look("ctl logs", []byte(c.must("ctl", "logs")))
	looked := 0
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		list, _ := filepath.Glob(pattern)
		for _, path := range list {
			if text, err := os.ReadFile(path); err == nil { // else it has ended since
				look(path, text)
				looked++
			}
		}
	}
	err := filepath.WalkDir(c.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == but {
			return err
		}
		text, err := os.ReadFile(path)
		look(path, text)
		looked++
		return err
	})
	if err != nil || looked < 10 {
		c.t.Errorf("%d places: %v", looked, err)
	}
}
