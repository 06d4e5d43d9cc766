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
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

// weather is a plugin with one tool.
func weather(tool string) Guest {
	return Guest{
		Plugin: "weather", Worker: "plugin-weather", Calls: 2, Queue: 1,
		Tools: []*toolv1.ToolSpec{{Name: tool, Description: "d", InputSchemaJson: "{}"}},
		Wake:  func() {}, Why: func() string { return "" }, Spill: func(string) string { return "" },
	}
}

// host takes a plugin in.
func (r *rig) host(g Guest) {
	r.t.Helper()
	if err := r.hub.Host(g); err != nil {
		r.t.Fatal(err)
	}
}

// plugin starts the process of a plugin.
func (r *rig) plugin(worker string, tools map[string]scriptedTool) *process {
	r.t.Helper()
	return r.start(ipc.Identity{Worker: worker, Role: ipc.RolePlugin}, func(p *process, s *grpc.Server) {
		toolv1.RegisterToolServer(s, &toolServer{proc: p, tools: tools})
	})
}

// builtin starts the tools worker that every system has.
func (r *rig) builtin() { r.tools("tools", map[string]scriptedTool{"look": {invoke: ok("")}}) }

func TestAPluginIsWokenByItsFirstCall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		g := weather("forecast")
		var woken atomic.Int32
		g.Wake = func() {
			if woken.Add(1) == 1 {
				go r.plugin("plugin-weather", map[string]scriptedTool{"forecast": {invoke: ok("sunny")}})
			}
		}
		r.host(g)
		if _, read := r.one("call:forecast"); read != "sunny" {
			t.Errorf("the model reads %q", read)
		}
		if woken.Load() == 0 {
			t.Error("nobody woke it")
		}
	})
}

func TestAPluginThatDoesNotStartIsSaidWithItsReason(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		g := weather("forecast")
		g.Why = func() string { return "it ended before its handshake" }
		r.host(g)
		_, read := r.one("call:forecast")
		wantContains(t, read, "was not made: plugin weather did not start: it ended before its handshake")
	})
}

func TestABlockedPluginIsNotListedAndItsCallsAreToldWhy(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		g := weather("forecast")
		g.Blocked = "plugin weather is quarantined: it died six times"
		r.host(g)
		specs, err := r.hub.tools.list(t.Context())
		if err != nil || len(specs) != 1 || specs[0].Name != "look" {
			t.Errorf("listed are %v, %v", specs, err)
		}
		began := time.Now()
		_, read := r.one("call:forecast")
		wantContains(t, read, "it died six times")
		if waited := time.Since(began); waited >= toolsWait {
			t.Errorf("it was waited for %v", waited)
		}
	})
}

// Each death brings a plugin nearer to its quarantine: three calls that kill it would be nine deaths.
func TestAReadOnlyCallThatKillsAPluginIsRepeatedOnceAndNamesPluginAndCause(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		g := weather("forecast")
		g.Tools[0].ReadOnly = true
		g.Died = func() string { return "panic: no sky" }
		deadly := map[string]scriptedTool{"forecast": {readOnly: true, invoke: dies}}
		r.host(g)
		a := r.accept("main", "m", "call:forecast")
		for range pluginAttempts {
			<-r.plugin("plugin-weather", deadly).dead
		}
		wantContains(t, r.final(a.TurnID).Text, "The call of forecast was made 2 times and plugin weather ended each time. It is not tried again. What is known of its end: panic: no sky")
	})
}

func TestCallsBesideEachOtherAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		r.host(weather("forecast")) // two run, one waits
		release := make(chan struct{})
		var running, most atomic.Int32
		r.plugin("plugin-weather", map[string]scriptedTool{"forecast": {invoke: func(ctx context.Context, _ *invocation) (*toolv1.Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return &toolv1.Result{Content: "sunny"}, nil
		}}})
		var turns []string
		for i := range 4 {
			a := r.accept(fmt.Sprint("chat", i), fmt.Sprint("m", i), "call:forecast")
			turns = append(turns, a.TurnID)
			time.Sleep(time.Second)
		}
		wantContains(t, r.final(turns[3]).Text, "plugin weather is busy: 2 calls run and 1 wait; try again later")
		close(release)
		for _, id := range turns[:3] {
			if got := r.final(id).Text; got != "sunny" {
				t.Errorf("the model reads %q", got)
			}
		}
		if most.Load() != 2 {
			t.Errorf("%d calls ran side by side", most.Load())
		}
	})
}

func TestAPluginIsRetiredOnlyWhenNobodyNeedsIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		r.host(weather("forecast"))
		release := make(chan struct{})
		r.plugin("plugin-weather", map[string]scriptedTool{"forecast": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
			<-release
			return &toolv1.Result{Content: "sunny"}, nil
		}}})
		a := r.accept("main", "m", "call:forecast")
		<-r.reached("forecast")
		time.Sleep(30 * time.Second)
		if r.hub.Retire("plugin-weather", 10*time.Second) {
			t.Error("it was retired during a call")
		}
		close(release)
		r.final(a.TurnID)
		if r.hub.Retire("plugin-weather", 10*time.Second) {
			t.Error("it was retired right after a call")
		}
		time.Sleep(20 * time.Second)
		if !r.hub.Retire("plugin-weather", 10*time.Second) {
			t.Error("it was not retired")
		}
		if r.hub.Retire("plugin-weather", 10*time.Second) {
			t.Error("it was retired twice")
		}
	})
}

