package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/doctor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subject is a home in which all is well.
func subject(t testing.TB) *doctor.Subject {
	t.Helper()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := os.WriteFile(filepath.Join(home, "state.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Quick(t.Context(), home, "", now, func(_ context.Context, _, to string) error { return os.WriteFile(to, nil, 0o600) }); err != nil {
		t.Fatal(err)
	}
	return &doctor.Subject{
		Home: home, RunDir: filepath.Join(home, "run"), Config: &config.Config{Home: home}, Now: now,
		Binaries: func(*config.Config) error { return nil },
		Plugins:  func() (map[string]int64, error) { return map[string]int64{"weather": 5 << 20}, nil },
		Misfits:  func(context.Context, *config.Config) []string { return nil },
		Check: func(context.Context) ([]*controlv1.StoreCheck, error) {
			return []*controlv1.StoreCheck{{Store: "state.db", Bytes: 1 << 20}}, nil
		},
		Running: &controlv1.StatusResponse{Supervisor: &controlv1.Supervisor{State: "ready", Pid: int64(os.Getpid())}, Stores: []*controlv1.StoreStatus{{Name: "state", State: "ok"}}},
	}
}

func find(list []doctor.Finding, name string) doctor.Finding {
	i := slices.IndexFunc(list, func(f doctor.Finding) bool { return f.Name == name })
	if i < 0 {
		return doctor.Finding{}
	}
	return list[i]
}

func TestASoundHomeIsWell(t *testing.T) {
	list := doctor.Examine(t.Context(), *subject(t), doctor.Mending{})
	for _, f := range list {
		if f.State != doctor.OK && f.Name != "disk_space" {
			t.Errorf("%+v", f)
		}
	}
	if !doctor.Healthy(list) {
		t.Error("not healthy")
	}
}

func TestWhoHoldsWorkersToTheirLimitsIsSaid(t *testing.T) {
	s := subject(t)
	s.Running.Enforcement = &controlv1.Enforcement{Memory: "cgroup", Processes: "cgroup"}
	if f := find(doctor.Examine(t.Context(), *s, doctor.Mending{}), "limits"); f.State != doctor.OK || !strings.Contains(f.Detail, "memory is held by the kernel, in a cgroup of each worker's own") {
		t.Errorf("%+v", f)
	}
	s.Running.Enforcement = &controlv1.Enforcement{Memory: "watch", Processes: "watch", Detail: "no cgroups here"}
	if f := find(doctor.Examine(t.Context(), *s, doctor.Mending{}), "limits"); f.State != doctor.OK || !strings.Contains(f.Detail, "memory is held by the supervisor's watch; processes by the supervisor's watch (no cgroups here)") {
		t.Errorf("%+v", f)
	}
}

func TestWhatIsWrongIsNamedWithWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(s *doctor.Subject) error
		check string
		state string
	}{
		"a configuration that cannot be read": {func(s *doctor.Subject) error {
			s.Config, s.ConfigErr = nil, errors.New("config.yaml:1: no")
			return nil
		}, "configuration", doctor.Fail},
		"a missing binary": {func(s *doctor.Subject) error {
			s.Binaries = func(*config.Config) error { return errors.New("hermes-agent is not there") }
			return nil
		}, "installation", doctor.Fail},
		"no supervisor": {func(s *doctor.Subject) error { s.Running = nil; return nil }, "supervisor", doctor.Warn},
		"a worker that fails": {func(s *doctor.Subject) error {
			s.Running.Workers = []*controlv1.WorkerStatus{{Name: "tools", State: "failed"}}
			return nil
		}, "worker", doctor.Fail},
		"a worker that waits for its next start": {func(s *doctor.Subject) error {
			s.Running.Workers = []*controlv1.WorkerStatus{{Name: "tools", State: "waiting"}}
			return nil
		}, "worker", doctor.Fail},
		"a platform that is not reached": {func(s *doctor.Subject) error {
			s.Running.Adapters = []*controlv1.AdapterStatus{{Platform: "telegram", State: "unauthorised", Worker: "gateway-telegram"}}
			return nil
		}, "adapter", doctor.Fail},
		"a unit that stops too soon": {func(s *doctor.Subject) error {
			s.Misfits = func(context.Context, *config.Config) []string { return []string{"it allows 10s; write it again"} }
			return nil
		}, "unit", doctor.Warn},
		"a plugin that fills the disk": {func(s *doctor.Subject) error {
			s.Plugins = func() (map[string]int64, error) { return map[string]int64{"weather": 5 << 20, "map": 2 << 30}, nil }
			return nil
		}, "plugins", doctor.Warn},
		"a catalogue that cannot be used": {func(s *doctor.Subject) error {
			s.Plugins = func() (map[string]int64, error) { return nil, errors.New("plugins.lock was changed") }
			return nil
		}, "plugins", doctor.Fail},
		"a home that others can read": {func(s *doctor.Subject) error { return os.Chmod(s.Home, 0o755) }, "permissions", doctor.Warn},
		"a full disk": {func(s *doctor.Subject) error {
			s.Running.Stores = []*controlv1.StoreStatus{{Name: "state", State: "degraded", Condition: "disk_full", Detail: "writes are refused", Advice: "make room"}}
			return nil
		}, "disk_full", doctor.Fail},
		"a damaged store": {func(s *doctor.Subject) error {
			s.Check = func(context.Context) ([]*controlv1.StoreCheck, error) {
				return []*controlv1.StoreCheck{{Store: "state.db", Damage: []string{"Tree 5 page 7"}}}, nil
			}
			return nil
		}, "store state.db", doctor.Fail},
		"a damaged index": {func(s *doctor.Subject) error {
			s.Check = func(context.Context) ([]*controlv1.StoreCheck, error) {
				return []*controlv1.StoreCheck{{Store: "state.db", IndexDamage: []string{"fts5"}}}, nil
			}
			return nil
		}, "store state.db", doctor.Warn},
		"no snapshot": {func(s *doctor.Subject) error { return os.RemoveAll(filepath.Join(s.Home, "state-snapshots")) }, "snapshots", doctor.Warn},
		"snapshot without a file": {func(s *doctor.Subject) error {
			_ = os.Symlink(".env", filepath.Join(s.Home, ".env"))
			made, err := backup.Quick(context.Background(), s.Home, "auto", s.Now.Add(time.Second), func(_ context.Context, _, to string) error { return os.WriteFile(to, nil, 0o600) })
			if len(made.LeftOut) != 1 {
				err = fmt.Errorf("left out is %v", made.LeftOut)
			}
			return errors.Join(err, os.Remove(filepath.Join(s.Home, ".env")))
		}, "snapshots", doctor.Warn},
		"old snapshots": {func(s *doctor.Subject) error { s.Now = s.Now.Add(10 * 24 * time.Hour); return nil }, "snapshots", doctor.Warn},
		"something half made": {func(s *doctor.Subject) error {
			return os.Mkdir(filepath.Join(s.Home, "state.db.retired-wal-20261201-120000-1.partial"), 0o700)
		}, "leftovers", doctor.Warn},
		"a captured log": {func(s *doctor.Subject) error {
			return os.Mkdir(filepath.Join(s.Home, "state.db.retired-wal-20261201-120000-1"), 0o700)
		}, "kept_copies", doctor.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t)
			if err := c.harm(s); err != nil {
				t.Fatal(err)
			}
			list := doctor.Examine(t.Context(), *s, doctor.Mending{})
			f := find(list, c.check)
			if f.State != c.state || f.Detail == "" || f.Advice == "" {
				t.Errorf("%+v", f)
			}
			if doctor.Healthy(list) != (c.state == doctor.Warn) {
				t.Errorf("healthy is %v: %+v", doctor.Healthy(list), list)
			}
		})
	}
}

