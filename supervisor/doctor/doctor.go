// Package doctor looks at a home and says what is wrong with it: settings, permissions, stores, copies, leftovers, the
// service, the installation.
//
// Rules: looking changes nothing, and one look that fails does not keep the others from being made. What is found has a
// name for programs, a state, and a line that says what to do. Only what cannot lose anything is mended (Mending): modes of
// files, indices, what killed processes left half made. Nothing is mended while another process has a retired WAL of a store,
// and nothing of stores while another program has one open: touching them then is how data is lost.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
	"github.com/hermes-supervisor/hermes-supervisor/store"
	"github.com/hermes-supervisor/hermes-supervisor/store/scratch"
	"github.com/hermes-supervisor/hermes-supervisor/store/wording"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
	"github.com/hermes-supervisor/hermes-supervisor/supervisor/config"
)

// States of a finding.
const (
	OK   = "ok"
	Warn = "warn" // works, but a person should know
	Fail = "fail" // something does not work, or will not
)

// A Finding is the result of one look.
type Finding struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
	Fixed  bool   `json:"fixed"`
	// Done says what was mended, or what would be.
	Done []string `json:"done"`

	repair *repair
}

// A repair mends what a look has found.
type repair struct {
	plan   []string // what it does, a line each
	stores bool     // it touches stores, or files beside them
	do     func(context.Context) (done []string, err error)
}

// Mending says what of it is wanted.
type Mending struct {
	Fix    bool
	DryRun bool // only say what would be mended
	Force  bool // although other programs have a store open
}

// Subject is what is looked at.
type Subject struct {
	Home   string
	RunDir string // where the control socket is or would be
	Config *config.Config
	// ConfigErr is why Config is nil.
	ConfigErr error
	// Running is the status of the supervisor, nil if none answers.
	Running *controlv1.StatusResponse
	// Check reads the stores: through the running supervisor, or by itself.
	Check func(ctx context.Context) ([]*controlv1.StoreCheck, error)
	// Mend makes again what of a store is derived and wrong, and says what it did.
	Mend func(ctx context.Context, name string) ([]string, error)
	// Own runs f while no supervisor can start.
	Own func(f func() error) error
	// Plugins returns what the folder of each plugin takes on disk.
	Plugins func() (map[string]int64, error)
	// Binaries returns an error if a worker's binary is missing.
	Binaries func(*config.Config) error
	// Misfits says what of an installed service unit does not fit the configuration.
	Misfits func(ctx context.Context, c *config.Config) []string
	Now     time.Time
}

// Examine looks at everything, and mends what is wanted.
func Examine(ctx context.Context, s Subject, m Mending) []Finding {
	retired := s.retired()
	list := []Finding{s.configuration(), s.installation()}
	list = append(list, s.service(ctx)...)
	list = append(list, s.permissions(), s.runDirectory(), s.space(), s.fileSystem(), s.plugins())
	list = append(list, retired...)
	held := s.holders()
	list = append(list, held)
	if len(retired) == 0 {
		list = append(list, s.stores(ctx)...)
	}
	list = append(list, s.snapshots(), s.leftovers(), s.evidence())
	for i := range list {
		if f := &list[i]; (m.Fix || m.DryRun) && f.repair != nil && f.State != OK {
			f.mend(ctx, m, len(retired) > 0, held)
		}
	}
	return list
}

// mend makes the repair of a finding, unless it must not be made.
func (f *Finding) mend(ctx context.Context, m Mending, retired bool, held Finding) {
	switch {
	case m.DryRun:
		f.Done = f.repair.plan
		return
	case retired:
		f.Detail += "; not mended: nothing is touched while a process holds a retired WAL"
		return
	case f.repair.stores && held.State != OK && !m.Force:
		f.Detail += "; not mended: " + held.Detail
		f.Advice = "end that program, then again; --force goes ahead"
		return
	}
	done, err := f.repair.do(ctx)
	f.Done = done
	if err != nil {
		f.Detail += "; it could not be mended: " + err.Error()
		return
	}
	f.Fixed, f.State, f.Advice = true, OK, ""
}

// Healthy says that nothing failed.
func Healthy(list []Finding) bool {
	for _, f := range list {
		if f.State == Fail {
			return false
		}
	}
	return true
}

func ok(name, detail string) Finding { return Finding{Name: name, State: OK, Detail: detail} }

func (s Subject) configuration() Finding {
	f := Finding{Name: "configuration"}
	switch {
	case s.ConfigErr != nil:
		f.State, f.Detail, f.Advice = Fail, s.ConfigErr.Error(), "mend it, then: hermes-supervisor config check"
	case len(s.Config.Warnings) > 0:
		f.State, f.Detail, f.Advice = Warn, strings.Join(s.Config.Warnings, "; "), "hermes-supervisor config check says where"
	default:
		f = ok(f.Name, s.Config.Path)
	}
	return f
}

