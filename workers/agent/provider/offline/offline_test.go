package offline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type shown struct {
	Tool, Args string
}

func TestLinesBecomeToolCalls(t *testing.T) {
	for _, c := range []struct {
		name    string
		message string
		want    []shown
	}{
		{"run", "run: echo hello-42", []shown{{"terminal", `{"command":"echo hello-42"}`}}},
		{"a command keeps its colons and quotes", `run: date +"%H:%M"`, []shown{{"terminal", `{"command":"date +\"%H:%M\""}`}}},
		{"verbs in capitals", "RUN: ls", []shown{{"terminal", `{"command":"ls"}`}}},
		{"space around the colon", "  run :  ls  ", []shown{{"terminal", `{"command":"ls"}`}}},
		{"read", "read: /etc/hosts", []shown{{"read_file", `{"path":"/etc/hosts"}`}}},
		{"write", "write: a.txt one two", []shown{{"write_file", `{"content":"one two","path":"a.txt"}`}}},
		{"write of nothing", "write: a.txt", []shown{{"write_file", `{"content":"","path":"a.txt"}`}}},
		{"write to a path with spaces", `write: "my file.txt" one two`, []shown{{"write_file", `{"content":"one two","path":"my file.txt"}`}}},
		{"search", "search: TODO|FIXME", []shown{{"search_files", `{"pattern":"TODO|FIXME"}`}}},
		{"remember", "remember: the cat is called Mia", []shown{{"memory", `{"action":"add","content":"the cat is called Mia","target":"memory"}`}}},
		{"task", "task: buy milk", []shown{{"kanban_create", `{"title":"buy milk"}`}}},
		{"several lines", "run: a\n\nread: b\r\nrun: a", []shown{
			{"terminal", `{"command":"a"}`}, {"read_file", `{"path":"b"}`}, {"terminal", `{"command":"a"}`},
		}},
		{"lines between commands", "please do\nrun: a\nthanks", []shown{{"terminal", `{"command":"a"}`}}},
		{"nothing after the colon", "run:", nil},
		{"write without a path", "write:", nil},
		{"an open quote", `write: "a b`, nil},
		{"an empty quoted path", `write: "" x`, nil},
		{"no colon", "run ls", nil},
		{"another word", "running: ls", nil},
		{"empty message", "", nil},
		{"only a colon", ":", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply := ask(t, c.message)
			var got []shown
			for _, call := range reply.ToolCalls {
				got = append(got, shown{call.Name, call.ArgumentsJson})
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
			if want := map[bool]string{true: provider.FinishToolCalls, false: provider.FinishStop}[c.want != nil]; reply.FinishReason != want {
				t.Errorf("finish reason %q, want %q", reply.FinishReason, want)
			}
		})
	}
}

func TestAnswersWithResults(t *testing.T) {
	for _, c := range []struct {
		name    string
		message string
		results []string
		want    string
	}{
		{"output alone", "run: echo hello-42", []string{`{"output":"hello-42\n","exit_code":0,"error":null}`}, "hello-42"},
		{"indented output keeps its indent", "run: x", []string{`{"output":"  a\n b\n","exit_code":0}`}, "  a\n b"},
		{"no output", "run: true", []string{`{"output":"","exit_code":0}`}, "(no output)"},
		{"exit code", "run: x", []string{`{"output":"oh\n","exit_code":2}`}, "oh\nexit code 2"},
		{"exit code with meaning", "run: x", []string{`{"output":"","exit_code":1,"exit_code_meaning":"no match"}`}, "exit code 1 (no match)"},
		{"error", "run: x", []string{`{"output":"half","exit_code":124,"error":"timed out after 1s"}`}, "half\nterminal failed: timed out after 1s\nexit code 124"},
		{"error alone", "read: x", []string{`{"error":"no such file"}`}, "read_file failed: no such file"},
		{"error that is an object", "read: x", []string{`{"error":{"code":1}}`}, `read_file failed: {"code":1}`},
		{"content of a file", "read: x", []string{`{"content":"     1|a\n","total_lines":1}`}, "     1|a"},
		{"message", "remember: x", []string{`{"success":true,"message":"remembered"}`}, "remembered"},
		{"a written file", "write: x y", []string{`{"path":"/x","bytes_written":1,"created":true}`}, "wrote 1 bytes to /x"},
		{"a task", "task: x", []string{`{"ok":true,"task_id":"t_1","status":"ready"}`}, "task t_1 is ready"},
		{"unknown fields", "task: x", []string{`{"id":"t_1"}`}, `{"id":"t_1"}`},
		{"no JSON", "run: x", []string{"BLOCKED: no"}, "BLOCKED: no"},
		{"JSON of another shape", "run: x", []string{`[1]`}, `[1]`},
		{"no result", "run: x", nil, "(no output)"},
		{"several", "run: a\nread: b", []string{`{"output":"A\n"}`, `{"content":"B"}`}, "run: a\nA\n\nread: b\nB"},
		{"a line that was no command", "run: a\nrn: b", []string{`{"output":"A"}`}, "A\n\nNot understood: “rn: b”"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := ask(t, c.message)
			messages := []*turnv1.Message{
				{Role: "user", Content: "run: earlier"},
				{Role: "assistant", ToolCalls: []*turnv1.ToolCall{{Id: "call_1", Name: "terminal"}}},
				{Role: "tool", ToolCallId: "call_1", Content: "of an earlier turn"},
				{Role: "assistant", Content: "earlier answer"},
				{Role: "user", Content: c.message},
				{Role: "assistant", ToolCalls: first.ToolCalls},
			}
			for i, r := range c.results {
				messages = append(messages, &turnv1.Message{Role: "tool", ToolCallId: first.ToolCalls[i].Id, Content: r})
			}
			reply, err := New("").Stream(t.Context(), provider.Request{Messages: messages}, func(provider.Delta) {})
			if err != nil {
				t.Fatal(err)
			}
			if reply.Text != c.want {
				t.Errorf("got %q, want %q", reply.Text, c.want)
			}
			if len(reply.ToolCalls) > 0 {
				t.Errorf("asked for %d calls again", len(reply.ToolCalls))
			}
		})
	}
}

