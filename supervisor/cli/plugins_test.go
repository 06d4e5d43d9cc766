package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// fakePlugins is a supervisor in which each plugin of a list has a process, unless it is kept down.
type fakePlugins struct {
	controlv1.UnimplementedPluginsServer
	entries []catalogue.Entry
}

func (f *fakePlugins) ListPlugins(context.Context, *controlv1.ListPluginsRequest) (*controlv1.ListPluginsResponse, error) {
	r := &controlv1.ListPluginsResponse{}
	for i, e := range f.entries {
		p := supervisor.PluginStatus(e)
		if e.State == catalogue.Enabled {
			p.Worker, p.WorkerState, p.Pid, p.DataBytes = "plugin-"+e.Name, "ready", int64(4000+i), int64(i)<<30
		}
		r.Plugins = append(r.Plugins, p)
	}
	return r, nil
}

// pluginRig has three plugins in its catalogue: one that works, one that wants much and is quarantined, and one whose
// program was changed. What keeps them in is that of a kernel with Landlock 5.
func pluginRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	libexec := filepath.Join(r.home, "libexec")
	report, err := json.Marshal(confine.Layers(5, true))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(libexec, confine.Program)
	if err := errors.Join(os.MkdirAll(libexec, 0o700), os.Chmod(r.home, 0o700),
		os.WriteFile(filepath.Join(r.home, config.FileName), fmt.Appendf(nil, "model: {provider: offline}\nsupervisor: {libexec: %q, plugins: {sky: {user: sky}}}\n", libexec), 0o600),
		os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\ncat <<'END'\n%s\nEND\n", report), 0o700)); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }
	cat, err := catalogue.Open(r.home, now)
	if err != nil {
		t.Fatal(err)
	}
	much := catalogue.Permissions{Secrets: []string{"SKY_KEY"}, Read: []string{"/srv/maps"}, Write: []string{"/srv/tiles"}, Connect: []uint16{443, 8080}, Listen: []uint16{9000}}
	tool := func(name string, readOnly bool) catalogue.Tool {
		return catalogue.Tool{Name: name, Description: "Say what " + name + " says.\nAnd more.", Schema: json.RawMessage(`{"type":"object"}`), ReadOnly: readOnly, TimeoutMS: 1000, MaxTimeoutMS: 90000}
	}
	for i, e := range []catalogue.Entry{
		{Name: "weather", Version: "0.1.0", SDK: "0.2.0", State: catalogue.Enabled, Tools: []catalogue.Tool{tool("forecast", true)}},
		{Name: "sky", Version: "2.0.0\x1b[31m", State: catalogue.Quarantined, Reason: "it ended before its handshake: ended with code 3", Plain: true,
			Tools: []catalogue.Tool{tool("map", true), tool("draw", false)}, Wants: much, Granted: catalogue.Permissions{Secrets: much.Secrets, Connect: []uint16{443}}},
		{Name: "zebra", Version: "1", State: catalogue.Disabled, Tools: []catalogue.Tool{tool("stripes", true)}},
	} {
		program := filepath.Join(r.home, "program")
		if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", i), 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := cat.Stage(program)
		if err != nil {
			t.Fatal(err)
		}
		e.SHA256, e.Size, e.Source, e.Added, e.Since = s.SHA256, s.Size, "/src/"+e.Name, now(), now()
		if err := cat.Put(e); err != nil {
			t.Fatal(err)
		}
		if e.Name == "zebra" {
			path := filepath.Join(cat.Dir(), "bin", e.SHA256)
			if err := errors.Join(os.Chmod(path, 0o700), os.WriteFile(path, []byte("#!/bin/sh\nexit 9\n"), 0o700), os.Chmod(path, 0o500)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.plugins.entries = cat.List()
	return r
}

func TestPluginsAreShown(t *testing.T) {
	r := pluginRig(t)
	for name, args := range map[string][]string{
		"list": {"plugins", "list"}, "info-weather": {"plugins", "info", "weather"}, "info-sky": {"plugins", "info", "sky"},
		"verify-one": {"plugins", "verify", "weather"},
	} {
		golden(t, "plugins-"+name+".txt", r.must(args...))
		golden(t, "plugins-"+name+".json", r.must(append(args, "-o", "json")...))
	}
	for file, args := range map[string][]string{"verify.txt": {"plugins", "verify"}, "verify.json": {"plugins", "verify", "-o", "json"}} {
		out, errOut, code := r.run(args...)
		if code != 1 || errOut != "" {
			t.Errorf("a changed program: exit %d, %q", code, errOut)
		}
		golden(t, "plugins-"+file, out)
	}
	// Without a supervisor the same is known, but for the processes.
	if err := os.RemoveAll(r.base); err != nil {
		t.Fatal(err)
	}
	golden(t, "plugins-list-alone.txt", r.must("plugins", "list"))
	golden(t, "plugins-list-alone.json", r.must("plugins", "list", "-o", "json"))
}

// A plugin chooses its version and descriptions. They must not speak to the terminal.
func TestWhatAPluginSaysOfItselfIsShownPlain(t *testing.T) {
	r := pluginRig(t)
	for _, args := range [][]string{{"plugins", "list"}, {"plugins", "info", "sky"}} {
		if out := r.must(args...); strings.Contains(out, "\x1b") {
			t.Errorf("%v prints %q", args, out)
		}
	}
}
