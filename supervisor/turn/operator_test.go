package turn

import (
	"errors"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

// operator is who has the control socket: a person at a terminal.
var operator = ipc.Identity{Worker: "operator (pid 7)", Role: ipc.RoleOperator, Platform: "terminal"}

var desk = &hostv1.Place{ChatId: "main", ChatType: "dm"}

func TestAPersonAtATerminalHasTheCommandsOfAChat(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		p, ctx := r.caller(operator), t.Context()
		if _, err := p.sessions().Get(ctx, &hostv1.GetSessionRequest{Place: desk}); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("before the first message: %v", err)
		}
		a := r.accept("main", "1", "hi")
		r.final(a.TurnID)
		if s, err := p.sessions().SetTitle(ctx, &hostv1.SetTitleRequest{Place: desk, Title: "plans"}); err != nil || s.Id != a.SessionID || s.Title != "plans" {
			t.Errorf("%v, %v", s, err)
		}
		if s, err := p.sessions().SetModel(ctx, &hostv1.SetModelRequest{Place: desk, Model: "big"}); err != nil || s.Model != "big" {
			t.Errorf("%v, %v", s, err)
		}
		got, err := p.turns().Retry(ctx, &hostv1.RetryRequest{Place: desk, MessageId: "again"})
		if err != nil || got.Text != "hi" || got.SessionId != a.SessionID {
			t.Fatalf("%v, %v", got, err)
		}
		r.final(got.TurnId)
		r.wantTranscript(a.SessionID, "user: hi", "assistant: hi")
		if u, err := p.sessions().Undo(ctx, &hostv1.UndoRequest{Place: desk, MessageId: "2", Count: 1}); err != nil || u.Exchanges != 1 {
			t.Errorf("%v, %v", u, err)
		}
		r.wantTranscript(a.SessionID)
	})
}

func TestAPersonAtATerminalMayGoOnWithASessionOfAnyChatAndListsTheTerminals(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		p, ctx := r.caller(operator), t.Context()
		a := r.caller(telegramGateway).hand("1", "from afar", 0)
		r.final(a.TurnId)
		there := &hostv1.Place{ChatId: "main", ChatType: "dm", SessionId: a.SessionId}
		if s, err := p.sessions().Get(ctx, &hostv1.GetSessionRequest{Place: there}); err != nil || s.Preview != "from afar" {
			t.Errorf("%v, %v", s, err)
		}
		if l, err := p.sessions().List(ctx, &hostv1.ListSessionsRequest{}); err != nil || len(l.Sessions) != 0 {
			t.Errorf("%v, %v", l, err)
		}
		got, err := p.turns().Retry(ctx, &hostv1.RetryRequest{Place: there, MessageId: "again"})
		if err != nil || got.SessionId != a.SessionId {
			t.Fatalf("%v, %v", got, err)
		}
		r.final(got.TurnId)
		r.wantTranscript(a.SessionId, "user: from afar", "assistant: from afar")
	})
}

// What workers/chat tells a person goes by this text.
func TestAnUndoBelowARunningTurnIsRefusedInWordsThatChatsKnow(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.caller(operator)
		a := r.accept("main", "1", "nobody is there to answer")
		_, err := p.sessions().Undo(t.Context(), &hostv1.UndoRequest{Place: desk, MessageId: "2", Count: 1})
		if !errors.Is(err, ipc.ErrRefused) {
			t.Fatalf("%v", err)
		}
		wantContains(t, err.Error(), "a turn is open")
		r.agent("agent-1", obey(never))
		r.final(a.TurnID)
	})
}

func TestAPersonAtATerminalDoesNotActForAGateway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p, ctx := r.caller(operator), t.Context()
		for name, call := range map[string]func() error{
			"accept": func() error {
				_, err := p.inbox().Accept(ctx, &hostv1.AcceptRequest{ChatId: "main", MessageId: "1", Text: "hi"})
				return err
			},
			"bind": func() error {
				_, err := p.sessions().Bind(ctx, &hostv1.BindRequest{Place: desk, Session: "s", MessageId: "1"})
				return err
			},
			"end": func() error {
				_, err := p.sessions().End(ctx, &hostv1.EndRequest{Place: desk, MessageId: "1"})
				return err
			},
			"list open turns": func() error {
				_, err := p.turns().ListOpen(ctx, &hostv1.ListTurnsRequest{ChatId: "main"})
				return err
			},
			"append to a turn": func() error {
				_, err := p.turns().Append(ctx, &hostv1.AppendRequest{TurnId: "t"})
				return err
			},
			"a key of its own": func() error {
				_, err := p.sessions().Get(ctx, &hostv1.GetSessionRequest{Place: &hostv1.Place{ChatId: "7", SessionKey: "agent:main:telegram:dm:7"}})
				return err
			},
		} {
			if err := call(); !errors.Is(err, ipc.ErrDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for role, id := range map[string]ipc.Identity{
			"an agent":                  {Worker: "agent-9", Role: ipc.RoleAgent, Platform: "terminal"},
			"an operator of no chats":   {Worker: "operator", Role: ipc.RoleOperator},
			"a plugin":                  {Worker: "plugin-x", Role: ipc.RolePlugin},
			"a worker with tools alone": {Worker: "tools", Role: ipc.RoleTools},
		} {
			if _, err := r.caller(id).sessions().List(ctx, &hostv1.ListSessionsRequest{}); !errors.Is(err, ipc.ErrDenied) {
				t.Errorf("%s lists sessions: %v", role, err)
			}
		}
	})
}
