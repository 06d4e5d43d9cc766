package store_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/storetest"
)

func lease(t *testing.T, s *store.State, id string) store.Turn {
	t.Helper()
	u, err := s.Lease(context.Background(), id, "agent-1")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func finish(t *testing.T, s *store.State, u store.Turn, reply string) store.Turn {
	t.Helper()
	u, err := s.FinishTurn(context.Background(), store.Finish{TurnID: u.ID, Fence: u.Fence, Outcome: store.OutcomeCompleted,
		Reply: store.Message{Seq: u.NextSeq, Role: "assistant", Content: reply}})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func texts(t *testing.T, s *store.State, session string) (list []string) {
	t.Helper()
	talk, err := s.Conversation(context.Background(), session)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range talk {
		list = append(list, m.Role+": "+m.Content)
	}
	return list
}

func TestTheLifeOfATurn(t *testing.T) {
	ctx, clock := context.Background(), storetest.NewClock()
	s := storetest.State(t, store.Options{Now: clock.Now})
	a, err := s.Accept(ctx, store.Inbound{Platform: "telegram", ChatID: "7", ThreadID: "3", MessageID: "m1", UserID: "u", UserName: "Ada", Text: "what time is it?"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.Turn(ctx, a.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	if u.State != store.TurnQueued || u.Seq != 1 || u.SessionID != a.SessionID || u.Platform != "telegram" || u.ChatID != "7" ||
		u.ThreadID != "3" || u.MessageID != "m1" || u.UserID != "u" || u.UserName != "Ada" || u.AcceptedAt.IsZero() || !u.LeasedAt.IsZero() {
		t.Errorf("accepted turn is %+v", u)
	}
	if got := texts(t, s, a.SessionID); got != nil {
		t.Errorf("the message is in the conversation before its turn: %v", got)
	}

	u = lease(t, s, a.TurnID)
	if u.State != store.TurnLeased || u.Fence != 1 || u.Attempt != 1 || u.Worker != "agent-1" || u.NextSeq != 1 || u.LeasedAt.IsZero() {
		t.Errorf("leased turn is %+v", u)
	}
	calls := []store.ToolCall{{ID: "c1", Name: "terminal", Arguments: `{"command":"date <now> & then"}`}, {ID: "c2", Name: "read_file", Arguments: "not JSON"}}
	ids, err := s.AppendSteps(ctx, u.ID, u.Fence, []store.Message{
		{Seq: 1, Role: "assistant", Content: "I look.", ToolCalls: calls, Reasoning: "hm", FinishReason: "tool_calls", Usage: store.Usage{Input: 10, Output: 5, CacheRead: 2, Reasoning: 1}},
		{Seq: 2, Role: "tool", Content: "noon", ToolCallID: "c1", ToolName: "terminal"},
	}, "You are Hermes.")
	if err != nil || len(ids) != 2 || ids[0] >= ids[1] {
		t.Fatal(ids, err)
	}
	again, err := s.AppendSteps(ctx, u.ID, u.Fence, []store.Message{{Seq: 2, Role: "tool", Content: "other"}, {Seq: 3, Role: "tool", Content: "file", ToolCallID: "c2", ToolName: "read_file"}}, "Another prompt.")
	if err != nil || again[0] != ids[1] {
		t.Fatal("a repeated step: ", again, ids, err)
	}

	done, err := s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence, Outcome: store.OutcomeCompleted, Outbox: true,
		Reply: store.Message{Seq: 4, Role: "assistant", Content: "It is noon.", FinishReason: "stop", Usage: store.Usage{Input: 20, Output: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	if done.State != store.TurnDone || done.Outcome != store.OutcomeCompleted || done.Final != "It is noon." || done.NextSeq != 5 ||
		done.Worker != "" || done.EndedAt.Before(done.LeasedAt) {
		t.Errorf("finished turn is %+v", done)
	}
	repeat, err := s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence, Outcome: store.OutcomeFailed, Reply: store.Message{Seq: 9, Content: "no"}})
	if err != nil || !reflect.DeepEqual(repeat, done) {
		t.Errorf("a repeated finish: %+v, %v", repeat, err)
	}

	checkTalk(t, s, done, calls)
	due, err := s.DueOutbox(ctx, clock.Now(), 0)
	if err != nil || len(due) != 1 || due[0].Text != "It is noon." || due[0].ReplyTo != "m1" || due[0].ThreadID != "3" || due[0].TurnID != u.ID || due[0].ChatID != "7" {
		t.Errorf("outbox is %+v, %v", due, err)
	}
	answers, err := s.Answers(ctx, []string{u.ID, "turn_none"})
	if err != nil || len(answers) != 1 || !reflect.DeepEqual(answers[u.ID], due[0]) {
		t.Errorf("answers %+v, %v", answers, err)
	}
}

// checkTalk looks at the conversation that TestTheLifeOfATurn leaves.
func checkTalk(t *testing.T, s *store.State, u store.Turn, calls []store.ToolCall) {
	t.Helper()
	ctx := context.Background()
	talk, err := s.Conversation(ctx, u.SessionID)
	if err != nil || len(talk) != 5 {
		t.Fatal(len(talk), err)
	}
	for i, m := range talk {
		if m.TurnID != u.ID || m.Seq != uint32(i) || m.SessionID != u.SessionID || m.Time.IsZero() {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	if m := talk[1]; !reflect.DeepEqual(m.ToolCalls, calls) || m.Reasoning != "hm" || m.FinishReason != "tool_calls" || m.Usage.Output != 5 {
		t.Errorf("assistant message is %+v", m)
	}
	if m := talk[2]; m.Content != "noon" || m.ToolCallID != "c1" || m.ToolName != "terminal" {
		t.Errorf("tool message is %+v", m)
	}
	x, err := s.Session(ctx, u.SessionID)
	if err != nil || x.Messages != 5 || x.ToolCalls != 2 || x.SystemPrompt != "You are Hermes." || x.LastActive.Before(x.StartedAt) {
		t.Errorf("session is %+v, %v", x, err)
	}
}

func TestMessagesAreWrittenAsHermesWritesThem(t *testing.T) {
	ctx := context.Background()
	path := t.TempDir() + "/state.db"
	s := storetest.StateAt(t, path, store.Options{})
	a, err := s.Accept(ctx, store.Inbound{Platform: "telegram", ChatID: "7", MessageID: "m1", Text: "bad \xff byte", Model: "some-model", System: "prompt"})
	if err != nil {
		t.Fatal(err)
	}
	u := lease(t, s, a.TurnID)
	if _, err := s.AppendSteps(ctx, u.ID, u.Fence, []store.Message{
		{Seq: 1, Role: "assistant", ToolCalls: []store.ToolCall{{ID: "c1", Name: "terminal", Arguments: `{"command": "a<b"}`}}, Usage: store.Usage{Input: 10, Output: 5, CacheRead: 3, Reasoning: 2}},
		{Seq: 2, Role: "assistant", Content: "x", Usage: store.Usage{Input: 1, Output: 1}},
	}, ""); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT content, platform_message_id, active, typeof(timestamp) FROM messages WHERE role = 'user'": "bad \uFFFD byte|m1|1|real",
		"SELECT tool_calls FROM messages WHERE tool_calls IS NOT NULL":                                     `[{"id":"c1","type":"function","function":{"name":"terminal","arguments":"{\"command\": \"a<b\"}"}}]`,
		"SELECT coalesce(content, 'NULL'), token_count FROM messages WHERE tool_calls IS NOT NULL":         "|5",
		`SELECT source, created_source, session_key, chat_id, chat_type, model, message_count, tool_call_count, input_tokens, output_tokens,
			cache_read_tokens, reasoning_tokens, api_call_count, typeof(started_at) FROM sessions`: "telegram|telegram|agent:main:telegram:dm:7|7|dm|some-model|3|1|11|6|3|2|2|real",
		"SELECT model, api_call_count, input_tokens, output_tokens FROM session_model_usage":                          "some-model|2|11|6",
		"SELECT p.prompt, s.system_prompt FROM sessions AS s JOIN system_prompts AS p ON p.hash = system_prompt_hash": "prompt|",
		"SELECT version FROM schema_version": "30",
	} {
		if got := strings.Join(storetest.Query(t, path, query), "\n"); got != want {
			t.Errorf("%s:\n%s\nnot\n%s", query, got, want)
		}
	}
}

func TestAFenceEndsTheWritesOfAnEarlierHolder(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	old := lease(t, s, accept(t, s, "1").TurnID)
	queued, err := s.Requeue(ctx, old.ID, old.Fence)
	if err != nil || queued.State != store.TurnQueued || queued.Interrupted != 1 || queued.Worker != "" {
		t.Fatal(queued, err)
	}
	step := []store.Message{{Seq: 1, Role: "assistant", Content: "step"}}
	if _, err := s.AppendSteps(ctx, old.ID, old.Fence, step, ""); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("append while it is queued: %v", err)
	}
	now := lease(t, s, old.ID)
	if now.Fence != 2 || now.Attempt != 2 || now.Interrupted != 1 {
		t.Errorf("second lease is %+v", now)
	}
	call := store.Call{TurnID: old.ID, CallID: "c", Tool: "terminal"}
	_, _, beginErr := s.BeginCall(ctx, old.Fence, call)
	_, appendErr := s.AppendSteps(ctx, old.ID, old.Fence, step, "")
	_, finishErr := s.FinishTurn(ctx, store.Finish{TurnID: old.ID, Fence: old.Fence, Outcome: store.OutcomeCompleted})
	_, requeueErr := s.Requeue(ctx, old.ID, old.Fence)
	for what, err := range map[string]error{"begin": beginErr, "append": appendErr, "finish": finishErr, "requeue": requeueErr} {
		if !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("%s under the old fence: %v", what, err)
		}
	}
	if _, err := s.AppendSteps(ctx, now.ID, now.Fence, step, ""); err != nil {
		t.Fatal(err)
	}
	if u, err := s.Turn(ctx, now.ID); err != nil || u.Interrupted != 0 || u.NextSeq != 2 {
		t.Errorf("after progress the turn is %+v, %v", u, err)
	}
	if _, err := s.AppendSteps(ctx, now.ID, now.Fence, step, ""); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, s, now.SessionID); !slices.Equal(got, []string{"user: hello 1", "assistant: step"}) {
		t.Errorf("conversation is %v", got)
	}
}

func TestInterruptionsInARowAreCounted(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	id := accept(t, s, "1").TurnID
	for n := 1; n <= 3; n++ {
		u := lease(t, s, id)
		// A step that is stored already is no progress.
		if _, err := s.AppendSteps(ctx, id, u.Fence, []store.Message{{Seq: 0, Role: "user"}}, ""); err != nil {
			t.Fatal(err)
		}
		u, err := s.Requeue(ctx, id, u.Fence)
		if err != nil || u.Interrupted != n {
			t.Fatal(u, err)
		}
		if again, err := s.Requeue(ctx, id, u.Fence); err != nil || again.Interrupted != n {
			t.Fatal("a repeated requeue counts: ", again, err)
		}
	}
}

func TestTurnsAreOpenUntilTheyAreDone(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	var ids []string
	for _, m := range []string{"1", "2", "3"} {
		ids = append(ids, accept(t, s, m).TurnID)
	}
	u := lease(t, s, ids[1])
	openIDs := func() (list []string) {
		open, err := s.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range open {
			list = append(list, u.ID)
		}
		return list
	}
	if got := openIDs(); !slices.Equal(got, ids) {
		t.Errorf("open are %v, not %v", got, ids)
	}
	finish(t, s, u, "reply")
	if got := openIDs(); !slices.Equal(got, []string{ids[0], ids[2]}) {
		t.Errorf("open are %v", got)
	}
	if _, err := s.Lease(ctx, u.ID, "agent-1"); !errors.Is(err, store.ErrExists) {
		t.Errorf("lease of a done turn: %v", err)
	}
	if _, err := s.Lease(ctx, "nothing", "agent-1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("lease of an unknown turn: %v", err)
	}
	c, err := s.Counts(ctx)
	if err != nil || c != (store.Counts{Queued: 2}) {
		t.Errorf("counts are %+v, %v", c, err)
	}
}

func TestADoneTurnTakesNothingMore(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	u := finish(t, s, lease(t, s, accept(t, s, "1").TurnID), "reply")
	if _, err := s.AppendSteps(ctx, u.ID, u.Fence, []store.Message{{Seq: 1, Role: "assistant"}}, ""); err != nil {
		t.Errorf("a repeated step of a done turn: %v", err)
	}
	if _, err := s.AppendSteps(ctx, u.ID, u.Fence, []store.Message{{Seq: 7, Role: "assistant", Content: "late"}}, ""); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("a new step of a done turn: %v", err)
	}
	if _, _, err := s.BeginCall(ctx, u.Fence, store.Call{TurnID: u.ID, CallID: "c", Tool: "t"}); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("a call of a done turn: %v", err)
	}
	if again, err := s.Requeue(ctx, u.ID, u.Fence); err != nil || again.State != store.TurnDone {
		t.Errorf("requeue of a done turn: %+v, %v", again, err)
	}
	if _, err := s.FinishTurn(ctx, store.Finish{TurnID: u.ID, Fence: u.Fence + 1, Outcome: store.OutcomeFailed}); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("finish under another fence: %v", err)
	}
	if got := texts(t, s, u.SessionID); !slices.Equal(got, []string{"user: hello 1", "assistant: reply"}) {
		t.Errorf("conversation is %v", got)
	}
}

