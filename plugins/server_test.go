package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
)

type none struct{}

// tool makes a tool without arguments of a function.
func tool(name string, f func(context.Context, *Call) (any, error), options ...Option) Tool {
	return Func(name, "For a test.", func(ctx context.Context, c *Call, _ none) (any, error) { return f(ctx, c) }, options...)
}

func TestDescribeKeepsTheOrder(t *testing.T) {
	nothing := func(context.Context, *Call) (any, error) { return nil, nil }
	_, client := served(t, Env{}, tool("b", nothing, ReadOnly(), Timeout(time.Second, time.Minute)), tool("a", nothing))
	d, err := client.Describe(t.Context(), &toolv1.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Tools) != 2 || d.Tools[0].Name != "b" || d.Tools[1].Name != "a" || d.Plugin != "test" || d.Version != "1.2.3" || d.SdkVersion != SDKVersion {
		t.Errorf("described as %v", d)
	}
	b := d.Tools[0]
	if !b.ReadOnly || b.DefaultTimeoutMs != 1000 || b.MaxTimeoutMs != 60_000 || b.Checked {
		t.Errorf("b is described as %v", b)
	}
}

func TestNamesAreUsedOnce(t *testing.T) {
	nothing := func(context.Context, *Call) (any, error) { return nil, nil }
	err := NewServer("test", "1").Start(Env{}, tool("a", nothing), tool("a", nothing))
	if err == nil || !strings.Contains(err.Error(), "two are named a") {
		t.Errorf("error %v", err)
	}
}

func TestAFaultCostsTheCallAlone(t *testing.T) {
	_, client := served(t, Env{},
		tool("nil_map", func(context.Context, *Call) (any, error) { var m map[string]int; m["x"] = 1; return nil, nil }),
		tool("goexit", func(context.Context, *Call) (any, error) { runtime.Goexit(); return nil, nil }),
		tool("channel", func(context.Context, *Call) (any, error) { return make(chan int), nil }),
		tool("fails", func(context.Context, *Call) (any, error) { return "partly", errors.New("disk on fire") }),
		tool("mends", func(context.Context, *Call) (any, error) {
			return nil, fmt.Errorf("look: %w", BadArguments("no such city"))
		}),
		tool("works", func(context.Context, *Call) (any, error) { return "fine", nil }),
	)
	for _, row := range []struct {
		tool string
		kind toolv1.ToolError_Kind
		want string
	}{
		{"nil_map", toolv1.ToolError_KIND_PANIC, "nil_map failed by a fault of its own: assignment to entry in nil map"},
		{"goexit", toolv1.ToolError_KIND_PANIC, "ended without a result"},
		{"channel", toolv1.ToolError_KIND_FAILED, "cannot be written as JSON"},
		{"fails", toolv1.ToolError_KIND_FAILED, "disk on fire"},
		{"mends", toolv1.ToolError_KIND_BAD_ARGUMENTS, "no such city"},
	} {
		r := call(t.Context(), t, client, row.tool, "{}").result
		if r.Error.GetKind() != row.kind || !strings.Contains(r.Error.GetMessage(), row.want) || r.Content != "" {
			t.Errorf("%s: got %v", row.tool, r)
		}
	}
	if r := call(t.Context(), t, client, "works", "{}").result; r.Content != "fine" || r.Error != nil {
		t.Errorf("after the faults: %v", r)
	}
}

func TestUnknownToolNamesThoseThatAre(t *testing.T) {
	_, client := served(t, Env{}, tool("a", func(context.Context, *Call) (any, error) { return nil, nil }))
	stream, err := client.Invoke(t.Context(), &toolv1.InvokeRequest{Tool: "b"})
	if err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, ipc.ErrNotFound) || !strings.Contains(err.Error(), "[a]") {
		t.Errorf("error %v", err)
	}
}

func TestProgressAndChunksComeBeforeTheResult(t *testing.T) {
	big := strings.Repeat("0123456789", 100_000)
	_, client := served(t, Env{}, tool("talks", func(_ context.Context, c *Call) (any, error) {
		c.Progress("half \x1b[31m way\nthere %d", 1)
		c.Progress("bad \xff bytes")
		if _, err := c.Write([]byte(big)); err != nil {
			return nil, err
		}
		return map[string]string{"key": c.Key(), "chat": c.Origin.ChatID}, nil
	}))
	o := call(t.Context(), t, client, "talks", "{}")
	if !slices.Equal(o.progress, []string{"half [31m way there 1", "bad \uFFFD bytes"}) {
		t.Errorf("progress %q", o.progress)
	}
	if string(o.chunks) != big {
		t.Errorf("%d bytes of chunks, want %d", len(o.chunks), len(big))
	}
	if o.result.Content != `{"chat":"here","key":"t1/c1"}` {
		t.Errorf("result %v", o.result)
	}
}