func TestFixMendsModesAndSaysWhatTheyWere(t *testing.T) {
	s := subject(t)
	env, board := filepath.Join(s.Home, ".env"), filepath.Join(s.Home, "kanban", "boards", "ops", "kanban.db")
	if err := errors.Join(os.Chmod(s.Home, 0o755), os.WriteFile(env, nil, 0o644), os.MkdirAll(filepath.Dir(board), 0o700),
		os.WriteFile(board, []byte("x"), 0o664), os.Mkdir(s.RunDir, 0o711)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(board, 0o664); err != nil {
		t.Fatal(err)
	}
	dry := find(doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true, DryRun: true}), "permissions")
	if dry.Fixed || dry.State != doctor.Warn || len(dry.Done) != 3 {
		t.Errorf("a dry run: %+v", dry)
	}
	list := doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true})
	f := find(list, "permissions")
	if want := []string{s.Home + ": 0755 becomes 0700", env + ": 0644 becomes 0600", board + ": 0664 becomes 0600"}; !f.Fixed || f.State != doctor.OK || !slices.Equal(f.Done, want) {
		t.Errorf("%+v", f)
	}
	if f := find(list, "run_directory"); !f.Fixed {
		t.Errorf("%+v", f)
	}
	for path, want := range map[string]os.FileMode{s.Home: 0o700, env: 0o600, board: 0o600, s.RunDir: 0o700} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s is %v, %v", path, st.Mode(), err)
		}
	}
}

