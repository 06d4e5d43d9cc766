package catalogue

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A rig is a catalogue with programs to add.
type rig struct {
	*Catalogue
	t    *testing.T
	home string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	home := t.TempDir()
	c, err := Open(home, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Catalogue: c, t: t, home: home}
}

// program makes a file with this content outside of the catalogue.
func (r *rig) program(content string) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// entry stages a program and describes it.
func (r *rig) entry(name, content string, tools ...string) Entry {
	r.t.Helper()
	path := r.program(content)
	s, err := r.Stage(path)
	if err != nil {
		r.t.Fatal(err)
	}
	e := Entry{Name: name, Version: "1.0.0", SHA256: s.SHA256, Size: s.Size, Source: path, Added: noon, State: Enabled, Since: noon}
	for _, tool := range tools {
		e.Tools = append(e.Tools, Tool{Name: tool, Description: "does it", Schema: json.RawMessage(`{"type": "object"}`)})
	}
	return e
}

func (r *rig) put(e Entry) Entry {
	r.t.Helper()
	if err := r.Put(e); err != nil {
		r.t.Fatal(err)
	}
	return e
}

func (r *rig) reopen() *Catalogue {
	r.t.Helper()
	c, err := Open(r.home, func() time.Time { return noon })
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// stored is where the copy of an entry's program is.
func (r *rig) stored(e Entry) string { return filepath.Join(r.Dir(), programs, e.SHA256) }

func TestWhatIsAddedIsThereAfterARestart(t *testing.T) {
	r := newRig(t)
	e := r.entry("weather", "one", "forecast", "alert")
	e.Granted = Permissions{Secrets: []string{"KEY"}, Connect: []uint16{443, 80, 443}}
	r.put(e)
	got, err := r.reopen().Get("weather")
	if err != nil || got.SHA256 != e.SHA256 || len(got.Tools) != 2 || strings.Join(got.Granted.Words(), ", ") != "secret KEY, connect to port 80, connect to port 443" {
		t.Errorf("%+v, %v", got, err)
	}
	for path, mode := range map[string]os.FileMode{r.Dir(): 0o700, r.lockPath(): 0o600, r.stored(e): 0o500} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", path, st.Mode(), err, mode)
		}
	}
}

func TestAnEmptyHomeHasNoPluginsAndGetsNoFolder(t *testing.T) {
	r := newRig(t)
	if list := r.List(); len(list) != 0 {
		t.Errorf("%v", list)
	}
	if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder was made: %v", err)
	}
}

func TestAChangedProgramIsRefusedWithBothSums(t *testing.T) {
	r := newRig(t)
	e := r.put(r.entry("weather", "one", "forecast"))
	if err := os.Chmod(r.stored(e), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.stored(e), []byte("two"), 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := r.Program(e)
	var changed *ChangedError
	if !errors.As(err, &changed) || !errors.Is(err, ErrChanged) {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), e.SHA256) || !strings.Contains(err.Error(), changed.Got) || changed.Got == e.SHA256 {
		t.Errorf("both sums are not in: %v", err)
	}
}

func TestWhatComesToThePathAfterTheCheckHasNoEffect(t *testing.T) {
	r := newRig(t)
	e := r.put(r.entry("weather", "one", "forecast"))
	f, err := r.Program(e)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Rename(r.program("two"), r.stored(e)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, _ := f.ReadAt(b, 0); string(b[:n]) != "one" {
		t.Errorf("the descriptor now has %q", b[:n])
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor would be inherited: %v, %v", flags, err)
	}
}

func TestAVerifiedProgramCannotBeWrittenToBeforeItRuns(t *testing.T) {
	r := newRig(t)
	e := r.put(r.entry("weather", "one", "forecast"))
	f, err := r.Program(e)
	if err != nil {
		t.Fatal(err)
	}
	if kind, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
		_ = f.Close()
		t.Skipf("this file system has no leases: %v, %v", kind, err)
	}
	write := func() error {
		fd, err := unix.Open(r.stored(e), unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	if err := os.Chmod(r.stored(e), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("while it is verified it opens for writing: %v", err)
	}
	_ = f.Close()
	writer, err := os.OpenFile(r.stored(e), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if _, err := r.Program(e); !errors.Is(err, ErrUnsafe) {
		t.Errorf("with a writer there it is given out: %v", err)
	}
}

func TestWhatOthersCanChangeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, e Entry) error{
		"program":         func(r *rig, e Entry) error { return os.Chmod(r.stored(e), 0o522) },
		"folder":          func(r *rig, _ Entry) error { return os.Chmod(r.Dir(), 0o770) },
		"program folder":  func(r *rig, _ Entry) error { return os.Chmod(filepath.Join(r.Dir(), programs), 0o702) },
		"foreign program": func(r *rig, e Entry) error { return os.Chown(r.stored(e), 12345, 12345) },
		"foreign folder":  func(r *rig, _ Entry) error { return os.Chown(r.Dir(), 12345, 12345) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			e := r.put(r.entry("weather", "one", "forecast"))
			if err := spoil(r, e); err != nil {
				t.Skip(err)
			}
			if f, err := r.Program(e); !errors.Is(err, ErrUnsafe) {
				_ = f.Close()
				t.Errorf("given out: %v", err)
			}
		})
	}
	r := newRig(t)
	r.put(r.entry("weather", "one", "forecast"))
	if err := os.Chmod(r.lockPath(), 0o660); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(r.home, time.Now); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a lock file that others can write to: %v", err)
	}
	path := r.program("two")
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := newRig(t).Stage(path); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a program that others can write to was added: %v", err)
	}
}

