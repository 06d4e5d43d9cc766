package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// caller starts a worker that serves nothing and only calls.
func (r *rig) caller(id ipc.Identity) *process {
	r.t.Helper()
	return r.start(id, func(*process, *grpc.Server) {})
}

func TestAcceptChecksItsInput(t *testing.T) {
	long, bad := strings.Repeat("x", maxID+1), "bad\x00"
	cases := map[string]func(*hostv1.AcceptRequest){
		"":                                    func(*hostv1.AcceptRequest) {},
		"chat_id: invalid request: it is":     func(r *hostv1.AcceptRequest) { r.ChatId = "" },
		"message_id: invalid request: it is":  func(r *hostv1.AcceptRequest) { r.MessageId = "" },
		"chat_id: invalid request: 513 byte":  func(r *hostv1.AcceptRequest) { r.ChatId = long },
		"message_id: invalid request: contr":  func(r *hostv1.AcceptRequest) { r.MessageId = bad },
		"thread_id":                           func(r *hostv1.AcceptRequest) { r.ThreadId = long },
		"session_key":                         func(r *hostv1.AcceptRequest) { r.SessionKey = long },
		"session_id":                          func(r *hostv1.AcceptRequest) { r.SessionId = bad },
		"user_id":                             func(r *hostv1.AcceptRequest) { r.UserId = bad },
		"model":                               func(r *hostv1.AcceptRequest) { r.Model = long },
		"fingerprint":                         func(r *hostv1.AcceptRequest) { r.Fingerprint = long },
		"chat_type: invalid request: \"dog\"": func(r *hostv1.AcceptRequest) { r.ChatType = "dog" },
		"text: invalid request: it is empty":  func(r *hostv1.AcceptRequest) { r.Text = "" },
		"text: invalid request: 262145 byte":  func(r *hostv1.AcceptRequest) { r.Text = strings.Repeat("x", maxText+1) },
		"system_prompt":                       func(r *hostv1.AcceptRequest) { r.SystemPrompt = strings.Repeat("x", maxText+1) },
		"history: invalid request: 4097":      func(r *hostv1.AcceptRequest) { r.History = make([]*turnv1.Message, maxRows+1) },
		"history, message 1: role":            func(r *hostv1.AcceptRequest) { r.History = []*turnv1.Message{{Role: "robot"}} },
		"history, message 2: content": func(r *hostv1.AcceptRequest) {
			r.History = []*turnv1.Message{{Role: "user"}, {Role: "assistant", Content: strings.Repeat("x", maxStep+1)}}
		},
	}
	bubble(t, func(t *testing.T, r *rig) {
		g := r.caller(ipc.Identity{Worker: "gateway-api", Role: ipc.RoleGateway, Platform: "api"})
		for want, spoil := range cases {
			req := &hostv1.AcceptRequest{ChatId: "a", MessageId: "1", Text: "hi", ChatType: "dm"}
			spoil(req)
			_, err := g.inbox().Accept(t.Context(), req)
			switch {
			case want == "" && err != nil:
				t.Errorf("a good message: %v", err)
			case want != "" && !errors.Is(err, ipc.ErrInvalid):
				t.Errorf("%s: got %v, want an invalid request", want, err)
			case want != "":
				wantContains(t, err.Error(), want)
			}
		}
	})
}

func TestLongestMessagePasses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", func(a *agentRun) error {
			_, rows, err := a.load()
			if err != nil {
				return err
			}
			return a.finish(1, fmt.Sprint(len(rows[0].Content)))
		})
		a := r.accept("main", "1", strings.Repeat("é", maxText/2))
		if got := r.final(a.TurnID).Text; got != fmt.Sprint(maxText) {
			t.Errorf("the agent read %s bytes", got)
		}
	})
}

func TestGatewayActsForItsOwnPlatformOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", guarded())
		r.agent("agent-1", lively(obey(never)))
		api := r.caller(ipc.Identity{Worker: "gateway-api", Role: ipc.RoleGateway, Platform: "api"})
		irc := r.caller(ipc.Identity{Worker: "gateway-irc", Role: ipc.RoleGateway, Platform: "irc"})
		a := api.from("a", "1", "call:ask")
		q := r.asked(a.TurnId)
		for name, try := range trespasses(t, r, irc, a.TurnId, a.SessionId, q.ID) {
			if err := try(); !errors.Is(err, ipc.ErrDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if d, err := api.turns().Decide(t.Context(), &hostv1.DecideRequest{ApprovalId: q.ID, Approve: true}); err != nil || !d.Approved {
			t.Errorf("its own approval: %v, %v", d, err)
		}
		if _, err := irc.turns().Decide(t.Context(), &hostv1.DecideRequest{ApprovalId: q.ID}); !errors.Is(err, ipc.ErrDenied) {
			t.Errorf("decide after the decision: %v", err)
		}
		s, err := api.turns().Follow(t.Context(), &hostv1.FollowRequest{TurnId: a.TurnId})
		for err == nil {
			var e *turnv1.TurnEvent
			if e, err = s.Recv(); e.GetFinal() != nil && e.GetFinal().Text != "done" {
				t.Errorf("final is %v", e)
			}
		}
	})
}

