package telegram

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// Two homes polled with one token.
func TestASecondHomeWithTheSameTokenIsRefusedWithThePID(t *testing.T) {
	s := newStandIn(t)
	t.Cleanup(s.Close)
	h := gatewaytest.NewHost(t, Platform)
	h.Secrets = s.Secrets()
	first, err := h.Start(t, s.Settings(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Start(t, s.Settings(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint("process ", first.PID)) {
		t.Errorf("the second one: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), bottest.Token) {
		t.Error("the refusal has the token")
	}
	first.Kill() // the kernel takes the lock away, however the process ends
	third, err := h.Start(t, s.Settings(), t.TempDir())
	if err != nil {
		t.Fatalf("after the death of the first: %v", err)
	}
	third.Kill()
}

func TestTheLockOfAnotherProgramCounts(t *testing.T) {
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	start, _, err := processStart(sleeper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		name   string
		record any
		held   bool
	}{
		{"a process that runs", lockRecord{PID: sleeper.Process.Pid, StartTime: start}, true},
		{"its number is another process's now", lockRecord{PID: sleeper.Process.Pid, StartTime: start - 1}, false},
		{"a process that ended", lockRecord{PID: dead.Process.Pid, StartTime: 1}, false},
		{"our own", lockRecord{PID: os.Getpid()}, false},
		{"no record", nil, false},
		{"half a record", json.RawMessage(`{"pid": 1`), false},
		{"a plain number, as long ago", json.RawMessage(`4711`), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := lockToken(t.Context(), dir, bottest.Token, "/home/first")
			if err != nil {
				t.Fatal(err)
			}
			path := l.file.Name()
			l.release()
			raw, _ := json.Marshal(c.record)
			if half, ok := c.record.(json.RawMessage); ok {
				raw = half
			}
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { // waiting for the holder takes no time here
				l, err := lockToken(t.Context(), dir, bottest.Token, "/home/second")
				if (err != nil) != c.held {
					t.Errorf("lock: %v", err)
				}
				l.release()
			})
		})
	}
}

func TestTheLockIsWaitedForAMoment(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		old, err := lockToken(t.Context(), dir, bottest.Token, "")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(lockPatience / 2)
			old.release()
		}()
		l, err := lockToken(t.Context(), dir, bottest.Token, "")
		if err != nil {
			t.Errorf("while the predecessor goes: %v", err)
		}
		l.release()
	})
}

func TestTheLockFileTellsWhoHasIt(t *testing.T) {
	dir := t.TempDir()
	l, err := lockToken(t.Context(), dir, bottest.Token, "/home/a")
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	files, err := filepath.Glob(filepath.Join(dir, lockScope+"-*.lock"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var r lockRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	if r.PID != os.Getpid() || r.StartTime == 0 || r.where() != " (/home/a)" || strings.Contains(string(raw)+files[0], bottest.Token) {
		t.Errorf("record %s", raw)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A platform that cannot be reached is tried again for months: what an attempt has opened it must close, wherever it fails.
func TestFiftyFailedConnectionsInARowLeaveTheDescriptorsAsTheyWere(t *testing.T) {
	locks, dir := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		held, err := lockToken(t.Context(), locks, bottest.Token, "")
		if err != nil {
			t.Fatal(err)
		}
		defer held.release()
		set := func(more gateway.Settings) gateway.Setup {
			s := gateway.Settings{"base_url": bottest.PipeURL, "lock_dir": locks}
			maps.Copy(s, more)
			return gateway.Setup{Platform: Platform, Settings: s, Dir: dir, FilesDir: dir, Log: hclog.NewNullLogger()}
		}
		descriptors := func() int {
			t.Helper()
			list, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		before := descriptors()
		for _, c := range []struct {
			name, token string
			setup       gateway.Setup
		}{
			{"no token", "", set(nil)},
			{"a token that another process has", bottest.Token, set(nil)},
			{"a proxy that is none", bottest.Token, set(gateway.Settings{"proxy": "nonsense://"})},
		} {
			for range 50 {
				if a, err := open(t.Context(), c.setup, parts{host: newSupervisor(), token: c.token}); err == nil {
					a.Close()
					t.Fatalf("%s: it was opened", c.name)
				}
			}
			if n := descriptors(); n != before {
				t.Errorf("%s: %d descriptors, %d before", c.name, n, before)
			}
		}
	})
}
