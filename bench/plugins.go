package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	toolv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/tool/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

const (
	// smallest is the plugin that is measured, flooder the one that prints as fast as it can beside it.
	smallest = "hello"
	flooder  = "hostile"
	// callHello and callFlood are calls of them without a model. The flood goes on until the time of its call is over.
	callHello = `call: hello {"name":"Ann"}`
	callFlood = `call: flood_stderr {"n":1000000}`
	// pluginWarmUp are calls that are not counted: the first ones grow stacks and fill caches.
	pluginWarmUp = 20
)

// measurePlugins measures what a tool costs that is a program of its own: its start, its calls, its memory, and what
// others notice of one that floods its output.
func measurePlugins(r *report, h *home, _ *provider, o options) error {
	if err := h.configure("model: {provider: offline}\nadapters:\n  api: {enabled: false}\n", ""); err != nil {
		return err
	}
	for _, p := range []struct{ dir, pkg string }{{"plugins/examples/hello", "."}, {".", "./e2e/testdata/hostile"}} {
		if err := h.addPlugin(p.dir, p.pkg); err != nil {
			return err
		}
	}
	if err := h.pluginAlone(r, o); err != nil {
		return err
	}
	if _, err := h.start(); err != nil {
		return err
	}
	for _, measure := range []func(*report, options) error{h.pluginCalls, h.pluginMemory, h.pluginFlood} {
		if err := measure(r, o); err != nil {
			return err
		}
	}
	return nil
}

// addPlugin builds a plugin of this checkout and adds it.
func (h *home) addPlugin(dir, pkg string) error {
	path := filepath.Join(h.dir, "plugin")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, pkg)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, dir, err, out)
	}
	add := exec.Command(filepath.Join(h.bin, "hermes-supervisor"), "--home", filepath.Join(h.dir, "home"), "--run-dir", filepath.Join(h.dir, "run"),
		"plugins", "add", "--yes", path)
	if out, err := add.CombinedOutput(); err != nil {
		return fmt.Errorf("add %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// pluginAlone measures a plugin outside of any turn, shut in as always: from nothing to its first result, and calls of it
// when it runs.
func (h *home) pluginAlone(r *report, o options) error {
	if _, err := worker.Prepare(); err != nil {
		return err
	}
	dir := filepath.Join(h.dir, "home")
	conf, err := config.Load(dir)
	if err != nil {
		return err
	}
	conf.Supervisor.Libexec = h.bin
	cat, err := catalogue.Open(dir, time.Now)
	if err != nil {
		return err
	}
	e, err := cat.Get(smallest)
	if err != nil {
		return err
	}
	trial := supervisor.Trial{Config: conf, Catalogue: cat, Entry: e, Granted: true}
	for _, way := range []struct {
		name   string
		cached bool
	}{{"plugin, start to first result, program not cached", false}, {"plugin, start to first result", true}} {
		var took []float64
		for range o.kills {
			if !way.cached {
				if err := h.forgetPrograms(); err != nil {
					return err
				}
			}
			begun := time.Now()
			err := trial.With(context.Background(), e.Plain, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				if _, err := hello(ctx, conn); err != nil {
					return err
				}
				took = append(took, milliseconds(time.Since(begun)))
				return nil
			})
			if err != nil {
				return err
			}
		}
		r.add(way.name, "ms", took...)
	}
	return trial.With(context.Background(), e.Plain, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		var took []float64
		for n := range pluginWarmUp + 10*o.turns {
			d, err := hello(ctx, conn)
			if err != nil {
				return err
			}
			if n >= pluginWarmUp {
				took = append(took, milliseconds(d))
			}
		}
		r.add("plugin, round trip of a call", "ms", took...)
		return nil
	})
}

// hello makes one call and returns how long it took.
func hello(ctx context.Context, conn grpc.ClientConnInterface) (time.Duration, error) {
	begun := time.Now()
	stream, err := toolv1.NewToolClient(conn).Invoke(ctx, &toolv1.InvokeRequest{Tool: smallest, ArgumentsJson: `{"name":"Ann"}`, CallId: "c", Attempt: 1})
	if err != nil {
		return 0, err
	}
	for {
		e, err := stream.Recv()
		switch {
		case err != nil:
			return 0, err
		case e.GetResult().GetError() != nil:
			return 0, errors.New(e.GetResult().Error.Message)
		case e.GetResult() != nil:
			return time.Since(begun), nil
		}
	}
}

