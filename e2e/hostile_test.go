package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A crime is one misbehaviour of a plugin, and what must come of it.
type crime struct {
	name string
	mode string // of its start
	call string // of its tool, with $STATE, $CONTROL, $NEIGHBOUR, $SIBLING, $SUPERVISOR and $PROGRAM in the arguments
	// answer is what the person reads, story what the timeline tells meanwhile: "kind cause message key=value …" of one
	// story. Both are regular expressions.
	answer, story string
	end           string                       // a story that comes when the plugin is ended
	after         func(t *testing.T, c *court) // looks at what else has to hold, while the plugin may run
	landlock      int                          // which the kernel must have for it
}

// A court is a system in which plugins misbehave one after the other.
type court struct {
	*system
	chat    *socketChat
	control string // path of the control socket
	said    string // the answer of the crime that is being looked at
	abi     int
	asked   int
}

const courtConfig = `
supervisor:
  agent_instances: 2
  health_interval: 1s
  workers: {plugin-hostile: {fds: 256, memory: 64MiB}}
  plugins: {hostile: {processes: 64}}
`

// buildHostile builds the plugin that misbehaves, under a name.
func buildHostile(t *testing.T, name string, set ...string) string {
	t.Helper()
	path := filepath.Join(public(t), name)
	flags := "-s -w -X main.name=" + name
	for _, s := range set {
		flags += " -X " + s
	}
	if out, err := exec.Command("go", "build", "-ldflags", flags, "-o", path, "./testdata/hostile").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// public is a folder that other users can read, unlike those of tests.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// convene starts a system with the hostile plugin and an innocent neighbour, as an ordinary user if that is wanted.
func convene(t *testing.T, config string, ordinary bool) *court {
	t.Helper()
	c := &court{system: newSystem(t, config)}
	c.chat = &socketChat{sys: c.system, id: "court"}
	if ordinary {
		c.ordinary()
	}
	c.start()
	t.Cleanup(func() {
		if code, _ := c.stop(); code != 0 {
			t.Errorf("the supervisor ended with %d", code)
		}
	})
	for _, name := range []string{"hostile", "neighbour"} {
		c.must("plugins", "add", "--yes", buildHostile(t, name))
	}
	c.control = c.socket()
	out, err := exec.Command(filepath.Join(bin, "hermes-confine"), "--report").Output()
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`"landlock_abi":(\d+)`).FindSubmatch(out); m != nil {
		c.abi, _ = strconv.Atoi(string(m[1]))
	}
	return c
}

// must runs a command that has to work.
func (c *court) must(args ...string) string {
	c.t.Helper()
	out, errOut, code := c.command(nil, args...)
	if code != 0 {
		c.t.Fatalf("%s: exit %d: %s", strings.Join(args, " "), code, errOut)
	}
	return out
}

// ask sends a message and returns the answer.
func (c *court) ask(text string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c.asked++
	answer, err := c.chat.ask(ctx, fmt.Sprintf("m-%d", c.asked), text)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// fill puts the paths of this system into a call.
func (c *court) fill(call string) string {
	sum := regexp.MustCompile(`"sha256": "(\w+)"`).FindStringSubmatch(c.must("plugins", "info", "hostile", "-o", "json"))
	neighbour, sibling := "", ""
	if strings.Contains(call, "$SIBLING") {
		c.ask("call: neighbour_fine {}")
		sibling = strconv.Itoa(int(c.worker("plugin-neighbour").Pid))
	}
	if strings.Contains(call, "$NEIGHBOUR") {
		c.ask("call: neighbour_fine {}") // so that it runs
		sockets, _ := filepath.Glob(filepath.Join(c.runDir, "*", "plugin-dir*", "plugin*"))
		pid := c.worker("plugin-neighbour").Pid
		for _, s := range sockets {
			if holdsSocket(int(pid), s) {
				neighbour = s
			}
		}
		if neighbour == "" {
			c.t.Fatalf("no socket of process %d among %v", pid, sockets)
		}
	}
	return strings.NewReplacer("$STATE", filepath.Join(c.home, "state.db"), "$CONTROL", c.control, "$NEIGHBOUR", neighbour,
		"$SUPERVISOR", strconv.Itoa(c.pid()), "$SIBLING", sibling, "$PROGRAM", filepath.Join(c.home, "tool-plugins", "bin", sum[1])).Replace(call)
}

// holdsSocket says whether a process listens at the path.
func holdsSocket(pid int, path string) bool {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[7] != path {
			continue
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if target, _ := os.Readlink(fd); target == "socket:["+f[6]+"]" {
				return true
			}
		}
	}
	return false
}

