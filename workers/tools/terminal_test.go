package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestTerminalReturnsWhatACommandPrints(t *testing.T) {
	f := started(t, nil)
	for _, row := range []struct {
		command, output string
		code            int
		err             string
	}{
		{"echo hello-42", "hello-42\n", 0, ""},
		{"uname -s", "Linux\n", 0, ""},
		{"echo out; echo err >&2; echo out", "out\nerr\nout\n", 0, ""},
		{"exit 7", "", 7, ""},
		{"false", "", 1, ""},
		{"no-such-command", "", 127, ""},
		{"kill -9 $$", "", 137, "ended by a signal (killed)"},
		{"cat", "", 0, ""},                               // no input
		{"read -r x < /dev/tty; echo $?", "", 0, ""},     // no terminal to ask on
		{"printf 'a\\0b\\xffc'", "a\x00b\uFFFDc", 0, ""}, // any bytes
		{"set -o | grep -c nothing; echo $0", "", 0, ""}, //
		{"[[ -o login_shell ]] && echo login || echo no", "no\n", 0, ""},
		{"ulimit -c; umask", "", 0, ""},
	} {
		var r terminalResult
		f.ok("terminal", args{"command": row.command}, &r)
		if r.ExitCode != row.code || row.output != "" && r.Output != row.output {
			t.Errorf("%s: %+v", row.command, r)
		}
		if row.err == "" != (r.Error == nil) || r.Error != nil && !strings.Contains(*r.Error, row.err) {
			t.Errorf("%s: error %v, want %q", row.command, r.Error, row.err)
		}
	}
}

func TestTerminalRunsInADirectory(t *testing.T) {
	f := started(t, nil)
	if err := os.Mkdir(filepath.Join(f.work, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": f.work, "sub": filepath.Join(f.work, "sub"), "/": "/", "~": os.Getenv("HOME")} {
		var r terminalResult
		f.ok("terminal", args{"command": "pwd", "workdir": dir}, &r)
		if r.Output != want+"\n" {
			t.Errorf("workdir %q: %q", dir, r.Output)
		}
	}
	f.fails("terminal", args{"command": "pwd", "workdir": "nowhere"}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "no such file")
	f.fails("terminal", args{"command": "  "}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "is empty")
	f.fails("terminal", args{"command": "ls", "timeout": 601}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "at most 600")
	f.fails("terminal", args{"command": "true " + strings.Repeat("x", 200_000)}, toolv1.ToolError_KIND_BAD_ARGUMENTS, "too long")
}

func TestSecretsAreNotInACommandsEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "s3cret", "TELEGRAM_BOT_TOKEN": "s3cret", "my_secret": "s3cret", "DB_PASSWORD": "s3cret", "AWS_CREDENTIALS": "s3cret",
		"HERMES_SUPERVISOR_WORKER": "s3cret", "PLUGIN_CLIENT_CERT": "s3cret", "NOTIFY_SOCKET": "s3cret", "BASH_ENV": "s3cret", "BASH_FUNC_ls%%": "() { echo s3cret; }",
		"ALLOWED_TOKEN": "passed", "PLAIN": "kept", "HERMES_WORKER": "home-run/tools/1",
	} {
		t.Setenv(name, value)
	}
	f := started(t, func(c *ipc.ToolsConfig) { c.EnvPassthrough = []string{"ALLOWED_TOKEN"} })
	var r terminalResult
	f.ok("terminal", args{"command": "env; ls"}, &r)
	for _, want := range []string{"ALLOWED_TOKEN=passed", "PLAIN=kept", "HERMES_WORKER=home-run/tools/1", "PATH=", "TERM=dumb", "HERMES_HOME=" + f.home, "PWD=" + f.work} {
		if !strings.Contains(r.Output, want) {
			t.Errorf("%s is missing in %s", want, r.Output)
		}
	}
	if strings.Contains(r.Output, "s3cret") {
		t.Errorf("a secret is in %s", r.Output)
	}
}