// trespasses are what a gateway may not do with the turn of another platform.
func trespasses(t *testing.T, r *rig, irc *process, turnID, sessionID, approvalID string) map[string]func() error {
	return map[string]func() error{
		"follow": func() error {
			s, err := irc.turns().Follow(t.Context(), &hostv1.FollowRequest{TurnId: turnID})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"interrupt": func() error {
			_, err := irc.turns().Interrupt(t.Context(), &hostv1.InterruptRequest{TurnId: turnID})
			return err
		},
		"decide": func() error {
			_, err := irc.turns().Decide(t.Context(), &hostv1.DecideRequest{ApprovalId: approvalID, Approve: true})
			return err
		},
		"session": func() error {
			_, err := irc.inbox().Accept(t.Context(), &hostv1.AcceptRequest{ChatId: "x", MessageId: "1", Text: "hi", SessionId: sessionID})
			return err
		},
		"key": func() error {
			_, err := irc.inbox().Accept(t.Context(), &hostv1.AcceptRequest{ChatId: "x", MessageId: "2", Text: "hi", SessionKey: "agent:main:api:dm:a"})
			return err
		},
		"no platform": func() error {
			_, err := r.caller(ipc.Identity{Worker: "odd", Role: ipc.RoleGateway}).inbox().Accept(t.Context(),
				&hostv1.AcceptRequest{ChatId: "x", MessageId: "3", Text: "hi"})
			return err
		},
		"role": func() error {
			_, err := r.caller(ipc.Identity{Worker: "plugin", Role: ipc.RolePlugin}).inbox().Accept(t.Context(),
				&hostv1.AcceptRequest{ChatId: "x", MessageId: "4", Text: "hi"})
			return err
		},
	}
}

func TestSessionKeysOfAGatewayStayBelowItsPlatform(t *testing.T) {
	for key, want := range map[string]string{
		"":                     "",
		"agent:main:api:dm:7":  "agent:main:api:dm:7",
		"mine":                 "agent:main:api:key:mine",
		"agent:main:irc:dm:7":  "denied",
		"agent:main:apix:dm:7": "denied",
		"agent:other":          "denied",
	} {
		got, err := ownKey("api", key)
		if err != nil {
			got = "denied"
		}
		if got != want {
			t.Errorf("key %q became %q, want %q (%v)", key, got, want, err)
		}
	}
}

func TestAppendAndFinishCheckTheirInput(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		errs := map[string]error{}
		r.agent("agent-1", func(a *agentRun) error {
			ok := &turnv1.Message{Role: "assistant", Seq: 1, Content: "x"}
			errs["no steps"] = a.append()
			errs["too many"] = a.append(make([]*turnv1.Message, maxSteps+1)...)
			errs["seq 0"] = a.append(&turnv1.Message{Role: "assistant", Content: "x"})
			errs["role"] = a.append(&turnv1.Message{Role: "robot", Seq: 1})
			errs["size"] = a.append(&turnv1.Message{Role: "tool", Seq: 1, Content: strings.Repeat("x", maxStep+1)})
			errs["call id"] = a.append(&turnv1.Message{Role: "assistant", Seq: 1, ToolCalls: []*turnv1.ToolCall{{Name: "x"}}})
			errs["outcome"] = a.end(turnv1.Outcome_OUTCOME_UNSPECIFIED, ok)
			errs["parked"] = a.end(turnv1.Outcome_OUTCOME_PARKED, ok)
			errs["reply seq"] = a.end(turnv1.Outcome_OUTCOME_COMPLETED, &turnv1.Message{Content: "x"})
			_, errs["call without id"] = a.call("", "work", "{}", 1)
			_, errs["call without tool"] = a.call("c", "", "{}", 1)
			_, errs["arguments"] = a.call("c", "work", strings.Repeat("x", maxStep+1), 1)
			return a.finish(1, "ok")
		})
		a := r.accept("main", "1", "hi")
		r.final(a.TurnID)
		for name, err := range errs {
			if !errors.Is(err, ipc.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.wantTranscript(a.SessionID, "user: hi", "assistant: ok")
	})
}

func (a *agentRun) end(o turnv1.Outcome, reply *turnv1.Message) error {
	_, err := a.turns().Finish(a.ctx, &hostv1.FinishRequest{TurnId: a.req.TurnId, Fence: a.req.Fence, Outcome: o, Reply: reply})
	return err
}

func TestAppendAndFinishReturnTheirRows(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rows := make(chan int64, 4)
		r.agent("agent-1", func(a *agentRun) error {
			step := &hostv1.AppendRequest{TurnId: a.req.TurnId, Fence: a.req.Fence, Steps: []*turnv1.Message{{Role: "assistant", Content: "x", Seq: 1}}}
			for range 2 {
				r, err := a.turns().Append(a.ctx, step)
				if err != nil {
					return err
				}
				rows <- r.MessageIds[0]
			}
			for range 2 {
				f, err := a.turns().Finish(a.ctx, &hostv1.FinishRequest{TurnId: a.req.TurnId, Fence: a.req.Fence,
					Outcome: turnv1.Outcome_OUTCOME_COMPLETED, Reply: &turnv1.Message{Content: "end", Seq: 2}})
				if err != nil {
					return err
				}
				rows <- f.MessageId
			}
			return nil
		})
		a := r.accept("main", "1", "hi")
		r.final(a.TurnID)
		conv, err := r.state.Conversation(t.Context(), a.SessionID)
		if err != nil || len(conv) != 3 {
			t.Fatalf("conversation is %v, %v", conv, err)
		}
		for _, want := range []int64{conv[1].ID, conv[1].ID, conv[2].ID, conv[2].ID} {
			if got := <-rows; got != want {
				t.Errorf("row %d, want %d", got, want)
			}
		}
	})
}

