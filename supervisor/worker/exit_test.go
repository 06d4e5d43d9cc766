package worker

import (
	"strings"
	"syscall"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
)

func TestCauses(t *testing.T) {
	alive := machine{state: Ready}
	for _, c := range []struct {
		name    string
		before  machine
		exit    Exit
		cause   string
		message string
	}{
		{"crash by code", alive, Exit{Code: 3}, CauseCrashed, "ended with code 3"},
		{"unasked code 0", alive, Exit{}, CauseCrashed, "ended with code 0"},
		{"panic", alive, Exit{Code: 2, lastWords: "panic: no"}, CauseCrashed, "panic: no"},
		{"crash by signal", alive, Exit{Code: -1, Signal: "SIGSEGV"}, CauseCrashed, "ended by SIGSEGV"},
		{"killed", alive, Exit{Code: -1, Signal: "SIGKILL"}, CauseKilled, "SIGKILL from outside the supervisor"},
		{"told to end", alive, Exit{Code: -1, Signal: "SIGTERM"}, CauseKilled, "SIGTERM from outside the supervisor"},
		{"no memory", alive, Exit{Code: -1, Signal: "SIGKILL", oom: true, Last: sample.Sample{RSS: 900 << 20}}, CauseOOM, "the kernel ended it for want of memory; it last held 900 MiB"},
		{"crash while another was killed for memory", alive, Exit{Code: -1, Signal: "SIGSEGV", oom: true}, CauseCrashed, "ended by SIGSEGV"},
		{"hung", machine{state: Stopping, hung: true}, Exit{Code: 2, sent: []syscall.Signal{syscall.SIGQUIT, syscall.SIGCONT}}, CauseHung, "did not answer its health checks; ended with code 2 after SIGQUIT"},
		{"hung and told to stop", machine{state: Stopping, hung: true, intent: down}, Exit{Code: -1, Signal: "SIGKILL"}, CauseHung, "did not answer its health checks; ended by SIGKILL"},
		{"stop", machine{state: Stopping, intent: down}, Exit{sent: []syscall.Signal{syscall.SIGTERM}}, CauseOperator, "stop; ended with code 0 after SIGTERM"},
		{"stubborn stop", machine{state: Stopping, intent: closing}, Exit{Code: -1, Signal: "SIGKILL", sent: []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGCONT, syscall.SIGKILL}}, CausePlanned, "end of the supervisor; ended by SIGKILL after SIGTERM, SIGQUIT, SIGKILL"},
		{"restart", machine{state: Draining, intent: again}, Exit{Code: 1}, CauseOperator, "restart; ended with code 1"},
		{"failed start", machine{state: Starting}, Exit{Code: -1, Signal: "SIGKILL", Message: "no bread"}, CauseStartFailed, "no bread"},
		{"not ended", machine{state: Stopping, intent: again}, Exit{Code: -1, Message: "it was not gone"}, CauseOperator, "it was not gone; restart; not ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.exit.judge(c.before)
			if c.exit.Cause != c.cause || c.exit.Message != c.message {
				t.Errorf("%s: %q, want %s: %q", c.exit.Cause, c.exit.Message, c.cause, c.message)
			}
		})
	}
}

func TestRunDirMustFitASocket(t *testing.T) {
	for _, c := range []struct {
		dir    string
		saying string
	}{
		{"/run/hermes-supervisor", ""},
		{"/" + strings.Repeat("d", 68), ""},
		{"/" + strings.Repeat("d", 69), "at most 69 bytes"},
		{"/" + strings.Repeat("d", 200), "up to 239 bytes, the kernel allows 107"},
		{"run", "not absolute"},
	} {
		err := CheckRunDir(c.dir)
		if (err == nil) != (c.saying == "") || err != nil && !strings.Contains(err.Error(), c.saying) {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
}

func TestMarks(t *testing.T) {
	m := mark{home: "0123abcd", run: "xyz", worker: "gateway/telegram-1", incarnation: 7}
	if got, ok := parseMark(m.String()); !ok || got != m {
		t.Errorf("%s is read as %+v", m, got)
	}
	if got, ok := markOf([]string{"A=B", MarkEnv + "=" + m.String()}); !ok || got != m {
		t.Errorf("in an environment: %+v", got)
	}
	if homeOf("/run/a") == homeOf("/run/b") || homeOf("/run/a") != homeOf("/run/a/") {
		t.Error("names of run directories")
	}
	for _, s := range []string{"", "a", "a/b", "a-b/c", "a-b/c/", "a-b/c/-1", "a/b/1"} {
		if got, ok := parseMark(s); ok {
			t.Errorf("%q is read as %+v", s, got)
		}
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add("0123abcd-xyz/agent-1/7")
	f.Add("-//")
	f.Fuzz(func(t *testing.T, s string) {
		if m, ok := parseMark(s); ok {
			if again, ok := parseMark(m.String()); !ok || again != m {
				t.Errorf("%q: %+v, then %+v", s, m, again)
			}
		}
	})
}

func FuzzHandshake(f *testing.F) {
	f.Add([]byte("1|1|unix|/run/x/plugin123|grpc||true"))
	f.Add([]byte("|||"))
	f.Add([]byte("1|2|tcp|"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if !isHandshake(line) {
			return
		}
		// What is taken for one reaches go-plugin as one line.
		h := newHandshake()
		h.give(line)
		h.end(nil)
		if got, err := h.given(); err != nil || got == "" {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	})
}

func TestFdsNamesWhatIsOpenInTheWholeFamily(t *testing.T) {
	r := newRig(t)
	w := r.live(spec("grandchild"))
	if _, err := w.Fds(); err == nil && w.PID() == 0 {
		t.Error("descriptors of nothing")
	}
	w.awaitReady()
	until(t, "a child", func() bool { d, _ := sample.System.Descendants(w.PID()); return len(d) > 0 })
	fds, err := w.Fds()
	if err != nil {
		t.Fatal(err)
	}
	pids, kinds := map[int64]bool{}, map[string]bool{}
	for _, fd := range fds.Fds {
		pids[fd.Pid], kinds[fd.Kind] = true, true
	}
	if fds.Limit != 512 || len(pids) != 2 || !kinds["pipe"] || !kinds["socket"] || !kinds["device"] {
		t.Errorf("limit %d, pids %v, kinds %v", fds.Limit, pids, kinds)
	}
}