func TestTheEnvironmentHasAPath(t *testing.T) {
	env := commandEnv([]string{"HOME=/x", "ENV=/evil"}, nil, "/h")
	if joined := strings.Join(env, " "); !strings.Contains(joined, "PATH="+defaultPath) || strings.Contains(joined, "evil") {
		t.Errorf("%v", env)
	}
}

func TestATimeoutEndsACommandWithAllThatItStarted(t *testing.T) {
	f := started(t, nil)
	var r terminalResult
	begin := time.Now()
	f.ok("terminal", args{"command": "echo $$ > pids; setsid sleep 1000 & echo $! >> pids; trap '' TERM; echo begun; while :; do sleep 1000; done", "timeout": 1}, &r)
	if r.ExitCode != 124 || r.Error == nil || *r.Error != "the command did not end within 1s and was ended" || !strings.Contains(r.Output, "begun") {
		t.Errorf("%+v, error %v", r, *r.Error)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("ended after %s", took)
	}
	expectGone(t, filepath.Join(f.work, "pids"), 2)
}

func expectGone(t *testing.T, pids string, n int) {
	t.Helper()
	fields := strings.Fields(read(t, pids))
	if len(fields) < n {
		t.Errorf("%d process numbers in %s, want %d", len(fields), pids, n)
	}
	for _, field := range fields {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

func TestCancelEndsACommand(t *testing.T) {
	f := started(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	pids := filepath.Join(f.work, "pids")
	results := make(chan outcome, 1)
	go func() {
		results <- f.call(ctx, "terminal", args{"command": "sleep 1000 & echo $! > tmp; echo $$ >> tmp; mv tmp pids; wait"})
	}()
	until(t, "the command runs", func() bool { _, err := os.Stat(pids); return err == nil })
	cancel()
	if o := <-results; !errors.Is(o.err, ipc.ErrCancelled) {
		t.Errorf("ended with %v", o.err)
	}
	if n := f.worker.Drain(t.Context()); n != 0 {
		t.Errorf("%d calls run", n)
	}
	expectGone(t, pids, 2)
}

// TestADetachedGrandchildDelaysNothing: it holds the output and has left group and session.
func TestADetachedGrandchildDelaysNothing(t *testing.T) {
	f := started(t, nil)
	for name, command := range map[string]string{
		"setsid":      `setsid bash -c 'echo $$ > pid; sleep 1000' & until [ -s pid ]; do sleep 0.01; done; echo started`,
		"double fork": `(setsid bash -c '(echo $BASHPID > pid; exec sleep 1000) &' &); until [ -s pid ]; do sleep 0.01; done; echo started`,
		"nohup":       `nohup bash -c 'trap "" TERM; echo $$ > pid; sleep 1000' >&1 & until [ -s pid ]; do sleep 0.01; done; echo started`,
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			_ = os.Remove(filepath.Join(f.work, "pid"))
			var r terminalResult
			f.ok("terminal", args{"command": command, "timeout": 600}, &r)
			if r.ExitCode != 0 || r.Error != nil || !strings.Contains(r.Output, "started") {
				t.Errorf("%+v", r)
			}
			expectGone(t, filepath.Join(f.work, "pid"), 1)
		})
	}
}

func TestTwoCommandsRunSideBySide(t *testing.T) {
	f := started(t, nil)
	f.ok("terminal", args{"command": "mkfifo a b"}, nil)
	results := make(chan outcome, 2)
	go func() { results <- f.call(t.Context(), "terminal", args{"command": "echo x > a; cat b"}) }()
	go func() { results <- f.call(t.Context(), "terminal", args{"command": "cat a; echo y > b"}) }()
	for range 2 {
		if o := <-results; o.err != nil || o.result.Error != nil {
			t.Errorf("%v, %v", o.result, o.err)
		}
	}
}

func TestLongOutputIsCutAndKept(t *testing.T) {
	f := started(t, nil)
	var r terminalResult
	result := f.ok("terminal", args{"command": "seq 100000"}, &r)
	if n := utf8.RuneCountInString(r.Output); n < 50_000 || n > 50_300 {
		t.Errorf("%d characters", n)
	}
	if !strings.HasPrefix(r.Output, "1\n2\n") || !strings.HasSuffix(r.Output, "99999\n100000\n") || !strings.Contains(r.Output, "characters left out here; all of it is in "+result.SpillPath) {
		t.Errorf("output %.100q … %.100q", r.Output, r.Output[len(r.Output)-100:])
	}
	whole := read(t, result.SpillPath)
	if !strings.HasPrefix(whole, "1\n2\n") || !strings.HasSuffix(whole, "\n100000\n") || len(whole) != 588895 || filepath.Dir(result.SpillPath) != f.spill {
		t.Errorf("spill file %s of %d bytes", result.SpillPath, len(whole))
	}
}

// TestAFloodOfOutputKeepsMemoryInBounds prints 500 MB.
func TestAFloodOfOutputKeepsMemoryInBounds(t *testing.T) {
	f := started(t, nil)
	size := 500
	if testing.Short() {
		size = 100
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := make(chan uint64, 1)
	stop := make(chan struct{})
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	var r terminalResult
	result := f.ok("terminal", args{"command": fmt.Sprintf("head -c %dM /dev/zero | tr '\\0' 'x'; head -c 1M /dev/zero | tr '\\0' '\\n'; echo the end", size)}, &r)
	close(stop)
	most := <-peak
	if grown := int64(most) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	t.Logf("heap before %d KiB, peak %d KiB", before.HeapAlloc>>10, most>>10)
	if !strings.HasSuffix(r.Output, "\nthe end\n") || !strings.Contains(r.Output, "the first 64 MiB are in") {
		t.Errorf("output ends with %.100q", r.Output[len(r.Output)-100:])
	}
	if info, err := os.Stat(result.SpillPath); err != nil || info.Size() > maxSpill+100 || info.Size() < maxSpill {
		t.Errorf("spill file: %v, %v", info, err)
	}
}

func TestProgressShowsTheNewestLine(t *testing.T) {
	f := started(t, nil)
	o := f.call(t.Context(), "terminal", args{"command": "for i in $(seq 1000); do echo line $i; done; sleep 0.6; for i in $(seq 1000 2000); do echo line $i; done; sleep 0.6; printf 'no end'; sleep 0.6"})
	if o.err != nil || len(o.progress) < 2 || len(o.progress) > 20 || o.progress[len(o.progress)-1] != "line 2000" {
		t.Errorf("progress %q, %v", o.progress, o.err)
	}
}

func TestProgressKeepsOnlyTheNewestLine(t *testing.T) {
	p := &progress{}
	for _, row := range []struct {
		write, want string
		fresh       bool
	}{
		{"", "", false}, {"a", "", false}, {"b\n", "ab", true}, {"", "ab", false}, {"c\nd\ne", "d", true}, {"f\n\n", "d", false},
		{"g\nhi\n", "hi", true}, {" \t\n", "hi", false}, {strings.Repeat("x", 5000), "hi", false}, {"y\n", strings.Repeat("x", lineBytes), true},
	} {
		_, _ = p.Write([]byte(row.write))
		if got, fresh := p.take(); got != row.want || fresh != row.fresh {
			t.Errorf("after %.20q: %.20q %v, want %.20q %v", row.write, got, fresh, row.want, row.fresh)
		}
	}
}

func TestCloseEndsCommandsAtOnce(t *testing.T) {
	f := started(t, nil)
	pids := filepath.Join(f.work, "pids")
	results := make(chan outcome, 1)
	go func() {
		results <- f.call(t.Context(), "terminal", args{"command": "trap '' TERM; (trap '' TERM; sleep 1000; sleep 1000) & echo $! > tmp; setsid sleep 1000 & echo $! >> tmp; mv tmp pids; wait"})
	}()
	until(t, "the command runs", func() bool { _, err := os.Stat(pids); return err == nil })
	f.worker.Close()
	<-results
	if n := f.worker.Drain(t.Context()); n != 0 {
		t.Errorf("%d calls run", n)
	}
	expectGone(t, pids, 2)
	if o := f.call(t.Context(), "terminal", args{"command": "ls"}); !errors.Is(o.err, ipc.ErrRefused) {
		t.Errorf("a call after Close: %v", o.err)
	}
}

func TestCommandsAreJudged(t *testing.T) {
	f := started(t, nil)
	for command, want := range map[string]toolv1.CheckResponse_Verdict{
		"ls -la":                               toolv1.CheckResponse_VERDICT_ALLOW,
		"rm -rf build":                         toolv1.CheckResponse_VERDICT_ASK,
		"rm -rf /":                             toolv1.CheckResponse_VERDICT_REFUSE,
		"echo \"":                              toolv1.CheckResponse_VERDICT_ASK,
		"cat " + filepath.Join(f.home, ".env"): toolv1.CheckResponse_VERDICT_ASK,
		"cat " + filepath.Join(f.home, "state.db"): toolv1.CheckResponse_VERDICT_REFUSE,
	} {
		r := f.verdict("terminal", args{"command": command})
		if r.Verdict != want || r.Summary != strings.TrimSpace(command) || (want == toolv1.CheckResponse_VERDICT_ALLOW) != (r.Reason == "") {
			t.Errorf("%s: %v", command, r)
		}
	}
	if r := f.verdict("terminal", args{"command": "rm -rf ../*", "workdir": "/etc"}); r.Verdict != toolv1.CheckResponse_VERDICT_REFUSE {
		t.Errorf("the working directory is not looked at: %v", r)
	}
	r := f.verdict("terminal", args{"command": "rm -r x\n\x1b[2Krm -r y"})
	if strings.ContainsAny(r.Summary, "\n\x1b") {
		t.Errorf("a person would be shown %q", r.Summary)
	}
}

func TestOutputIsCutByCharacters(t *testing.T) {
	for _, row := range []struct {
		name  string
		write []string
		want  string
	}{
		{"nothing", nil, ""},
		{"short", []string{"abc"}, "abc"},
		{"exactly", []string{"0123456789"}, "0123456789"},
		{"one more", []string{"0123456789a"}, "0123\n\n[… 1 of 11 characters left out here …]\n\n56789a"},
		{"in pieces", []string{"01", "234567", "", "89abc"}, "0123\n\n[… 3 of 13 characters left out here …]\n\n789abc"},
		{"wide", []string{"äöüßäöüßäö"}, "äöüßäöüßäö"},
		{"wide, cut", []string{"€€€€€€€€€€€€"}, "€€€€\n\n[… 2 of 12 characters left out here …]\n\n€€€€€€"},
		{"split in a character", []string{"\xe2\x82", "\xac1", "23"}, "€123"},
		{"not a character", []string{"a\xffb"}, "a\uFFFDb"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newOutput(10, func() (*os.File, error) { return nil, errors.New("no spill") })
			for _, w := range row.write {
				if n, err := o.Write([]byte(w)); n != len(w) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
			}
			if got := o.finish(); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

// FuzzOutput compares an output with the same text cut after the fact.
func FuzzOutput(f *testing.F) {
	f.Add("some text", 3, 10)
	f.Add(strings.Repeat("€uro\xff", 50), 7, 20)
	f.Fuzz(func(t *testing.T, text string, piece, limit int) {
		if piece < 1 || limit < 1 || limit > 10_000 {
			return
		}
		spill := filepath.Join(t.TempDir(), "spill")
		o := newOutput(limit, func() (*os.File, error) { return os.Create(spill) })
		for k := 0; k < len(text); k += piece {
			_, _ = o.Write([]byte(text[k:min(k+piece, len(text))]))
		}
		got := o.finish()
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 8*limit+400+len(spill) {
			t.Fatalf("%q of %d characters", got, utf8.RuneCountInString(got))
		}
		if o.file == nil {
			if utf8.ValidString(text) && got != text {
				t.Fatalf("%q, want %q", got, text)
			}
			return
		}
		if whole, err := os.ReadFile(spill); err != nil || string(whole) != text {
			t.Fatalf("spill file %q, want %q: %v", whole, text, err)
		}
	})
}
