package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

var (
	telegramGateway = ipc.Identity{Worker: "gateway-telegram", Role: ipc.RoleGateway, Platform: "telegram"}
	otherGateway    = ipc.Identity{Worker: "gateway-api", Role: ipc.RoleGateway, Platform: "api"}
	home7           = &hostv1.Place{ChatId: "7", UserId: "u"}
)

func (p *process) sessions() hostv1.SessionsClient { return hostv1.NewSessionsClient(p.host) }
func (p *process) confirmations() hostv1.ConfirmationsClient {
	return hostv1.NewConfirmationsClient(p.host)
}

// hand hands a message of chat 7 over as its gateway does.
func (p *process) hand(id, text string, busy hostv1.Busy) *hostv1.AcceptResponse {
	p.rig.t.Helper()
	r, err := p.inbox().Accept(p.rig.t.Context(), &hostv1.AcceptRequest{ChatId: "7", UserId: "u", MessageId: id, Text: text, Busy: busy})
	if err != nil {
		p.rig.t.Fatal(err)
	}
	return r
}

func TestAChatsCommandsSeeAndChangeItsSessionAndNoOtherPlatforms(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		g, other := r.caller(telegramGateway), r.caller(otherGateway)
		ctx := t.Context()
		if _, err := g.sessions().Get(ctx, &hostv1.GetSessionRequest{Place: home7}); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("before the first message: %v", err)
		}
		a := g.hand("1", "hi", 0)
		r.final(a.TurnId)
		info, err := g.sessions().Get(ctx, &hostv1.GetSessionRequest{Place: home7})
		if err != nil || info.Id != a.SessionId || info.Messages != 2 || info.Preview != "hi" || info.RunningTurn != "" {
			t.Fatalf("%v, %v", info, err)
		}
		if info, err = g.sessions().SetTitle(ctx, &hostv1.SetTitleRequest{Place: home7, Title: "plans"}); err != nil || info.Title != "plans" {
			t.Errorf("%v, %v", info, err)
		}
		if info, err = g.sessions().SetModel(ctx, &hostv1.SetModelRequest{Place: home7, Model: "big"}); err != nil || info.Model != "big" {
			t.Errorf("%v, %v", info, err)
		}
		if l, err := g.sessions().List(ctx, &hostv1.ListSessionsRequest{ChatId: "7"}); err != nil || len(l.Sessions) != 1 {
			t.Errorf("%v, %v", l, err)
		}
		if l, err := other.sessions().List(ctx, &hostv1.ListSessionsRequest{}); err != nil || len(l.Sessions) != 0 {
			t.Errorf("another platform sees %v, %v", l, err)
		}
		foreign := &hostv1.Place{ChatId: "7", SessionId: a.SessionId}
		if _, err := other.sessions().Undo(ctx, &hostv1.UndoRequest{Place: foreign, MessageId: "x"}); !errors.Is(err, ipc.ErrDenied) {
			t.Errorf("another platform's undo: %v", err)
		}
		if u, err := g.sessions().Undo(ctx, &hostv1.UndoRequest{Place: home7, MessageId: "2"}); err != nil || u.Exchanges != 1 || u.Text != "hi" {
			t.Errorf("%v, %v", u, err)
		}
		r.wantTranscript(a.SessionId)
		if e, err := g.sessions().End(ctx, &hostv1.EndRequest{Place: home7, MessageId: "3"}); err != nil || e.SessionId != a.SessionId {
			t.Errorf("%v, %v", e, err)
		}
		if b := g.hand("4", "anew", 0); b.SessionId == a.SessionId {
			t.Error("the ended session goes on")
		} else {
			r.final(b.TurnId)
		}
		if back, err := g.sessions().Bind(ctx, &hostv1.BindRequest{Place: home7, Session: "plans", MessageId: "5"}); err != nil || back.Id != a.SessionId {
			t.Errorf("%v, %v", back, err)
		}
	})
}

func TestARetryIsRunOnceWithTheExchangeTakenOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		g := r.caller(telegramGateway)
		a := g.hand("1", "hi", 0)
		r.final(a.TurnId)
		var turn string
		for i := range 2 {
			got, err := g.turns().Retry(t.Context(), &hostv1.RetryRequest{Place: home7, MessageId: "retry"})
			if err != nil || got.Text != "hi" || got.Duplicate != (i > 0) || turn != "" && got.TurnId != turn {
				t.Fatalf("%v, %v", got, err)
			}
			turn = got.TurnId
		}
		if f := r.final(turn); f.Text != "hi" {
			t.Errorf("%v", f)
		}
		r.wantTranscript(a.SessionId, "user: hi", "assistant: hi")
	})
}