func TestLargeConversationIsLoaded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		in := store.Inbound{Platform: PlatformTerminal, ChatID: "main", MessageID: "1", Text: "hi"}
		for i := range 40 {
			in.History = append(in.History, store.Message{Role: "user", Content: strings.Repeat(fmt.Sprint(i%10), maxStep)})
		}
		r.agent("agent-1", func(a *agentRun) error {
			session, rows, err := a.load()
			if err != nil {
				return err
			}
			if session.GetId() != a.req.SessionId || session.Source != PlatformTerminal || session.ChatId != "main" {
				t.Errorf("session is %v", session)
			}
			for i, m := range rows[:40] {
				if len(m.Content) != maxStep || m.Content[0] != byte('0'+i%10) {
					t.Errorf("row %d has %d bytes", i, len(m.Content))
				}
			}
			return a.finish(1, fmt.Sprint(len(rows)))
		})
		a, err := r.hub.Accept(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.final(a.TurnID).Text; got != "41" {
			t.Errorf("the agent read %s rows", got)
		}
	})
}

func TestRowsOfOtherProgramsThatAreTooLongAreCut(t *testing.T) {
	huge := strings.Repeat("x", 9<<20)
	m := &turnv1.Message{Content: huge, Reasoning: huge, ToolCalls: []*turnv1.ToolCall{{Id: "a", ArgumentsJson: "{}"}, {Id: "b", ArgumentsJson: huge}}}
	shorten(m)
	if n := len(m.Content) + len(m.Reasoning) + len(m.ToolCalls[1].ArgumentsJson); n > ipc.MaxMessageBytes {
		t.Errorf("%d bytes are left", n)
	}
	wantContains(t, m.Content, "[cut by the supervisor: the first 2 MiB of 9437184 bytes]")
}

func TestStoreErrorsKeepTheirMeaning(t *testing.T) {
	for from, to := range map[error]error{
		store.ErrNotFound: ipc.ErrNotFound, store.ErrExists: ipc.ErrExists, store.ErrLeaseLost: ipc.ErrLeaseLost,
		store.ErrInvalid: ipc.ErrInvalid, store.ErrQueueFull: ipc.ErrBusy, store.ErrDiskFull: ipc.ErrBusy, store.ErrBusy: ipc.ErrBusy,
		store.ErrReadOnly: ipc.ErrRefused, store.ErrFailed: ipc.ErrRefused, store.ErrClosed: ipc.ErrGone,
	} {
		err := wrap(fmt.Errorf("row 7: %w", from), "read %s", "it")
		if !errors.Is(err, to) || !errors.Is(err, from) || err.Error() != "read it: row 7: "+from.Error() {
			t.Errorf("%v became %v", from, err)
		}
	}
	if wrap(nil, "read") != nil {
		t.Error("no error became one")
	}
	if err := wrap(context.Canceled, "read"); !errors.Is(err, context.Canceled) {
		t.Errorf("another error became %v", err)
	}
}