// broken has a store with wrong, missing and damaged indices, until it is mended.
func broken(s *doctor.Subject) (mended *int) {
	mended = new(int)
	s.Running = nil
	s.Check = func(context.Context) ([]*controlv1.StoreCheck, error) {
		c := &controlv1.StoreCheck{Store: "state.db", Bytes: 1 << 20}
		if *mended == 0 {
			c.WrongIndices, c.MissingIndices, c.IndexDamage = []string{"idx_a"}, []string{"idx_b"}, []string{"fts5"}
		}
		return []*controlv1.StoreCheck{c}, nil
	}
	s.Mend = func(context.Context, string) ([]string, error) {
		*mended++
		return []string{"index idx_a was built again"}, nil
	}
	return mended
}

func TestFixMendsWhatIsDerivedAndLooksAgain(t *testing.T) {
	s := subject(t)
	mended := broken(s)
	f := find(doctor.Examine(t.Context(), *s, doctor.Mending{DryRun: true}), "store state.db")
	if *mended != 0 || f.State != doctor.Fail || len(f.Done) != 3 {
		t.Errorf("a dry run: %+v", f)
	}
	f = find(doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true}), "store state.db")
	if want := []string{"index idx_a was built again", "state.db is sound now, WAL 0 MiB"}; *mended != 1 || !f.Fixed || f.State != doctor.OK || !slices.Equal(f.Done, want) {
		t.Errorf("%+v", f)
	}
}

// Another program that has a store open keeps it from being mended, and is named.
func TestFixTouchesNoStoreThatIsHeld(t *testing.T) {
	s := subject(t)
	mended := broken(s)
	holder := exec.CommandContext(t.Context(), "sleep", "600")
	f, err := os.Open(filepath.Join(s.Home, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	holder.ExtraFiles = []*os.File{f}
	if err := errors.Join(holder.Start(), f.Close(), os.Chmod(s.Home, 0o755)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	list := doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true})
	found := find(list, "store state.db")
	if *mended != 0 || found.Fixed || found.State != doctor.Fail || !strings.Contains(found.Detail, fmt.Sprintf("PID %d (sleep 600): state.db", holder.Process.Pid)) {
		t.Errorf("%+v", found)
	}
	if p := find(list, "permissions"); !p.Fixed {
		t.Errorf("modes are no matter of the store: %+v", p)
	}
	if found := find(doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true, Force: true}), "store state.db"); *mended != 1 || !found.Fixed {
		t.Errorf("with force: %+v", found)
	}
}

// What killed processes left goes, and a restore that was cut off is finished; what is young may be in the making.
func TestFixTidiesUpAfterKilledProcesses(t *testing.T) {
	s := subject(t)
	old := []string{"state.db.copy-1.part", ".restore-unpack-1", "hermes-session-recovery-1", ".restore-ready-2"}
	if err := os.MkdirAll(filepath.Join(s.Home, ".restore-ready-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Home, ".restore-ready-2", "SOUL.md"), []byte("me"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.MkdirAll(filepath.Join(s.Home, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	making, err := scratch.Make(filepath.Join(s.Home, "hermes-session-recovery-now"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = making.Remove() }()
	owned := false
	s.Own = func(f func() error) error { owned = true; return f() }
	if f := find(doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true}), "leftovers"); f.Fixed || owned {
		t.Errorf("beside a running supervisor: %+v", f)
	}
	s.Running = nil
	f := find(doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true}), "leftovers")
	if !f.Fixed || len(f.Done) != len(old) || !owned {
		t.Errorf("%+v", f)
	}
	for _, name := range old {
		if _, err := os.Stat(filepath.Join(s.Home, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if _, err := os.Stat(filepath.Join(s.Home, "hermes-session-recovery-now")); err != nil {
		t.Error("what is in the making was removed")
	}
	if text, err := os.ReadFile(filepath.Join(s.Home, "SOUL.md")); err != nil || string(text) != "me" {
		t.Errorf("the restore is not finished: %v", err)
	}
}

// While somebody writes into a deleted WAL nothing of the store is touched or even read.
func TestARetiredWALStopsTheExamination(t *testing.T) {
	s := subject(t)
	wal := filepath.Join(s.Home, "state.db-wal")
	f, err := os.Create(wal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(os.Remove(wal), os.Chmod(s.Home, 0o755)); err != nil {
		t.Fatal(err)
	}
	s.Check = func(context.Context) ([]*controlv1.StoreCheck, error) {
		t.Error("the stores were read")
		return nil, nil
	}
	list := doctor.Examine(t.Context(), *s, doctor.Mending{Fix: true})
	held := find(list, "wal_retired")
	if held.State != doctor.Fail || held.Advice == "" || held.Detail == "" {
		t.Errorf("%+v", held)
	}
	if p := find(list, "permissions"); p.Fixed {
		t.Error("something was mended: ", fmt.Sprint(p))
	}
}