func TestASteerReachesTheModelAfterTheNextResultsThoughTheAgentDies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		entered, release := make(chan struct{}), make(chan struct{})
		var runs atomic.Int32
		script := func(a *agentRun) error {
			n := runs.Add(1)
			if n == 1 {
				close(entered)
				<-a.ctx.Done() // it dies with the text still waiting
				return a.ctx.Err()
			}
			<-release
			ask := &turnv1.Message{Role: "assistant", Seq: 1, ToolCalls: []*turnv1.ToolCall{{Id: "c", Name: "x"}}}
			if _, err := a.turns().Append(a.ctx, &hostv1.AppendRequest{TurnId: a.req.TurnId, Fence: a.req.Fence, Steps: []*turnv1.Message{ask}}); err != nil {
				return err
			}
			res := &turnv1.Message{Role: "tool", Seq: 2, ToolCallId: "c", Content: "found"}
			got, err := a.turns().Append(a.ctx, &hostv1.AppendRequest{TurnId: a.req.TurnId, Fence: a.req.Fence, Steps: []*turnv1.Message{res}, Steer: true})
			if err != nil {
				return err
			}
			text := ""
			for _, m := range got.Added {
				text += m.Content
			}
			_, err = a.turns().Finish(a.ctx, &hostv1.FinishRequest{TurnId: a.req.TurnId, Fence: a.req.Fence, Outcome: turnv1.Outcome_OUTCOME_COMPLETED,
				Reply: &turnv1.Message{Seq: 3 + uint32(len(got.Added)), Content: "with " + text}})
			return err
		}
		first := r.agent("agent-1", lively(script))
		g := r.caller(telegramGateway)
		a := g.hand("1", "look", 0)
		<-entered
		for i := range 2 {
			got, err := g.turns().Steer(t.Context(), &hostv1.SteerRequest{Place: home7, MessageId: "2", Text: "to the left"})
			if err != nil || got.TurnId != a.TurnId || got.Disposition != hostv1.Disposition_DISPOSITION_STEERED || got.Duplicate != (i > 0) {
				t.Fatalf("%v, %v", got, err)
			}
		}
		first.kill()
		r.agent("agent-1", lively(script))
		close(release)
		if f := r.final(a.TurnId); f.Text != "with to the left" {
			t.Errorf("%v", f)
		}
		r.wantTranscript(a.SessionId, "user: look", "assistant:  [c x]", "tool: found", "user: to the left", "assistant: with to the left")
	})
}

func TestASteerThatComesTooLateIsAnsweredAsTheNextMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.agent("agent-1", lively(func(a *agentRun) error {
			<-release
			return obey(never)(a)
		}))
		g := r.caller(telegramGateway)
		a := g.hand("1", "one", 0)
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		if got := g.hand("2", "two", hostv1.Busy_BUSY_STEER); got.Disposition != hostv1.Disposition_DISPOSITION_STEERED || got.TurnId != a.TurnId {
			t.Fatalf("%v", got)
		}
		close(release)
		r.final(a.TurnId)
		next := g.hand("2", "two", hostv1.Busy_BUSY_STEER)
		if !next.Duplicate || next.TurnId == a.TurnId {
			t.Fatalf("%v", next)
		}
		if f := r.final(next.TurnId); f.Text != "two" {
			t.Errorf("%v", f)
		}
		if got := g.hand("3", "three", hostv1.Busy_BUSY_STEER); got.Disposition != hostv1.Disposition_DISPOSITION_STARTED {
			t.Errorf("with nothing to steer: %v", got)
		} else {
			r.final(got.TurnId)
		}
	})
}

func TestAMessageEndsTheRunningTurnOnceAndRunsNext(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var runs atomic.Int32
		r.agent("agent-1", lively(func(a *agentRun) error {
			if runs.Add(1) == 1 {
				return obedient(a)
			}
			return obey(never)(a)
		}))
		g := r.caller(telegramGateway)
		a := g.hand("1", "one", 0)
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		for i := range 2 {
			b := g.hand("2", "two", hostv1.Busy_BUSY_INTERRUPT)
			if b.Disposition != hostv1.Disposition_DISPOSITION_INTERRUPTED || b.Interrupted != a.TurnId || b.Duplicate != (i > 0) {
				t.Fatalf("%v", b)
			}
			if i == 0 {
				if f := r.final(a.TurnId); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED {
					t.Errorf("%v", f)
				}
			}
			if f := r.final(b.TurnId); f.Text != "two" || f.Outcome != turnv1.Outcome_OUTCOME_COMPLETED {
				t.Errorf("%v", f)
			}
		}
		if n := len(r.eventsOf("turn_interrupted")); n != 1 {
			t.Errorf("interrupted %d times", n)
		}
	})
}