func TestAQueuedTurnCanBeFinished(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	first, second := accept(t, s, "1"), accept(t, s, "2")
	u, err := s.FinishTurn(ctx, store.Finish{TurnID: first.TurnID, Outcome: store.OutcomeParked, Error: "crashed three times", Reply: store.Message{Content: "I gave up."}})
	if err != nil || u.State != store.TurnDone || u.Outcome != store.OutcomeParked || u.Final != "I gave up." || u.Error != "crashed three times" {
		t.Fatal(u, err)
	}
	if _, err := s.FinishTurn(ctx, store.Finish{TurnID: second.TurnID, Outcome: store.OutcomeInterrupted, Outbox: true}); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, s, first.SessionID); !slices.Equal(got, []string{"user: hello 1", "assistant: I gave up.", "user: hello 2"}) {
		t.Errorf("conversation is %v", got)
	}
	c, err := s.Counts(ctx)
	if err != nil || c != (store.Counts{Parked: 1}) { // an empty reply is not sent
		t.Errorf("counts are %+v, %v", c, err)
	}
	if _, err := s.FinishTurn(ctx, store.Finish{TurnID: first.TurnID}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("finish without an outcome: %v", err)
	}
}

// The order of rows is the order in which turns ran, not that in which their messages came.
func TestMessagesThatQueueUpStandBeforeTheirOwnReply(t *testing.T) {
	s := storetest.State(t, store.Options{})
	first, second := accept(t, s, "1"), accept(t, s, "2")
	finish(t, s, lease(t, s, first.TurnID), "reply 1")
	finish(t, s, lease(t, s, second.TurnID), "reply 2")
	want := []string{"user: hello 1", "assistant: reply 1", "user: hello 2", "assistant: reply 2"}
	if got := texts(t, s, first.SessionID); !slices.Equal(got, want) {
		t.Errorf("conversation is %v", got)
	}
}