func TestProgressIsLimited(t *testing.T) {
	_, client := served(t, Env{}, tool("floods", func(_ context.Context, c *Call) (any, error) {
		for i := range 100_000 {
			c.Progress("line %d", i)
		}
		return "done", nil
	}))
	o := call(t.Context(), t, client, "floods", "{}")
	if o.result.Content != "done" || len(o.progress) < progressBurst || len(o.progress) > 1000 {
		t.Errorf("%d lines of progress, result %v", len(o.progress), o.result)
	}
}

func TestLongResultsAreCutAndKeptWhole(t *testing.T) {
	dir := t.TempDir()
	whole := strings.Repeat("Grüße! ", 100_000) + "the end"
	_, client := served(t, Env{SpillDir: dir, MaxResult: 1000}, tool("long", func(context.Context, *Call) (any, error) { return whole, nil }))
	r := call(t.Context(), t, client, "long", "{}").result
	if n := utf8.RuneCountInString(r.Content); n > 1300 || !strings.HasSuffix(r.Content, "the end") || !strings.HasPrefix(r.Content, "Grüße!") {
		t.Errorf("result of %d characters: %q", n, r.Content)
	}
	if !strings.Contains(r.Content, "699007 of 700007 characters left out") || !strings.Contains(r.Content, r.SpillPath) {
		t.Errorf("the cut does not say what is missing and where: %q", r.Content)
	}
	kept, err := os.ReadFile(r.SpillPath)
	if err != nil || string(kept) != whole || filepath.Dir(r.SpillPath) != dir {
		t.Errorf("spill file %q of %d bytes, %v", r.SpillPath, len(kept), err)
	}
	if info, _ := os.Stat(r.SpillPath); info.Mode().Perm() != 0o600 {
		t.Errorf("spill file may be read by others: %v", info.Mode())
	}
}

func TestInvalidTextNeverBreaksTheConnection(t *testing.T) {
	_, client := served(t, Env{}, tool("latin1", func(context.Context, *Call) (any, error) { return "caf\xe9", nil }),
		tool("error", func(context.Context, *Call) (any, error) { return nil, errors.New("caf\xe9") }))
	if r := call(t.Context(), t, client, "latin1", "{}").result; r.Content != "caf\uFFFD" {
		t.Errorf("content %q", r.Content)
	}
	if r := call(t.Context(), t, client, "error", "{}").result; r.Error.GetMessage() != "caf\uFFFD" {
		t.Errorf("error %q", r.Error.GetMessage())
	}
}

func TestScratchDirectoryEndsWithTheCall(t *testing.T) {
	var dir atomic.Value
	_, client := served(t, Env{ScratchDir: t.TempDir()}, tool("scratches", func(_ context.Context, c *Call) (any, error) {
		d, err := c.Scratch()
		if err != nil {
			return nil, err
		}
		dir.Store(d)
		return "ok", os.WriteFile(filepath.Join(d, "f"), []byte("x"), 0o600)
	}))
	if r := call(t.Context(), t, client, "scratches", "{}").result; r.Error != nil {
		t.Fatal(r.Error)
	}
	if _, err := os.Stat(dir.Load().(string)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the scratch directory is still there: %v", err)
	}
}

