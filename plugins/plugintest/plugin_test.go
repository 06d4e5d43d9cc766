package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins"
)

// TestMain lets the test binary be the plugin that is tested, too.
func TestMain(m *testing.M) {
	if os.Getenv(ipc.Handshake.MagicCookieKey) != "" || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		plugins.Main("faulty", "1.0.0", faulty()...)
		return
	}
	goleak.VerifyTestMain(m,
		// go-plugin's end of the broker waits for a stream that is gone with its process.
		goleak.IgnoreAnyFunction("github.com/hashicorp/go-plugin.(*GRPCBroker).Run"))
}

type none struct{}

type count struct {
	N int `json:"n,omitempty" minimum:"0"`
}

// faulty returns tools of which each does something that a tool should not.
func faulty() []plugins.Tool {
	tool := func(name string, f func(context.Context, *plugins.Call) (any, error), options ...plugins.Option) plugins.Tool {
		return plugins.Func(name, "For a test.", func(ctx context.Context, c *plugins.Call, _ none) (any, error) { return f(ctx, c) }, options...)
	}
	return []plugins.Tool{
		tool("works", func(context.Context, *plugins.Call) (any, error) { return "fine", nil }),
		tool("panics", func(context.Context, *plugins.Call) (any, error) { panic("no reason") }),
		tool("panics_elsewhere", func(ctx context.Context, _ *plugins.Call) (any, error) {
			go func() { panic("in a goroutine") }()
			<-ctx.Done()
			return nil, ctx.Err()
		}),
		tool("exits", func(context.Context, *plugins.Call) (any, error) {
			fmt.Println("nothing to stay for")
			fmt.Fprint(os.Stderr, "so it leaves, in the middle of a line")
			os.Exit(3)
			return nil, nil
		}),
		tool("is_deaf", func(context.Context, *plugins.Call) (any, error) { select {} }, plugins.Timeout(100*time.Millisecond, 200*time.Millisecond)),
		tool("returns_latin1", func(context.Context, *plugins.Call) (any, error) { return "caf\xe9", nil }),
		tool("returns_much", func(context.Context, *plugins.Call) (any, error) { return strings.Repeat("x", 64<<20), nil }),
		tool("prints", func(context.Context, *plugins.Call) (any, error) {
			line := strings.Repeat("y", 1<<20)
			for range 10 {
				fmt.Print(line)
				fmt.Fprint(os.Stderr, line)
			}
			return "printed", nil
		}),
		tool("streams", func(_ context.Context, c *plugins.Call) (any, error) {
			for range 100 {
				if err := c.Chunk(make([]byte, 1<<20)); err != nil {
					return nil, err
				}
			}
			return "streamed", nil
		}),
		plugins.Func("waits", "Wait until the end.", func(ctx context.Context, _ *plugins.Call, _ count) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}),
	}
}

// self is the path of this binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheSuitePassesOnAPluginThatIsWell(t *testing.T) {
	Run(t, self(t), Options{}, Example{Tool: "works", Want: "fine"}, Example{Tool: "waits", Arguments: `{"n":3}`, Slow: true})
}

func TestAFaultCostsTheCallAlone(t *testing.T) {
	p := Start(t, self(t), Options{})
	for _, row := range []struct {
		tool    string
		kind    toolv1.ToolError_Kind
		content string
		message string
	}{
		{"panics", toolv1.ToolError_KIND_PANIC, "", "panics failed by a fault of its own: no reason"},
		{"is_deaf", toolv1.ToolError_KIND_TIMEOUT, "", "is_deaf took too long and does not end when told to"},
		{"returns_latin1", 0, "caf\uFFFD", ""},
		{"returns_much", 0, "67008864 of 67108864 characters left out here", ""},
		{"prints", 0, "printed", ""},
		{"streams", 0, "streamed", ""},
	} {
		o := p.Call(t.Context(), row.tool, "{}")
		if o.Err != nil || o.Kind != row.kind || !strings.Contains(o.Content, row.content) || !strings.Contains(o.Message, row.message) {
			t.Errorf("%s: %.200q %v %q %v", row.tool, o.Content, o.Kind, o.Message, o.Err)
		}
		if row.tool == "returns_much" {
			if info, err := os.Stat(o.Spill); err != nil || info.Size() != 64<<20 {
				t.Errorf("the whole result: %v, %v", info, err)
			}
		}
		if o := p.Call(t.Context(), "works", ""); o.Content != "fine" {
			t.Errorf("after %s: %+v", row.tool, o)
		}
	}
	if !strings.Contains(p.Output(), "no reason") {
		t.Errorf("the panic is not logged in %.1000s", p.Output())
	}
}

func TestADeadPluginIsGoneAtOnce(t *testing.T) {
	for _, tool := range []string{"panics_elsewhere", "exits"} {
		p := Start(t, self(t), Options{})
		if o := p.Call(t.Context(), tool, "{}"); !errors.Is(o.Err, ipc.ErrGone) {
			t.Errorf("%s: %+v", tool, o)
		}
		if o := p.Call(t.Context(), "works", "{}"); !errors.Is(o.Err, ipc.ErrGone) {
			t.Errorf("after %s: %+v", tool, o)
		}
	}
}

// What a plugin prints right before its end says why it ended. Over the connection it would end with it.
func TestTheLastWordsOfAPluginAreHeard(t *testing.T) {
	for tool, want := range map[string]string{
		"panics_elsewhere": "panic: in a goroutine", "exits": "nothing to stay for\nso it leaves, in the middle of a line",
	} {
		p := Start(t, self(t), Options{})
		_ = p.Call(t.Context(), tool, "{}")
		p.await()
		if !strings.Contains(p.Output(), want) {
			t.Errorf("%s: it said %q", tool, p.Output())
		}
	}
}

// await waits until the plugin has ended and all that it printed has been read.
func (p *Plugin) await() { p.client.Kill() }
