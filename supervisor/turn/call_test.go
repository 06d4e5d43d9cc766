package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// blocked never answers by itself.
func blocked(ctx context.Context, _ *invocation) (*toolv1.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// dies kills the tools worker during the call.
func dies(_ context.Context, in *invocation) (*toolv1.Result, error) {
	in.kill()
	return nil, errKilled
}

// one runs a message with one tool call and returns the turn and what the model reads.
func (r *rig) one(text string) (turnID, read string) {
	r.t.Helper()
	a := r.accept("main", text, text)
	return a.TurnID, r.final(a.TurnID).Text
}

func TestToolsWorkerDeathDuringCallWithEffectsIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: dies}})
		r.agent("agent-1", obey(never))
		id, read := r.one("call:work")
		wantContains(t, read, "unknown whether this call of work had its effect")
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("again")}})
		if n := r.world.of(id, "c0"); n != 1 {
			t.Fatalf("the call was made %d times", n)
		}
		calls, err := r.state.Calls(t.Context(), id)
		if err != nil || len(calls) != 1 || calls[0].State != store.CallUnknown || calls[0].ErrorKind != "KIND_UNKNOWN_EFFECT" {
			t.Fatalf("stored calls are %+v, %v", calls, err)
		}
		if len(r.eventsOf("call_unknown")) != 1 {
			t.Error("no event says so")
		}
	})
}

func TestReadOnlyCallIsRepeatedAfterToolsWorkerDeath(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"look": {readOnly: true, invoke: dies}})
		r.agent("agent-1", obey(never))
		a := r.accept("main", "m", "call:look")
		<-r.reached("look")
		time.Sleep(time.Second)
		r.tools("tools", map[string]scriptedTool{"look": {readOnly: true, invoke: ok("seen")}})
		if got := r.final(a.TurnID).Text; got != "seen" {
			t.Fatalf("the model reads %q", got)
		}
		if n := r.world.of(a.TurnID, "c0"); n != 2 {
			t.Fatalf("the call was made %d times", n)
		}
	})
}

func TestReadOnlyCallThatKillsItsWorkerIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		deadly := map[string]scriptedTool{"look": {readOnly: true, invoke: dies}}
		r.agent("agent-1", obey(never))
		a := r.accept("main", "m", "call:look")
		for range readAttempts {
			<-r.tools("tools", deadly).dead
		}
		wantContains(t, r.final(a.TurnID).Text, "made 3 times and its worker tools ended each time")
	})
}

func TestCallWaitsForARestartedToolsWorker(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		want string
	}{
		"short":    {10 * time.Second, "done"},
		"too long": {toolsWait + time.Second, "its worker is not running"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				tools := map[string]scriptedTool{"work": {invoke: ok("done")}}
				p := r.tools("tools", tools)
				r.agent("agent-1", obey(never))
				if _, read := r.one("call:work first"); read != "done first" {
					t.Fatalf("the model reads %q", read)
				}
				p.kill()
				a := r.accept("main", "m", "call:work")
				time.Sleep(c.away)
				r.tools("tools", tools)
				wantContains(t, r.final(a.TurnID).Text, c.want)
			})
		})
	}
}

// A connection that is broken before its worker is known to be gone never carried the call.
func TestCallOverABrokenConnectionIsMadeByTheNextWorker(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tools := map[string]scriptedTool{"work": {invoke: ok("done")}}
		p := r.tools("tools", tools)
		r.agent("agent-1", obey(never))
		r.one("call:work first")
		if err := p.conn.Close(); err != nil { // not detached yet
			t.Fatal(err)
		}
		a := r.accept("main", "m", "call:work")
		time.Sleep(2 * time.Second)
		p.kill()
		r.tools("tools", tools)
		if got := r.final(a.TurnID).Text; got != "done" {
			t.Fatalf("the model reads %q", got)
		}
		if n := r.world.of(a.TurnID, "c0"); n != 1 {
			t.Fatalf("the call was made %d times", n)
		}
	})
}

func TestUnknownToolNamesTheKnownOnes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"look": {invoke: ok("")}, "work": {invoke: ok("")}})
		r.agent("agent-1", obey(never))
		_, read := r.one("call:wrok")
		wantContains(t, read, `There is no tool "wrok". The tools are: look, work.`)
	})
}

// After a restart the agents may be faster than the tools.
func TestFirstTurnWaitsForTheTools(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		listed := make(chan int, 1)
		r.agent("agent-1", func(a *agentRun) error {
			l, err := a.tools().List(a.ctx, nil)
			if err != nil {
				return err
			}
			listed <- len(l.Tools)
			return obey(never)(a)
		})
		a := r.accept("main", "m", "call:work")
		time.Sleep(3 * time.Second)
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("done")}})
		if got := r.final(a.TurnID).Text; got != "done" {
			t.Fatalf("the model reads %q", got)
		}
		if n := <-listed; n != 1 {
			t.Fatalf("%d tools were listed", n)
		}
	})
}