// A footprint is what the supervisor holds.
type footprint struct{ fds, goroutines, anon int64 }

func (c *court) footprint() footprint {
	c.t.Helper()
	st, err := c.status()
	if err != nil {
		c.t.Fatal(err)
	}
	return footprint{st.Supervisor.Fds, st.Supervisor.Goroutines, anonymous(c.pid())}
}

// anonymous returns the anonymous memory of a process in MiB.
func anonymous(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	kib, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kib >> 10
}

// memoryTolerance is how many MiB of garbage the supervisor may have after a crime: two messages of the largest size, with
// what the collector lets a heap grow before it looks.
const memoryTolerance = 48

// try commits a crime and looks at the traces.
func (c *court) try(t *testing.T, cr crime) {
	defer func(outer *testing.T) { c.t = outer }(c.t)
	c.t = t
	if cr.landlock > c.abi {
		t.Skipf("this kernel has Landlock %d, the wall needs %d", c.abi, cr.landlock)
	}
	modeFile := filepath.Join(c.home, "tool-plugins", "data", "hostile", "mode")
	if cr.mode != "" {
		if err := os.MkdirAll(filepath.Dir(modeFile), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(modeFile, []byte(cr.mode), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Dir(filepath.Dir(modeFile)), filepath.Dir(modeFile), modeFile} {
			if c.user == 0 {
				break
			}
			if err := os.Chown(path, int(c.user), -1); err != nil { // who runs the supervisor would have made them
				t.Fatal(err)
			}
		}
	}
	call := c.fill(cr.call)
	before, begun := c.footprint(), time.Now()
	c.must("plugins", "enable", "hostile")
	c.said = c.ask("call: " + call)
	if !regexp.MustCompile(`(?s)` + cr.answer).MatchString(c.said) {
		t.Errorf("the answer:\n%s\nwant %s", c.said, cr.answer)
	}
	if cr.story != "" {
		c.tells(begun, cr.story)
	}
	if cr.after != nil {
		cr.after(t, c)
	}
	c.must("plugins", "disable", "hostile")
	if cr.end != "" {
		c.tells(begun, cr.end)
	}
	_ = os.Remove(modeFile)
	c.nothingIsLeft(before)
	if again := c.ask("call: neighbour_fine {}"); !strings.Contains(again, "all is well") {
		t.Errorf("another plugin: %s", again)
	}
	t.Logf("%v", time.Since(begun).Round(time.Millisecond))
}

// tells waits until the timeline has a story.
func (c *court) tells(since time.Time, want string) {
	c.t.Helper()
	re := regexp.MustCompile(`(?s)` + want)
	c.eventually(20*time.Second, "the timeline tells "+want, func() error {
		var all []string
		for _, s := range c.timeline().Stories {
			if s.At < float64(since.UnixMicro())/1e6 || s.Worker != "plugin-hostile" {
				continue
			}
			text := s.Kind + " " + s.Cause + " " + s.Message
			for k, v := range s.Fields {
				text += " " + k + "=" + v
			}
			if re.MatchString(text) {
				return nil
			}
			all = append(all, text)
		}
		return fmt.Errorf("it tells\n%s", strings.Join(all, "\n"))
	})
}

// nothingIsLeft compares the supervisor with what it was, and looks for processes.
func (c *court) nothingIsLeft(before footprint) {
	c.t.Helper()
	c.eventually(10*time.Second, "all processes of the plugin are gone", func() error {
		known := map[int]bool{}
		for _, p := range ours(bin) {
			known[p.pid] = true
		}
		neighbour := int(c.worker("plugin-neighbour").Pid)
		for _, p := range descendants(c.pid()) {
			if !known[p.pid] && p.pid != neighbour {
				return fmt.Errorf("process %d (%s, %s)", p.pid, p.command, p.state)
			}
		}
		return nil
	})
	c.eventually(10*time.Second, "the supervisor holds what it held", func() error {
		now := c.footprint()
		if now.fds > before.fds+flatTolerance || now.goroutines > before.goroutines+flatTolerance || now.anon > before.anon+memoryTolerance {
			return fmt.Errorf("it was %+v, it is %+v", before, now)
		}
		return nil
	})
}