func TestALinkInPlaceOfAProgramIsRefused(t *testing.T) {
	r := newRig(t)
	e := r.put(r.entry("weather", "one", "forecast"))
	same := r.program("one")
	if err := os.Remove(r.stored(e)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(same, r.stored(e)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Program(e); err == nil {
		t.Error("a link was followed")
	}
}

func TestWhatIsNoProgramIsNotAdded(t *testing.T) {
	r := newRig(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o700); err != nil {
		t.Fatal(err)
	}
	plain := r.program("x")
	if err := os.Chmod(plain, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := r.program("")
	for _, path := range []string{pipe, plain, empty, t.TempDir(), "/no/such/file", "/dev/null"} {
		if _, err := r.Stage(path); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(r.Dir(), programs)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAToolIsOfOnePluginOnly(t *testing.T) {
	r := newRig(t)
	r.put(r.entry("weather", "one", "forecast"))
	err := r.Put(r.entry("sky", "two", "stars", "forecast"))
	var clash *ClashError
	if !errors.As(err, &clash) || clash.Owner != "weather" || clash.Other != "sky" || clash.Tool != "forecast" {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), "weather") || !strings.Contains(err.Error(), "sky") {
		t.Errorf("both owners are not in: %v", err)
	}
	r.put(r.entry("weather", "three", "forecast")) // its own may be replaced
}

func TestAnUpgradeReplacesTheProgramAndForgetsTheOldOneLater(t *testing.T) {
	r := newRig(t)
	old := r.put(r.entry("weather", "one", "forecast"))
	late := noon.Add(2 * stagedFor)
	r.now = func() time.Time { return late }
	if err := os.Chtimes(r.stored(old), noon, noon); err != nil {
		t.Fatal(err)
	}
	e := r.put(r.entry("weather", "two", "forecast"))
	if _, err := os.Stat(r.stored(old)); !os.IsNotExist(err) {
		t.Errorf("the old program: %v", err)
	}
	if f, err := r.Program(e); err != nil {
		t.Error(err)
	} else {
		_ = f.Close()
	}
}

func TestStatesAreKeptWithTheirReason(t *testing.T) {
	r := newRig(t)
	r.put(r.entry("weather", "one", "forecast"))
	if _, err := r.SetState("weather", Quarantined, "it died six times"); err != nil {
		t.Fatal(err)
	}
	e, err := r.reopen().Get("weather")
	if err != nil || e.State != Quarantined || e.Reason != "it died six times" || !e.Since.Equal(noon) {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := r.SetState("weather", "odd", ""); err == nil {
		t.Error("an unknown state was taken")
	}
	if _, err := r.SetState("wether", Disabled, ""); !errors.Is(err, ErrNotThere) || !strings.HasSuffix(err.Error(), "; there are weather") {
		t.Errorf("an unknown plugin: %v", err)
	}
}

func TestRemovingKeepsTheDataUnlessAskedFor(t *testing.T) {
	r := newRig(t)
	for _, with := range []bool{false, true} {
		r.put(r.entry("weather", "one", "forecast"))
		note := filepath.Join(r.DataDir("weather"), "note")
		if err := os.MkdirAll(filepath.Dir(note), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(note, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove("weather", with); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(note); os.IsNotExist(err) != with {
			t.Errorf("with data %v: %v", with, err)
		}
		if _, err := r.reopen().Get("weather"); !errors.Is(err, ErrNotThere) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

func TestAFullDiskChangesNothing(t *testing.T) {
	r := newRig(t)
	r.put(r.entry("weather", "one", "forecast"))
	// A folder in the place of the file is what a rename fails on, as root too.
	if err := os.Remove(r.lockPath()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.lockPath(), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetState("weather", Disabled, ""); err == nil {
		t.Fatal("it was written")
	}
	if e, _ := r.Get("weather"); e.State != Enabled {
		t.Errorf("the state is %s", e.State)
	}
	if left, _ := filepath.Glob(filepath.Join(r.Dir(), ".plugins.lock-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