func TestSaysWhatItIs(t *testing.T) {
	reply, err := New("/home/ada/.hermes").Stream(t.Context(), user("good morning"), func(provider.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"stand-in", "“good morning”", "run: COMMAND", "base_url", "/home/ada/.hermes/config.yaml", "/home/ada/.hermes/.env"} {
		if !strings.Contains(reply.Text, want) {
			t.Errorf("answer lacks %q:\n%s", want, reply.Text)
		}
	}
	long := ask(t, strings.Repeat("ä", 10_000))
	if len(long.Text) > 3000 || !utf8.ValidString(long.Text) {
		t.Errorf("a long message is quoted with %d bytes, valid %v", len(long.Text), utf8.ValidString(long.Text))
	}
}

func TestStreamsTheSamePiecesEachTime(t *testing.T) {
	pieces := func() (got []string) {
		reply, err := New("").Stream(t.Context(), user("Grüße, wie geht es dir?"), func(d provider.Delta) { got = append(got, d.Text) })
		if err != nil || strings.Join(got, "") != reply.Text {
			t.Fatalf("pieces do not make the reply (%v)", err)
		}
		return got
	}
	first := pieces()
	if len(first) < 20 {
		t.Errorf("only %d pieces", len(first))
	}
	for _, p := range first {
		if !utf8.ValidString(p) || len(p) > pieceBytes+utf8.UTFMax {
			t.Errorf("piece %q", p)
		}
	}
	if d := cmp.Diff(first, pieces()); d != "" {
		t.Errorf("second time differs:\n%s", d)
	}
}

func TestWaitStreamsSlowly(t *testing.T) {
	for _, c := range []struct {
		name    string
		message string
		want    time.Duration
		pieces  int
	}{
		{"seconds", "wait: 3", 3 * time.Second, 12},
		{"fractions", "wait: 0.5s", 500 * time.Millisecond, 2},
		{"two lines add up", "wait: 1\nwait: 2", 3 * time.Second, 12},
		{"never more than the limit", "wait: 1e300", maxWait, 100},
		{"not a number", "wait: a bit", 0, 0},
		{"negative", "wait: -1", 0, 0},
		{"NaN", "wait: nan", 0, 0},
		{"before a command", "wait: 1\nrun: ls", time.Second, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, pieces := time.Now(), 0
				_, err := New("").Stream(t.Context(), user(c.message), func(provider.Delta) { pieces++ })
				if err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d != c.want {
					t.Errorf("took %s, want %s", d, c.want)
				}
				if pieces < c.pieces {
					t.Errorf("%d pieces, want at least %d", pieces, c.pieces)
				}
			})
		})
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		reply, err := New("").Stream(ctx, user("wait: 60"), func(provider.Delta) {})
		if !errors.Is(err, stop) {
			t.Fatalf("got %v", err)
		}
		if !strings.HasPrefix(reply.Text, "Waiting 1m0s .") || strings.Contains(reply.Text, "done") {
			t.Errorf("kept %q", reply.Text)
		}
	})
}

func FuzzGrammar(f *testing.F) {
	for _, s := range []string{"run: x", "write: \"a b\" c\nwait: 1", "wait: 1e9", "task:\x00", "read: \xff", "a:b:c", "\r\n:\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, message string) {
		r := parse(message)
		if r.wait < 0 || r.wait > maxWait {
			t.Errorf("wait %s", r.wait)
		}
		lines := strings.Count(message, "\n") + 1
		if n := len(r.calls) + len(r.other); n > lines {
			t.Errorf("%d entries of %d lines", n, lines)
		}
		seen := map[string]bool{}
		for _, c := range r.toolCalls() {
			if c.Name == "" || !strings.HasPrefix(c.ArgumentsJson, "{") || seen[c.Id] {
				t.Errorf("call %v", c)
			}
			seen[c.Id] = true
		}
		introduce(message, "")
	})
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{`{"output":"x","exit_code":1}`, `{"error":{}}`, `{"content":null}`, "plain", "", "{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		if render("terminal", content) == "" {
			t.Errorf("%q is shown as nothing", content)
		}
	})
}

func user(message string) provider.Request {
	return provider.Request{Messages: []*turnv1.Message{{Role: "user", Content: message}}}
}

func ask(t *testing.T, message string) provider.Reply {
	t.Helper()
	reply, err := New("").Stream(t.Context(), user(message), func(provider.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
