package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// ended is what a person reads of a call whose plugin is gone.
const endedDuring = "unknown whether this call of .* its worker plugin-hostile ended while it ran"

var crimes = []crime{
	// Before it serves.
	{name: "exits in its handshake", mode: "exit", call: "fine {}",
		answer: "plugin hostile is quarantined: it ended before its handshake: ended with code 3.*no licence for this machine",
		story:  "death start_failed it ended before its handshake: ended with code 3"},
	{name: "prints garbage before its handshake", mode: "garbage", call: "fine {}", answer: "all is well"},
	{name: "prints garbage for ever", mode: "babble", call: "fine {}",
		answer: `no handshake in the first 64 lines of its stdout, which begins with "all work and no play"`,
		story:  "death start_failed no handshake in the first 64 lines"},
	{name: "speaks another version", mode: "version", call: "fine {}",
		answer: "plugin hostile is quarantined: it speaks worker protocol 99, this supervisor speaks 1",
		story:  "plugin_quarantined .*it speaks worker protocol 99"},
	{name: "names a socket that is not its own", mode: "elsewhere", call: "fine {}",
		answer: "plugin hostile is quarantined: its handshake names .*which is not in its own folder",
		story:  "death start_failed its handshake names unix \"/tmp/none\""},

	{name: "leaves its start to a child and ends", mode: "daemonise", call: "fine {}",
		answer: "plugin hostile is quarantined: it ended before its handshake", story: "death start_failed it ended before its handshake.*strays=1"},
	{name: "closes all that it has open before its handshake", mode: "close_all", call: "fine {}",
		answer: "plugin hostile is quarantined: it closed its stdout before its handshake",
		story:  "death start_failed it closed its stdout before its handshake"},

	// In a call.
	{name: "panics in a call", call: "panic {}", answer: "panic failed by a fault of its own: boom in the call",
		story: "call_failed .*panic.* boom in the call"},
	{name: "panics in a goroutine", call: "panic_beside {}", answer: endedDuring, story: "death crashed panic: boom beside the call"},
	{name: "hangs", call: "hang {}", answer: "hang (took too long|did not end within)", story: "call_failed .*hang"},
	{name: "ignores cancel", call: "hang_for_ever {}", answer: "hang_for_ever did not end within 2s",
		story: "recycling .*go on after"},
	{name: "stops itself", call: "freeze {}", answer: endedDuring, story: "death hung did not answer its health checks"},
	{name: "ignores SIGTERM", call: "deafen {}", answer: "deaf", end: "death planned .*ended by SIGKILL after SIGTERM, SIGQUIT, SIGKILL"},
	{name: "forks away", call: "fork_away {}", answer: "forked away", end: "death planned .*strays=3"},
	{name: "leaves a grandchild that ignores SIGTERM", call: "deaf_grandchild {}", answer: "it is deaf", end: "death planned .*strays=1"},
	{name: "closes its stdout after its handshake", call: "close_stdout {}", answer: "closed", after: func(t *testing.T, c *court) {
		if again := c.ask("call: fine {}"); !strings.Contains(again, "all is well") {
			t.Errorf("the next call: %s", again)
		}
	}},
	{name: "returns JSON that is nested deeply", call: "deep_json {}", answer: `\{"a":\[\{"a":\[`},
	{name: "floods stderr", call: `flood_stderr {"n": 100}`, answer: "flooded", story: "log_flood .*dropped"},
	{name: "prints a line of 100 MB", call: `long_line {"n": 100}`, answer: "printed", after: func(t *testing.T, c *court) {
		if out := c.must("ctl", "logs", "-n", "50", "plugin-hostile"); !strings.Contains(out, "xxx") || len(out) > 1<<20 {
			t.Errorf("%d bytes of log", len(out))
		}
	}},
	{name: "prints 10 GB that are no line", call: `endless_line {"n": 10240}`, answer: "printed", after: func(t *testing.T, c *court) {
		c.must("plugins", "disable", "hostile") // now the line has an end
		if out := c.must("ctl", "logs", "-n", "3", "plugin-hostile"); !strings.Contains(out, "xxx") || !strings.Contains(out, "10737") || len(out) > 1<<20 {
			t.Errorf("%d bytes of log: %.200s … %s", len(out), out, out[max(0, len(out)-200):])
		}
	}},
	{name: "leaves all to a child and ends", call: "daemonise {}", answer: endedDuring, story: "death crashed ended with code 0.*strays=1"},
	{name: "closes all that it has open, and lives on", call: "close_all {}", answer: endedDuring, story: "death .*"},
	{name: "fills its folder for temporary files", call: `fill_temp {"n": 200}`, answer: "written"},
	{name: "fork-bombs", call: `fork_bomb {"n": 9}`, answer: endedDuring, story: "death processes .*it may have 64"},

	// What it returns.
	{name: "returns 1 GB", call: "return_1gb {}", answer: endedDuring, story: "death (memory|crashed) .*(memory|SIGSEGV)"}, // a runtime that gets none may fault
	{name: "streams 1 GB", call: "stream_1gb {}", answer: "stream_1gb was stopped: it sent over 64 MiB", story: "call_failed .*over 64 MiB"},
	{name: "returns a message over the limit", call: "huge_message {}", answer: "larger than max", story: "call_failed .*larger than max"},
	{name: "returns invalid UTF-8", call: "bad_utf8 {}", answer: "UTF-8", story: "call_failed .*UTF-8"},
	{name: "returns invalid JSON", call: "bad_message {}", answer: "not what the protocol says", story: "call_failed .*not what the protocol says"},
	{name: "returns nothing", call: "no_result {}", answer: "ended the call without a result", story: "call_unknown .*without a result"},

	// What it takes.
	{name: "leaks descriptors", call: `leak_fds {"n": 60}`, answer: "leaking descriptors",
		story: "recycling .*descriptors.*top_handles=.*/dev/null"},
	{name: "leaks memory", call: `leak_memory {"n": 10}`, answer: "leaking memory", story: "(recycling|over_limit) .*MiB"},
	{name: "allocates 1 GB a second", call: "hog_memory {}", answer: endedDuring, story: "death (memory|crashed) .*memory"},

	// What it reaches for.
	{name: "opens state.db", landlock: 1, call: `read {"path": "$STATE"}`, answer: "state.db: permission denied", story: "call_failed .*state.db: permission denied"},
	{name: "reads another process's environment", landlock: 1, call: `read {"path": "/proc/$SUPERVISOR/environ"}`,
		answer: "environ: permission denied", story: "call_failed .*environ: permission denied"},
	{name: "reads the supervisor's memory", landlock: 1, call: `read {"path": "/proc/$SUPERVISOR/mem"}`,
		answer: "mem: permission denied", story: "call_failed .*mem: permission denied"},
	{name: "takes the supervisor over", landlock: 1, call: `trace {"n": $SUPERVISOR}`, answer: "operation not permitted", story: "call_failed .*not permitted"},
	{name: "signals the supervisor", landlock: 6, call: `signal {"n": $SUPERVISOR}`, answer: "operation not permitted", story: "call_failed .*not permitted"},
	{name: "takes another plugin over", landlock: 1, call: `trace {"n": $SIBLING}`, answer: "operation not permitted"},
	{name: "signals another plugin", landlock: 6, call: `signal {"n": $SIBLING}`, answer: "operation not permitted"},
	{name: "looks for what it was left", call: "who {}", answer: `"Session":true,"Terminal":false,"Foreign":null`},
	{name: "connects to the control socket", call: `dial {"path": "$CONTROL"}`, answer: "connected, but not answered|broken pipe|connection reset|permission denied",
		story: "peer_refused .*control socket"},
	{name: "connects to another plugin's socket", call: `dial {"path": "$NEIGHBOUR"}`, answer: "connected, but (not answered|TLS is wanted)|broken pipe|connection reset|permission denied|connection refused",
		story: "call_failed .*dial"},
	{name: "replaces its own program", landlock: 1, call: `overwrite {"path": "$PROGRAM"}`, answer: "permission denied",
		story: "call_failed .*permission denied", after: func(t *testing.T, c *court) {
			if out, _, code := c.command(nil, "plugins", "verify"); code != 0 {
				t.Errorf("exit %d: %s", code, out)
			}
		}},
	{name: "opens its own program to others", call: `open_to_others {"path": "$PROGRAM"}`, answer: "opened|operation not permitted|permission denied",
		after: func(t *testing.T, c *court) {
			program := c.fill("$PROGRAM")
			defer func() { _ = os.Chmod(program, 0o500) }()
			if c.said = c.ask("call: deafen {}"); !strings.Contains(c.said, "deaf") {
				t.Errorf("the running process: %s", c.said)
			}
			c.must("plugins", "disable", "hostile")
			c.must("plugins", "enable", "hostile")
			if c.said = c.ask("call: fine {}"); !strings.Contains(c.said, "others can change it") {
				t.Errorf("the next start: %s", c.said)
			}
		}},
	{name: "looks for secrets in its own environment", call: "environment {}", answer: "HERMES_WORKER", after: func(t *testing.T, c *court) {
		if strings.Contains(c.said, "OPENAI") || strings.Contains(c.said, "HERMES_HOME") {
			t.Errorf("its environment: %s", c.said)
		}
	}},
}