func (s Subject) installation() Finding {
	if s.Config == nil {
		return Finding{Name: "installation", State: Warn, Detail: "not looked at: the configuration cannot be read", Advice: "mend the configuration first"}
	}
	if err := s.Binaries(s.Config); err != nil {
		return Finding{Name: "installation", State: Fail, Detail: err.Error(), Advice: "install the supervisor and its workers from one build"}
	}
	return ok("installation", "the binaries of all workers are there")
}

func (s Subject) service(ctx context.Context) (list []Finding) {
	if s.Running == nil {
		list = append(list, Finding{Name: "supervisor", State: Warn, Detail: "none runs for this home", Advice: "hermes-supervisor run, or start its service"})
	} else {
		r := s.Running.GetSupervisor()
		list = append(list, ok("supervisor", fmt.Sprintf("%s, pid %d", r.GetState(), r.GetPid())))
		stopped := map[string]bool{} // by hand, which is no fault
		for _, w := range s.Running.GetWorkers() {
			stopped[w.Name] = w.State == "disabled"
			if w.State == "failed" || w.State == "degraded" || w.State == "waiting" {
				list = append(list, Finding{Name: "worker", State: Fail, Detail: fmt.Sprintf("%s is %s: %s", w.Name, w.State, w.Detail),
					Advice: "hermes-supervisor ctl logs " + w.Name})
			}
		}
		for _, a := range s.Running.GetAdapters() {
			if a.State != "connected" && a.State != "connecting" && !stopped[a.Worker] {
				list = append(list, Finding{Name: "adapter", State: Fail, Detail: fmt.Sprintf("%s is %s: %s", a.Platform, a.State, a.Detail),
					Advice: "hermes-supervisor ctl logs " + a.Worker})
			}
		}
	}
	if e := s.Running.GetEnforcement(); e != nil {
		list = append(list, limits(e))
	}
	if s.Config == nil {
		return list
	}
	misfits := s.Misfits(ctx, s.Config)
	for _, m := range misfits {
		what, advice, _ := strings.Cut(m, "; ")
		list = append(list, Finding{Name: "unit", State: Warn, Detail: what, Advice: advice})
	}
	return list
}

// limits says who holds workers to their limits. The watch alone is enough for all but what takes gigabytes within a second.
func limits(e *controlv1.Enforcement) Finding {
	held := map[string]string{"cgroup": "the kernel, in a cgroup of each worker's own", "watch": "the supervisor's watch"}
	text := fmt.Sprintf("memory is held by %s; processes by %s", held[e.Memory], held[e.Processes])
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return ok("limits", text+"; descriptors always by the kernel")
}

// private are the files and folders of a home that others must not read, with the most that they may allow.
var private = map[string]fs.FileMode{
	"": 0o700, ".env": 0o600, "auth.json": 0o600, "state.db*": 0o600, "kanban.db*": 0o600, "supervisor.db*": 0o600, "kanban/boards/*/kanban.db*": 0o600,
	"cron/*.db": 0o600, "*.before-hermes-supervisor": 0o600, "state-snapshots": 0o700, "pairing": 0o700, "platforms/pairing": 0o700, "session-exports": 0o700,
}

// permissions looks for files that others can read.
func (s Subject) permissions() Finding {
	f := Finding{Name: "permissions", Advice: "hermes-supervisor doctor --fix"}
	wrong := map[string][2]fs.FileMode{} // what it is, what it should be
	for pattern, most := range private {
		paths, _ := filepath.Glob(filepath.Join(scratch.Literal(s.Home), filepath.FromSlash(pattern)))
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode().Perm()&^most == 0 {
				continue
			}
			wrong[path] = [2]fs.FileMode{info.Mode().Perm(), info.Mode().Perm() & (most | 0o700) &^ 0o077}
		}
	}
	if len(wrong) == 0 {
		return ok(f.Name, "only this user can read the home")
	}
	var are, plan []string
	paths := slices.Sorted(maps.Keys(wrong))
	for _, path := range paths {
		are = append(are, fmt.Sprintf("%s is %04o", path, wrong[path][0]))
		plan = append(plan, fmt.Sprintf("%s: %04o becomes %04o", path, wrong[path][0], wrong[path][1]))
	}
	f.State, f.Detail = Warn, strings.Join(are, "; ")
	f.repair = &repair{plan: plan, do: func(context.Context) (done []string, err error) {
		for i, path := range paths {
			if cerr := os.Chmod(path, wrong[path][1]); cerr != nil {
				err = errors.Join(err, cerr)
				continue
			}
			done = append(done, plan[i])
		}
		return done, err
	}}
	return f
}