func TestManyWorkersAppendAtOnce(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	u := lease(t, s, accept(t, s, "1").TurnID)
	var wg sync.WaitGroup
	ids := make([][]int64, 32)
	for i := range ids {
		wg.Go(func() {
			var err error
			ids[i], err = s.AppendSteps(ctx, u.ID, u.Fence, []store.Message{{Seq: 1, Role: "assistant", Content: "the same"}, {Seq: 2, Role: "tool", Content: "too"}}, "")
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, got := range ids {
		if !slices.Equal(got, ids[0]) {
			t.Fatalf("one step has the rows %v and %v", got, ids[0])
		}
	}
	if got := texts(t, s, u.SessionID); len(got) != 3 {
		t.Errorf("conversation is %v", got)
	}
}

func TestAStepWithoutARoleIsRefused(t *testing.T) {
	s := storetest.State(t, store.Options{})
	u := lease(t, s, accept(t, s, "1").TurnID)
	_, err := s.AppendSteps(context.Background(), u.ID, u.Fence, []store.Message{{Seq: 1, Role: "assistant"}, {Seq: 2}}, "")
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("error is %v", err)
	}
	if got := texts(t, s, u.SessionID); len(got) != 1 {
		t.Errorf("half of it is stored: %v", got)
	}
}

func TestAReleasedTurnCountsNoInterruption(t *testing.T) {
	ctx := context.Background()
	s := storetest.State(t, store.Options{})
	id := accept(t, s, "1").TurnID
	for range 5 {
		u := lease(t, s, id)
		u, err := s.Release(ctx, id, u.Fence)
		if err != nil || u.State != store.TurnQueued || u.Interrupted != 0 {
			t.Fatal(u, err)
		}
		if again, err := s.Release(ctx, id, u.Fence); err != nil || again.State != store.TurnQueued {
			t.Error("released twice: ", again, err)
		}
	}
	u := lease(t, s, id)
	if _, err := s.Release(ctx, id, u.Fence-1); !errors.Is(err, store.ErrLeaseLost) {
		t.Error("with an old fence: ", err)
	}
}
