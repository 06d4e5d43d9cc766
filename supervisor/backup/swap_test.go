package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/supervisor/backup"
)

// zipOf is a backup of a home with these files.
func zipOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, out := home(t, files), filepath.Join(t.TempDir(), "b.zip")
	if _, err := backup.Zip(t.Context(), dir, out, plain(dir)); err != nil {
		t.Fatal(err)
	}
	return out
}

// tree is all that is below a folder: what files hold, where links lead.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || e.IsDir():
			return err
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			all[name] = "-> " + target
			return err
		}
		all[name] = read(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func check(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := tree(t, dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %q, want %q", name, got[name], text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !strings.HasPrefix(name, "state-snapshots/") {
			t.Errorf("%s is there", name)
		}
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
}

// Whatever a link of the home leads to, a restore neither writes nor takes anything there; the link is kept, told and given back.
func TestARestoreFollowsNoLinkOfTheHome(t *testing.T) {
	out := zipOf(t, map[string]string{
		"SOUL.md": "new", "skills/one/SKILL.md": "new", "skills/one/two/x": "new", "kanban/boards/w/kanban.db": "new", "memories/MEMORY.md": "new", "state.db": "new",
	})
	elsewhere := home(t, map[string]string{
		"SOUL.md": "mine", "skills/one/SKILL.md": "mine", "skills/other": "mine", "boards/w/kanban.db": "mine", "boards/w/kanban.db-wal": "mine",
	})
	outside := tree(t, elsewhere)
	dir := home(t, map[string]string{"state.db": "old", "state.db-wal": "old wal", "extra": "stays"})
	link(t, filepath.Join(elsewhere, "skills"), filepath.Join(dir, "skills"))
	link(t, filepath.Join(elsewhere, "boards"), filepath.Join(dir, "kanban", "boards"))
	link(t, filepath.Join(elsewhere, "SOUL.md"), filepath.Join(dir, "SOUL.md"))
	link(t, "../nowhere", filepath.Join(dir, "memories"))
	link(t, elsewhere, filepath.Join(dir, "unconcerned"))
	before := tree(t, dir)

	want := []string{"SOUL.md", "kanban/boards", "memories", "skills"}
	named := func(links []backup.Link) (names []string) {
		for _, l := range links {
			names = append(names, l.Name)
			if target := strings.TrimPrefix(before[l.Name], "-> "); l.Target != target {
				t.Errorf("%s is said to lead to %s, not %s", l.Name, l.Target, target)
			}
		}
		return names
	}
	plan, err := backup.Plan(dir, out, sound)
	if err != nil || !slices.Equal(named(plan.Links), want) {
		t.Errorf("planned %+v, %v", plan, err)
	}
	check(t, dir, before)
	r, err := backup.Restore(dir, out, noon, sound)
	if err != nil || !slices.Equal(named(r.Links), want) {
		t.Fatalf("restored %+v, %v", r, err)
	}
	check(t, elsewhere, outside)
	check(t, dir, map[string]string{
		"SOUL.md": "new", "skills/one/SKILL.md": "new", "skills/one/two/x": "new", "kanban/boards/w/kanban.db": "copied new", "memories/MEMORY.md": "new",
		"state.db": "copied new", "extra": "stays", "unconcerned": "-> " + elsewhere,
	})
	from, err := backup.Find(dir, r.Kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(dir, from, noon.Add(time.Hour), sound); err != nil {
		t.Fatal(err)
	}
	check(t, elsewhere, outside)
	check(t, dir, before)
}

// The home itself may be a link, or its snapshots may lie elsewhere: that is where they are looked for.
func TestAHomeAndSnapshotsThatAreLinksAreUsed(t *testing.T) {
	out := zipOf(t, map[string]string{"state.db": "new", "memories/MEMORY.md": "new"})
	real, disk := home(t, map[string]string{"state.db": "old", "state.db-wal": "old wal", "memories/MEMORY.md/folder/x": "in the way"}), otherFileSystem(t)
	dir := filepath.Join(t.TempDir(), "home")
	link(t, real, dir)
	link(t, disk, filepath.Join(real, "state-snapshots"))
	r, err := backup.Restore(dir, out, noon, sound)
	if err != nil || len(r.Links) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	check(t, real, map[string]string{"state.db": "copied new", "memories/MEMORY.md": "new", "state-snapshots": "-> " + disk})
	kept := tree(t, filepath.Join(disk, r.Kept))
	if kept["state.db"] != "old" || kept["state.db-wal"] != "old wal" || kept["memories/MEMORY.md/folder/x"] != "in the way" {
		t.Errorf("kept is %q", kept)
	}
	if list, err := backup.List(dir); err != nil || len(list) != 1 {
		t.Errorf("snapshots are %+v, %v", list, err)
	}
}

// otherFileSystem is a folder in another one than folders of tests, where there is one.
func otherFileSystem(t *testing.T) string {
	t.Helper()
	var here, there unix.Stat_t
	dir, err := os.MkdirTemp("/dev/shm", "backup-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(unix.Stat(t.TempDir(), &here), unix.Stat(dir, &there)); err != nil {
		t.Fatal(err)
	}
	if here.Dev == there.Dev {
		t.Log("there is no other file system here")
	}
	return dir
}

// A file can be where a folder belongs, and a folder where a file does.
func TestWhatIsInTheWayOfARestoreIsKept(t *testing.T) {
	out := zipOf(t, map[string]string{"a/b/c": "new", "d": "new", "manifest.json": "new"})
	dir := home(t, map[string]string{"a": "file", "d/e": "below", "manifest.json": "mine"})
	before := tree(t, dir)
	r, err := backup.Restore(dir, out, noon, sound)
	if err != nil {
		t.Fatal(err)
	}
	check(t, dir, map[string]string{"a/b/c": "new", "d": "new", "manifest.json": "new"})
	kept := tree(t, filepath.Join(dir, "state-snapshots", r.Kept))
	if kept["a"] != "file" || kept["d/e"] != "below" || kept["manifest.json.kept"] != "mine" {
		t.Errorf("kept is %q", kept)
	}
	if _, err := backup.Restore(dir, filepath.Join(dir, "state-snapshots", r.Kept), noon.Add(time.Hour), sound); err != nil {
		t.Fatal(err)
	}
	before["manifest.json"], before["manifest.json.kept"] = "new", "mine"
	check(t, dir, before)
}

// Where a program that knows nothing of the restore made files after it was killed, both what was there and those are kept.
func TestWhatWasWrittenInTheMiddleOfARestoreReplacesNothingThatIsKept(t *testing.T) {
	elsewhere := home(t, map[string]string{"x": "mine"})
	dir := home(t, map[string]string{
		".restore-ready-i/state.db": "new", ".restore-ready-i/skills/x": "new", ".restore-ready-i/memories/y": "new",
		"state-snapshots/i-pre-restore/state.db": "old", "state-snapshots/i-pre-restore/state.db-wal": "old wal", "state-snapshots/i-pre-restore/memories/z": "old",
		"state.db": "begun anew", "state.db-wal": "its wal", "skills/x": "made anew",
	})
	link(t, elsewhere, filepath.Join(dir, "state-snapshots", "i-pre-restore", "skills"))
	link(t, elsewhere, filepath.Join(dir, "memories"))
	if _, err := backup.Resume(dir); err != nil {
		t.Fatal(err)
	}
	check(t, elsewhere, map[string]string{"x": "mine"})
	check(t, dir, map[string]string{"state.db": "new", "skills/x": "new", "memories/y": "new"})
	first, second := tree(t, filepath.Join(dir, "state-snapshots", "i-pre-restore")), tree(t, filepath.Join(dir, "state-snapshots", "i-pre-restore-2"))
	if first["state.db"] != "old" || first["state.db-wal"] != "old wal" || first["skills"] != "-> "+elsewhere || first["memories/z"] != "old" {
		t.Errorf("kept first is %q", first)
	}
	if second["state.db"] != "begun anew" || second["state.db-wal"] != "its wal" || second["skills/x"] != "made anew" || second["memories"] != "-> "+elsewhere {
		t.Errorf("kept second is %q", second)
	}
	if list, err := backup.List(dir); err != nil || len(list) != 2 {
		t.Errorf("snapshots are %+v, %v", list, err)
	}
}
