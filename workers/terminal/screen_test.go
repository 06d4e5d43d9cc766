package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

func TestScreen(t *testing.T) {
	rejoin := &turnv1.TurnEvent{} // stands for a new connection
	tests := map[string]struct {
		events []*turnv1.TurnEvent
		want   string
	}{
		"text as it comes":                  {[]*turnv1.TurnEvent{startedEvent(1), textEvent(1, "hel"), textEvent(1, "lo\nyou"), completed("hello\nyou")}, "hello\nyou\n"},
		"no text before the end":            {[]*turnv1.TurnEvent{startedEvent(1), completed("hello")}, "hello\n"},
		"the rest of the text with the end": {[]*turnv1.TurnEvent{textEvent(1, "hel"), completed("hello")}, "hello\n"},
		"another text at the end":           {[]*turnv1.TurnEvent{textEvent(1, "hel"), completed("bye")}, "hel\nbye\n"},
		"tools between texts": {[]*turnv1.TurnEvent{textEvent(1, "Looking"), toolStarted("a", "uname\n-a"), toolFinished("a", true, 12), textEvent(3, "Linux"), completed("Linux")},
			"Looking\n→ terminal  uname -a\n✓ terminal  10ms\nLinux\n"},
		"a reply that begins as the text before a tool": {[]*turnv1.TurnEvent{textEvent(1, "I "), toolStarted("a", "x"), completed("I did")}, "I \n→ terminal  x\nI did\n"},
		"a tool that failed":                            {[]*turnv1.TurnEvent{toolStarted("a", "false"), toolFinished("a", false, 1500), completed("no")}, "→ terminal  false\n✗ terminal  1.5s\nno\n"},
		"a new connection shows nothing twice": {[]*turnv1.TurnEvent{startedEvent(1), textEvent(1, "one "), toolStarted("a", "x"), toolFinished("a", true, 0), textEvent(3, "two"), rejoin,
			startedEvent(1), snapshotEvent(1, "one "), toolStarted("a", "x"), toolFinished("a", true, 0), snapshotEvent(3, "two th"), textEvent(3, "ree"), completed("two three")},
			"one \n→ terminal  x\n✓ terminal  0s\ntwo three\n"},
		"a snapshot after lost pieces": {[]*turnv1.TurnEvent{textEvent(1, "a"), snapshotEvent(1, "abc"), textEvent(1, "d"), completed("abcd")}, "abcd\n"},
		"a new attempt that says the same": {[]*turnv1.TurnEvent{startedEvent(1), textEvent(1, "hello wo"), startedEvent(2), textEvent(1, "hel"), textEvent(1, "lo world"), completed("hello world")},
			"hello wo\n(its worker was lost, it goes on (attempt 2))\nrld\n"},
		"a new attempt that says something else": {[]*turnv1.TurnEvent{startedEvent(1), textEvent(1, "hello"), startedEvent(2), textEvent(1, "bye"), textEvent(1, "!"), completed("bye!")},
			"hello\n(its worker was lost, it goes on (attempt 2))\nbye!\n"},
		"control characters": {[]*turnv1.TurnEvent{toolStarted("a", "x\x07"), noticeEvent("n\x00"), textEvent(1, "a\x1b[2Jb\r\n\tc\u202ed"), completed("a\x1b[2Jb\r\n\tc\u202ed")},
			"→ terminal  x�\n(n�)\na�[2Jb\n\tc�d\n"},
		"notices come once": {[]*turnv1.TurnEvent{noticeEvent("retrying"), rejoin, noticeEvent("retrying"), completed("x")}, "(retrying)\nx\n"},
		"interrupted":       {[]*turnv1.TurnEvent{textEvent(1, "part"), finalEvent(turnv1.Outcome_OUTCOME_INTERRUPTED, "part", "")}, "part\n(interrupted)\n"},
		"failed":            {[]*turnv1.TurnEvent{finalEvent(turnv1.Outcome_OUTCOME_FAILED, "Sorry.", "the provider answered 401:\nbad key")}, "Sorry.\n! the provider answered 401: bad key\n"},
		"out of budget":     {[]*turnv1.TurnEvent{finalEvent(turnv1.Outcome_OUTCOME_BUDGET, "so far", "")}, "so far\n(stopped: the turn used up its calls of the model (agent.max_turns))\n"},
		"nobody decided":    {[]*turnv1.TurnEvent{decisionEvent("a", "timeout"), decisionEvent("b", "user"), completed("x")}, "(nobody answered, so it was not done)\nx\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			s := newScreen(&b, false, false)
			for _, e := range tt.events {
				switch {
				case e == rejoin:
					s.rejoin()
				case e.GetFinal() != nil:
					s.final(e.GetFinal())
				default:
					s.show(e)
				}
			}
			if b.String() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", b.String(), tt.want)
			}
		})
	}
}

func TestAQuietScreenHasNoTextOfTheModel(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b, true, true)
	s.show(textEvent(1, "secret"))
	s.show(toolStarted("a", "ls"))
	s.final(&turnv1.Final{Text: "secret", Outcome: turnv1.Outcome_OUTCOME_COMPLETED})
	if want := "\x1b[2m→ terminal  ls\x1b[0m\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestAScreenOfASCIIHasTheModelsWordsAsTheyAre(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b, false, false)
	s.ascii = true
	s.show(toolStarted("a", strings.Repeat("l", 300)))
	s.show(&turnv1.TurnEvent{Event: &turnv1.TurnEvent_ToolFinished{ToolFinished: &turnv1.ToolFinished{CallId: "a", Tool: "terminal", Ok: true}}})
	s.show(textEvent(1, "→ ünï"))
	s.final(&turnv1.Final{Text: "→ ünï", Outcome: turnv1.Outcome_OUTCOME_COMPLETED})
	want := "-> terminal  " + strings.Repeat("l", 199) + "...\nok terminal  0s\n→ ünï\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func FuzzScreen(f *testing.F) {
	f.Add("hello", "hello world")
	f.Add("", "\x1b]0;x\x07")
	f.Add("x\r", "x")
	f.Fuzz(func(t *testing.T, first, second string) {
		if !utf8.ValidString(first) || !utf8.ValidString(second) {
			return // a protobuf string is valid
		}
		var b strings.Builder
		s := newScreen(&b, false, false)
		s.show(startedEvent(1))
		s.show(textEvent(1, first))
		s.show(startedEvent(2))
		s.show(textEvent(1, second))
		s.show(snapshotEvent(1, second))
		s.final(&turnv1.Final{Text: second, Outcome: turnv1.Outcome_OUTCOME_COMPLETED})
		out := b.String()
		if strings.ContainsAny(out, "\x1b\x07\r\x00") {
			t.Errorf("control characters in %q", out)
		}
		if reply := clean(second); !strings.HasPrefix(second, first) && !strings.Contains(out, reply) {
			t.Errorf("the reply %q is not in %q", reply, out)
		}
	})
}