func TestAnUpgradeLeavesRunningCallsToTheOldProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		r.host(weather("forecast"))
		release := make(chan struct{})
		r.plugin("plugin-weather", map[string]scriptedTool{"forecast": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
			<-release
			return &toolv1.Result{Content: "by the old one"}, nil
		}}})
		old := r.accept("main", "m", "call:forecast")
		<-r.reached("forecast")
		g := weather("forecast")
		g.Worker = "plugin-weather-2"
		r.host(g)
		r.plugin("plugin-weather-2", map[string]scriptedTool{"forecast": {invoke: ok("by the new one")}})
		next := r.accept("other", "m2", "call:forecast")
		if got := r.final(next.TurnID).Text; got != "by the new one" {
			t.Errorf("a new call: %q", got)
		}
		close(release)
		if got := r.final(old.TurnID).Text; got != "by the old one" {
			t.Errorf("the running call: %q", got)
		}
	})
}

func TestAToolOfTwoOwnersStaysWithTheFirstAndBothAreNamed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		r.one("call:look")
		err := r.hub.Host(weather("look"))
		if !errors.Is(err, ipc.ErrExists) || !strings.Contains(err.Error(), "tools") || !strings.Contains(err.Error(), "plugin-weather") {
			t.Errorf("with a tool of the system: %v", err)
		}
		r.host(weather("forecast"))
		other := weather("forecast")
		other.Plugin, other.Worker = "sky", "plugin-sky"
		if err := r.hub.Host(other); !errors.Is(err, ipc.ErrExists) || !strings.Contains(err.Error(), "plugin-sky") {
			t.Errorf("with a tool of another plugin: %v", err)
		}
		if n := len(r.eventsOf("tool_clash")); n != 2 {
			t.Errorf("%d events tell of it", n)
		}
		r.hub.Dismiss("weather")
		r.host(other)
	})
}

func TestAToolOfTheSystemIsNotTakenByAPluginThatWasThereFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.agent("agent-1", obey(never))
		r.host(weather("look"))
		r.tools("tools", map[string]scriptedTool{"look": {invoke: ok("of the system")}})
		time.Sleep(time.Second)
		if _, read := r.one("call:look"); read != "of the system" {
			t.Errorf("the model reads %q", read)
		}
	})
}

func TestAPluginThatRefusesIsNotBelievedThatItDidNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		r.host(weather("forecast"))
		r.plugin("plugin-weather", map[string]scriptedTool{"forecast": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
			return nil, ipc.ToStatus(fmt.Errorf("draining: %w", ipc.ErrRefused))
		}}})
		id, read := r.one("call:forecast")
		wantContains(t, read, "It may have had part of its effect")
		if n := r.world.of(id, "c0"); n != 1 {
			t.Errorf("the call was made %d times", n)
		}
	})
}

func TestALongResultIsKeptWholeAndAFileOfThePluginsChoiceIsNotNamed(t *testing.T) {
	long := strings.Repeat("x", maxResult+1)
	var kept string
	cfg := Config{Spill: func(_, content string) (string, error) { kept = content; return "/home/outputs/1.txt", nil }}
	bubbleWith(t, cfg, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		r.host(weather("forecast"))
		r.plugin("plugin-weather", map[string]scriptedTool{"forecast": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
			return &toolv1.Result{Content: long, SpillPath: "/home/.env"}, nil
		}}})
		id, read := r.one("call:forecast")
		wantContains(t, read, "the whole of it is in /home/outputs/1.txt")
		if kept != long {
			t.Errorf("%d bytes were kept", len(kept))
		}
		calls, err := r.state.Calls(t.Context(), id)
		if err != nil || calls[0].SpillPath != "/home/outputs/1.txt" {
			t.Errorf("stored: %v, %v", calls, err)
		}
	})
}

func TestWhatAPluginDoesWrongIsOnTheTimelineAndWhatItWasAskedWrongIsNot(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.builtin()
		r.agent("agent-1", obey(never))
		fails := func(kind toolv1.ToolError_Kind, text string) scriptedTool {
			return scriptedTool{invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
				return failure(kind, text), nil
			}}
		}
		g := weather("forecast")
		g.Tools = append(g.Tools, &toolv1.ToolSpec{Name: "map", InputSchemaJson: "{}"}, &toolv1.ToolSpec{Name: "odd", InputSchemaJson: "{}"})
		r.host(g)
		r.plugin("plugin-weather", map[string]scriptedTool{
			"forecast": fails(toolv1.ToolError_KIND_PANIC, "nil\nmap"),
			"map":      fails(toolv1.ToolError_KIND_BAD_ARGUMENTS, "no such place"),
			"odd": {invoke: func(context.Context, *invocation) (*toolv1.Result, error) {
				return nil, errors.New("grpc: failed to unmarshal the received message: string field contains invalid UTF-8")
			}},
		})
		r.one("call:map")
		r.one("call:forecast")
		_, read := r.one("call:odd")
		wantContains(t, read, "Plugin weather sent what is not what the protocol says")
		told := r.eventsOf("call_failed")
		if len(told) != 2 || told[0].Worker != "plugin-weather" || told[0].Message != "nil map" || told[0].Fields["why"] != "panic" || told[0].TurnID == "" {
			t.Errorf("%+v", told)
		}
	})
}