func TestCallIsBoundedInTimeAndSize(t *testing.T) {
	long := strings.Repeat("é", maxResult)
	for name, c := range map[string]struct {
		tool scriptedTool
		want string
	}{
		"deadline":      {scriptedTool{maxMS: 3000, invoke: blocked}, "did not end within 3s"},
		"no deadline":   {scriptedTool{invoke: blocked}, "did not end within 10m0s"},
		"large result":  {scriptedTool{invoke: ok(long)}, "[cut by the supervisor: the first 256 KiB of 524288 bytes]"},
		"no result":     {scriptedTool{invoke: func(context.Context, *invocation) (*toolv1.Result, error) { return nil, nil }}, "tools ended the call without a result"},
		"bad arguments": {scriptedTool{invoke: func(context.Context, *invocation) (*toolv1.Result, error) { return nil, ipc.ErrInvalid }}, "invalid request"},
		"panic": {scriptedTool{invoke: func(context.Context, *invocation) (*toolv1.Result, error) { panic("oops") }},
			"internal error: oops"},
		"flood": {scriptedTool{invoke: func(ctx context.Context, in *invocation) (*toolv1.Result, error) {
			for ctx.Err() == nil {
				in.chunk(make([]byte, 1<<20))
			}
			return nil, ctx.Err()
		}}, "sent over 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.tools("tools", map[string]scriptedTool{"work": c.tool})
				r.agent("agent-1", func(a *agentRun) error {
					go func() { // a long call is no silence
						for a.ctx.Err() == nil {
							a.active()
							sleep(a.ctx, 10*time.Second)
						}
					}()
					return obey(never)(a)
				})
				id, read := r.one("call:work")
				wantContains(t, read, c.want)
				if len(read) > maxResult+200 {
					t.Errorf("the model reads %d bytes", len(read))
				}
				if n := r.world.of(id, "c0"); n != 1 {
					t.Errorf("the call was made %d times", n)
				}
			})
		})
	}
}

func TestToolCannotClaimTheSupervisorsVerdicts(t *testing.T) {
	for _, kind := range []toolv1.ToolError_Kind{toolv1.ToolError_KIND_DENIED, toolv1.ToolError_KIND_UNKNOWN_EFFECT, 99} {
		res := capResult(&toolv1.Result{Error: &toolv1.ToolError{Kind: kind, Message: "no"}})
		if res.Error.Kind != toolv1.ToolError_KIND_FAILED {
			t.Errorf("%v became %v", kind, res.Error.Kind)
		}
	}
}

func TestAtMostEightCallsOfATurnRunSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var running, most atomic.Int32
		r.tools("tools", map[string]scriptedTool{"work": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return &toolv1.Result{Content: "done"}, nil
		}}})
		var agentRuns sync.WaitGroup
		r.agent("agent-1", func(a *agentRun) error {
			for i := range 20 {
				agentRuns.Go(func() {
					if res, err := a.call(fmt.Sprint(i), "work", "{}", 1); err != nil || res.Content != "done" {
						t.Errorf("call %d: %v, %v", i, res, err)
					}
				})
			}
			agentRuns.Wait()
			return a.finish(1, "all done")
		})
		a := r.accept("main", "m", "go")
		r.final(a.TurnID)
		if most.Load() != callsAtOnce {
			t.Fatalf("%d calls ran side by side, want %d", most.Load(), callsAtOnce)
		}
		if n := r.hub.Busy("tools"); n != 0 {
			t.Fatalf("the tools worker still holds %d calls", n)
		}
	})
}

func TestSameCallAttachesAndAnotherUnderItsIDIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
			time.Sleep(time.Second)
			return &toolv1.Result{Content: "done"}, nil
		}}})
		r.agent("agent-1", func(a *agentRun) error {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if res, err := a.call("c", "work", "{}", 1); err != nil || res.Content != "done" {
						t.Errorf("attached call: %v, %v", res, err)
					}
				})
			}
			<-a.reached("work")
			if _, err := a.call("c", "work", `{"other":1}`, 1); !errors.Is(err, ipc.ErrInvalid) {
				t.Errorf("another call under the id while it runs: %v", err)
			}
			wg.Wait()
			if _, err := a.call("c", "work", `{"other":1}`, 1); !errors.Is(err, ipc.ErrInvalid) {
				t.Errorf("another call under the id after it: %v", err)
			}
			if res, err := a.call("c", "work", "{}", 1); err != nil || res.Content != "done" {
				t.Errorf("repeated call: %v, %v", res, err)
			}
			return a.finish(1, "ok")
		})
		a := r.accept("main", "m", "go")
		r.final(a.TurnID)
		if n := r.world.of(a.TurnID, "c"); n != 1 {
			t.Fatalf("the call was made %d times", n)
		}
	})
}