// plainCrimes are those against the protocol below gRPC, which can be committed without TLS.
var plainCrimes = []crime{
	{name: "answers calls that are not its own", call: "answer_others {}", answer: "answered for others", after: func(t *testing.T, c *court) {
		if again := c.ask("call: fine {}"); !strings.Contains(again, "all is well") {
			t.Errorf("the next call: %s", again)
		}
	}},
	{name: "sends half a frame and waits", call: "half_frame {}", answer: endedDuring, story: "death hung did not answer its health checks"},
}

func TestAPlainPluginCanOnlyHurtItself(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	c := convene(t, courtConfig, false)
	c.must("plugins", "add", "--yes", "--plain", buildHostile(t, "hostile"))
	c.ask("call: neighbour_fine {}")
	for _, cr := range plainCrimes {
		if !t.Run(cr.name, func(t *testing.T) { c.try(t, cr) }) {
			t.Logf("supervisor's last output:\n%s", c.out.String())
		}
	}
}

func TestAPluginCanOnlyHurtItself(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	c := convene(t, courtConfig, false)
	c.ask("call: neighbour_fine {}")
	time.Sleep(time.Second) // every loop has turned once
	for _, cr := range crimes {
		if !t.Run(cr.name, func(t *testing.T) { c.try(t, cr) }) {
			t.Logf("supervisor's last output:\n%s", c.out.String())
		}
	}
}