func (s Subject) runDirectory() Finding {
	f := Finding{Name: "run_directory"}
	info, err := os.Stat(s.RunDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok(f.Name, s.RunDir+" is made at the start")
	case err != nil:
		f.State, f.Detail, f.Advice = Fail, err.Error(), "choose another with --run-dir"
	case !info.IsDir():
		f.State, f.Detail, f.Advice = Warn, fmt.Sprintf("%s is %v", s.RunDir, info.Mode()), "it must be a folder: move away what is there"
	case info.Mode().Perm()&0o077 != 0:
		f.State, f.Detail, f.Advice = Warn, fmt.Sprintf("%s is %04o: others may enter it", s.RunDir, info.Mode().Perm()), "hermes-supervisor doctor --fix"
		plan := fmt.Sprintf("%s: %04o becomes 0700", s.RunDir, info.Mode().Perm())
		f.repair = &repair{plan: []string{plan}, do: func(context.Context) ([]string, error) { return []string{plan}, os.Chmod(s.RunDir, 0o700) }}
	default:
		return ok(f.Name, s.RunDir)
	}
	return f
}

// Room on the disk below which a person should know, and below which writes are about to be refused.
const (
	lowSpace  = 256 << 20
	tinySpace = 16 << 20
)

func (s Subject) space() Finding {
	dir := s.Home
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	free, err := store.FreeSpace(dir)
	f := Finding{Name: "disk_space", State: Warn, Advice: "make room"}
	switch {
	case err != nil:
		f.Detail, f.Advice = err.Error(), "look at the disk"
	case free < tinySpace:
		f.State, f.Detail = Fail, fmt.Sprintf("%d KiB are free: writes are or will soon be refused", free>>10)
	case free < lowSpace:
		f.Detail = fmt.Sprintf("only %d MiB are free", free>>20)
	default:
		return ok(f.Name, fmt.Sprintf("%.1f GiB are free", float64(free)/(1<<30)))
	}
	return f
}

// plugins looks at what plugins have stored: their folders have no limit, and are on the disk of the home.
func (s Subject) plugins() Finding {
	f := Finding{Name: "plugins", State: Warn}
	sizes, err := s.Plugins()
	if err != nil {
		f.State, f.Detail, f.Advice = Fail, "none is run: "+err.Error(), "hermes-supervisor plugins verify"
		return f
	}
	var large []string
	total := int64(0)
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if total += sizes[name]; sizes[name] >= catalogue.LargeData {
			large = append(large, fmt.Sprintf("%s has %.1f GiB", name, float64(sizes[name])/(1<<30)))
		}
	}
	switch {
	case len(large) > 0:
		f.Detail, f.Advice = strings.Join(large, ", ")+" in its own folder", "a full disk halts all turns: hermes-supervisor plugins remove NAME --data gives it back"
		return f
	case len(sizes) == 0:
		return ok(f.Name, "there is none")
	}
	return ok(f.Name, fmt.Sprintf("%s, with %d MiB in their own folders", wording.Count(int64(len(sizes)), "plugin", "plugins"), total>>20))
}

func (s Subject) fileSystem() Finding {
	kind, readOnly, err := store.FileSystem(s.Home)
	switch {
	case err != nil:
		return Finding{Name: "file_system", State: Warn, Detail: err.Error()}
	case readOnly:
		return Finding{Name: "file_system", State: Fail, Detail: "it is read-only: reads only", Advice: "mount it for writing"}
	case kind != "":
		return Finding{Name: "file_system", State: Warn, Detail: "it is " + kind + ": no write-ahead log can be used", Advice: "move the home to a local disk"}
	}
	return ok("file_system", "local and writable")
}

// snapshots looks whether there is something to go back to.
func (s Subject) snapshots() Finding {
	f := Finding{Name: "snapshots", State: Warn, Advice: "hermes-supervisor backup --quick"}
	list, err := backup.List(s.Home)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	if len(list) == 0 {
		if _, err := os.Stat(filepath.Join(s.Home, "state.db")); err != nil {
			return ok(f.Name, "there is nothing to copy yet")
		}
		f.Detail = "there is none"
		return f
	}
	newest := list[0]
	at, err := time.Parse(time.RFC3339, newest.Timestamp)
	const old = 8 * 24 * time.Hour
	switch {
	case len(newest.FailedDBs) > 0:
		f.State, f.Detail = Fail, fmt.Sprintf("the newest, %s, is without %s", newest.ID, strings.Join(newest.FailedDBs, ", "))
	case len(newest.LeftOut) > 0:
		f.Detail = fmt.Sprintf("the newest, %s, is without %s: %s", newest.ID, strings.Join(newest.Missing(), ", "), newest.LeftOut[0].Reason)
		f.Advice = "let the supervisor's user read it, then hermes-supervisor backup --quick"
	case err == nil && s.Now.Sub(at) > old:
		f.Detail = fmt.Sprintf("the newest, %s, is %d days old", newest.ID, int(s.Now.Sub(at).Hours())/24)
	default:
		return ok(f.Name, fmt.Sprintf("%d, the newest is %s", len(list), newest.ID))
	}
	return f
}