func TestAnInterruptionOutlivesTheSupervisor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", lively(func(a *agentRun) error { <-a.ctx.Done(); return a.ctx.Err() })) // does not obey
		a := r.accept("main", "m", "hi")
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		if !r.interrupt(a.TurnID) {
			t.Fatal("not interrupted")
		}
		r.restart()
		r.agent("agent-1", obey(never))
		if f := r.final(a.TurnID); f.Outcome != turnv1.Outcome_OUTCOME_INTERRUPTED || f.Error != "interrupted: enough" {
			t.Errorf("%v", f)
		}
	})
}

func TestATurnThatRanAtTwoRestartsWithinMinutesIsParkedAndCanBeRetried(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		script := lively(func(a *agentRun) error { <-a.ctx.Done(); return a.ctx.Err() })
		r.agent("agent-1", script)
		g := r.caller(telegramGateway)
		a := g.hand("1", "restart yourself", 0)
		for range 2 {
			r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
			r.hub.Close() // the supervisor is first to go: it sees no agent die
			r.restart()
			r.agent("agent-1", script)
		}
		f := r.final(a.TurnId)
		if f.Outcome != turnv1.Outcome_OUTCOME_PARKED || !strings.Contains(f.Text, "/retry") {
			t.Fatalf("%v", f)
		}
		for _, p := range r.all() {
			p.kill()
		}
		r.agent("agent-1", obey(never))
		again, err := r.caller(telegramGateway).turns().Retry(t.Context(), &hostv1.RetryRequest{Place: home7, MessageId: "2"})
		if err != nil {
			t.Fatal(err)
		}
		if f := r.final(again.TurnId); f.Text != "restart yourself" {
			t.Errorf("%v", f)
		}
	})
}

func TestOpenTurnsOfAChatAreListedInTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", lively(func(a *agentRun) error { <-a.ctx.Done(); return a.ctx.Err() }))
		g := r.caller(telegramGateway)
		a := g.hand("1", "one", 0)
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		b := g.hand("2", "two", 0)
		if b.Disposition != hostv1.Disposition_DISPOSITION_QUEUED || b.Ahead != 1 {
			t.Errorf("%v", b)
		}
		got, err := g.turns().ListOpen(t.Context(), &hostv1.ListTurnsRequest{ChatId: "7"})
		if err != nil || len(got.Turns) != 2 || got.Turns[0].TurnId != a.TurnId || !got.Turns[0].Running || got.Turns[1].Running || got.Turns[1].Text != "two" {
			t.Fatalf("%v, %v", got, err)
		}
		of, err := g.turns().ListOpen(t.Context(), &hostv1.ListTurnsRequest{SessionId: a.SessionId})
		if err != nil || len(of.Turns) != 2 {
			t.Errorf("of the session: %v, %v", of, err)
		}
		if got, err := r.caller(otherGateway).turns().ListOpen(t.Context(), &hostv1.ListTurnsRequest{ChatId: "7"}); err != nil || len(got.Turns) != 0 {
			t.Errorf("another platform sees %v, %v", got, err)
		}
		info, err := g.sessions().Get(t.Context(), &hostv1.GetSessionRequest{Place: home7})
		if err != nil || info.RunningTurn != a.TurnId || info.Queued != 1 {
			t.Errorf("%v, %v", info, err)
		}
	})
}

func TestAQuestionOutlivesEveryProcessAndItsFirstAnswerHolds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		ask := &hostv1.AskRequest{Key: "m1", ChatId: "7", UserId: "u", Command: "/undo", Question: "Sure?", Payload: []byte{0, 1}}
		q, err := r.caller(telegramGateway).confirmations().Ask(ctx, ask)
		if err != nil || q.State != hostv1.Confirmation_STATE_PENDING || len("confirm:"+q.Id) > 64 {
			t.Fatalf("%v, %v", q, err)
		}
		r.restart()
		g := r.caller(telegramGateway)
		if again, err := g.confirmations().Ask(ctx, ask); err != nil || again.Id != q.Id || string(again.Payload) != "\x00\x01" {
			t.Errorf("%v, %v", again, err)
		}
		answer := func(choice hostv1.AnswerRequest_Choice, user string) (*hostv1.Confirmation, error) {
			return g.confirmations().Answer(ctx, &hostv1.AnswerRequest{Id: q.Id, Choice: choice, UserId: user})
		}
		if _, err := answer(hostv1.AnswerRequest_CHOICE_ONCE, "somebody else"); !errors.Is(err, ipc.ErrDenied) {
			t.Errorf("another person's answer: %v", err)
		}
		if c, err := answer(hostv1.AnswerRequest_CHOICE_ALWAYS, "u"); err != nil || c.State != hostv1.Confirmation_STATE_ALWAYS || c.DecidedBefore {
			t.Errorf("%v, %v", c, err)
		}
		if c, err := answer(hostv1.AnswerRequest_CHOICE_CANCEL, "u"); err != nil || c.State != hostv1.Confirmation_STATE_ALWAYS || !c.DecidedBefore {
			t.Errorf("the second answer: %v, %v", c, err)
		}
		r.restart() // the gateway had not done it yet
		g = r.caller(telegramGateway)
		if l, err := g.confirmations().List(ctx, &hostv1.ListConfirmationsRequest{ChatId: "7"}); err != nil || len(l.Confirmations) != 1 {
			t.Errorf("%v, %v", l, err)
		}
		if _, err := g.confirmations().Done(ctx, &hostv1.DoneRequest{Id: q.Id}); err != nil {
			t.Error(err)
		}
		if l, err := g.confirmations().List(ctx, &hostv1.ListConfirmationsRequest{}); err != nil || len(l.Confirmations) != 0 {
			t.Errorf("%v, %v", l, err)
		}
		ask.Key = "m2"
		if c, err := g.confirmations().Ask(ctx, ask); err != nil || c.State != hostv1.Confirmation_STATE_ALWAYS || !c.Remembered {
			t.Errorf("allowed for always: %v, %v", c, err)
		}
		if _, err := r.caller(otherGateway).confirmations().Get(ctx, &hostv1.GetConfirmationRequest{Id: q.Id}); !errors.Is(err, ipc.ErrNotFound) {
			t.Errorf("another platform's look: %v", err)
		}
	})
}