// forgetPrograms drops the plugins, and what shuts them in, from the page cache, as far as nobody else uses them.
func (h *home) forgetPrograms() error {
	files, err := filepath.Glob(filepath.Join(h.dir, "home", "tool-plugins", "bin", "*"))
	if err != nil {
		return err
	}
	for _, path := range append(files, filepath.Join(h.bin, "hermes-confine")) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// pluginCalls measures turns that call a plugin that runs, and turns that call a tool of the system.
func (h *home) pluginCalls(r *report, o options) error {
	plugin, builtin, err := h.callBoth("quiet", o.turns)
	if err == nil {
		r.add("turn with a call of a plugin", "ms", plugin...)
		r.add("turn with a call of a built-in tool", "ms", builtin...)
	}
	return err
}

// callBoth has turns call the plugin and read_file, one after the other, and returns how long each turn took.
func (h *home) callBoth(name string, calls int) (plugin, builtin []float64, err error) {
	note := filepath.Join(h.dir, "note.txt")
	if err := os.WriteFile(note, []byte("a note\n"), 0o600); err != nil {
		return nil, nil, err
	}
	for n := range pluginWarmUp + calls {
		a, err := h.call(fmt.Sprint(name, " plugin ", n), callHello, "Hello, Ann!")
		if err != nil {
			return nil, nil, err
		}
		b, err := h.call(fmt.Sprint(name, " builtin ", n), "read: "+note, "a note")
		if err != nil {
			return nil, nil, err
		}
		if n >= pluginWarmUp {
			plugin, builtin = append(plugin, milliseconds(a)), append(builtin, milliseconds(b))
		}
	}
	return plugin, builtin, nil
}

// pluginMemory reads what the smallest plugin takes when it has nothing to do.
func (h *home) pluginMemory(r *report, _ options) error {
	w, err := h.worker("plugin-" + smallest)
	if err != nil {
		return err
	}
	m, err := readMemory(int(w.Pid))
	if err != nil {
		return err
	}
	r.add("smallest plugin, RSS", "MiB", m.rss)
	r.add("smallest plugin, PSS", "MiB", m.pss)
	r.add("smallest plugin, anonymous memory", "MiB", m.anon)
	return nil
}

// pluginFlood measures the same calls before and while another plugin prints as fast as it can, and compares.
func (h *home) pluginFlood(r *report, o options) error {
	quietPlugin, quietBuiltin, err := h.callBoth("before the flood", o.turns)
	if err != nil {
		return err
	}
	if err := h.send("flood", callFlood); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); !h.floods(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("nothing is flooded")
		}
	}
	plugin, builtin, err := h.callBoth("in the flood", o.turns)
	if err != nil {
		return err
	}
	if !h.floods() {
		return errors.New("the flood ended before it was measured: make fewer -turns")
	}
	r.add("turn with a call of a plugin, another one floods", "ms", plugin...)
	r.add("turn with a call of a built-in tool, a plugin floods", "ms", builtin...)
	r.ratio("turn with a call of a plugin, median beside a flood to without", median(plugin), median(quietPlugin))
	r.ratio("turn with a call of a built-in tool, median beside a flood to without", median(builtin), median(quietBuiltin))
	return nil
}

// floods says whether the flooding plugin runs and has lost lines.
func (h *home) floods() bool {
	w, err := h.worker("plugin-" + flooder)
	return err == nil && w.LogLinesDropped > 0 && w.InFlight > 0
}

// send sends a message in a chat of its own and does not wait for the answer.
func (h *home) send(id, text string) error {
	conn, err := h.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = controlv1.NewChatClient(conn).Send(ctx, &controlv1.SendRequest{ChatId: id, MessageId: id, Text: text, NewSession: true})
	return err
}

// call has one tool called in a turn of its own and returns how long the turn took.
func (h *home) call(id, text, answer string) (time.Duration, error) {
	conn, err := h.client()
	if err != nil {
		return 0, err
	}
	m, err := oneTurn(controlv1.NewChatClient(conn), id, text)
	if err == nil && !strings.Contains(m.reply, answer) {
		err = fmt.Errorf("the call %q did not work: %s", text, m.reply)
	}
	return m.whole, err
}
