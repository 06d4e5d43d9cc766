package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// begun starts a long call in a chat of its own and returns its answer to come, when the call runs.
func (c *court) begun(id, call string) <-chan string {
	c.t.Helper()
	answer := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		text, err := (&socketChat{sys: c.system, id: id}).ask(ctx, id, call)
		if err != nil {
			text = err.Error()
		}
		answer <- text
	}()
	c.eventually(limit, "the call runs", func() error {
		if n := c.worker(c.pluginWorker("hostile")).InFlight; n == 0 {
			return fmt.Errorf("%d calls run", n)
		}
		return nil
	})
	return answer
}

// TestAnUpgradeLeavesRunningTurnsAlone adds another version while a call runs, wants more with a third, and removes it.
func TestAnUpgradeLeavesRunningTurnsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	c := convene(t, "supervisor: {agent_instances: 1, health_interval: 1s}", false)
	old := c.begun("old", `call: slow {"n": 12000}`)
	c.must("plugins", "add", "--yes", buildHostile(t, "hostile", "main.version=0.2.0"))
	if answer := c.ask(`call: slow {"n": 1}`); !strings.Contains(answer, "served by version 0.2.0") {
		t.Errorf("a call after the upgrade: %s", answer)
	}
	select {
	case answer := <-old:
		t.Fatalf("the old call was not left alone, or the machine is too slow for this test: %s", answer)
	default:
	}
	if answer := <-old; !strings.Contains(answer, "served by version 0.1.0") {
		t.Errorf("the call that ran at the upgrade: %s", answer)
	}
	c.eventually(limit, "the old process is gone", func() error {
		st, err := c.status()
		if err != nil {
			return err
		}
		for _, w := range st.Workers {
			if strings.HasPrefix(w.Name, "plugin-hostile") && w.Name != c.pluginWorker("hostile") {
				return fmt.Errorf("%s is %s", w.Name, w.State)
			}
		}
		return nil
	})

	// Who wants more is asked about again, and a no changes nothing.
	_, errs, code := c.command(strings.NewReader("n\n"), "plugins", "add", buildHostile(t, "hostile", "main.version=0.3.0", "main.wants=MORE_KEY"))
	if code != 1 || !strings.Contains(errs, "replaces 0.2.0") || !strings.Contains(errs, "asks for: secret MORE_KEY  (new)") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if info := c.must("plugins", "info", "hostile"); !strings.Contains(info, "hostile 0.2.0") || strings.Contains(info, "MORE_KEY") {
		t.Errorf("after a no:\n%s", info)
	}
	if answer := c.ask(`call: slow {"n": 1}`); !strings.Contains(answer, "served by version 0.2.0") {
		t.Errorf("after a no: %s", answer)
	}

	// What is removed ends the call that it is making first.
	began := time.Now()
	last := c.begun("last", `call: slow {"n": 3000}`)
	c.must("plugins", "remove", "hostile")
	if answer := <-last; !strings.Contains(answer, "served by version 0.2.0") {
		t.Errorf("the call that ran at the removal, after %v: %s", time.Since(began), answer)
	}
}

// pluginWorker is the worker that new calls of a plugin go to.
func (c *court) pluginWorker(name string) string {
	c.t.Helper()
	for _, line := range strings.Split(c.must("plugins", "list", "-o", "json"), "{") {
		if strings.Contains(line, fmt.Sprintf("%q: %q", "name", name)) {
			_, after, _ := strings.Cut(line, `"worker": "`)
			worker, _, _ := strings.Cut(after, `"`)
			return worker
		}
	}
	return ""
}
