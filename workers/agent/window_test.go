package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/agenttest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// reading is a model that takes so many bytes of messages and refuses more, as providers do.
func reading(limit int, answer agenttest.Step) agenttest.Step {
	return func(ctx context.Context, req provider.Request, emit func(provider.Delta)) (provider.Reply, error) {
		if n := bytesOf(req.Messages); n > limit {
			return provider.Reply{}, &provider.Error{Class: provider.ContextOverflow, Status: 400, Message: fmt.Sprintf("%d is more than the maximum context length of %d", n, limit)}
		}
		return answer(ctx, req, emit)
	}
}

func bytesOf(messages []*turnv1.Message) (n int) {
	for _, m := range messages {
		n += len(m.Content)
	}
	return n
}

// past stores turns with a tool call each that the conversation has had.
func (r *rig) past(turns, bytes int) {
	for i := range turns {
		id := fmt.Sprintf("old%d", i)
		r.host.Store(
			&turnv1.Message{TurnId: id, Role: roleUser, Content: fmt.Sprintf("question %d", i)},
			&turnv1.Message{TurnId: id, Role: roleAssistant, ToolCalls: []*turnv1.ToolCall{{Id: id, Name: "echo", ArgumentsJson: "{}"}}},
			&turnv1.Message{TurnId: id, Role: roleTool, ToolCallId: id, ToolName: "echo", Content: strings.Repeat("r", bytes)},
			&turnv1.Message{TurnId: id, Role: roleAssistant, Content: fmt.Sprintf("answer %d", i)},
		)
	}
}

func (r *rig) always(step agenttest.Step) {
	for range 40 {
		r.script.Steps = append(r.script.Steps, step)
	}
}

func TestAConversationLongerThanTheModelReadsGoesOnWithoutItsBeginning(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.past(100, 1000)
		r.always(reading(30_000, agenttest.Say("Yes.")))
		w, run := r.answer("do you follow?")
		if text := r.ended(completed); text != "Yes." {
			t.Fatalf("answered %q", text)
		}
		calls := r.script.Calls()
		last := calls[len(calls)-1].Messages
		contains(t, last[0].Content, "The beginning of this conversation is left out")
		if n := bytesOf(last); n < 30_000/3 {
			t.Errorf("only %d bytes were sent of the 30000 that the model reads", n)
		}
		if end := last[len(last)-1]; end.Role != roleUser || end.Content != "do you follow?" {
			t.Errorf("the last message is %v", end)
		}
		for i, m := range last {
			if m.Role == roleTool && len(last[i-1].ToolCalls) == 0 {
				t.Errorf("message %d is a result without its call", i)
			}
		}
		if n := len(run.Notices()); n != 1 {
			t.Errorf("%d notices, want 1: %q", n, run.Notices())
		}

		// The process knows it from now on: one call a turn, the same beginning, no further notice.
		r.host.Accept("t2", "and now?")
		again := w.Run(t, "t2")
		if err := again.Wait(); err != nil {
			t.Fatal(err)
		}
		after := r.script.Calls()[len(calls):]
		if len(after) != 1 || after[0].Messages[0].Content != last[0].Content || len(again.Notices()) != 0 {
			t.Errorf("%d calls in the second turn, notices %q", len(after), again.Notices())
		}
	})
}

func TestResultsTooLongForTheModelAreReadInPart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.past(2, 100)
		r.host.Tools["echo"] = agenttest.Tool{Do: func(context.Context, string) *toolv1.Result {
			return agenttest.Result("BEGIN" + strings.Repeat("ä", 200_000) + "END")
		}}
		r.script.Steps = []agenttest.Step{agenttest.Ask("c1", "echo", "{}")}
		r.always(reading(20_000, agenttest.Say("Seen.")))
		r.answer("look")
		if text := r.ended(completed); text != "Seen." {
			t.Fatalf("answered %q", text)
		}
		calls := r.script.Calls()
		last := calls[len(calls)-1].Messages
		result := last[len(last)-1]
		contains(t, result.Content, "BEGIN", "END", "bytes are left out here")
		if !utf8.ValidString(result.Content) {
			t.Error("a letter was cut in two")
		}
		contains(t, last[0].Content, "question 0") // what went before is short and stays
		if stored := r.host.Steps("t1")[2].Content; len(stored) < 400_000 {
			t.Errorf("%d bytes of the result are stored, want all", len(stored))
		}
	})
}

func TestAMessageThatAloneIsTooLongIsAFailureThatSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.past(50, 1000)
		r.always(reading(1000, agenttest.Say("never")))
		w, _ := r.answer(strings.Repeat("long ", 1000))
		contains(t, r.ended(turnv1.Outcome_OUTCOME_FAILED), "too long for the model the-model", "Ask for less at once")
		if n := len(r.script.Calls()); n > 12 {
			t.Errorf("%d calls to find that out", n)
		}

		// The turns after it read what went before it.
		calls := r.script.Calls()
		r.script.Steps = append(r.script.Steps[:len(calls):len(calls)], agenttest.Say("Yes."))
		r.host.Accept("t2", "and now?")
		if err := w.Run(t, "t2").Wait(); err != nil {
			t.Fatal(err)
		}
		contains(t, r.script.Calls()[len(calls)].Messages[0].Content, "question 0")
	})
}

func TestAWindowOfDeletedMessagesIsTheWholeConversation(t *testing.T) {
	var known windows
	known.put("s", "m", window{skip: 80})
	if w := known.get("s", "m", 80); w.skip != 80 {
		t.Errorf("%d of 80 messages are left out, want all", w.skip)
	}
	if w := known.get("s", "m", 10); w.skip != 0 {
		t.Errorf("%d of the 10 messages that are left are not read", w.skip)
	}
	if w := known.get("s", "another", 100); w != (window{}) {
		t.Errorf("another model reads %+v", w)
	}
	for i := range 3 * maxWindows {
		known.put(fmt.Sprint(i), "m", window{skip: 1})
	}
	if n := len(known.known); n > maxWindows {
		t.Errorf("%d windows are kept", n)
	}
}
