package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/sample"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/turn"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/worker"
)

// guestPrograms builds what shuts plugins in, and two versions of one that misbehaves on demand.
var guestPrograms = sync.OnceValues(func() (dir string, err error) {
	if _, err := testWorker(); err != nil { // its folder is removed at the end
		return "", err
	}
	dir = filepath.Join(buildFolder, "guests")
	for name, pkg := range map[string]string{confineName: "../workers/cmd/hermes-confine", "guest-1": "../e2e/testdata/hostile", "guest-2": "../e2e/testdata/hostile"} {
		out, err := exec.Command("go", "build", "-ldflags", "-s -w -X main.name="+name, "-o", filepath.Join(dir, name), pkg).CombinedOutput()
		if err != nil {
			return "", errors.New(string(out))
		}
	}
	return dir, nil
})

// A hostRig is a host of plugins in a fleet of its own, with a hub that runs no turns.
type hostRig struct {
	*rig
	*pluginHost
	home, programs string
}

// quickQuarantine lets a plugin be out of restarts at once.
const quickQuarantine = "supervisor: {restart: {burst: 1, max_delay: 100ms}}"

func newHostRig(t *testing.T, text string) *hostRig {
	t.Helper()
	programs, err := guestPrograms()
	if err != nil {
		t.Fatal(err)
	}
	h := &hostRig{rig: newRig(t), home: t.TempDir(), programs: programs}
	if err := os.Chmod(h.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.home, config.FileName), []byte("model: {provider: offline}\n"+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(h.home)
	if err != nil {
		t.Fatal(err)
	}
	cat, err := catalogue.Open(h.home, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	runDir, err := os.MkdirTemp("", "hs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runDir) })
	hub := turn.New(turn.Config{Event: h.rig.record})
	t.Cleanup(hub.Close)
	h.pluginHost = &pluginHost{
		cat: cat, config: c, hub: hub, log: h.book.Logger(), record: h.rig.record, shut: []string{h.home, runDir},
		guests: map[string]*guest{}, owners: map[string]string{}, notes: map[string]*watchNote{}, idle: make(chan struct{}, 1),
		confine: filepath.Join(programs, confineName),
	}
	env := worker.Env{
		Log: h.book, Sampler: sample.NewSampler(sample.System, time.Second), Orphans: worker.NewOrphans(runDir, h.book.Logger()), RunDir: runDir, Version: ipc.Version(),
	}
	h.rig.fleet.make = func(spec worker.Spec) *worker.Worker {
		return worker.New(spec, worker.Hooks{Up: hub.Attach, Leaving: hub.Leaving, Event: h.watch}, env)
	}
	h.begin(h.rig.fleet)
	t.Cleanup(h.finish)
	return h
}

// stage puts a version of the plugin into the catalogue and returns its entry.
func (h *hostRig) stage(version string) catalogue.Entry {
	h.t.Helper()
	s, err := h.cat.Stage(filepath.Join(h.programs, "guest-"+version))
	if err != nil {
		h.t.Fatal(err)
	}
	return catalogue.Entry{
		Name: "guest", Version: version, SHA256: s.SHA256, Size: s.Size, State: catalogue.Enabled,
		Tools: []catalogue.Tool{{Name: "fine", Description: "Be fine.", Schema: json.RawMessage("{}")}},
	}
}

// added puts a version of the plugin into service.
func (h *hostRig) added(version string) *member {
	h.t.Helper()
	if err := h.put(h.stage(version)); err != nil {
		h.t.Fatal(err)
	}
	return h.worker()
}

// worker is the one that calls of the plugin would be given to.
func (h *hostRig) worker() *member {
	h.t.Helper()
	m, err := h.pluginHost.fleet.member("plugin-guest")
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// wake does what the hub does for a call.
func (h *hostRig) wake() *member {
	h.t.Helper()
	m := h.worker()
	h.becomes(m, worker.Idle)
	m.Wake()
	h.becomes(m, worker.Ready)
	return m
}

func (h *hostRig) becomes(m *member, want worker.State) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); m.State() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("%s is %v and does not become %v: %v", m.Name(), m.State(), want, m.Status())
		}
	}
}

