package backup_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// Scripts of skills and programs of plugins must run after a restore, whichever way a file went: packed, moved, or copied to
// another file system and back. What others may do with a file is not brought back, what its owner must be able to do always.
func TestWhatCouldBeRunCanBeRunAfterARestore(t *testing.T) {
	modes := map[string]os.FileMode{"skills/one/run.sh": 0o755, "plugins/p/p": 0o700, "skills/one/SKILL.md": 0o644, "skills/one/sealed.sh": 0o500, "config.yaml": 0o600}
	want := map[string]os.FileMode{"skills/one/run.sh": 0o700, "plugins/p/p": 0o700, "skills/one/SKILL.md": 0o600, "skills/one/sealed.sh": 0o700, "config.yaml": 0o600}
	withModes := func(text string) string {
		files := map[string]string{"state.db": text}
		for name := range modes {
			files[name] = text
		}
		dir := home(t, files)
		for name, mode := range modes {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	look := func(dir, text string) {
		t.Helper()
		for name, mode := range want {
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != mode || read(t, path) != text {
				t.Errorf("%s is %v with %q, want %v with %q", name, info.Mode().Perm(), read(t, path), mode, text)
			}
		}
	}
	from, zip := withModes("new"), filepath.Join(t.TempDir(), "b.zip")
	if _, err := backup.Zip(t.Context(), from, zip, plain(from)); err != nil {
		t.Fatal(err)
	}
	dir := withModes("old")
	link(t, otherFileSystem(t), filepath.Join(dir, "state-snapshots"))
	r, err := backup.Restore(dir, zip, noon, sound)
	if err != nil {
		t.Fatal(err)
	}
	look(dir, "new")
	kept, err := backup.Find(dir, r.Kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(dir, kept, noon.Add(time.Hour), sound); err != nil {
		t.Fatal(err)
	}
	look(dir, "old")
}