func TestCancelEndsTheHandler(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan error, 1)
	s, client := served(t, Env{}, tool("waits", func(ctx context.Context, _ *Call) (any, error) {
		close(entered)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.Invoke(ctx, &toolv1.InvokeRequest{Tool: "waits"})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
	if _, err := stream.Recv(); !errors.Is(err, ipc.ErrCancelled) {
		t.Errorf("the stream ended with %v", err)
	}
	if n := s.Drain(t.Context()); n != 0 {
		t.Errorf("%d calls still run", n)
	}
}

// invokeIn makes a call inside a synctest bubble, without a socket.
func invokeIn(s *Server, ctx context.Context, name string) (*toolv1.Result, error) {
	var result *toolv1.Result
	err := s.invoke(ctx, &toolv1.InvokeRequest{Tool: name}, func(e *toolv1.InvokeEvent) error {
		result = e.GetResult()
		return nil
	})
	return result, err
}

func TestATimeoutEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer("test", "1")
		err := s.Start(Env{}, tool("waits", func(ctx context.Context, _ *Call) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, Timeout(time.Second, time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r, err := invokeIn(s, t.Context(), "waits")
		if err != nil || r.Error.GetKind() != toolv1.ToolError_KIND_TIMEOUT || time.Since(begin) != time.Minute {
			t.Errorf("after %s: %v, %v", time.Since(begin), r, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin = time.Now()
		r, err = invokeIn(s, ctx, "waits")
		if err != nil || r.Error.GetKind() != toolv1.ToolError_KIND_TIMEOUT || time.Since(begin) != 10*time.Second-replyMargin {
			t.Errorf("after %s: %v, %v", time.Since(begin), r, err)
		}
		s.Close()
	})
}

func TestAHandlerThatIgnoresItsEndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := NewServer("test", "1")
		err := s.Start(Env{}, tool("deaf", func(context.Context, *Call) (any, error) { <-release; return "late", nil }, Timeout(time.Second, time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r, err := invokeIn(s, t.Context(), "deaf")
		if err != nil || r.Error.GetKind() != toolv1.ToolError_KIND_TIMEOUT || time.Since(begin) != time.Minute+endGrace {
			t.Errorf("after %s: %v, %v", time.Since(begin), r, err)
		}
		if degraded, detail := s.Report(); !degraded || detail != "1 calls go on after their end" {
			t.Errorf("degraded %v, %q", degraded, detail)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := s.Drain(ctx); n != 1 {
			t.Errorf("%d calls run, want 1", n)
		}
		close(release)
		synctest.Wait()
		if degraded, _ := s.Report(); degraded {
			t.Error("still degraded after the handler returned")
		}
		s.Close()
	})
}

func TestCloseEndsCallsAndRefusesNewOnes(t *testing.T) {
	entered := make(chan struct{})
	s, client := served(t, Env{}, tool("waits", func(ctx context.Context, _ *Call) (any, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	results := make(chan *toolv1.Result, 1)
	go func() { results <- call(t.Context(), t, client, "waits", "").result }()
	<-entered
	s.Close()
	if r := <-results; r.Error.GetKind() != toolv1.ToolError_KIND_CANCELLED {
		t.Errorf("result %v", r)
	}
	stream, err := client.Invoke(t.Context(), &toolv1.InvokeRequest{Tool: "waits"})
	if err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, ipc.ErrRefused) {
		t.Errorf("a call after the end: %v", err)
	}
}

func TestChecks(t *testing.T) {
	judged := Func("judged", "x", func(context.Context, *Call, forecastArgs) (string, error) { return "", nil },
		Check(func(_ context.Context, a forecastArgs) Verdict {
			switch a.City {
			case "Oslo":
				return Allow("look at Oslo")
			case "Rome":
				return Ask("all roads lead there", "go to\nRome")
			case "Pompeii":
				return Refuse("too late", "")
			case "Nowhere":
				return Verdict{}
			}
			panic("no such city")
		}))
	_, client := served(t, Env{}, judged, echoTool(), tool("free", func(context.Context, *Call) (any, error) { return nil, nil }))
	for _, row := range []struct {
		tool, arguments string
		want            toolv1.CheckResponse_Verdict
		reason, summary string
	}{
		{"judged", `{"city":"Oslo"}`, toolv1.CheckResponse_VERDICT_ALLOW, "", "look at Oslo"},
		{"judged", `{"city":"Rome"}`, toolv1.CheckResponse_VERDICT_ASK, "all roads lead there", "go to Rome"},
		{"judged", `{"city":"Pompeii"}`, toolv1.CheckResponse_VERDICT_REFUSE, "too late", ""},
		{"judged", `{"city":"Nowhere"}`, toolv1.CheckResponse_VERDICT_ASK, "the check of this tool gave no answer", ""},
		{"judged", `{"city":"X"}`, toolv1.CheckResponse_VERDICT_ASK, "the check of this tool failed", ""},
		{"judged", `{}`, toolv1.CheckResponse_VERDICT_ALLOW, `arguments of judged: "city" is missing`, ""},
		{"free", `{}`, toolv1.CheckResponse_VERDICT_ALLOW, "", ""},
	} {
		r, err := client.Check(t.Context(), &toolv1.CheckRequest{Tool: row.tool, ArgumentsJson: row.arguments})
		if err != nil || r.Verdict != row.want || r.Reason != row.reason || r.Summary != row.summary {
			t.Errorf("%s %s: %v, %v", row.tool, row.arguments, r, err)
		}
	}
}

func TestSpillsArePruned(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, age := range map[string]time.Duration{"old.txt": spillAge + time.Hour, "new.txt": time.Hour, "old.log": spillAge * 2} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	huge := filepath.Join(dir, "huge.txt") // sparse
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, spillTotal+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(huge, now, now.Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	f, err := (&spills{dir: dir, now: func() time.Time { return now }}).create("terminal")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{filepath.Base(f.Name()), "new.txt", "old.log"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}