// mode makes the next starts of the plugin misbehave.
func (h *hostRig) mode(text string) {
	h.t.Helper()
	dir := h.cat.DataDir("guest")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mode"), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// stored is the entry as the next supervisor will find it.
func (h *hostRig) stored() catalogue.Entry {
	h.t.Helper()
	cat, err := catalogue.Open(h.home, time.Now)
	if err != nil {
		h.t.Fatal(err)
	}
	e, err := cat.Get("guest")
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestAPluginIsStartedByItsFirstCallAndRestsAfterItsLast(t *testing.T) {
	h := newHostRig(t, "supervisor: {plugins: {guest: {idle: 1h}}}")
	m := h.added("1")
	h.becomes(m, worker.Idle)
	if m.PID() != 0 {
		t.Fatalf("before any call it has the process %d", m.PID())
	}
	pid := h.wake().PID()
	h.look(time.Now())
	if m.State() != worker.Ready || m.PID() != pid {
		t.Errorf("within its time it is %v", m.State())
	}
	h.config.Supervisor.Plugins["guest"] = config.Plugin{Idle: time.Nanosecond}
	h.look(time.Now())
	h.becomes(m, worker.Idle)
	if alive(pid) {
		t.Error("its process is still there")
	}
	if h.wake().PID() == pid {
		t.Error("it has the old process")
	}
}

func TestTemporaryFilesOfAPluginGoWithItsProcess(t *testing.T) {
	h := newHostRig(t, "")
	m := h.added("1")
	tmp := filepath.Join(h.cat.DataDir("guest"), catalogue.Temp)
	left := filepath.Join(tmp, "left")
	leave := func() {
		t.Helper()
		if err := os.WriteFile(left, nil, 0o600); err != nil { // the folder was made for the process
			t.Fatal(err)
		}
	}
	pid := h.wake().PID()
	leave()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	h.await("its end", of(worker.KindExited, "plugin-guest"))
	h.becomes(m, worker.Ready)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("a file of the process before is there: %v", err)
	}
	leave()
	m.Rest()
	h.becomes(m, worker.Idle)
	if _, err := os.Stat(tmp); !os.IsNotExist(err) {
		t.Errorf("after its end the folder is there: %v", err)
	}
	// While another version serves they stay.
	h.wake()
	leave()
	h.owners["plugin-guest-2"] = "guest"
	h.clearTemp("plugin-guest-2")
	if _, err := os.Stat(left); err != nil {
		t.Errorf("a file that may be in use: %v", err)
	}
}

func TestAnUpgradeRunsTheNewProgramUnderTheOldName(t *testing.T) {
	h := newHostRig(t, "")
	h.added("1")
	old := h.wake().PID()
	second := h.added("2")
	if alive(old) || second.PID() != 0 || second.Name() != "plugin-guest" {
		t.Errorf("the old process lives: %v; the new worker is %s, process %d", alive(old), second.Name(), second.PID())
	}
	h.wake()
	if e := h.stored(); e.Version != "2" || h.guests["guest"].entry.SHA256 != e.SHA256 {
		t.Errorf("stored is version %s", e.Version)
	}
	if list := h.status(h.stored()); list.Pid == 0 || list.WorkerState != "ready" || list.Worker != "plugin-guest" {
		t.Errorf("status %v", list)
	}
}

func TestARemovedPluginIsGone(t *testing.T) {
	h := newHostRig(t, "")
	h.added("1")
	pid := h.wake().PID()
	if err := h.pluginHost.remove(t.Context(), "guest", true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.cat.DataDir("guest")); alive(pid) || len(h.guests)+len(h.owners) > 0 || !os.IsNotExist(err) {
		t.Errorf("process: %v, guests %v, owners %v, data %v", alive(pid), h.guests, h.owners, err)
	}
	if err := h.pluginHost.remove(t.Context(), "guest", true); !errors.Is(err, catalogue.ErrNotThere) {
		t.Errorf("removed again: %v", err)
	}
	h.added("1")
}

func TestAPluginOutOfRestartsIsQuarantinedWithItsReason(t *testing.T) {
	h := newHostRig(t, quickQuarantine)
	m := h.added("1")
	h.mode("exit")
	h.becomes(m, worker.Idle)
	m.Wake()
	e := h.await("quarantine", of(kindPluginQuarantined, "plugin-guest"))
	const reason = "it ended before its handshake: ended with code 3"
	if s := h.stored(); s.State != catalogue.Quarantined || !strings.Contains(s.Reason, reason) || !strings.Contains(e.Message, reason) {
		t.Errorf("stored is %s: %s; told is %s", s.State, s.Reason, e.Message)
	}
	if known := h.known(h.stored(), "plugin-guest"); !strings.Contains(known.Blocked, "plugin guest is quarantined: ") || !strings.Contains(known.Blocked, reason) {
		t.Errorf("who calls it is told %q", known.Blocked)
	}
	h.mode("")
	if err := h.set("guest", catalogue.Enabled); err != nil {
		t.Fatal(err)
	}
	h.wake()
	if s := h.stored(); s.State != catalogue.Enabled || s.Reason != "" {
		t.Errorf("enabled it is %s: %s", s.State, s.Reason)
	}
}

// A change of another plugin may hold a quarantine back until the worker has gone on.
func TestTheReasonOfAQuarantineIsThatOfItsMoment(t *testing.T) {
	h := newHostRig(t, quickQuarantine)
	m := h.added("1")
	h.mode("exit")
	h.becomes(m, worker.Idle)
	h.changes.Lock()
	m.Wake()
	h.await("the end of its restarts", of(worker.KindDegraded, "plugin-guest"))
	h.mode("")
	err := m.Start(t.Context(), "a test")
	h.changes.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	const reason = "it ended before its handshake: ended with code 3"
	if e := h.await("quarantine", of(kindPluginQuarantined, "plugin-guest")); !strings.Contains(e.Message, reason) {
		t.Errorf("told is %q", e.Message)
	}
}

func TestAChangedProgramIsQuarantinedWithBothSums(t *testing.T) {
	h := newHostRig(t, "")
	m := h.added("1")
	path := filepath.Join(h.cat.Dir(), "bin", h.stored().SHA256)
	if err := errors.Join(os.Chmod(path, 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700), os.Chmod(path, 0o500)); err != nil {
		t.Fatal(err)
	}
	h.becomes(m, worker.Idle)
	m.Wake()
	h.await("quarantine", of(kindPluginQuarantined, "plugin-guest"))
	s := h.stored()
	changed := sha256.Sum256([]byte("#!/bin/sh\n"))
	for _, want := range []string{"the program was changed", s.SHA256, hex.EncodeToString(changed[:])} {
		if !strings.Contains(s.Reason, want) || s.State != catalogue.Quarantined {
			t.Errorf("it is %s, and the reason has no %q: %s", s.State, want, s.Reason)
		}
	}
}

func TestADisabledPluginHasNoWorker(t *testing.T) {
	h := newHostRig(t, "")
	h.added("1")
	pid := h.wake().PID()
	for range 2 { // the second time nothing happens
		if err := h.set("guest", catalogue.Disabled); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.pluginHost.fleet.member("plugin-guest"); err == nil || alive(pid) {
		t.Errorf("worker: %v, process: %v", err, alive(pid))
	}
	if known := h.known(h.stored(), "plugin-guest"); known.Blocked != "plugin guest is disabled" || known.Why() != "it has no worker" {
		t.Errorf("%q, %q", known.Blocked, known.Why())
	}
}

func TestACatalogueThatCannotBeUsedIsSaidAndNothingIsRun(t *testing.T) {
	h := newHostRig(t, "")
	e := h.stage("1")
	h.broken = errors.New("lock file cannot be used")
	s := &pluginService{host: h.pluginHost}
	_, list := s.ListPlugins(t.Context(), &controlv1.ListPluginsRequest{})
	for what, err := range map[string]error{
		"put": h.put(e), "remove": h.pluginHost.remove(context.Background(), "guest", false), "set": h.set("guest", catalogue.Enabled), "list": list,
	} {
		if !errors.Is(err, h.broken) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOnlyFilesAmongItsOwnOutputsAreNamed(t *testing.T) {
	h := newHostRig(t, "")
	data := h.cat.DataDir("guest")
	outside, out := filepath.Join(h.home, "state.db"), filepath.Join(data, outputs)
	for _, dir := range []string{filepath.Join(out, "folder"), filepath.Join(data, "secrets")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{outside, filepath.Join(out, "whole"), filepath.Join(data, "secrets", "whole"), filepath.Join(out, "folder", "whole")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(out, "link")), os.Link(outside, filepath.Join(out, "name"))); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(out, "whole")
	for path, want := range map[string]string{
		whole: whole, outside: "", out: "", filepath.Join(out, "link"): "", filepath.Join(out, "name"): "", filepath.Join(out, "folder"): "", filepath.Join(out, "folder", "whole"): "",
		filepath.Join(out, "none"): "", out + "/../secrets/whole": "", "whole": "", "/proc/self/fd/51/outputs/whole": "",
	} {
		if got := h.spillOf("guest", false)(path); got != want {
			t.Errorf("%s: named as %q, want %q", path, got, want)
		}
	}
	if got := h.spillOf("guest", true)("/proc/self/fd/51/outputs/whole"); got != whole {
		t.Errorf("of another user: %q", got)
	}
	// The folder belongs to the plugin, which may put anything in its place.
	if err := errors.Join(os.RemoveAll(out), os.Symlink(h.home, out)); err != nil {
		t.Fatal(err)
	}
	if got := h.spillOf("guest", false)(filepath.Join(out, "state.db")); got != "" {
		t.Errorf("through a link in the place of the folder: %q", got)
	}
}

func TestNoGrantOpensTheHomeOrTheSockets(t *testing.T) {
	h := newHostRig(t, "")
	s := &pluginService{host: h.pluginHost}
	link := filepath.Join(t.TempDir(), "link")
	for _, path := range append(h.shut, "/", link) {
		_ = os.Remove(link)
		if err := os.Symlink(h.shut[1], link); err != nil {
			t.Fatal(err)
		}
		for _, granted := range []catalogue.Permissions{{Read: []string{path}}, {Write: []string{path}}} {
			e := h.stage("1")
			e.Granted = granted
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.AddPlugin(t.Context(), &controlv1.AddPluginRequest{EntryJson: text}); !errors.Is(err, ipc.ErrInvalid) || !strings.Contains(err.Error(), "no plugin may see") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	// A link that leads elsewhere after it was granted is found at the start.
	_ = os.Remove(link)
	other := t.TempDir()
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	e := h.stage("1")
	e.Granted = catalogue.Permissions{Read: []string{link}}
	if err := h.put(e); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(link), os.Symlink(h.home, link)); err != nil {
		t.Fatal(err)
	}
	m := h.worker()
	h.becomes(m, worker.Idle)
	m.Wake()
	if e := h.await("quarantine", of(kindPluginQuarantined, "plugin-guest")); !strings.Contains(e.Message, "no plugin may see") {
		t.Errorf("told is %s", e.Message)
	}
}