func TestFirstOwnerKeepsAToolName(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first := r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("first")}})
		r.eventually("its tools are known", func() bool { return r.hub.tools.lookup("work") != nil })
		r.tools("plugin-x", map[string]scriptedTool{"work": {invoke: ok("second")}, "more": {invoke: ok("more")}})
		r.eventually("the clash is told", func() bool { return len(r.eventsOf("tool_clash")) == 1 })
		wantContains(t, r.eventsOf("tool_clash")[0].Message, "work is offered by tools and by plugin-x; tools keeps it")
		r.agent("agent-1", obey(never))
		if _, read := r.one("call:work call:more"); read != "first more" {
			t.Fatalf("the model reads %q", read)
		}
		// A restart is no reason to lose a name.
		first.kill()
		r.tools("plugin-y", map[string]scriptedTool{"work": {invoke: ok("third")}})
		r.eventually("the second clash is told", func() bool { return len(r.eventsOf("tool_clash")) == 2 })
		r.tools("tools", map[string]scriptedTool{"work": {invoke: ok("first again")}})
		if _, read := r.one("call:work"); read != "first again" {
			t.Fatalf("the model reads %q", read)
		}
	})
}

func TestListKeepsToolsOfAWorkerThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.tools("tools", map[string]scriptedTool{"b": {}, "a": {}})
		r.eventually("its tools are known", func() bool { return r.hub.tools.lookup("a") != nil })
		p.kill()
		time.Sleep(time.Hour)
		specs, err := r.hub.tools.list(t.Context())
		if err != nil || len(specs) != 2 || specs[0].Name != "a" || specs[1].Name != "b" {
			t.Fatalf("tools are %v, %v", specs, err)
		}
		// What the next life no longer offers is gone.
		r.tools("tools", map[string]scriptedTool{"a": {}})
		r.eventually("b is gone", func() bool { return r.hub.tools.lookup("b") == nil })
	})
}

func TestSpecsAreChecked(t *testing.T) {
	good := func() *toolv1.ToolSpec { return &toolv1.ToolSpec{Name: "work", InputSchemaJson: "{}"} }
	for name, spoil := range map[string]func(*toolv1.ToolSpec){
		"":                    func(*toolv1.ToolSpec) {},
		"is not made of":      func(s *toolv1.ToolSpec) { s.Name = "work now" },
		"tool name \"\"":      func(s *toolv1.ToolSpec) { s.Name = "" },
		"not a JSON object":   func(s *toolv1.ToolSpec) { s.InputSchemaJson = "[]" },
		"description of work": func(s *toolv1.ToolSpec) { s.Description = strings.Repeat("x", maxDescription+1) },
		"schema of work":      func(s *toolv1.ToolSpec) { s.InputSchemaJson = strings.Repeat("x", maxSchema+1) },
		"timeouts of work":    func(s *toolv1.ToolSpec) { s.MaxTimeoutMs = -1 },
	} {
		s := good()
		spoil(s)
		err := checkSpec(s)
		switch {
		case name == "" && err != nil:
			t.Errorf("a good spec: %v", err)
		case name != "" && err == nil:
			t.Errorf("no error for %q", name)
		case err != nil:
			wantContains(t, err.Error(), name)
		}
	}
}

func TestDeadlineOfATool(t *testing.T) {
	for ms, want := range map[int64]time.Duration{0: 10 * time.Minute, 1500: 1500 * time.Millisecond, 1 << 62: longestInvoke} {
		if got := deadlineOf(&toolv1.ToolSpec{MaxTimeoutMs: ms}); got != want {
			t.Errorf("%d ms gave %v, want %v", ms, got, want)
		}
	}
}

func TestProgressReachesTheAgentAndFollowers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.tools("tools", map[string]scriptedTool{"work": {invoke: func(_ context.Context, in *invocation) (*toolv1.Result, error) {
			time.Sleep(time.Second)
			in.progress("half way")
			time.Sleep(time.Second)
			return &toolv1.Result{Content: "done"}, nil
		}}})
		r.agent("agent-1", obey(never))
		a := r.accept("main", "m", "call:work")
		var kinds []string
		for _, e := range r.follow(a.TurnID) {
			kinds = append(kinds, kindOf(e))
		}
		want := "queued started text tool_started tool_progress tool_finished final"
		if got := strings.Join(kinds, " "); got != want {
			t.Fatalf("events are %q, want %q", got, want)
		}
	})
}

func (in *invocation) chunk(b []byte) {
	_ = in.stream.Send(&toolv1.InvokeEvent{Event: &toolv1.InvokeEvent_Chunk{Chunk: b}})
}

// A worker that answers Describe late, or with an error first, is asked again.
func TestDescribeIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(ipc.Identity{Worker: "plugin", Role: ipc.RolePlugin}, func(p *process, s *grpc.Server) {
			toolv1.RegisterToolServer(s, &lateTools{toolServer: toolServer{proc: p, tools: map[string]scriptedTool{"work": {invoke: ok("done")}}}})
		})
		r.agent("agent-1", obey(never))
		if _, read := r.one("call:work"); read != "done" {
			t.Fatalf("the model reads %q", read)
		}
		if len(r.eventsOf("tools_unknown")) != 1 {
			t.Error("the failure was not told once")
		}
	})
}

type lateTools struct {
	toolServer
	asked atomic.Int32
}

func (s *lateTools) Describe(ctx context.Context, r *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	if s.asked.Add(1) < 3 {
		return nil, ipc.ErrRefused
	}
	return s.toolServer.Describe(ctx, r)
}