func TestAQuestionExpires(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := r.caller(telegramGateway)
		q, err := g.confirmations().Ask(t.Context(), &hostv1.AskRequest{Key: "m1", ChatId: "7", Command: "/new", TimeoutMs: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c, err := g.confirmations().Answer(t.Context(), &hostv1.AnswerRequest{Id: q.Id, Choice: hostv1.AnswerRequest_CHOICE_ONCE})
		if err != nil || c.State != hostv1.Confirmation_STATE_EXPIRED {
			t.Errorf("%v, %v", c, err)
		}
		if l, err := g.confirmations().List(t.Context(), &hostv1.ListConfirmationsRequest{}); err != nil || len(l.Confirmations) != 0 {
			t.Errorf("%v, %v", l, err)
		}
	})
}

func TestOnlyABuiltInToolThatRefusesIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		refuse := func(context.Context, *invocation) (*toolv1.Result, error) {
			return nil, fmt.Errorf("not today: %w", ipc.ErrRefused)
		}
		r.start(ipc.Identity{Worker: "plugin", Role: ipc.RolePlugin}, func(p *process, s *grpc.Server) {
			toolv1.RegisterToolServer(s, &toolServer{proc: p, tools: map[string]scriptedTool{"theirs": {invoke: refuse}}})
		})
		r.agent("agent-1", obey(never))
		began := time.Now()
		turn, read := r.one("call:theirs")
		if !strings.Contains(read, "not today") || time.Since(began) > time.Second || r.world.of(turn, "c0") != 1 {
			t.Errorf("the model reads %q after %v, made %d times", read, time.Since(began), r.world.of(turn, "c0"))
		}
	})
}

func TestAnAgentThatIsGoneIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.agent("agent-1", obey(never))
		r.final(r.accept("main", "m", "hi").TurnID)
		p.kill()
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		if n := len(r.hub.homes.young) + len(r.hub.homes.old); n != 0 {
			t.Errorf("%d sessions hold it", n)
		}
	})
}

func TestAChatIsToldOfRestartsOnceInTenMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", lively(func(a *agentRun) error { <-a.ctx.Done(); return a.ctx.Err() }))
		g := r.caller(telegramGateway)
		g.hand("1", "one", 0)
		r.eventually("it runs", func() bool { return r.hub.Busy("agent-1") == 1 })
		r.hub.Farewell(t.Context(), true)
		r.hub.Farewell(t.Context(), true)
		r.hub.Close()
		r.restart() // the turn goes on; the chat knows
		told := func() (texts []string) {
			rows, err := r.state.PendingOutbox(t.Context(), "telegram", "7", 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				texts = append(texts, row.Text)
			}
			return texts
		}
		if got := told(); len(got) != 1 || !strings.Contains(got[0], "being restarted") {
			t.Errorf("told %q", got)
		}
		time.Sleep(restartPause + time.Second)
		r.hub.Farewell(t.Context(), false)
		if got := told(); len(got) != 2 || !strings.Contains(got[1], "being stopped") {
			t.Errorf("told %q", got)
		}
	})
}

func TestATaskIsToldToChatsOfThisSupervisorOnly(t *testing.T) {
	h := New(Config{Platforms: []string{"terminal", "telegram"}})
	defer h.Close()
	if err := h.reachable("telegram"); err != nil {
		t.Error(err)
	}
	if err := h.reachable("telegramm"); !errors.Is(err, ipc.ErrInvalid) || !strings.Contains(err.Error(), "terminal, telegram") {
		t.Error(err)
	}
}

var _ Store = (*store.State)(nil)
